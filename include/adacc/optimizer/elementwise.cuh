// SPDX-License-Identifier: MIT
/// Elementwise optimizers on a CUDA device: SGD and Lion, and AdamW where its own kernel (adamw.cuh) does not serve, with
/// moments in every form, and parameters in full or in bfloat16.
///
/// One pass over memory for up to ElementPieces::most parameters. A warp owns moment_lanes elements of a parameter, as
/// many as share a scale in int8 and a block of random numbers, so that moments and parameters are rounded as on the
/// host. Formulas are the host's, with fused multiplications and additions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cuda.cuh"
#include "lion.hpp"
#include "sgd.hpp"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 {

/// The terms of an update on a device.
struct CudaUpdateTerms : UpdateTerms {
  const double* norm = nullptr;  ///< gradient norm in device memory; null: ignored
  double clip = 0;               ///< scale * gradients are scaled down to this norm; 0 is off

  CudaUpdateTerms() = default;
  CudaUpdateTerms(const UpdateTerms& terms) : UpdateTerms(terms) {}  // implicit: a parameter type
};

namespace detail {

/// Scales `scale` down so that gradients of this norm have at most the norm `clip`; false if the norm is not finite.
template <class T>
__device__ inline bool clip_by_norm(const double* norm, double clip, T& scale) {
  if (norm == nullptr) return true;
  const double length = *norm * static_cast<double>(scale);
  if (clip > 0 && length > clip)
    scale = static_cast<T>(static_cast<double>(scale) * (clip / length));
  return isfinite(length);
}

/// The piece of a block of a launch, among `count` pieces that each know how many blocks there are before.
template <class Piece>
__device__ const Piece& piece_of(const Piece* pieces, std::uint32_t count, unsigned block) {
  std::uint32_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (pieces[middle].blocks <= block ? low : high) = middle;
  }
  return pieces[low];
}

/// How an optimizer updates one element, for those that have a kernel:
///
///     using Forms = FormList<...>;                      // of each tensor of state
///     static constexpr bool non_negative[] = {...};     // of each
///     ElementRule(const Optimizer&, const UpdateTerms&);
///     __device__ void operator()(float gradient, bool decays, float& value, float (&state)[...]) const;
template <class Optimizer>
struct ElementRule;

template <class... Forms>
struct FormList {
  static constexpr unsigned count = sizeof...(Forms);
};

template <class Moments>
struct ElementRule<SgdWith<Moments>> {
  using Forms = FormList<Moments>;
  static constexpr bool non_negative[] = {false};
  float momentum, rate, decay;

  ElementRule(const SgdWith<Moments>& sgd, const UpdateTerms& terms)
      : momentum(sgd.momentum), rate(static_cast<float>(terms.rate)), decay(sgd.weight_decay) {}
  __device__ void operator()(float gradient, bool decays, float& value, float (&state)[1]) const {
    state[0] = fma(momentum, state[0], gradient);
    value = fma(-rate, fma(decays ? decay : 0, value, state[0]), value);
  }
};

template <class Moments>
struct ElementRule<LionWith<Moments>> {
  using Forms = FormList<Moments>;
  static constexpr bool non_negative[] = {false};
  LionTerms<float> all;

  ElementRule(const LionWith<Moments>& lion, const UpdateTerms& terms)
      : all(lion.template terms_of<float>({.decay = true}, terms)) {}
  __device__ void operator()(float gradient, bool decays, float& value, float (&state)[1]) const {
    const float mixed = fma(all.beta1, state[0], all.fresh1 * gradient);
    // A NaN, which is neither, stays visible.
    const float sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    state[0] = fma(all.beta2, state[0], all.fresh2 * gradient);
    value = fma(-all.rate, fma(decays ? all.decay : 0, value, sign), value);
  }
};

/// Elements of a thread, and passes of a block over as many as its threads have.
inline constexpr unsigned element_count = 4, element_turns = 4;
static_assert(element_count * 32 == moment_lanes, "adacc: a warp owns the lanes of a form");

