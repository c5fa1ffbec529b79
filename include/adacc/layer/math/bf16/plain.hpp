// SPDX-License-Identifier: MIT
/// Kernels of bf16 products in plain C++: for any processor, with the bits of the definition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../../../core/float_mode.hpp"
#include "blocks.hpp"
#include "definition.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

constexpr std::uint32_t bf16_bits(bfloat16 x) { return x.bits; }
constexpr std::uint32_t bf16_bits(float x) { return to_bfloat16(x).bits; }

inline void store_sum(float* to, float sum) { *to = sum; }
inline void store_sum(bfloat16* to, float sum) { *to = to_bfloat16(sum); }

struct PlainPairs {
  /// Packs `count` <= Width columns of depth k into words of `wide` a pair; those behind `count` are zeros.
  template <class T>
  static void pack(std::size_t count, std::size_t wide, std::size_t k, Operand<T> b,
                   std::uint32_t* to) {
    for (std::size_t p = 0; p < k; p += 2)
      for (std::size_t j = 0; j < wide; ++j) {
        std::uint32_t pair = 0;
        if (j < count) pair = bf16_bits(*b.at(p, j).data);
        if (j < count && p + 1 < k) pair |= bf16_bits(*b.at(p + 1, j).data) << 16;
        *to++ = pair;
      }
  }

  /// Packs rows of A in groups of 8: the transposed, as columns of a panel.
  static void pack_rows(std::size_t rows, std::size_t k, Operand<bfloat16> a, std::uint32_t* to) {
    constexpr std::size_t group = PairBlocks::kernel_rows;
    for (std::size_t i = 0; i < rows; i += group)
      pack<bfloat16>(least(group, rows - i), group, k,
                     {a.at(i, 0).data, a.col_stride, a.row_stride}, to + i * div_up(k, 2));
  }

  template <class Out>
  static void multiply(const PairTile<Out>& tile) {
    const FloatModeScope mode;
    constexpr std::size_t panel = PairBlocks::panel, group = PairBlocks::kernel_rows;
    const std::size_t whole = tile.k / 2, pairs = tile.pairs();
    for (std::size_t j0 = 0; j0 < tile.cols; j0 += panel) {
      const std::size_t cols = least(panel, tile.cols - j0),
                        wide = round_up(cols, PairBlocks::width);
      const std::uint32_t* const b = tile.b + j0 / panel * tile.b_stride;
      for (std::size_t i = 0; i < tile.rows; ++i) {
        Out* const c = tile.c + i * tile.ldc + j0;
        float sum[panel] = {};
        for (std::size_t j = 0; j < cols; ++j) {
          if (tile.bias != nullptr) sum[j] = tile.bias[j0 + j];
          if constexpr (sizeof(Out) == sizeof(float))
            if (tile.add) sum[j] = c[j];
        }
        for (std::size_t p = 0; p < pairs; ++p) {
          std::uint32_t pair;
          if (tile.packed_a != nullptr)
            pair = tile.packed_a[(i / group * pairs + p) * group + i % group];
          else {
            const bfloat16* const a = tile.a + i * tile.a_stride + 2 * p;
            pair = p < whole ? pair_at(a) : last_pair(a);
          }
          for (std::size_t j = 0; j < cols; ++j) sum[j] = add_pair(sum[j], pair, b[p * wide + j]);
        }
        for (std::size_t j = 0; j < cols; ++j) store_sum(c + j, sum[j]);
      }
    }
  }
};

}}}  // namespace adacc::v0_1::detail
