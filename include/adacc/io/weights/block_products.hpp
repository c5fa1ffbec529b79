// SPDX-License-Identifier: MIT
/// Products of one row of numbers with rows of blocks, or of numbers of 16 or 32 bits, which are decoded in registers: the
/// products of text generation.
///
/// Each lane of a vector is a row. Squares of 4 x 4 words of packed numbers are turned, so that the numbers of a column are
/// in one vector, as are the scales of its rows. Fifth and sixth bits, which blocks have apart, join the lower four, four
/// numbers at a time. Numbers are those of the decoders, and sums are
/// formed in the order of columns: products have the bits of products of decoded rows (row_product.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../core/instruction_level.hpp"
#include "../../core/look_up.hpp"
#include "../../core/vector_target.hpp"
#include "../../layer/math/row_product.hpp"
#include "stored_type.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

ADACC_TARGET_CODE_BEGIN
/// Vectors of a target with a row in each lane.
template <class Target>
struct RowLanes {
  using target = Target;
  using Floats = typename Simd<float, Target::bytes>::type;
  using Wholes = typename Simd<std::int32_t, Target::bytes>::type;
  using Bits = typename Simd<std::uint32_t, Target::bytes>::type;
  static constexpr std::size_t count = Target::bytes / sizeof(float);

  /// A number from each row.
  template <class Number>
  [[gnu::always_inline]] static void load(const std::byte* const* rows, std::size_t at, Bits& to) {
    std::uint32_t each[count];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < count; ++i) each[i] = load_unaligned<Number>(rows[i] + at);
    std::memcpy(&to, each, sizeof to);
  }
  [[gnu::always_inline]] static void as_float(const Bits& bits, Floats& to) {
    std::memcpy(&to, &bits, sizeof to);
  }
  [[gnu::always_inline]] static void to_float(const Wholes& numbers, Floats& to) {
    to = ADACC_CONVERT_LANES(numbers, Floats);
  }
  /// wide_half() of the lower 16 bits.
  [[gnu::always_inline]] static void widen(const Bits& halves, Floats& to) {
    constexpr std::uint32_t rebias = (127 - 15) << 23;
    const Bits magnitude = halves & 0x7FFF, sign = (halves & 0x8000) << 16;
    Floats subnormal;
    to_float(ADACC_CONVERT_LANES(magnitude, Wholes), subnormal);
    subnormal *= 0x1p-24F;
    Bits scaled;
    std::memcpy(&scaled, &subnormal, sizeof scaled);
    Bits normal = (magnitude << 13) + rebias;
    normal = ADACC_CHOOSE_LANES(magnitude >= 0x7C00, normal + rebias, normal);
    as_float(ADACC_CHOOSE_LANES(magnitude < 0x400, scaled, normal) | sign, to);
  }
};

/// One of 16 levels for 4 bits from `shift` on.
template <class Lanes>
[[gnu::always_inline]] inline void level_at(const float (&levels)[16],
                                            const typename Lanes::Bits& word, unsigned shift,
                                            typename Lanes::Floats& to) {
  look_up<typename Lanes::target>(levels, word >> shift, to);
}
/// The signed byte from `shift` on.
template <class Lanes>
[[gnu::always_inline]] inline void byte_at(const typename Lanes::Bits& word, unsigned shift,
                                           typename Lanes::Floats& to) {
  using Wholes = typename Lanes::Wholes;
  Wholes numbers;
  const typename Lanes::Bits upper = word << (24 - shift);
  std::memcpy(&numbers, &upper, sizeof numbers);
  Lanes::to_float(numbers >> 24, to);
}

/// The memory behind some rows, where the next ones lie as a rule: read into the second-level cache, a share with each
/// block of these rows.
class RowsAhead {
 public:
  [[gnu::always_inline]] RowsAhead(const std::byte* first, const std::byte* last,
                                   std::size_t blocks, std::size_t block_bytes)
      : begin_(reinterpret_cast<std::uintptr_t>(last) + blocks * block_bytes) {
    const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(first);
    share_ = before < begin_ && blocks != 0 ? (begin_ - before) / blocks : 0;
  }
  [[gnu::always_inline]] void prefetch(std::size_t block) const {
    // The memory may end before: an address is no promise that something is there, as a pointer would be.
    for (std::uintptr_t at = begin_ + block * share_; at < begin_ + (block + 1) * share_;
         at += 64) {
      const auto* const line =
          reinterpret_cast<const void*>(at);  // NOLINT(performance-no-int-to-ptr)
      ADACC_PREFETCH(line, 0, 2);
    }
  }

