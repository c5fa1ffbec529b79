// SPDX-License-Identifier: MIT
/// Loops over codes: elements to codes and back, two codes in a byte, and the random numbers of rounding.
///
/// They are separate functions because compilers trust __restrict on parameters; codes, being bytes, may otherwise
/// alias anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/vector_target.hpp"
#include "../quantize.hpp"
#include "vectors.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// The limits to which quant_code clamps.
template <unsigned Bits, bool Symmetric>
struct CodeLimits {
  Floats16 bottom, top;
  CodeLimits() {  // nvcc 13.0 fails on `Vector v = Vector{} + constant;`
    bottom = Floats16{} + hidden(Symmetric ? -65536.0F * code_steps<Bits, true> : 0.0F);
    top = Floats16{} + hidden(65536.0F * code_steps<Bits, Symmetric>);
  }
};

/// quant_code of sixteen elements, in the third bytes of `fixed`; positive_code() if Positive.
template <unsigned Bits, bool Symmetric, bool Stochastic, bool Positive, class T>
inline void encode_vector(const T* x, const Floats16& base, const Floats16& inverse,
                          const CodeLimits<Bits, Symmetric>& limits, const std::uint16_t* random,
                          Ints16& fixed) {
  Floats16 steps;
  load_numbers(x, steps);
  [[maybe_unused]] Floats16 least;
  if constexpr (Positive)
    least = ADACC_CHOOSE_LANES((steps > 0.0F) & (base == 0.0F), Floats16{} + 32768.0F, Floats16{});
  steps = Symmetric ? steps * inverse : (steps * 0.5F - base) * inverse;
  if constexpr (Positive) steps = ADACC_CHOOSE_LANES(steps > least, steps, least);
  else steps = ADACC_CHOOSE_LANES(steps > limits.bottom, steps, limits.bottom);
  steps = ADACC_CHOOSE_LANES(steps < limits.top, steps, limits.top);
  fixed = ADACC_CONVERT_LANES(steps, Ints16) + (Symmetric ? middle_code<Bits> << 16 : 0);
  if constexpr (Stochastic) {
    Halves16 halves;
    std::memcpy(&halves, random, sizeof halves);
    fixed += ADACC_CONVERT_LANES(halves, Ints16);
  } else {
    fixed += half_code;
  }
}

/// The coders of columns: one for each column, or one for all (RowCoder).
struct ColumnCoders {
  const float *base, *inverse;

  template <bool Symmetric>
  void load(std::size_t col, Floats16& bases, Floats16& inverses) const {
    if constexpr (!Symmetric) std::memcpy(&bases, base + col, sizeof bases);
    std::memcpy(&inverses, inverse + col, sizeof inverses);
  }
  QuantCoder at(std::size_t col) const { return {base[col], inverse[col]}; }
};
struct RowCoder {
  QuantCoder coder;

  template <bool>
  void load(std::size_t, Floats16& bases, Floats16& inverses) const {
    bases = Floats16{} + coder.base;
    inverses = Floats16{} + coder.inverse;
  }
  QuantCoder at(std::size_t) const { return coder; }
};

/// The codes of `cols` elements of a row. `random` is read if Stochastic. Streamed: see
/// store_vector.
template <unsigned Bits, bool Symmetric, bool Stochastic, bool Positive, bool Streamed,
          class Coders, class T>
void encode_row(std::size_t cols, const T* __restrict x, const Coders coders,
                const std::uint16_t* __restrict random, std::uint8_t* __restrict codes) {
  const CodeLimits<Bits, Symmetric> limits;
  const auto encode = [&](std::size_t c, Ints16& fixed) {
    Floats16 bases = {}, inverses;
    coders.template load<Symmetric>(c, bases, inverses);
    encode_vector<Bits, Symmetric, Stochastic, Positive>(x + c, bases, inverses, limits,
                                                         Stochastic ? random + c : nullptr, fixed);
  };
  std::size_t c = 0;
  for (; c + 2 * vector_lanes <= cols; c += 2 * vector_lanes) {
    Ints16 first, second;
    encode(c, first);
    encode(c + vector_lanes, second);
    store_codes<Streamed>(first, second, codes + c);
  }
  if (c + vector_lanes <= cols) {
    Ints16 fixed;
    encode(c, fixed);
    store_codes<Streamed>(fixed, codes + c);
    c += vector_lanes;
  }
  for (; c < cols; ++c) {
    const QuantCoder coder = coders.at(c);
    const float number = to_number(x[c]);
    const std::int32_t code =
        quant_code<Bits, Symmetric>(number, Symmetric ? 0.0F : coder.base, coder.inverse,
                                    Stochastic ? std::int32_t{random[c]} : half_code);
    codes[c] = static_cast<std::uint8_t>(Positive ? positive_code(number, coder.base, code) : code);
  }
}

/// Decodes columns with scales and minima of their own, both halved if not symmetric.
template <unsigned Bits, bool Symmetric, class T>
void decode_row(std::size_t cols, const std::uint8_t* __restrict codes,
                const float* __restrict scale, const float* __restrict minimum, T* __restrict x) {
  for (std::size_t c = 0; c < cols; ++c)
    x[c] = from_number<T>(
        quant_value_of<Bits, Symmetric>(codes[c], scale[c], Symmetric ? 0.0F : minimum[c]));
}

/// Decodes columns of one group.
template <unsigned Bits, bool Symmetric, class T>
void decode_row(std::size_t cols, const std::uint8_t* __restrict codes, float scale, float minimum,
                T* __restrict x) {
  for (std::size_t c = 0; c < cols; ++c)
    x[c] = from_number<T>(quant_value_of<Bits, Symmetric>(codes[c], scale, minimum));
}

