// SPDX-License-Identifier: MIT
/// How a product of bf16 matrices is cut into blocks and tiles, and the layout of packed operands.
///
/// A packed pair is two elements next to one another in k, the even one in the lower half of a word; behind an odd k
/// is a zero. B (k x n) is packed into panels of 48 columns, the last one of as many vectors of 16 as its columns
/// need: panel[pair][column]. A whose rows are not contiguous is packed into groups of 8 rows: group[pair][row]. The
/// layout is the same for every instruction level, so memory does not depend on the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../gemm.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct PairBlocks {
  static constexpr std::size_t kernel_rows = 8;  // rows of a group
  static constexpr std::size_t width = 16;       // columns of a vector
  static constexpr std::size_t panel = 3 * width;
  static constexpr std::size_t max_rows = 64;
  static constexpr std::size_t max_k = 768;            // where sums may wait in an fp32 C
  static constexpr std::size_t max_elems = 768 * 768;  // of a block of B, if k is not too large

  std::size_t n, k;
  std::size_t a_elems;  // of a worker's packed rows of A

  constexpr PairBlocks(std::size_t m, std::size_t columns, std::size_t depth)
      : n(columns), k(depth),
        a_elems(round_up(
            larger(least(round_up(m, kernel_rows), max_rows) * cut_k(), kernel_rows * even_k()),
            alignment / sizeof(bfloat16))) {}

  constexpr std::size_t even_k() const { return k + k % 2; }
  /// The depth of a block: all of k, or an even part of it.
  constexpr std::size_t cut_k() const {
    return k == 0 ? 0 : least(even_k(), GemmBlocks<float>::even_part(k, max_k, 16));
  }
  /// Columns of a block of B of this depth.
  constexpr std::size_t cols(std::size_t depth) const {
    if (n == 0) return 0;
    const std::size_t room = depth == 0 ? max_elems : max_elems / depth;
    return least(round_up(n, width),
                 GemmBlocks<float>::even_part(n, larger(room / panel * panel, panel), panel));
  }
  constexpr std::size_t b_elems() const {
    return larger(cols(even_k()) * even_k(), cols(cut_k()) * cut_k());
  }
};

/// A pair of A, in place: two elements, or one and a zero.
inline std::uint32_t pair_at(const bfloat16* from) {
  std::uint32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return pair;
}
inline std::uint32_t last_pair(const bfloat16* from) { return from->bits; }

/// One tile of a product: rows x cols of C, over k.
template <class Out>
struct PairTile {
  std::size_t rows, cols, k;
  const bfloat16* a;              ///< rows in place
  std::size_t a_stride;           ///< of rows in place
  const std::uint32_t* packed_a;  ///< or groups of packed rows; else null
  const std::uint32_t* b;         ///< packed panels
  std::size_t b_stride;           ///< words from one panel to the next
  Out* c;
  std::size_t ldc;
  const float* bias;  ///< the sums begin with: a row, or null
  bool add;           ///< the old C, which is fp32

  std::size_t pairs() const { return div_up(k, 2); }
};

}}}  // namespace adacc::v0_1::detail