 private:
  std::uintptr_t begin_, share_;
};

/// 16 bytes of each row, turned: a word of each row in each of `to`.
template <class Lanes>
[[gnu::always_inline]] inline void load_turned(const std::byte* const* rows, std::size_t at,
                                               typename Lanes::Bits (&to)[4]) {
  using Groups = GroupsOfFour<std::uint32_t, Lanes::count>;
  typename Lanes::Bits from[4];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < 4; ++r) Groups::load(rows, r, at, from[r]);
  Groups::turn(from, to);
}

/// Rows whose products are formed together, and their sums; behind the last row it stands again.
template <class Lanes>
struct ProductSums {
  static constexpr std::size_t at_once = 2, most = at_once * Lanes::count;

  const std::byte* row[most];
  std::size_t count;
  typename Lanes::Floats sum[at_once];

  [[gnu::always_inline]] ProductSums(const std::byte* const* at, std::size_t rows,
                                     const float* sums)
      : count(least(most, rows)) {
    float edge[most];
    for (std::size_t i = 0; i < most; ++i) {
      row[i] = at[least(i, count - 1)];
      edge[i] = sums[least(i, count - 1)];
    }
    std::memcpy(sum, edge, sizeof sum);
  }
  [[gnu::always_inline]] void store(float* sums) const {
    float edge[most];
    std::memcpy(edge, sum, sizeof edge);
    for (std::size_t i = 0; i < count; ++i) sums[i] = edge[i];
  }
};

/// As BlockFormat::add_products. `Blocks` has parts of a block with one scale for each row, and the 16 bytes of each
/// piece of a part, with the first bit of each piece's numbers. Its Head is all else of a block: scales, and bits that
/// complete() adds to four numbers.
template <class Blocks, class Target>
void add_block_products_at(const std::byte* const* at, std::size_t rows, std::size_t blocks,
                           const float* a, std::size_t a_step, float* sums) {
  using Lanes = RowLanes<Target>;
  using Floats = typename Lanes::Floats;
  using Bits = typename Lanes::Bits;
  constexpr std::size_t width = Lanes::count, at_once = ProductSums<Lanes>::at_once;
  for (std::size_t j = 0; j < rows; j += ProductSums<Lanes>::most) {
    ProductSums<Lanes> group(at + j, rows - j, sums + j);
    const std::byte* const* const row = group.row;
    const RowsAhead ahead(row[0], row[group.count - 1], blocks, Blocks::bytes);
    const float* x = a;
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t block = b * Blocks::bytes;
      ahead.prefetch(b);
      typename Blocks::template Head<Lanes> head[at_once];
#pragma GCC unroll 2
      for (std::size_t v = 0; v < at_once; ++v) head[v].load(row + v * width, block);
      for (std::size_t part = 0; part < Blocks::parts; ++part) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < at_once; ++v) head[v].load_part(row + v * width, block, part);
#pragma GCC unroll 4
        for (std::size_t piece = 0; piece < Blocks::pieces; ++piece) {
          Bits words[at_once][4];
#pragma GCC unroll 2
          for (std::size_t v = 0; v < at_once; ++v) {
            load_turned<Lanes>(row + v * width, block + Blocks::place(part, piece), words[v]);
#pragma GCC unroll 4
            for (std::size_t q = 0; q < 4; ++q) head[v].complete(part, piece, q, words[v][q]);
          }
#pragma GCC unroll 4
          for (std::size_t q = 0; q < 4; ++q)
#pragma GCC unroll 4
            for (unsigned byte = 0; byte < 4; ++byte, x += a_step)
#pragma GCC unroll 2
              for (std::size_t v = 0; v < at_once; ++v) {
                Floats number, weight;
                Blocks::template number<Lanes>(words[v][q], 8 * byte + Blocks::shift(part, piece),
                                               number);
                head[v].scale(number, weight);
                group.sum[v] += *x * weight;
              }
        }
      }
    }
    group.store(sums + j);
  }
}

/// Numbers that are whole in their words, of a block with one part.
template <class Lanes>
struct WholeNumbers {
  [[gnu::always_inline]] void load_part(const std::byte* const*, std::size_t, std::size_t) {}
  [[gnu::always_inline]] void complete(std::size_t, std::size_t, std::size_t,
                                       typename Lanes::Bits&) const {}
};
/// A scale, and no minimum.
template <class Lanes>
struct ScaleAlone : WholeNumbers<Lanes> {
  typename Lanes::Floats own;

