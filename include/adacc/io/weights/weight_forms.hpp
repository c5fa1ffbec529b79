// SPDX-License-Identifier: MIT
/// Forms of our own for frozen weights that come in 16 or 32 bits: 8 bits, or 4, with a scale for each 64 numbers.
///
/// `nf4` has the 16 levels of QLoRA (Dettmers, Pagnoni, Holtzman, Zettlemoyer, arXiv 2305.14314), which are quantiles of
/// normal numbers. Scales have two levels, too: a group's is a whole number of 8 bits times the block's, so that a weight
/// takes 4.25 bits in blocks of 256. `int8` has 255 levels of equal distance, and takes 8.5 bits a weight.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../core/array.hpp"
#include "../../core/block.hpp"
#include "../../core/error.hpp"
#include "../../core/extremes.hpp"
#include "../../core/look_up.hpp"
#include "../../model/stored_parameter.hpp"
#include "block_products.hpp"
#include "gguf_blocks.hpp"
#include "pretrained.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 {

enum class WeightForm : std::uint8_t {
  as_stored,  ///< as the file has them
  int8,
  nf4
};

namespace detail {

/// Numbers with one scale.
inline constexpr std::size_t group_elems = 64;

inline constexpr float nf4_levels[16] = {-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};

inline float largest_of(const float* numbers, std::size_t count) {
  float most = 0;
  for (std::size_t i = 0; i < count; ++i) raise(most, std::fabs(numbers[i]));
  return most;
}

/// A scale in fp32, and 64 signed bytes.
struct Int8Group {
  static constexpr std::size_t bytes = sizeof(float) + group_elems;

  static void encode(const float* from, std::byte* to) {
    const float scale = largest_of(from, group_elems) / 127;
    std::memcpy(to, &scale, sizeof scale);
    for (std::size_t i = 0; i < group_elems; ++i) {
      const float number = scale > 0 ? std::round(from[i] / scale) : 0;
      const float code = number > 127 ? 127 : number < -127 ? -127 : number;
      to[sizeof scale + i] = static_cast<std::byte>(static_cast<std::int8_t>(code));
    }
  }
};

ADACC_TARGET_CODE_BEGIN
template <class Target>
void decode_int8_at(const std::byte* from, std::size_t blocks, float* __restrict to) {
  for (std::size_t b = 0; b < blocks; ++b, from += Int8Group::bytes)
    for (std::size_t i = 0; i < group_elems; i += 32, to += 32)
      decode_bytes<Target>(from + sizeof(float) + i, load_unaligned<float>(from), to);
}

/// A scale in fp32, for each group a scale in 8 bits, and two numbers in a byte: the first 32 of a group in the lower
/// bits.
template <std::size_t groups>
struct Nf4Block {
  static constexpr std::size_t half = group_elems / 2;
  static constexpr std::size_t elems = groups * group_elems;
  static constexpr std::size_t bytes = sizeof(float) + groups + groups * half;

  static void encode(const float* from, std::byte* to) {
    const float scale = largest_of(from, elems) / 255;
    std::memcpy(to, &scale, sizeof scale);
    std::byte* const codes = to + sizeof scale + groups;
    for (std::size_t g = 0; g < groups; ++g) {
      const float* const numbers = from + g * group_elems;
      // Up, so that no number is beyond the outer levels.
      const float wanted = scale > 0 ? std::ceil(largest_of(numbers, group_elems) / scale) : 0;
      const float share = wanted > 255 ? 255 : wanted, own = share * scale;
      to[sizeof scale + g] = static_cast<std::byte>(static_cast<std::uint8_t>(share));
      for (std::size_t i = 0; i < half; ++i)
        codes[g * half + i] = static_cast<std::byte>(level_of(numbers[i], own) |
                                                     level_of(numbers[i + half], own) << 4);
    }
  }