/// Parameters that one launch updates. Their table is an argument of the kernel, of which there are 4 KB.
struct ElementPieces {
  static constexpr unsigned most = 88;
  static constexpr std::size_t most_states = 2;
  struct Piece {
    std::uint64_t first;  ///< element of the block; doubled, plus 1 if the parameter decays
    std::uint64_t elems;
    std::uint64_t state[most_states];  ///< where each tensor of state begins
    std::uint32_t number;              ///< names the streams of random numbers
    std::uint32_t blocks;              ///< of the pieces before
  };
  Piece at[most];
  std::uint32_t count = 0, blocks = 0;
};

/// The memory of an update, for kernels.
struct ElementMemory {
  float* params;
  bfloat16* held;    ///< parameters in bfloat16; null: they are in full
  bfloat16* copies;  ///< of parameters in full; null: there are none
  float* gradients;
  std::byte* state;
  bool aligned;  ///< all pieces begin at whole packets
};

/// Elements of a piece that a thread updates.
struct ElementPlace {
  std::size_t elems;  ///< of the piece
  std::size_t first;  ///< in the piece
  std::size_t left;   ///< in the piece, from the first on
  bool whole;

  /// The number of the warp's elements among those of the piece.
  __device__ std::size_t group() const { return first / moment_lanes; }
  __device__ std::uint32_t lane() const { return static_cast<std::uint32_t>(first % moment_lanes); }
};

using Elements = Packet<float, element_count>;

template <class T>
__device__ T* element_state(std::byte* state, std::size_t first) {
  return static_cast<T*>(static_cast<void*>(state)) + first;
}

/// A form of moments on a device: `open` and `close` for the elements of a thread, all threads of a warp together.
template <class Form, bool non_negative, int half>
struct ElementForm {
  static __device__ Elements open(std::byte* state, const ElementPlace& at) {
    if constexpr (Form::form == StateForm::full) {
      return read_packet<element_count>(element_state<const float>(state, at.first), at.left,
                                        at.whole);
    } else if constexpr (Form::form == StateForm::bf16) {
      return widened(read_packet<element_count>(element_state<const bfloat16>(state, at.first),
                                                at.left, at.whole));
    } else {
      const auto codes = read_packet<element_count>(
          element_state<const std::uint8_t>(state, at.first), at.left, at.whole);
      const float unit = units(state, at)[at.group()];
      Elements numbers;
#pragma unroll
      for (unsigned i = 0; i < element_count; ++i)
        numbers.at[i] = Form::template decoded<non_negative>(codes.at[i], unit);
      return numbers;
    }
  }

  /// `random` is the block of random numbers of the warp's elements.
  static __device__ void close(std::byte* state, const ElementPlace& at, const Elements& numbers,
                               const PhiloxBlock& random) {
    const auto drawn = [&](unsigned i) {
      return RandomHalves::half_of<half>(RandomHalves::word(random, at.lane() + i));
    };
    if constexpr (Form::form == StateForm::full) {
      write_packet(element_state<float>(state, at.first), numbers, at.left, at.whole);
    } else if constexpr (Form::form == StateForm::bf16) {
      Packet<bfloat16, element_count> narrow;
#pragma unroll
      for (unsigned i = 0; i < element_count; ++i)
        narrow.at[i] = to_bfloat16(numbers.at[i], drawn(i));
      write_packet(element_state<bfloat16>(state, at.first), narrow, at.left, at.whole);
    } else {
      std::uint32_t bits[element_count], largest = 0;
#pragma unroll
      for (unsigned i = 0; i < element_count; ++i) {
        bits[i] = bits_as<std::uint32_t>(numbers.at[i]);
        largest = max(largest, bits[i] & 0x7FFFFFFF);
      }
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2)
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, apart));
      const auto scale = Form::template scale_of<non_negative>(largest);
      __syncwarp();  // the old scale has been read
      if (at.lane() == 0) units(state, at)[at.group()] = scale.unit;
      Packet<std::uint8_t, element_count> codes;
#pragma unroll
      for (unsigned i = 0; i < element_count; ++i) {
        const float y = fma(bits_as<float>(bits[i] & 0x7FFFFFFF), scale.reciprocal, 1.0F);
        codes.at[i] = Form::template code_of<non_negative>(bits[i], y, drawn(i));
      }
      write_packet(element_state<std::uint8_t>(state, at.first), codes, at.left, at.whole);
    }
  }

 private:
  /// Scales are behind the codes.
  static __device__ float* units(std::byte* state, const ElementPlace& at) {
    return element_state<float>(state + align_up(at.elems), 0);
  }
};

