// SPDX-License-Identifier: MIT
/// The product of one row with the transpose of a matrix: y = x W^T, the products of text generation.
///
/// Such a product reads each weight once, so packing would cost more than all else. Here the matrix is read in place. A
/// stored matrix (model/stored_parameter.hpp) is multiplied by its format, or decoded a tile at a time. Each lane of a vector is a row of W: squares of
/// 4 x 4 are turned in registers, and each sum is formed in the order of k. So the result has the bits of `gemm`.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../../core/cpu.hpp"
#include "../../core/vector_target.hpp"
#include "gemm.hpp"
#include "stored_operand.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// Rows of T whose products are formed together.
template <class T>
inline constexpr std::size_t most_rows_at_once = 2 * layout_bytes / sizeof(T);

/// Rows of a matrix, `stride` elements apart, `depth` elements of each.
template <class T>
struct MatrixRows {
  const T* data;
  std::size_t count, stride, depth;
};

ADACC_TARGET_CODE_BEGIN
/// Lanes of vectors that hold Width / 4 groups of 4.
template <class T, std::size_t Width>
struct GroupsOfFour {
  using V = typename Simd<T, Width * sizeof(T)>::type;
  using Four = typename Simd<T, 4 * sizeof(T)>::type;
  static constexpr std::size_t groups = Width / 4;

  /// Four elements from each of the rows `first`, `first` + 4, and so on; rows of T, or of bytes.
  template <class Row>
  [[gnu::always_inline]] static void load(const Row* const* rows, std::size_t first, std::size_t p,
                                          V& all) {
    Four part[groups];
#pragma GCC unroll 4
    for (std::size_t g = 0; g < groups; ++g)
      std::memcpy(&part[g], rows[4 * g + first] + p, sizeof(Four));
    if constexpr (groups == 1) all = part[0];
    else if constexpr (groups == 2)
      all = ADACC_SHUFFLE_LANES(part[0], part[1], 0, 1, 2, 3, 4, 5, 6, 7);
    else {
      static_assert(groups == 4);
      const auto low = ADACC_SHUFFLE_LANES(part[0], part[1], 0, 1, 2, 3, 4, 5, 6, 7);
      const auto high = ADACC_SHUFFLE_LANES(part[2], part[3], 0, 1, 2, 3, 4, 5, 6, 7);
      all = ADACC_SHUFFLE_LANES(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
  }

  /// Turns the square of each group: lane 4 g + r of to[q] is lane 4 g + q of from[r].
  [[gnu::always_inline]] static void turn(const V (&from)[4], V (&to)[4]) {
    V low_01, high_01, low_23, high_23;
    pairs<0>(from[0], from[1], low_01);
    pairs<2>(from[0], from[1], high_01);
    pairs<0>(from[2], from[3], low_23);
    pairs<2>(from[2], from[3], high_23);
    halves<0>(low_01, low_23, to[0]);
    halves<2>(low_01, low_23, to[1]);
    halves<0>(high_01, high_23, to[2]);
    halves<2>(high_01, high_23, to[3]);
  }

 private:
  // Indices are written out: nvcc expands no packs of them.
  /// Numbers `first` and `first` + 1 of each group of a and b, in turns.
  template <int first>
  [[gnu::always_inline]] static void pairs(const V& a, const V& b, V& to) {
    if constexpr (Width == 4)
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 4, first + 1, first + 5);
    else if constexpr (Width == 8)
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 8, first + 1, first + 9, first + 4, first + 12,
                               first + 5, first + 13);
    else
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 16, first + 1, first + 17, first + 4,
                               first + 20, first + 5, first + 21, first + 8, first + 24, first + 9,
                               first + 25, first + 12, first + 28, first + 13, first + 29);
  }
  /// Numbers `first` and `first` + 1 of each group of a, then those of b.
  template <int first>
  [[gnu::always_inline]] static void halves(const V& a, const V& b, V& to) {
    if constexpr (Width == 4)
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 1, first + 4, first + 5);
    else if constexpr (Width == 8)
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 1, first + 8, first + 9, first + 4, first + 5,
                               first + 12, first + 13);
    else
      to = ADACC_SHUFFLE_LANES(a, b, first, first + 1, first + 16, first + 17, first + 4, first + 5,
                               first + 20, first + 21, first + 8, first + 9, first + 24, first + 25,
                               first + 12, first + 13, first + 28, first + 29);
  }
};