  template <class Target>
  static void decode_at(const std::byte* from, std::size_t blocks, float* __restrict to) {
    constexpr std::size_t lanes = Target::bytes / sizeof(float);
    using Bits = typename Simd<std::uint32_t, Target::bytes>::type;
    using Floats = typename Simd<float, Target::bytes>::type;
    for (std::size_t b = 0; b < blocks; ++b, from += bytes) {
      const float scale = load_unaligned<float>(from);
      for (std::size_t g = 0; g < groups; ++g, to += group_elems) {
        const float own = static_cast<float>(static_cast<std::uint8_t>(from[4 + g])) * scale;
        const std::byte* const codes = from + sizeof scale + groups + g * half;
#pragma GCC unroll 8
        for (std::size_t i = 0; i < half; i += lanes) {
          typename Simd<std::uint8_t, lanes>::type packed;
          std::memcpy(&packed, codes + i, sizeof packed);
          const Bits both = ADACC_CONVERT_LANES(packed, Bits);
          for (const std::uint32_t second : {0U, 1U}) {
            Floats numbers;
            look_up<Target>(nf4_levels, both >> 4 * second, numbers);
            numbers *= own;
            std::memcpy(to + i + second * half, &numbers, sizeof numbers);
          }
        }
      }
    }
  }

  // Products (block_products.hpp): a group is a part.
  static constexpr std::size_t parts = groups, pieces = 4;
  static constexpr std::size_t place(std::size_t group, std::size_t piece) {
    return sizeof(float) + groups + group * half + piece % 2 * 16;
  }
  static constexpr unsigned shift(std::size_t, std::size_t piece) { return piece < 2 ? 0 : 4; }
  template <class Lanes>
  struct Head : ScaleAlone<Lanes> {
    typename Lanes::Floats of_block;

    [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
      typename Lanes::Bits bits;
      Lanes::template load<std::uint32_t>(rows, block, bits);
      Lanes::as_float(bits, of_block);
    }
    [[gnu::always_inline]] void load_part(const std::byte* const* rows, std::size_t block,
                                          std::size_t group) {
      typename Lanes::Bits share;
      typename Lanes::Floats of_group;
      Lanes::template load<std::uint8_t>(rows, block + sizeof(float) + group, share);
      Lanes::to_float(ADACC_CONVERT_LANES(share, typename Lanes::Wholes), of_group);
      this->own = of_group * of_block;
    }
  };
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    level_at<Lanes>(nf4_levels, word, bit, to);
  }

  static void decode(const std::byte* from, std::size_t blocks, float* to) {
    with_target(target_level(), [&]<class Target>(Target) {
      Target::template call<decode_at<Target>>(from, blocks, to);
    });
  }

 private:
  /// The nearest level.
  static unsigned level_of(float number, float scale) {
    const float share = scale > 0 ? number / scale : 0;
    unsigned level = 0;
    while (level < 15 && share > (nf4_levels[level] + nf4_levels[level + 1]) / 2) ++level;
    return level;
  }
};
ADACC_TARGET_CODE_END

inline void decode_int8(const std::byte* from, std::size_t blocks, float* to) {
  with_target(target_level(), [&]<class Target>(Target) {
    Target::template call<decode_int8_at<Target>>(from, blocks, to);
  });
}

/// A form's blocks for rows of some length, and how they are written.
struct WrittenFormat {
  BlockFormat format;
  void (*encode)(const float* from, std::byte* to) = nullptr;  ///< a block
};

inline constexpr WrittenFormat int8_format{{"int8", group_elems, Int8Group::bytes, &decode_int8,
                                            &add_block_products<ByteBlocks<4, group_elems>>},
                                           &Int8Group::encode};
template <std::size_t groups>
inline constexpr WrittenFormat nf4_format{
    {"nf4", Nf4Block<groups>::elems, Nf4Block<groups>::bytes, &Nf4Block<groups>::decode,
     &add_block_products<Nf4Block<groups>>},
    &Nf4Block<groups>::encode};

/// Blocks of at most 256 that rows are whole ones of; null: rows are no whole groups.
inline const WrittenFormat* written_format(WeightForm form, std::size_t cols) {
  if (form == WeightForm::as_stored || cols == 0 || cols % group_elems != 0) return nullptr;
  if (form == WeightForm::int8) return &int8_format;
  const std::size_t groups = cols / group_elems;
  return groups % 4 == 0   ? &nf4_format<4>
         : groups % 3 == 0 ? &nf4_format<3>
         : groups % 2 == 0 ? &nf4_format<2>
                           : &nf4_format<1>;
}

}  // namespace detail

