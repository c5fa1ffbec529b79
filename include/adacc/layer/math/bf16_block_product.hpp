// SPDX-License-Identifier: MIT
/// Products of small blocks of bfloat16 in cache, with sums in fp32: attention's inner loops.
#pragma once

#include <cstddef>

#include "../../core/bfloat16.hpp"
#include "bf16_gemm.hpp"
#include "block_product.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// c(i, j) = old + sum over k of a(i, k) b(k, j), for i < rows, j < lanes, k < inner. All of the block is computed:
/// where `triangle` says that `a` is zero, zeros are in memory.
template <class Target>
struct BlockProduct<bfloat16, Target> {
  std::size_t rows, lanes, inner;
  const bfloat16* a;
  std::size_t a_row_stride, a_inner_stride;
  const bfloat16* b;
  std::size_t ldb;
  float* c;
  std::size_t ldc;
  Merge merge = Merge::overwrite;
  Triangle triangle = Triangle::none;
  const float* scale = nullptr;    ///< for scale_and_add: the factor of each old row
  std::size_t b_lane_stride = 1;   ///< from one element of a row of b to the next
  Bytes room{};                    ///< of room_bytes()
  PackedOperand<bfloat16> kept{};  ///< of packed_elems(), for a b that several products read

  /// For products over `size` channels, or making them, of at most `block` rows and lanes.
  static constexpr std::size_t room_bytes(std::size_t block, std::size_t size) {
    return larger(bf16_gemm_tile_workspace_bytes(block, block, size),
                  bf16_gemm_tile_workspace_bytes(block, size, block));
  }

  /// For a b of `block` columns by `size` channels, or the other way around.
  static constexpr std::size_t packed_elems(std::size_t block, std::size_t size) {
    return larger(bf16_packed_bytes(block, size), bf16_packed_bytes(size, block)) /
           sizeof(bfloat16);
  }

  void run() const {
    if (merge == Merge::scale_and_add)
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < lanes; ++j) c[i * ldc + j] *= scale[i];
    bf16_gemm_tile(rows, lanes, inner, Operand<bfloat16>{a, a_row_stride, a_inner_stride},
                   Operand<bfloat16>{b, ldb, b_lane_stride}, c, ldc,
                   merge == Merge::overwrite ? Accumulate::no : Accumulate::yes, room, kept);
  }
};

}}}  // namespace adacc::v0_1::detail
