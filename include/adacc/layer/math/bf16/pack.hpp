// SPDX-License-Identifier: MIT
/// Packing of pairs in plain C++: squares of 4 x 4 pairs are transposed in registers that every processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/bfloat16.hpp"
#include "blocks.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

constexpr std::uint32_t bf16_bits(bfloat16 x) { return x.bits; }
constexpr std::uint32_t bf16_bits(float x) { return to_bfloat16(x).bits; }

/// The pair at from[0] and from[step].
template <class T>
std::uint32_t pair_of(const T* from, std::size_t step) {
  return bf16_bits(from[0]) | bf16_bits(from[step]) << 16;
}

/// Packs `count` columns of depth k into `wide` words a pair: to[p * wide + j]. Words behind `count` are zeros.
template <class T>
void pack_pairs(std::size_t count, std::size_t wide, std::size_t k, Operand<T> b,
                std::uint32_t* __restrict to) {
  const std::size_t pairs = k / 2;
  const T* const from = b.data;
  if (b.row_stride == 1) {
    using V = Simd<std::uint32_t, 16>::type;
    const std::size_t whole_cols = count / 4 * 4, whole = pairs / 4 * 4;
    for (std::size_t p = 0; p < whole; p += 4)
      for (std::size_t j = 0; j < whole_cols; j += 4) {
        V x[4];
        for (std::size_t r = 0; r < 4; ++r)
          for (std::size_t i = 0; i < 4; ++i)
            x[r][i] = pair_of(from + (j + r) * b.col_stride + 2 * (p + i), 1);
        const V ab_low = ADACC_SHUFFLE_LANES(x[0], x[1], 0, 4, 1, 5);
        const V ab_high = ADACC_SHUFFLE_LANES(x[0], x[1], 2, 6, 3, 7);
        const V cd_low = ADACC_SHUFFLE_LANES(x[2], x[3], 0, 4, 1, 5);
        const V cd_high = ADACC_SHUFFLE_LANES(x[2], x[3], 2, 6, 3, 7);
        x[0] = ADACC_SHUFFLE_LANES(ab_low, cd_low, 0, 1, 4, 5);
        x[1] = ADACC_SHUFFLE_LANES(ab_low, cd_low, 2, 3, 6, 7);
        x[2] = ADACC_SHUFFLE_LANES(ab_high, cd_high, 0, 1, 4, 5);
        x[3] = ADACC_SHUFFLE_LANES(ab_high, cd_high, 2, 3, 6, 7);
        for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + (p + i) * wide + j, &x[i], sizeof(V));
      }
    for (std::size_t p = 0; p < pairs; ++p)
      for (std::size_t j = p < whole ? whole_cols : 0; j < count; ++j)
        to[p * wide + j] = pair_of(from + j * b.col_stride + 2 * p, 1);
  } else if (b.col_stride == 1) {
    for (std::size_t p = 0; p < pairs; ++p) {
      const T* const row = from + 2 * p * b.row_stride;
      prefetch_row(from + least(2 * p + prefetch_rows, k - 1) * b.row_stride, count);
      for (std::size_t j = 0; j < count; ++j) to[p * wide + j] = pair_of(row + j, b.row_stride);
    }
  } else {
    for (std::size_t p = 0; p < pairs; ++p)
      for (std::size_t j = 0; j < count; ++j)
        to[p * wide + j] = pair_of(b.at(2 * p, j).data, b.row_stride);
  }
  if (k % 2 != 0)
    for (std::size_t j = 0; j < count; ++j)
      to[pairs * wide + j] = bf16_bits(*b.at(2 * pairs, j).data);
  for (std::size_t p = 0; p < div_up(k, 2); ++p)
    for (std::size_t j = count; j < wide; ++j) to[p * wide + j] = 0;
}

/// Packs rows of A in groups of 8: columns of a narrow panel, transposed.
inline void pack_row_groups(std::size_t rows, std::size_t k, Operand<bfloat16> a,
                            std::uint32_t* to) {
  constexpr std::size_t group = PairBlocks::kernel_rows;
  for (std::size_t i = 0; i < rows; i += group)
    pack_pairs<bfloat16>(least(group, rows - i), group, k,
                         {a.at(i, 0).data, a.col_stride, a.row_stride}, to + i * div_up(k, 2));
}

/// Packing for kernels of any level.
struct PlainPacking {
  template <class T>
  static void pack(std::size_t count, std::size_t wide, std::size_t k, Operand<T> b,
                   std::uint32_t* to) {
    pack_pairs(count, wide, k, b, to);
  }
  static void pack_rows(std::size_t rows, std::size_t k, Operand<bfloat16> a, std::uint32_t* to) {
    pack_row_groups(rows, k, a, to);
  }
};

}}}  // namespace adacc::v0_1::detail