/// sums[j] += the sum over p of a[p * a_step] * row j [p], each product added to the sum of all before.
template <class T, class Target>
void add_row_products_at(MatrixRows<T> rows, const T* a, std::size_t a_step, T* sums) {
  using V = typename Simd<T, Target::bytes>::type;
  constexpr std::size_t width = Target::bytes / sizeof(T), at_once = 2;
  for (std::size_t j = 0; j < rows.count; j += at_once * width) {
    const std::size_t count = least(at_once * width, rows.count - j);
    const T* row[at_once * width];
    T edge[at_once * width];
    for (std::size_t i = 0; i < at_once * width; ++i) {
      row[i] = rows.data + (j + least(i, count - 1)) * rows.stride;
      edge[i] = sums[j + least(i, count - 1)];
    }
    V sum[at_once];
    std::memcpy(sum, edge, sizeof sum);
    std::size_t p = 0;
    if constexpr (width % 4 == 0) {
      using Groups = GroupsOfFour<T, width>;
      for (; p + 4 <= rows.depth; p += 4) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < at_once; ++v) {
          V part[4], turned[4];
#pragma GCC unroll 4
          for (std::size_t r = 0; r < 4; ++r) Groups::load(row + v * width, r, p, part[r]);
          Groups::turn(part, turned);
#pragma GCC unroll 4
          for (std::size_t q = 0; q < 4; ++q) sum[v] += a[(p + q) * a_step] * turned[q];
        }
      }
    }
    for (; p < rows.depth; ++p)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < at_once; ++v) {
        T column[width];
        for (std::size_t i = 0; i < width; ++i) column[i] = row[v * width + i][p];
        V right;
        std::memcpy(&right, column, sizeof right);
        sum[v] += a[p * a_step] * right;
      }
    std::memcpy(edge, sum, sizeof edge);
    for (std::size_t i = 0; i < count; ++i) sums[j + i] = edge[i];
  }
}
ADACC_TARGET_CODE_END

/// c (n) = a (k, in steps of a_step) times the transpose of n rows, or += with Accumulate::yes; the `bias` (n) is added
/// to a product that overwrites. rows.add(level, first row, count, worker, a, a_step, sums) adds the products of some
/// rows, each in the order of k. The processor has the level.
template <class T, class Rows>
void row_product(InstructionLevel level, Cpu& cpu, std::size_t n, std::size_t k, const T* a,
                 std::size_t a_step, const Rows& rows, T* c, Accumulate accumulate, const T* bias) {
  constexpr std::size_t at_once = most_rows_at_once<T>, wanted_tasks = 12;
  const std::size_t each = round_up(div_up(n, wanted_tasks), at_once);
  const auto task = [&](std::size_t number, int worker) {
    const std::size_t end = least(n, (number + 1) * each);
    for (std::size_t j = number * each; j < end; j += at_once) {
      const std::size_t count = least(at_once, end - j);
      if (accumulate == Accumulate::no)
        for (std::size_t i = j; i < j + count; ++i) c[i] = bias == nullptr ? T(0) : bias[i];
      if (k != 0) rows.add(level, j, count, worker, a, a_step, c + j);
    }
  };
  // A product of a few microseconds is not worth waking threads for.
  if (n != 0 && k >= (std::size_t{1} << 19) / n) return cpu.parallel(div_up(n, each), task);
  for (std::size_t i = 0; i * each < n; ++i) task(i, 0);
}

/// Adds the products of `rows` at a level.
template <class T>
void add_row_products(InstructionLevel level, MatrixRows<T> rows, const T* a, std::size_t a_step,
                      T* sums) {
  with_target(level, [&]<class Target>(Target) {
    Target::template call<add_row_products_at<T, Target>>(rows, a, a_step, sums);
  });
}

/// Rows of a matrix in memory.
template <class T>
struct RowsInPlace {
  const T* data;
  std::size_t stride, depth;

  void add(InstructionLevel level, std::size_t j, std::size_t count, int, const T* a,
           std::size_t a_step, T* sums) const {
    add_row_products(level, MatrixRows<T>{data + j * stride, count, stride, depth}, a, a_step,
                     sums);
  }
};

/// Rows of a stored matrix: multiplied as they are where their format has products, else decoded.
template <class T>
struct RowsStored {
  const ParameterMatrix<T>& matrix;
  std::size_t depth;

  void add(InstructionLevel level, std::size_t j, std::size_t count, int worker, const T* a,
           std::size_t a_step, T* sums) const {
    const StoredParameter& stored = *matrix.stored;
    const std::byte* at[most_rows_at_once<T>];
    while (count != 0) {
      const StoredParameter::Found found = stored.find_rows(matrix.first + j, count, at);
      if constexpr (std::is_same_v<T, float>) {
        if (found.format->add_products != nullptr)
          found.format->add_products(level, at, found.rows, depth / found.format->elems, a, a_step,
                                     sums);
        else add_decoded(level, j, found, worker, a, a_step, sums);
      } else add_decoded(level, j, found, worker, a, a_step, sums);
      j += found.rows;
      count -= found.rows;
      sums += found.rows;
    }
  }

 private:
  void add_decoded(InstructionLevel level, std::size_t j, StoredParameter::Found found, int worker,
                   const T* a, std::size_t a_step, T* sums) const {
    const StoredParameter& stored = *matrix.stored;
    // Whole blocks, and a tile that leaves half of a first-level cache to others.
    constexpr std::size_t wanted = 128;
    const std::size_t block = found.format->elems;
    const std::size_t at_once = block < wanted ? wanted / block * block : block;
    T* const tile =
        matrix.tiles + static_cast<std::size_t>(worker) * stored_tile_elems(stored.shape.elems());
    for (std::size_t p = 0; p < depth; p += at_once) {
      const std::size_t elems = least(at_once, depth - p);
      stored.decode_rows(matrix.first + j, found.rows, p, elems, tile, elems);
      add_row_products(level, MatrixRows<T>{tile, found.rows, elems, elems}, a + p * a_step, a_step,
                       sums);
    }
  }
};

}}}  // namespace adacc::v0_1::detail

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
