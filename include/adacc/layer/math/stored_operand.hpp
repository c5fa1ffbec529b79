// SPDX-License-Identifier: MIT
/// A stored matrix (model/stored_parameter.hpp) as the right operand of a product, decoded a tile at a time while the
/// product packs it.
///
/// Packed numbers are the decoded ones, in the places of a product of a decoded matrix: results have the same bits.
#pragma once

#include <cstddef>

#include "../../core/bytes.hpp"
#include "../../core/dtype.hpp"
#include "../../core/extremes.hpp"
#include "../../model/parameter.hpp"
#include "gemm.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Elements that a worker decodes at a time from a matrix of so many.
constexpr std::size_t stored_tile_elems(std::size_t elems) {
  constexpr std::size_t most = 48 * BlockFormat::most_elems, unit = alignment / sizeof(float);
  return round_up(smaller(elems, most), unit);
}

/// LayerNeeds::decode_tiles of a layer with products of this matrix.
constexpr std::size_t stored_tile_bytes(Shape matrix, Dtype scalar, int workers) {
  return stored_tile_elems(matrix.elems()) * bytes_of(wide(scalar)) *
         static_cast<std::size_t>(workers);
}

/// The matrix, which is B, or its transpose is.
template <class T>
struct StoredOperand {
  ParameterMatrix<T> matrix;
  bool transposed = false;

  /// Decodes a block of B, `depth` rows from p0 and `cols` columns from j0 on, for pack(panel, columns, first k, depth,
  /// tile): both numbered in the block, whose panels have `panel_cols` columns. Begins and depths are even, but for the
  /// end. `parallel` is of the product.
  template <std::size_t panel_cols, class Parallel, class Pack>
  void pack_block(const Parallel& parallel, std::size_t p0, std::size_t depth, std::size_t j0,
                  std::size_t cols, const Pack& pack) const {
    const StoredParameter& stored = *matrix.stored;
    const auto tile_of = [&](int worker) {
      return matrix.tiles +
             static_cast<std::size_t>(worker) * stored_tile_elems(stored.shape.elems());
    };
    if (transposed) {
      constexpr std::size_t at_once = BlockFormat::most_elems;  // whole blocks
      static_assert(panel_cols * at_once <= stored_tile_elems(static_cast<std::size_t>(-1) / 2));
      return parallel(div_up(cols, panel_cols), [&](std::size_t panel, int worker) {
        T* const tile = tile_of(worker);
        const std::size_t j = panel * panel_cols, count = least(panel_cols, cols - j);
        for (std::size_t p = p0; p < p0 + depth;) {
          const std::size_t n = least(at_once - p % at_once, p0 + depth - p);
          stored.decode_rows(matrix.first + j0 + j, count, p, n, tile, n);
          pack(panel, count, p - p0, n, Operand<T>{tile, 1, n});
          p += n;
        }
      });
    }
    constexpr std::size_t rows_at_once = 8, cols_at_once = 768;
    static_assert(cols_at_once % panel_cols == 0);
    parallel(div_up(depth, rows_at_once), [&](std::size_t piece, int worker) {
      T* const tile = tile_of(worker);
      const std::size_t p = piece * rows_at_once, n = least(rows_at_once, depth - p);
      for (std::size_t first = 0; first < cols; first += cols_at_once) {
        const std::size_t count = least(cols_at_once, cols - first);
        stored.decode_rows(matrix.first + p0 + p, n, j0 + first, count, tile, count);
        for (std::size_t j = 0; j < count; j += panel_cols)
          pack((first + j) / panel_cols, least(panel_cols, count - j), p, n,
               Operand<T>{tile + j, count, 1});
      }
    });
  }
};

/// Packs a stored operand for `gemm`.
template <class T>
struct PackStored {
  StoredOperand<T> b;

  template <class Parallel>
  void pack_block(const Parallel& parallel, std::size_t p0, std::size_t depth, std::size_t j0,
                  std::size_t cols, T* to) const {
    using Blocks = GemmBlocks<T>;
    b.template pack_block<Blocks::panel>(
        parallel, p0, depth, j0, cols,
        [&](std::size_t panel, std::size_t count, std::size_t p, std::size_t n, Operand<T> tile) {
          pack_panel(count, n, tile,
                     to + panel * Blocks::panel * depth + p * round_up(count, Blocks::width));
        });
  }
};

}}}  // namespace adacc::v0_1::detail