/// Packs codes of 4 bits into strips; `cols` columns from the start of a strip. Streamed: see store_vector.
template <bool Streamed>
inline void pack_row(std::size_t cols, const std::uint8_t* __restrict codes,
                     std::uint8_t* __restrict packed) {
  std::size_t c = 0;
  for (; c + strip_cols <= cols; c += strip_cols, packed += strip_cols / 2) {
    Bytes16 low, high;
    std::memcpy(&low, codes + c, 16);
    std::memcpy(&high, codes + c + 16, 16);
    low |= high << 4;
    store_vector<Streamed>(low, packed);
  }
  const std::size_t n = cols - c, half = div_up(n, 2);
  for (std::size_t j = 0; j < half; ++j) {
    const unsigned high = half + j < n ? codes[c + half + j] : 0U;
    packed[j] = static_cast<std::uint8_t>(codes[c + j] | high << 4);
  }
}

/// Unpacks the strips of pack_row().
inline void unpack_row(std::size_t cols, const std::uint8_t* __restrict packed,
                       std::uint8_t* __restrict codes) {
  std::size_t c = 0;
  for (; c + strip_cols <= cols; c += strip_cols, packed += strip_cols / 2) {
    Bytes16 both;
    std::memcpy(&both, packed, 16);
    const Bytes16 low = both & 15, high = both >> 4;
    std::memcpy(codes + c, &low, 16);
    std::memcpy(codes + c + 16, &high, 16);
  }
  const std::size_t n = cols - c, half = div_up(n, 2);
  for (std::size_t j = 0; j < half; ++j) {
    codes[c + j] = packed[j] & 15;
    if (half + j < n) codes[c + half + j] = packed[j] >> 4;
  }
}

/// Random halfwords of up to a tile's row of elements.
class QuantRandom {
 public:
  explicit QuantRandom(const RandomKey& stream) : stream_(stream) {}

  std::int32_t at(std::uint64_t element) const { return random_half(stream_, element); }

  /// Halfwords of elements first … first + n - 1 of the tensor, n <= tile_cols.
  const std::uint16_t* row(std::uint64_t first, std::size_t n) {
    const std::uint64_t block = first / 8;
    const std::size_t skip = static_cast<std::size_t>(first % 8);
    const std::size_t blocks = div_up(skip + n, 8);
    std::size_t i = 0;
    while (blocks - i > lanes / 4) {
      blocks_of_lanes(stream_, block + i, words_ + 2 * i);
      i = blocks - i < lanes ? blocks : i + lanes;
    }
    for (; i < blocks; ++i) {
      const PhiloxBlock one = random_block(stream_, block + i);
      for (std::size_t w = 0; w < 2; ++w)
        words_[2 * i + w] = std::uint64_t{one.word[2 * w]} | std::uint64_t{one.word[2 * w + 1]}
                                                                 << 32;
    }
    std::memcpy(halves_, words_, 16 * blocks);
    return halves_ + skip;
  }

 private:
  using Words8 = Simd<std::uint64_t, 64>::type;
  static constexpr std::size_t lanes = 32;

  /// random_block for `lanes` blocks at once: words are in the lower halves of 64 bits, where products have room; the
  /// upper halves are never read.
  static void blocks_of_lanes(const RandomKey& key, std::uint64_t first,
                              std::uint64_t* __restrict out) {
    constexpr std::size_t vectors = lanes / 8;
    const Words8 index = {0, 1, 2, 3, 4, 5, 6, 7};
    Words8 low;
    low = Words8{} + 0xFFFFFFFF;
    Words8 c0[vectors], c1[vectors], c2[vectors], c3[vectors];
    for (std::size_t i = 0; i < vectors; ++i) {
      const Words8 block = index + (first + 8 * i);
      c0[i] = block;
      c1[i] = Words8{} + key.activation;
      c2[i] = Words8{} + key.step;
      c3[i] = (block >> 32 & 0xFF) << 24 |
              (std::uint64_t{key.micro_step} | static_cast<std::uint64_t>(key.purpose) << 16);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
    std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < Philox::rounds; ++round) {
      for (std::size_t i = 0; i < vectors; ++i) {
        const Words8 p0 = (c0[i] & low) * Philox::factor_0;
        const Words8 p1 = (c2[i] & low) * Philox::factor_1;
        c0[i] = p1 >> 32 ^ c1[i] ^ std::uint64_t{k0};
        c1[i] = p1;
        c2[i] = p0 >> 32 ^ c3[i] ^ std::uint64_t{k1};
        c3[i] = p0;
      }
      k0 += Philox::step_0;
      k1 += Philox::step_1;
    }
    for (std::size_t i = 0; i < vectors; ++i) {
      std::uint64_t even[8], odd[8];
      const Words8 a = (c0[i] & low) | c1[i] << 32, b = (c2[i] & low) | c3[i] << 32;
      std::memcpy(even, &a, sizeof even);
      std::memcpy(odd, &b, sizeof odd);
      for (std::size_t j = 0; j < 8; ++j) {
        out[16 * i + 2 * j] = even[j];
        out[16 * i + 2 * j + 1] = odd[j];
      }
    }
  }

  RandomKey stream_;
  // Room for a row of a tile and the blocks in which it begins and ends, in whole lanes.
  static constexpr std::size_t most_blocks = (tile_cols / 8 + 1 + lanes - 1) / lanes * lanes;
  alignas(64) std::uint64_t words_[2 * most_blocks];
  alignas(64) std::uint16_t halves_[8 * most_blocks];
};

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
