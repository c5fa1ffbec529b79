// SPDX-License-Identifier: MIT
/// Tiles of rows or elements, and sums over rows: shared by elementwise and normalizing layers.
///
/// Tiles are chosen from the shape alone and every tile starts at the same place whatever the number of threads. So
/// vectorized loops have their tails at the same elements, and bits never depend on the thread. 16 Ki elements are 64
/// KiB of float: they stay in a second-level cache, and a pool has enough of them to share.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../../core/bytes.hpp"
#include "../../core/cpu.hpp"
#include "../../core/view.hpp"
#include "../../model/split.hpp"
#include "eigen.hpp"
#include "shapes.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr std::size_t tile_elems = 16 * 1024;

/// Elements kept on the stack by a kernel between two vectorized expressions; divides tile_elems.
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

/// Sums over rows: chunks of 32 rows each have a partial sum of their own, and these are added to
/// the whole in order. So if the rows are cut into several calls at multiples of 32 rows, as they are
/// wherever a part has as many (model/split.hpp), the sums have the same bits.
struct RowChunks {
  static constexpr std::size_t chunk_rows = summed_rows;
  static constexpr std::size_t most = 32;  ///< partial sums with room at a time

  std::size_t rows;

  constexpr explicit RowChunks(std::size_t matrix_rows) : rows(matrix_rows) {}

  constexpr std::size_t count() const { return div_up(rows, chunk_rows); }
  /// Partial sums needed at a time.
  constexpr std::size_t partials() const { return count() < most ? count() : most; }
  constexpr std::size_t first(std::size_t chunk) const { return chunk * chunk_rows; }
  constexpr std::size_t last(std::size_t chunk) const {
    return rows - first(chunk) < chunk_rows ? rows : first(chunk) + chunk_rows;
  }
};

/// sum[c] += partials[0][c], then partials[1][c], and so on; partial sum k begins at
/// partials + k * stride.
template <class T>
void add_partials(const Cpu& cpu, const T* partials, std::size_t count, std::size_t stride,
                  View<T> sum) {
  for_each_piece(cpu, sum.size(), stack_elems, [&](std::size_t first, std::size_t n) {
    auto total = as_array(sum.data() + first, n);
    for (std::size_t k = 0; k < count; ++k) total += as_array(partials + k * stride + first, n);
  });
}

/// Calls body(first_row, last_row, partial) for every chunk, where `partial` are `stride` elements,
/// zeros at first, and end(partials, count) once for every RowChunks::most of them, in order.
template <class T, class Body, class End>
void sum_over_rows(const Cpu& cpu, std::size_t rows, std::size_t stride, T* partials,
                   const Body& body, const End& end) {
  const RowChunks chunks(rows);
  for (std::size_t round = 0; round < chunks.count(); round += RowChunks::most) {
    const std::size_t left = chunks.count() - round;
    const std::size_t count = left < RowChunks::most ? left : RowChunks::most;
    cpu.parallel(count, [&](std::size_t i, int) {
      T* const partial = partials + i * stride;
      as_array(partial, stride).setZero();
      body(chunks.first(round + i), chunks.last(round + i), partial);
    });
    end(partials, count);
  }
}

}}}  // namespace adacc::v0_1::detail