  [[gnu::always_inline]] void scale(const typename Lanes::Floats& number,
                                    typename Lanes::Floats& to) const {
    to = number * own;
  }
};
/// A scale in fp16 at the beginning of a block.
template <class Lanes>
struct HalfScale : ScaleAlone<Lanes> {
  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
    typename Lanes::Bits halves;
    Lanes::template load<std::uint16_t>(rows, block, halves);
    Lanes::widen(halves, this->own);
  }
};
/// A scale in fp32 at the beginning of a block.
template <class Lanes>
struct FloatScale : ScaleAlone<Lanes> {
  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
    typename Lanes::Bits bits;
    Lanes::template load<std::uint32_t>(rows, block, bits);
    Lanes::as_float(bits, this->own);
  }
};
/// Scale and minimum in fp16.
template <class Lanes>
struct ScaleAndMinimum : WholeNumbers<Lanes> {
  typename Lanes::Floats own, minimum;

  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
    typename Lanes::Bits both;
    Lanes::template load<std::uint32_t>(rows, block, both);
    Lanes::widen(both, own);
    Lanes::widen(both >> 16, minimum);
  }
  [[gnu::always_inline]] void scale(const typename Lanes::Floats& number,
                                    typename Lanes::Floats& to) const {
    to = number * own + minimum;
  }
};
/// Scale and minimum of each of eight parts: whole numbers of 6 bits, times two numbers in fp16.
template <class Lanes>
struct PartScales : WholeNumbers<Lanes> {
  using Bits = typename Lanes::Bits;
  using Floats = typename Lanes::Floats;
  Floats of_scales, of_minima, own, minimum;
  Bits words[4];  ///< behind the first: lower bits of four scales, of four minima, and the rest

  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
    load_turned<Lanes>(rows, block, words);
    Lanes::widen(words[0], of_scales);
    Lanes::widen(words[0] >> 16, of_minima);
  }
  /// As PartScale (gguf_blocks.hpp).
  [[gnu::always_inline]] void load_part(const std::byte* const*, std::size_t, std::size_t part) {
    const auto at = static_cast<unsigned>(part % 4) * 8;
    Bits scale_code = words[1] >> at & 63, minimum_code = words[2] >> at & 63;
    if (part >= 4) {
      scale_code = (words[3] >> at & 15) | (words[1] >> at & 192) >> 2;
      minimum_code = (words[3] >> at >> 4 & 15) | (words[2] >> at & 192) >> 2;
    }
    Lanes::to_float(ADACC_CONVERT_LANES(scale_code, typename Lanes::Wholes), own);
    Lanes::to_float(ADACC_CONVERT_LANES(minimum_code, typename Lanes::Wholes), minimum);
    own *= of_scales;
    minimum = -(of_minima * minimum);
  }
  [[gnu::always_inline]] void scale(const Floats& number, Floats& to) const {
    to = number * own + minimum;
  }
};

/// Numbers of 4 bits: one of 16 levels.
template <class Blocks>
struct FourBitNumbers {
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    level_at<Lanes>(Blocks::levels, word, bit, to);
  }
};
/// Signed bytes.
struct ByteNumbers {
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    byte_at<Lanes>(word, bit, to);
  }
  static constexpr unsigned shift(std::size_t, std::size_t) { return 0; }
};

