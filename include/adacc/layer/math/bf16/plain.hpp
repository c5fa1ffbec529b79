// SPDX-License-Identifier: MIT
/// Kernels of bf16 products in plain C++: for any processor, with the bits of the definition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../../../core/float_mode.hpp"
#include "blocks.hpp"
#include "definition.hpp"
#include "pack.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct PlainPairs {
  template <class T>
  static void pack(std::size_t count, std::size_t wide, std::size_t k, Operand<T> b,
                   std::uint32_t* to) {
    pack_pairs(count, wide, k, b, to);
  }
  static void pack_rows(std::size_t rows, std::size_t k, Operand<bfloat16> a, std::uint32_t* to) {
    pack_row_groups(rows, k, a, to);
  }

  template <class Out>
  [[gnu::noinline]] static void multiply(const PairTile<Out>& tile) {
    const FloatModeScope mode;
    constexpr std::size_t panel = PairBlocks::panel, group = PairBlocks::kernel_rows;
    const std::size_t pairs = tile.pairs(), wide = tile.wide();
    for (std::size_t i = 0; i < tile.rows; ++i) {
      float sum[panel];
      tile.begin_row(i, sum);
      for (std::size_t p = 0; p < pairs; ++p) {
        std::uint32_t pair;
        if (tile.packed_a != nullptr)
          pair = tile.packed_a[(i / group * pairs + p) * group + i % group];
        else pair = pair_at(tile.a + i * tile.a_stride + 2 * p, tile.k - 2 * p);
        for (std::size_t j = 0; j < tile.cols; ++j)
          sum[j] = add_pair(sum[j], pair, tile.b[p * wide + j]);
      }
      tile.end_row(i, sum);
    }
  }
};

}}}  // namespace adacc::v0_1::detail
