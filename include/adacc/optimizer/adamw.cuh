// SPDX-License-Identifier: MIT
/// AdamW on a CUDA device: one pass over memory, with the formulas of adamw.hpp.
///
/// The norm for clipping gradients may stay on the device, where the update reads it: then nothing waits between
/// backward and the next step. If the norm is not finite, the update keeps parameters and moments and clears the
/// gradients. UpdateTerms::keeps_gradients saves the pass of zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cuda.cuh"
#include "adamw.hpp"
#include "elementwise.cuh"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 {

/// The memory of an update on a device: parameters; all other blocks mirror the trained parameters.
template <class T>
struct UpdateBlocks {
  View<T> params;
  View<T> gradients;
  const View<T>* state = nullptr;  ///< first and second moments
  View<bfloat16> copies{};         ///< of parameters, in bfloat16, written with them; empty: none
};

namespace detail {

/// Runs of parameters that decay, or do not: run i ends before element ends[i] >> 1, and the last bit says whether the
/// run decays. A kernel's arguments have room for `most` runs.
struct DecayRuns {
  static constexpr std::size_t most = 480;
  std::uint64_t ends[most];
  std::uint32_t count = 0;

  ADACC_HD std::uint64_t end(std::uint32_t run) const { return ends[run] >> 1; }
};

/// The run of element e: the first one to end behind e.
ADACC_HD inline std::uint32_t run_of(const DecayRuns& runs, std::size_t e) {
  std::uint32_t low = 0, high = runs.count - 1;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (runs.end(middle) > e) high = middle;
    else low = middle + 1;
  }
  return low;
}

template <class T>
__device__ inline void adamw_element(const AdamWTerms<T>& a, T gradient, T decay, T& value,
                                     T& first, T& second) {
  first = fma(a.beta1, first, a.fresh1 * gradient);
  second = fma(a.beta2, second, a.fresh2 * gradient * gradient);
  const T root = sqrt(second * a.correct2) + a.epsilon;
  const T change = fma(decay, value, first * a.correct1 / root);
  value = fma(-a.rate, change, value);
}

/// For moments in other forms than in full, and parameters in bfloat16.
template <class First, class Second>
struct ElementRule<AdamWWith<First, Second>> {
  using Forms = FormList<First, Second>;
  static constexpr bool non_negative[] = {false, true};
  AdamWTerms<float> all;

  ElementRule(const AdamWWith<First, Second>& adamw, const UpdateTerms& terms)
      : all(adamw.template terms_of<float>({.decay = true}, terms)) {}
  __device__ void operator()(float gradient, bool decays, float& value, float (&state)[2]) const {
    adamw_element(all, gradient, decays ? all.decay : 0.0F, value, state[0], state[1]);
  }
};

/// Packets per thread, one after the other: enough to hide the work before them (a division of doubles, the search
/// for a run).
inline constexpr unsigned adamw_turns = 4;

/// Updates elements from `first` on, a multiple of a packet's elements if `aligned`. If `clears`, the gradients become 0.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    adamw_kernel(const __grid_constant__ DecayRuns runs, std::size_t first, bool aligned,
                 bool clears, AdamWTerms<T> a, const double* norm, double clip, T* p, T* g, T* m,
                 T* v, bfloat16* copies) {
  constexpr unsigned count = packet_elems<T>, turn = cuda_threads * count;
  const std::size_t last = runs.end(runs.count - 1);
  T scale = a.scale;
  const bool finite = clip_by_norm(norm, clip, scale);
  constexpr std::size_t share = adamw_turns * turn;
  for (std::size_t begin = first + blockIdx.x * share; begin < last; begin += gridDim.x * share) {
    const std::size_t end = last - begin < share ? last : begin + share;
    std::uint32_t run = run_of(runs, begin);
    for (std::size_t e = begin + threadIdx.x * count; e < end; e += turn) {
      const std::size_t left = end - e;
      const bool whole = aligned && left >= count;
      if (finite) {
        auto values = read_packet<count>(p + e, left, whole);
        const auto gradients = read_packet<count>(g + e, left, whole);
        auto first_moments = read_packet<count>(m + e, left, whole);
        auto second_moments = read_packet<count>(v + e, left, whole);
        T decay[count];  // runs are long: most packets are in the first run of their block
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
          while (run + 1 < runs.count && runs.end(run) <= e + i) ++run;
          decay[i] = (runs.ends[run] & 1) != 0 ? a.decay : T(0);
        }
#pragma unroll
        for (unsigned i = 0; i < count; ++i)
          adamw_element(a, scale * gradients.at[i], decay[i], values.at[i], first_moments.at[i],
                        second_moments.at[i]);
        write_packet(p + e, values, left, whole);
        if constexpr (dtype_of<T> == Dtype::f32)
          if (copies != nullptr) write_packet(copies + e, narrowed<bfloat16>(values), left, whole);
        write_packet(m + e, first_moments, left, whole);
        write_packet(v + e, second_moments, left, whole);
      }
      if (clears) write_packet(g + e, Packet<T, count>{}, left, whole);
    }
  }
}

}  // namespace detail