/// 32 numbers, of which the lower bits of 16 bytes are the first half.
struct BlocksOf32 {
  static constexpr std::size_t parts = 1, pieces = 2;
  static constexpr unsigned shift(std::size_t, std::size_t piece) { return piece == 0 ? 0 : 4; }
};
struct Q40Blocks : BlocksOf32, FourBitNumbers<Q40Blocks> {
  template <class Lanes>
  using Head = HalfScale<Lanes>;
  static constexpr std::size_t bytes = 18;
  static constexpr float levels[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  static constexpr std::size_t place(std::size_t, std::size_t) { return 2; }
};
inline constexpr float levels_from_0[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
struct Q41Blocks : BlocksOf32, FourBitNumbers<Q41Blocks> {
  template <class Lanes>
  using Head = ScaleAndMinimum<Lanes>;
  static constexpr std::size_t bytes = 20;
  static constexpr const float (&levels)[16] = levels_from_0;
  static constexpr std::size_t place(std::size_t, std::size_t) { return 4; }
};
/// Signed bytes behind a scale: Q8_0, and int8 of our own.
template <std::size_t scale_bytes, std::size_t elems>
struct ByteBlocks : ByteNumbers {
  template <class Lanes>
  using Head = std::conditional_t<scale_bytes == 2, HalfScale<Lanes>, FloatScale<Lanes>>;
  static constexpr std::size_t parts = 1, pieces = elems / 16, bytes = scale_bytes + elems;
  static constexpr std::size_t place(std::size_t, std::size_t piece) {
    return scale_bytes + 16 * piece;
  }
};

/// Q5_0 and Q5_1: the fifth bits of 32 numbers are a word behind the scales. A number n of Q5_0 is 8 (n - 16) in a
/// signed byte, and its scale an eighth: both are exact.
template <std::size_t scale_bytes>
struct Q5Blocks : ByteNumbers {
  static constexpr bool from_0 = scale_bytes == 4;
  template <class Lanes>
  struct Head : std::conditional_t<from_0, ScaleAndMinimum<Lanes>, HalfScale<Lanes>> {
    using Scales = std::conditional_t<from_0, ScaleAndMinimum<Lanes>, HalfScale<Lanes>>;
    using Bits = typename Lanes::Bits;
    Bits fifth;

    [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
      Scales::load(rows, block);
      if constexpr (!from_0) this->own *= 0.125F;
      Lanes::template load<std::uint32_t>(rows, block + scale_bytes, fifth);
    }
    [[gnu::always_inline]] void complete(std::size_t, std::size_t piece, std::size_t q,
                                         Bits& word) const {
      const Bits low = word >> BlocksOf32::shift(0, piece) & 0x0F0F0F0F;
      // Bits i of four go to bits 8 i: the product has each at i + 7 k, for k from 0 to 3.
      const Bits four = fifth >> static_cast<unsigned>(16 * piece + 4 * q) & 15;
      const Bits spread = four * 0x00204081 & 0x01010101;
      if constexpr (from_0) word = low | spread << 4;
      else word = (low << 3 | spread << 7) ^ 0x80808080;
    }
  };
  static constexpr std::size_t parts = 1, pieces = 2, bytes = scale_bytes + 20;
  static constexpr std::size_t place(std::size_t, std::size_t) { return scale_bytes + 4; }
};

/// Q4_K: eight parts of 32 numbers, of which two are in 32 bytes.
struct Q4KBlocks : FourBitNumbers<Q4KBlocks> {
  template <class Lanes>
  using Head = PartScales<Lanes>;
  static constexpr std::size_t parts = 8, pieces = 2, bytes = 144;
  static constexpr const float (&levels)[16] = levels_from_0;
  static constexpr unsigned shift(std::size_t part, std::size_t) { return part % 2 == 0 ? 0 : 4; }
  static constexpr std::size_t place(std::size_t part, std::size_t piece) {
    return 16 + part / 2 * 32 + 16 * piece;
  }
};
/// The same with fifth bits: bit p of byte i is that of number i of part p.
struct Q5KBlocks : ByteNumbers {
  template <class Lanes>
  struct Head : PartScales<Lanes> {
    using Bits = typename Lanes::Bits;
    Bits fifth[2][4];

    [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
      PartScales<Lanes>::load(rows, block);
#pragma GCC unroll 2
      for (std::size_t i = 0; i < 2; ++i) load_turned<Lanes>(rows, block + 16 + 16 * i, fifth[i]);
    }
    [[gnu::always_inline]] void complete(std::size_t part, std::size_t piece, std::size_t q,
                                         Bits& word) const {
      const Bits low = word >> Q4KBlocks::shift(part, piece) & 0x0F0F0F0F;
      word = low | (fifth[piece][q] >> static_cast<unsigned>(part) & 0x01010101) << 4;
    }
  };
  static constexpr std::size_t parts = 8, pieces = 2, bytes = 176;
  static constexpr std::size_t place(std::size_t part, std::size_t piece) {
    return Q4KBlocks::place(part, piece) + 32;
  }
};
/// Q6_K: sixteen parts of 16 numbers, with two upper bits in bytes that four parts share. A number n is 4 (n - 32) in a
/// signed byte, and its scale a quarter: both are exact.
struct Q6KBlocks : ByteNumbers {
  template <class Lanes>
  struct Head : ScaleAlone<Lanes> {
    using Bits = typename Lanes::Bits;
    typename Lanes::Floats of_scales;
    Bits upper[4][4], scales[4];

    [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block) {
      Bits halves;
      Lanes::template load<std::uint16_t>(rows, block + 208, halves);
      Lanes::widen(halves, of_scales);
      of_scales *= 0.25F;
      load_turned<Lanes>(rows, block + 192, scales);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) load_turned<Lanes>(rows, block + 128 + 16 * i, upper[i]);
    }
    [[gnu::always_inline]] void load_part(const std::byte* const*, std::size_t, std::size_t part) {
      byte_at<Lanes>(scales[part / 4], static_cast<unsigned>(part % 4) * 8, this->own);
      this->own *= of_scales;
    }
    [[gnu::always_inline]] void complete(std::size_t part, std::size_t, std::size_t q,
                                         Bits& word) const {
      const auto quarter = static_cast<unsigned>(part / 2 % 4);
      const Bits low = word >> quarter / 2 * 4 & 0x0F0F0F0F;
      const Bits two = upper[part / 8 * 2 + part % 2][q] >> 2 * quarter & 0x03030303;
      word = (low << 2 | two << 6) ^ 0x80808080;
    }
  };
  static constexpr std::size_t parts = 16, pieces = 1, bytes = 210;
  static constexpr std::size_t place(std::size_t part, std::size_t) {
    return part / 8 * 64 + part / 2 % 2 * 32 + part % 2 * 16;
  }
};

/// Numbers without blocks: a word has one of 32 bits, or two of 16.
struct F32Numbers {
  static constexpr std::size_t bytes = 4;
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned,
                                            typename Lanes::Floats& to) {
    Lanes::as_float(word, to);
  }
};
struct F16Numbers {
  static constexpr std::size_t bytes = 2;
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    Lanes::widen(word >> bit, to);
  }
};
struct Bf16Numbers {
  static constexpr std::size_t bytes = 2;
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    Lanes::as_float(word >> bit << 16, to);
  }
};

