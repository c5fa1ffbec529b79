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
#include <cstring>

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
  std::size_t rows;     // of a tile: at most max_rows, whole groups
  std::size_t a_elems;  // of a worker's packed rows of A

  constexpr PairBlocks(std::size_t m, std::size_t columns, std::size_t depth)
      : n(columns), k(depth), rows(least(round_up(m, kernel_rows), max_rows)),
        a_elems(round_up(larger(rows * cut_k(), kernel_rows * even_k()),
                         alignment / sizeof(bfloat16))) {}

  /// Kernels without an instruction for pairs widen this many pairs at once,
  static constexpr std::size_t widened_pairs = 64;
  /// and multiply so many panels by the same widened rows of A.
  static constexpr std::size_t widened_panels = 4;
  /// Floats from one row of sums to the next.
  static constexpr std::size_t sums_stride(std::size_t columns) {
    return least(round_up(columns, width), panel * widened_panels);
  }
  /// Floats of a worker's scratch for them: rows of A, sums, and a panel of B; and no fewer than AMX takes, which puts
  /// a block of sums and four tiles there.
  constexpr std::size_t scratch_floats() const {
    return larger(2 * widened_pairs * rows + rows * sums_stride(n) +
                      2 * panel * least(widened_pairs, even_k() / 2),
                  amx_floats);
  }
  static constexpr std::size_t amx_floats = 2048;

  constexpr std::size_t worker_elems() const {
    return a_elems + round_up(scratch_floats() * sizeof(float), alignment) / sizeof(bfloat16);
  }
  constexpr std::size_t even_k() const { return k + k % 2; }
  /// The depth of a block: all of k, or an even part of it, cut where AMX begins a sum (PairBlockSum).
  constexpr std::size_t cut_k() const {
    return k == 0 ? 0 : least(even_k(), GemmBlocks<float>::even_part(k, max_k, 32));
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

/// The pair in place at `from`, where `left` elements are left: two, or one and a zero.
inline std::uint32_t pair_at(const bfloat16* from, std::size_t left) {
  std::uint32_t pair = from->bits;
  if (left > 1) std::memcpy(&pair, from, sizeof pair);
  return pair;
}

/// One tile of a product: rows x cols of C over k, a panel wide, or several if the kernels take them.
template <class Out>
struct PairTile {
  static constexpr bool fp32 = sizeof(Out) == sizeof(float);

  std::size_t rows, cols, k;
  const bfloat16* a;              ///< rows in place
  std::size_t a_stride;           ///< of rows in place
  const std::uint32_t* packed_a;  ///< or groups of packed rows; else null
  const std::uint32_t* b;         ///< packed panels
  std::size_t b_stride;           ///< words from one panel to the next
  float* scratch;                 ///< of PairBlocks::scratch_floats
  Out* c;
  std::size_t ldc;
  const float* bias;  ///< the first terms of the sums: a row, or null
  bool add;           ///< or the old C, which is fp32

  std::size_t pairs() const { return div_up(k, 2); }
  std::size_t wide() const { return round_up(cols, PairBlocks::width); }

  /// The part of the tile in the panel of column j.
  PairTile panel_at(std::size_t j) const {
    PairTile part = *this;
    part.cols = least(PairBlocks::panel, cols - j);
    part.b = b + j / PairBlocks::panel * b_stride;
    part.c = c + j;
    part.bias = bias == nullptr ? nullptr : bias + j;
    return part;
  }

  /// The first terms of row i.
  void begin_row(std::size_t i, float* sum) const {
    for (std::size_t j = 0; j < cols; ++j) sum[j] = bias == nullptr ? 0.0F : bias[j];
    if constexpr (fp32)
      if (add)
        for (std::size_t j = 0; j < cols; ++j) sum[j] = c[i * ldc + j];
    for (std::size_t j = cols; j < wide(); ++j) sum[j] = 0;
  }
  void end_row(std::size_t i, const float* sum) const {
    for (std::size_t j = 0; j < cols; ++j)
      if constexpr (fp32) c[i * ldc + j] = sum[j];
      else c[i * ldc + j] = to_bfloat16(sum[j]);
  }
};

}}}  // namespace adacc::v0_1::detail