/// Parameters of which some matrices are in memory of its own: in a form of ours, or turned.
///
///     auto weights = EncodedWeights::make(model->stored(), WeightForm::nf4);
///     ... {.graph = {.stored = &weights->stored()}} ...
class EncodedWeights {
 public:
  /// Encodes the matrices of `from` that come in 16 or 32 bits, and whose rows are multiples of 64; none with
  /// WeightForm::as_stored. All other parameters stay where they are, so that their memory has to stay, too.
  /// Matrices with is_turned(place) lie transposed, each a single tensor in 16 or 32 bits: those that are not encoded become
  /// copies in the network's order.
  template <class IsTurned>
  static Result<EncodedWeights> make(const StoredParameters& from, WeightForm form,
                                     const IsTurned& is_turned) {
    EncodedWeights made;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const StoredParameter& parameter = from.parameter(i);
      if (const auto* const to = format_for(parameter, form)) {
        const std::size_t own = parameter.shape.elems() / to->format.elems * to->format.bytes;
        made.encoded_bytes_ += own;
        bytes += own;
      } else if (is_turned(from.place(i))) {
        bytes += parameter.bytes();
      }
    }
    auto memory = Block<std::byte>::make(bytes, "frozen weights");
    if (!memory) return memory.error;
    made.memory_ = static_cast<Block<std::byte>&&>(*memory);
    std::byte* at = made.memory_.data();
    std::vector<std::byte> turned;
    for (std::size_t i = 0; i < from.size(); ++i) {
      StoredParameter parameter = from.parameter(i);
      const detail::WrittenFormat* const to = format_for(parameter, form);
      if (is_turned(from.place(i))) {
        if (to != nullptr) turned.resize(parameter.bytes());
        turn(parameter, to != nullptr ? turned.data() : at);
        if (to == nullptr) at += parameter.bytes();
      }
      if (to != nullptr) {
        const StoredParameter old = parameter;
        parameter.count = 1;
        parameter.pieces[0] = {&to->format, at, parameter.shape.rows()};
        float block[BlockFormat::most_elems];
        for (std::size_t r = 0; r < parameter.shape.rows(); ++r)
          for (std::size_t c = 0; c < parameter.cols(); c += to->format.elems) {
            old.decode(r, c, to->format.elems, block);
            to->encode(block, at);
            at += to->format.bytes;
          }
      }
      made.stored_.add(from.place(i), parameter);
    }
    return static_cast<EncodedWeights&&>(made);  // nvcc would copy it
  }

  static Result<EncodedWeights> make(const StoredParameters& from, WeightForm form) {
    return make(from, form, [](const StoredParameters::Place&) { return false; });
  }

  const StoredParameters& stored() const { return stored_; }
  /// Decodes the parameters that `params`, the block of `graph`, has.
  template <class Graph, class T>
  void read(const Graph& graph, View<T> params) const {
    each_place(graph, [&](std::size_t i, const ParameterPlace& at) {
      const auto& parameter = graph.parameters[i];
      const StoredParameter* const from = stored_.find({at.layer, at.copy, at.index});
      if (from == nullptr || !parameter.owner) return;
      T* const to = params.data() + parameter.offset;
      from->decode_rows(0, from->shape.rank() == 1 ? 1 : from->shape.rows(), 0, from->cols(), to,
                        from->cols());
    });
  }
  /// Bytes of the matrices in memory, and of the encoded ones among them.
  std::size_t bytes() const { return memory_.size(); }
  std::size_t encoded_bytes() const { return encoded_bytes_; }

 private:
  static const detail::WrittenFormat* format_for(const StoredParameter& parameter,
                                                 WeightForm form) {
    if (parameter.shape.rank() != 2) return nullptr;
    for (std::size_t i = 0; i < parameter.count; ++i)
      if (parameter.pieces[i].format->elems != 1) return nullptr;
    return detail::written_format(form, parameter.cols());
  }

  /// Copies a matrix that lies transposed into memory at `to`, where it is in order.
  static void turn(StoredParameter& matrix, std::byte* to) {
    constexpr std::size_t at_once = 16;  // rows, whose lines stay in a cache
    StoredRows& piece = matrix.pieces[0];
    const std::size_t rows = matrix.shape.rows(), cols = matrix.cols(), size = piece.format->bytes;
    for (std::size_t first = 0; first < rows; first += at_once)
      for (std::size_t c = 0; c < cols; ++c)
        for (std::size_t r = first; r < detail::smaller(first + at_once, rows); ++r)
          std::memcpy(to + (r * cols + c) * size, piece.data + (c * rows + r) * size, size);
    piece.data = to;
    piece.release = nullptr;  // memory that no file has
  }

  Block<std::byte> memory_;
  std::size_t encoded_bytes_ = 0;
  StoredParameters stored_;
};

}}  // namespace adacc::v0_1

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