/// As add_block_products_at, for rows of `depth` numbers: 16 bytes of a row at a time, and a number at a time behind them.
template <class Numbers, class Target>
void add_number_products_at(const std::byte* const* at, std::size_t rows, std::size_t depth,
                            const float* a, std::size_t a_step, float* sums) {
  using Lanes = RowLanes<Target>;
  using Floats = typename Lanes::Floats;
  using Bits = typename Lanes::Bits;
  using Word = std::conditional_t<Numbers::bytes == 2, std::uint16_t, std::uint32_t>;
  constexpr std::size_t width = Lanes::count, at_once = ProductSums<Lanes>::at_once,
                        piece_bytes = 16;
  const std::size_t pieces = depth * Numbers::bytes / piece_bytes;
  for (std::size_t j = 0; j < rows; j += ProductSums<Lanes>::most) {
    ProductSums<Lanes> group(at + j, rows - j, sums + j);
    const std::byte* const* const row = group.row;
    const float* x = a;
    const RowsAhead ahead(row[0], row[group.count - 1], pieces, piece_bytes);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      Bits words[at_once][4];
      ahead.prefetch(piece);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < at_once; ++v)
        load_turned<Lanes>(row + v * width, piece * piece_bytes, words[v]);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < 4; ++q)
#pragma GCC unroll 2
        for (unsigned bit = 0; bit < 32; bit += 8 * Numbers::bytes, x += a_step)
#pragma GCC unroll 2
          for (std::size_t v = 0; v < at_once; ++v) {
            Floats weight;
            Numbers::template number<Lanes>(words[v][q], bit, weight);
            group.sum[v] += *x * weight;
          }
    }
    for (std::size_t p = pieces * piece_bytes; p < depth * Numbers::bytes;
         p += Numbers::bytes, x += a_step)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < at_once; ++v) {
        Bits word;
        Floats weight;
        Lanes::template load<Word>(row + v * width, p, word);
        Numbers::template number<Lanes>(word, 0, weight);
        group.sum[v] += *x * weight;
      }
    group.store(sums + j);
  }
}
ADACC_TARGET_CODE_END

/// The same with the instructions of a level.
template <class Numbers>
void add_number_products(InstructionLevel level, const std::byte* const* at, std::size_t rows,
                         std::size_t depth, const float* a, std::size_t a_step, float* sums) {
  with_target(level, [&]<class Target>(Target) {
    Target::template call<add_number_products_at<Numbers, Target>>(at, rows, depth, a, a_step,
                                                                   sums);
  });
}
template <class Blocks>
void add_block_products(InstructionLevel level, const std::byte* const* at, std::size_t rows,
                        std::size_t blocks, const float* a, std::size_t a_step, float* sums) {
  with_target(level, [&]<class Target>(Target) {
    Target::template call<add_block_products_at<Blocks, Target>>(at, rows, blocks, a, a_step, sums);
  });
}

}}}  // namespace adacc::v0_1::detail

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