/// The tensors of state of an element, one form behind the other.
template <class Rule, int number, class Forms>
struct ElementStates {
  static constexpr bool rounds = false;
  static __device__ void open(std::byte*, const std::uint64_t*, const ElementPlace&, Elements*) {}
  static __device__ void close(std::byte*, const std::uint64_t*, const ElementPlace&,
                               const Elements*, const PhiloxBlock&) {}
};
template <class Rule, int number, class First, class... More>
struct ElementStates<Rule, number, FormList<First, More...>> {
  using Own = ElementForm<First, Rule::non_negative[number], number>;
  using Rest = ElementStates<Rule, number + 1, FormList<More...>>;
  static constexpr bool rounds = First::form != StateForm::full || Rest::rounds;

  static __device__ void open(std::byte* state, const std::uint64_t* begins, const ElementPlace& at,
                              Elements* to) {
    to[number] = Own::open(state + begins[number], at);
    Rest::open(state, begins, at, to);
  }
  static __device__ void close(std::byte* state, const std::uint64_t* begins,
                               const ElementPlace& at, const Elements* from,
                               const PhiloxBlock& random) {
    Own::close(state + begins[number], at, from[number], random);
    Rest::close(state, begins, at, from, random);
  }
};

/// A block for each element_turns * cuda_threads packets of a parameter. Gradients become 0; padding is not touched.
template <class Rule>
static __global__ void __launch_bounds__(cuda_threads)
    element_kernel(const __grid_constant__ ElementPieces pieces, ElementMemory memory, Rule rule,
                   float scale, const double* norm, double clip, RandomKey key) {
  using States = ElementStates<Rule, 0, typename Rule::Forms>;
  constexpr unsigned count = element_count, turn = cuda_threads * count;
  constexpr unsigned states = Rule::Forms::count;
  const bool finite = clip_by_norm(norm, clip, scale);
  const ElementPieces::Piece& piece = piece_of(pieces.at, pieces.count, blockIdx.x);
  const bool decays = (piece.first & 1) != 0;
  key = key.with_activation(piece.number);
  std::size_t e =
      std::size_t{blockIdx.x - piece.blocks} * element_turns * turn + threadIdx.x * count;
  for (unsigned t = 0; t < element_turns; ++t, e += turn) {
    if (e / moment_lanes * moment_lanes >= piece.elems) return;  // no element for the whole warp
    const std::size_t left = e < piece.elems ? piece.elems - e : 0;
    const ElementPlace at{piece.elems, e, left, memory.aligned && left >= count};
    const std::size_t place = (piece.first >> 1) + e;
    if (finite) {
      Elements values, state[states];
      if (memory.held == nullptr)
        values = read_packet<count>(memory.params + place, left, at.whole);
      else values = widened(read_packet<count>(memory.held + place, left, at.whole));
      const auto gradients = read_packet<count>(memory.gradients + place, left, at.whole);
      States::open(memory.state, piece.state, at, state);
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        float own[states];
#pragma unroll
        for (unsigned s = 0; s < states; ++s) own[s] = state[s].at[i];
        rule(scale * gradients.at[i], decays, values.at[i], own);
#pragma unroll
        for (unsigned s = 0; s < states; ++s) state[s].at[i] = own[s];
      }
      PhiloxBlock random{};
      if constexpr (States::rounds) random = random_block(key, at.group());
      States::close(memory.state, piece.state, at, state, random);
      if (memory.held != nullptr) {
        random = random_block(key.with_purpose(Purpose::parameters), at.group());
        Packet<bfloat16, count> narrow;
#pragma unroll
        for (unsigned i = 0; i < count; ++i)
          narrow.at[i] = to_bfloat16(
              values.at[i], RandomHalves::half_of<0>(RandomHalves::word(random, at.lane() + i)));
        write_packet(memory.held + place, narrow, left, at.whole);
      } else {
        write_packet(memory.params + place, values, left, at.whole);
        if (memory.copies != nullptr)
          write_packet(memory.copies + place, narrowed<bfloat16>(values), left, at.whole);
      }
    }
    write_packet(memory.gradients + place, Elements{}, left, at.whole);
  }
}

