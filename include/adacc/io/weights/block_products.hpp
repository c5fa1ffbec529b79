// SPDX-License-Identifier: MIT
/// Products of one row of numbers with rows of blocks, which are decoded in registers: the products of text generation.
///
/// Each lane of a vector is a row. Squares of 4 x 4 words of packed numbers, of 4 or 8 bits, are turned, so that the
/// numbers of a column are in one vector, as are the scales of its rows. Numbers are those of the decoders, and sums are
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
    share_ = before < begin_ ? (begin_ - before) / blocks : 0;
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

/// As BlockFormat::add_products. `Blocks` has parts of a block with one scale for each row, and the 16 bytes of each
/// piece of a part, with the first bit of each piece's numbers.
template <class Blocks, class Target>
void add_block_products_at(const std::byte* const* at, std::size_t rows, std::size_t blocks,
                           const float* a, std::size_t a_step, float* sums) {
  using Lanes = RowLanes<Target>;
  using Floats = typename Lanes::Floats;
  using Bits = typename Lanes::Bits;
  using Groups = GroupsOfFour<std::uint32_t, Lanes::count>;
  constexpr std::size_t width = Lanes::count, at_once = 2;
  for (std::size_t j = 0; j < rows; j += at_once * width) {
    const std::size_t count = least(at_once * width, rows - j);
    const std::byte* row[at_once * width];
    float edge[at_once * width];
    for (std::size_t i = 0; i < at_once * width; ++i) {
      row[i] = at[j + least(i, count - 1)];
      edge[i] = sums[j + least(i, count - 1)];
    }
    Floats sum[at_once];
    std::memcpy(sum, edge, sizeof sum);
    const RowsAhead ahead(row[0], row[count - 1], blocks, Blocks::bytes);
    const float* x = a;
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t block = b * Blocks::bytes;
      ahead.prefetch(b);
      for (std::size_t part = 0; part < Blocks::parts; ++part) {
        typename Blocks::template Scale<Lanes> scale[at_once];
#pragma GCC unroll 2
        for (std::size_t v = 0; v < at_once; ++v) scale[v].load(row + v * width, block, part);
#pragma GCC unroll 4
        for (std::size_t piece = 0; piece < Blocks::pieces; ++piece) {
          Bits words[at_once][4];
#pragma GCC unroll 2
          for (std::size_t v = 0; v < at_once; ++v) {
            Bits from[4];
#pragma GCC unroll 4
            for (std::size_t r = 0; r < 4; ++r)
              Groups::load(row + v * width, r, block + Blocks::place(part, piece), from[r]);
            Groups::turn(from, words[v]);
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
                scale[v].scale(number, weight);
                sum[v] += *x * weight;
              }
        }
      }
    }
    std::memcpy(edge, sum, sizeof edge);
    for (std::size_t i = 0; i < count; ++i) sums[j + i] = edge[i];
  }
}

/// A scale, and no minimum.
template <class Lanes>
struct ScaleAlone {
  typename Lanes::Floats own;

  [[gnu::always_inline]] void scale(const typename Lanes::Floats& number,
                                    typename Lanes::Floats& to) const {
    to = number * own;
  }
};
/// A scale in fp16 at the beginning of a block.
template <class Lanes>
struct HalfScale : ScaleAlone<Lanes> {
  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block, std::size_t) {
    typename Lanes::Bits halves;
    Lanes::template load<std::uint16_t>(rows, block, halves);
    Lanes::widen(halves, this->own);
  }
};
/// A scale in fp32 at the beginning of a block.
template <class Lanes>
struct FloatScale : ScaleAlone<Lanes> {
  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block, std::size_t) {
    typename Lanes::Bits bits;
    Lanes::template load<std::uint32_t>(rows, block, bits);
    Lanes::as_float(bits, this->own);
  }
};
/// Scale and minimum in fp16.
template <class Lanes>
struct ScaleAndMinimum {
  typename Lanes::Floats own, minimum;

  [[gnu::always_inline]] void load(const std::byte* const* rows, std::size_t block, std::size_t) {
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

/// Q4_0 and Q4_1: 32 numbers, of which the lower bits of 16 bytes are the first half.
struct FourBitBlocks {
  static constexpr std::size_t parts = 1, pieces = 2;
  static constexpr unsigned shift(std::size_t, std::size_t piece) { return piece == 0 ? 0 : 4; }
};
struct Q40Blocks : FourBitBlocks {
  template <class Lanes>
  using Scale = HalfScale<Lanes>;
  static constexpr std::size_t bytes = 18;
  static constexpr float levels[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  static constexpr std::size_t place(std::size_t, std::size_t) { return 2; }
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    level_at<Lanes>(levels, word, bit, to);
  }
};
struct Q41Blocks : FourBitBlocks {
  template <class Lanes>
  using Scale = ScaleAndMinimum<Lanes>;
  static constexpr std::size_t bytes = 20;
  static constexpr float levels[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static constexpr std::size_t place(std::size_t, std::size_t) { return 4; }
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    level_at<Lanes>(levels, word, bit, to);
  }
};
/// Signed bytes behind a scale: Q8_0, and int8 of our own.
template <std::size_t scale_bytes, std::size_t elems>
struct ByteBlocks {
  template <class Lanes>
  using Scale = std::conditional_t<scale_bytes == 2, HalfScale<Lanes>, FloatScale<Lanes>>;
  static constexpr std::size_t parts = 1, pieces = elems / 16, bytes = scale_bytes + elems;
  static constexpr unsigned shift(std::size_t, std::size_t) { return 0; }
  static constexpr std::size_t place(std::size_t, std::size_t piece) {
    return scale_bytes + 16 * piece;
  }
  template <class Lanes>
  [[gnu::always_inline]] static void number(const typename Lanes::Bits& word, unsigned bit,
                                            typename Lanes::Floats& to) {
    byte_at<Lanes>(word, bit, to);
  }
};
ADACC_TARGET_CODE_END

/// The same with the instructions of a level.
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
