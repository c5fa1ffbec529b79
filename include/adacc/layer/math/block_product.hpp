// SPDX-License-Identifier: MIT
/// Products of small blocks that lie in cache: attention's inner loops.
///
/// A general matrix product packs its operands, which pays if they are large. A block of 64 rows of one head stays in
/// the first or second cache anyway: packing would only add work. Here elements of `a` are broadcast (any strides),
/// rows of `b` are loaded (contiguous), and a tile of `c` stays in registers while the inner dimension runs. Under a
/// causal mask, half of the block on the diagonal is zero: `Triangle` names the half not computed.
#pragma once

#include <cstddef>

#include "eigen.hpp"
#include "packet.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// The half of a product over a square diagonal block that need not be computed.
enum class Triangle : unsigned char {
  none,
  lanes_from_row,  ///< c(i, j) is wanted for j >= i only; some others are left unwritten
  inner_to_row,    ///< a(i, k) is zero for k > i
  inner_from_row   ///< a(i, k) is zero for k < i
};

/// The use of c's old values.
enum class Merge : unsigned char { overwrite, add, scale_and_add };

ADACC_TARGET_CODE_BEGIN
/// c(i, j) = old + sum over k of a(i, k) b(k, j), for i < rows, j < lanes, k < inner.
template <class T, class Target = BuildTarget>
struct BlockProduct {
  std::size_t rows, lanes, inner;
  const T* a;
  std::size_t a_row_stride, a_inner_stride;
  const T* b;
  std::size_t ldb;
  T* c;
  std::size_t ldc;
  Merge merge = Merge::overwrite;
  Triangle triangle = Triangle::none;
  const T* scale = nullptr;  ///< for scale_and_add: the factor of each old row

  // 6 rows by 4 vectors: 24 accumulators in 32 registers, 34 loads and multiply-adds for 24 of the
  // latter. With 16 registers only 2 vectors fit.
  static constexpr std::size_t tile_rows = 6;
  static constexpr std::size_t tile_vectors = Target::registers >= 32 ? 4 : 2;

  void run() const {
    std::size_t i = 0;
    for (; i + tile_rows <= rows; i += tile_rows) row_group<tile_rows>(i);
    for (; i + 2 <= rows; i += 2) row_group<2>(i);
    for (; i < rows; ++i) row_group<1>(i);
  }

 private:
  template <std::size_t Rows>
  void row_group(std::size_t i) const {
    constexpr std::size_t lanes_at_once = lanes_of<T, Target>;
    const std::size_t begin = triangle == Triangle::inner_from_row ? i : 0;
    const std::size_t end =
        triangle == Triangle::inner_to_row && i + Rows < inner ? i + Rows : inner;
    const std::size_t lane =
        triangle == Triangle::lanes_from_row ? i / lanes_at_once * lanes_at_once : 0;
    lane_groups<Rows, lanes_at_once, tile_vectors>(i, lane, begin, end);
  }

  template <std::size_t Rows, std::size_t Lanes, std::size_t Vectors>
  void lane_groups(std::size_t i, std::size_t j, std::size_t begin, std::size_t end) const {
    for (; j + Lanes * Vectors <= lanes; j += Lanes * Vectors)
      tile<Rows, Lanes, Vectors>(i, j, begin, end);
    if constexpr (Vectors > 1) lane_groups<Rows, Lanes, Vectors / 2>(i, j, begin, end);
    else if constexpr (Lanes > 1)
      lane_groups<Rows, narrower<T, Lanes, Target>(), 1>(i, j, begin, end);
  }

  template <std::size_t Rows, std::size_t Lanes, std::size_t Vectors>
  void tile(std::size_t i, std::size_t j, std::size_t begin, std::size_t end) const {
    using V = VecOf<T, Lanes, Target>;
    V sum[Rows][Vectors];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (std::size_t n = 0; n < Vectors; ++n) sum[r][n] = V::all(0);

    const T* left = a + i * a_row_stride + begin * a_inner_stride;
    const T* right = b + begin * ldb + j;
    for (std::size_t k = begin; k < end; ++k, left += a_inner_stride, right += ldb) {
      V across[Vectors];
#pragma GCC unroll 8
      for (std::size_t n = 0; n < Vectors; ++n) across[n] = V::load(right + n * Lanes);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < Rows; ++r) {
        const V down = V::all(left[r * a_row_stride]);
#pragma GCC unroll 8
        for (std::size_t n = 0; n < Vectors; ++n) sum[r][n] = down.times_plus(across[n], sum[r][n]);
      }
    }

#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      T* const to = c + (i + r) * ldc + j;
      const V factor = V::all(merge == Merge::scale_and_add ? scale[i + r] : T(1));
#pragma GCC unroll 8
      for (std::size_t n = 0; n < Vectors; ++n) {
        T* const at = to + n * Lanes;
        if (merge == Merge::overwrite) sum[r][n].store(at);
        else factor.times_plus(V::load(at), sum[r][n]).store(at);
      }
    }
  }
};

/// product.run(), as a function.
template <class T, class Target>
void multiply_block(const BlockProduct<T, Target>& product) {
  product.run();
}
ADACC_TARGET_CODE_END

}}}  // namespace adacc::v0_1::detail

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