template <class T>
T* data_of(View<T> block) {
  return block.empty() ? nullptr : block.data();
}

/// Faults of an update's memory.
template <class T>
Error update_fault(const char* name, const Cuda& cuda, const UpdateMemory<T>& memory,
                   const CudaUpdateTerms& terms) {
  const auto lent = [](const char* what, const auto& block) {
    return Cuda::Lent{what, block.data(), block.size() * sizeof(*block.data())};
  };
  return cuda.examine(
      name, {lent("parameters", memory.params),
             lent("parameters", memory.held),
             lent("gradients", memory.gradients),
             lent("bytes of the state", memory.state),
             lent("copies of parameters", memory.copies),
             {"bytes of the norm", terms.norm, terms.norm != nullptr ? sizeof(double) : 0}});
}

}  // namespace detail

/// Optimizers with a rule for one element.
template <class Optimizer>
concept HasElementRule = requires(const Optimizer& optimizer, const UpdateTerms& terms) {
  detail::ElementRule<Optimizer>(optimizer, terms);
};

/// Updates all parameters of a Training. Faults of the memory are noted in the context (Cuda::take_error()); then nothing
/// is queued.
template <HasElementRule Optimizer, class Table>
void update_elements(const Optimizer& optimizer, Cuda& cuda, const UpdateTable& state,
                     const Table& table, const UpdateMemory<float>& memory,
                     const CudaUpdateTerms& terms) {
  using namespace detail;
  using Rule = ElementRule<Optimizer>;
  static_assert(Optimizer::state_count <= ElementPieces::most_states);
  if (const Error why = update_fault(Optimizer::name, cuda, memory, terms)) return cuda.note(why);
  const auto aligned = [](const auto* at) { return packet_aligned<element_count>(at); };
  ElementMemory all{memory.params.data(),
                    data_of(memory.held),
                    data_of(memory.copies),
                    memory.gradients.data(),
                    memory.state.data(),
                    aligned(memory.params.data()) && aligned(data_of(memory.held)) &&
                        aligned(data_of(memory.copies)) && aligned(memory.gradients.data()) &&
                        packet_aligned<packet_bytes>(memory.state.data())};
  ElementPieces pieces;
  const auto launch = [&] {
    if (pieces.count == 0) return;
    cuda.launch(Optimizer::name, pieces.blocks, cuda_threads, &element_kernel<Rule>, pieces, all,
                Rule(optimizer, terms), static_cast<float>(terms.scale), terms.norm, terms.clip,
                terms.key.with_purpose(Purpose::moments));
    pieces.count = pieces.blocks = 0;
  };
  for (std::size_t o = 0; o < state.owners(); ++o) {
    const auto& parameter = table[state.owner(o)];
    const std::size_t elems = parameter.shape.elems();
    if (parameter.offset % element_count != 0) all.aligned = false;
    ElementPieces::Piece& piece = pieces.at[pieces.count++];
    piece = {parameter.offset << 1 | (parameter.decay ? 1 : 0),
             elems,
             {},
             state.key(o, terms).activation,
             pieces.blocks};
    for (std::size_t s = 0; s < Optimizer::state_count; ++s) piece.state[s] = state.begin(s, o);
    pieces.blocks += static_cast<std::uint32_t>(
        div_up(elems, std::size_t{element_turns} * cuda_threads * element_count));
    if (pieces.count == ElementPieces::most) launch();
  }
  launch();
}

template <HasElementRule Optimizer>
struct optimizer_kernel<Optimizer, Cuda> {
  template <class Table>
  static void update(const Optimizer& optimizer, Cuda& cuda, const UpdateTable& state,
                     const Table& table, const UpdateMemory<float>& memory,
                     const CudaUpdateTerms& terms) {
    update_elements(optimizer, cuda, state, table, memory, terms);
  }
};

}}  // namespace adacc::v0_1