template <>
struct optimizer_kernel<AdamW, Cuda> {
  /// Updates the parameters of a Training.
  template <class Table, class T>
  static void update(const AdamW& adamw, Cuda& cuda, const UpdateTable& state, const Table& table,
                     const UpdateMemory<T>& memory, const CudaUpdateTerms& terms) {
    if constexpr (dtype_of<T> == Dtype::f32)
      if (!memory.held.empty()) return update_elements(adamw, cuda, state, table, memory, terms);
    View<T> moments[2];
    for (std::size_t i = 0; i < 2; ++i)
      moments[i] = {static_cast<T*>(static_cast<void*>(memory.state.data() + state.begin(i))),
                    memory.gradients.shape()};
    if (state.bytes() != 2 * memory.gradients.size() * sizeof(T))
      return cuda.note(Error::misuse("AdamW's moments do not mirror the gradients"));
    update(adamw, cuda, table,
           UpdateBlocks<T>{memory.params, memory.gradients, moments, memory.copies}, terms);
  }
  /// Updates blocks. Faults of the memory are noted in the context (Cuda::take_error()); then nothing is queued.
  template <class Table, class T>
  static void update(const AdamW& adamw, Cuda& cuda, const Table& table,
                     const UpdateBlocks<T>& blocks, const CudaUpdateTerms& terms) {
    const auto lent = [](const char* name, const auto& block) {
      return Cuda::Lent{name, block.data(), block.size() * sizeof(*block.data())};
    };
    if (const Error why = cuda.examine(AdamW::name, {lent("parameters", blocks.params),
                                                     lent("gradients", blocks.gradients),
                                                     lent("first moments", blocks.state[0]),
                                                     lent("second moments", blocks.state[1]),
                                                     lent("copies of parameters", blocks.copies),
                                                     {"bytes of the norm", terms.norm,
                                                      terms.norm != nullptr ? sizeof(double) : 0}}))
      return cuda.note(why);
    const detail::AdamWTerms<T> shared =
        adamw.template terms_of<T>(ParameterSpec{.decay = true}, terms);
    detail::DecayRuns runs;
    std::size_t first = 0;
    const auto launch = [&] {
      if (runs.count == 0) return;
      T *const p = blocks.params.data(), *const g = blocks.gradients.data(),
               *const m = blocks.state[0].data(), *const v = blocks.state[1].data();
      constexpr unsigned count = detail::packet_elems<T>;
      const bool aligned = first % count == 0 && detail::packet_aligned<count>(p) &&
                           detail::packet_aligned<count>(g) && detail::packet_aligned<count>(m) &&
                           detail::packet_aligned<count>(v) &&
                           detail::packet_aligned<count>(blocks.copies.data());
      const std::size_t elems = runs.end(runs.count - 1) - first;
      cuda.launch(
          AdamW::name, detail::cuda_grid(elems, detail::adamw_turns * count * detail::cuda_threads),
          detail::cuda_threads, &detail::adamw_kernel<T>, runs, first, aligned,
          !terms.keeps_gradients, shared, terms.norm, terms.clip, p, g, m, v, blocks.copies.data());
      first = runs.end(runs.count - 1);
      runs.count = 0;
    };
    // Owners lie one behind the other. Padding before an owner belongs to its run: zeros stay zeros.
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (!table[i].owner || table[i].frozen) continue;
      const std::uint64_t end = table[i].offset + table[i].shape.elems();
      const std::uint64_t run = end << 1 | (table[i].decay ? 1 : 0);
      const bool joins = runs.count != 0 && ((runs.ends[runs.count - 1] ^ run) & 1) == 0;
      if (!joins && runs.count == detail::DecayRuns::most) launch();
      if (!joins) ++runs.count;
      runs.ends[runs.count - 1] = run;
    }
    launch();
  }
};

}}  // namespace adacc::v0_1
