/// Tiles of rows or elements, and sums over rows, as the elementwise and the normalizing layers
/// share them.
///
/// Tiles are chosen from the shape alone and every one of them starts at the same place whatever
/// the number of threads, so that vectorized loops have their tails at the same elements and bits
/// never depend on who ran what. 16 Ki elements are 64 KiB of float: they stay in a second-level
/// cache, and a pool has enough of them to share.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/cpu.hpp"
#include "../core/view.hpp"
#include "shapes.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr std::size_t tile_elems = 16 * 1024;

/// Elements that a kernel keeps on the stack between two vectorized expressions; divides
/// tile_elems.
inline constexpr std::size_t stack_elems = 512;

/// `count` elements from `data`, as a vector of Eigen array expressions.
template <class T>
auto as_array(T* data, std::size_t count) {
  using Array = Eigen::Array<std::remove_const_t<T>, Eigen::Dynamic, 1>;
  using Mapped = std::conditional_t<std::is_const_v<T>, const Array, Array>;
  return Eigen::Map<Mapped>(data, static_cast<Eigen::Index>(count));
}

/// An expression's value on the stack, at most stack_elems elements: never on the heap.
template <class T>
using StackArray = Eigen::Array<T, Eigen::Dynamic, 1, 0, static_cast<int>(stack_elems), 1>;

/// Raw memory as elements of T.
template <class T>
T* elements(Bytes memory) {
  return static_cast<T*>(static_cast<void*>(memory.data()));
}
template <class T>
const T* elements(ConstBytes memory) {
  return static_cast<const T*>(static_cast<const void*>(memory.data()));
}

/// Calls body(first, count) for the pieces of [0, elems), `piece` elements each but the last;
/// tile_elems of them go to one thread.
template <class Body>
void for_each_piece(const Cpu& cpu, std::size_t elems, std::size_t piece, const Body& body) {
  cpu.parallel(div_up(elems, tile_elems), [&](std::size_t tile, int) {
    const std::size_t first = tile * tile_elems;
    const std::size_t last = elems - first < tile_elems ? elems : first + tile_elems;
    for (std::size_t i = first; i < last; i += piece) body(i, last - i < piece ? last - i : piece);
  });
}

/// Calls body(row) for every row of a matrix, about tile_elems elements on one thread.
template <class Body>
void for_each_row(const Cpu& cpu, std::size_t rows, std::size_t cols, const Body& body) {
  const std::size_t tile_rows = cols < tile_elems ? tile_elems / cols : 1;
  cpu.parallel(div_up(rows, tile_rows), [&](std::size_t tile, int) {
    const std::size_t first = tile * tile_rows;
    const std::size_t last = rows - first < tile_rows ? rows : first + tile_rows;
    for (std::size_t row = first; row < last; ++row) body(row);
  });
}

/// Rows cut into at most 32 chunks of at least 16 rows, for sums over rows: each chunk has a
/// partial sum of its own, and the partial sums are added in order.
struct RowChunks {
  std::size_t rows;
  std::size_t chunk_rows;
  std::size_t count;

  constexpr explicit RowChunks(std::size_t matrix_rows)
      : rows(matrix_rows), chunk_rows(div_up(matrix_rows, 32) < 16 ? 16 : div_up(matrix_rows, 32)),
        count(div_up(matrix_rows, chunk_rows)) {}

  constexpr std::size_t first(std::size_t chunk) const { return chunk * chunk_rows; }
  constexpr std::size_t last(std::size_t chunk) const {
    return rows - first(chunk) < chunk_rows ? rows : first(chunk) + chunk_rows;
  }
};

/// sum[c] += partials[0][c] + partials[1][c] + …, where partial sum k begins at
/// partials + k * stride. Overwrites partials[0].
template <class T>
void add_partials(const Cpu& cpu, T* partials, std::size_t count, std::size_t stride, View<T> sum) {
  for_each_piece(cpu, sum.size(), stack_elems, [&](std::size_t first, std::size_t n) {
    auto total = as_array(partials + first, n);
    for (std::size_t k = 1; k < count; ++k) total += as_array(partials + k * stride + first, n);
    as_array(sum.data() + first, n) += total;
  });
}

}}}  // namespace adacc::v0_1::detail
