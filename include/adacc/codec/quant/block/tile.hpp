// SPDX-License-Identifier: MIT
/// The tile that a block of threads encodes: where it lies, its groups, what every thread holds.
///
/// The steps of encoding are functions of a tile, one subject a file: extremes, outliers (elements,
/// channels), codes. encode.hpp calls them in order. If the scale is of a whole row,
/// a block of threads goes through all tiles of 64 rows, so a tile can be moved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline ADACC_HD std::uint32_t* words(std::byte* at) {
  return static_cast<std::uint32_t*>(static_cast<void*>(at));
}

template <unsigned Bits, QuantOptions O, class T, class ThreadBlock>
struct QuantTile {
  using Element = T;
  using Block = ThreadBlock;
  using Thread = TileThread<T>;
  static constexpr unsigned bits = Bits;
  static constexpr QuantOptions options = O;
  static constexpr bool elements = O.outliers == Outliers::elements;
  static constexpr bool channels = O.outliers == Outliers::channels;
  static constexpr bool by_column = O.group == 0;
  static constexpr bool by_row = O.group == whole_row;
  static constexpr std::size_t slots_per_row = [] {
    if constexpr (by_column || by_row) return std::size_t{1};
    else return tile_cols / O.group;
  }();
  static constexpr std::size_t most_rows = Thread::most_rows, packet = Thread::packet;

  Block& block;
  QuantShared& shared;
  const QuantJob<T>& job;
  const QuantBlock* format = nullptr;  ///< of the 64 rows
  std::byte* bytes = nullptr;          ///< of their blob
  std::size_t row = 0;                 ///< of the tensor, the first
  std::size_t index = 0, cols = 0;     ///< of the tile
  // Zeros, though load() is what fills it: without them Int4Outlier of bfloat16 spills registers.
  typename Block::template PerThread<TilePart<T>> part = {};

  ADACC_HD void set_rows(std::size_t i) {
    format = &job.block(i);
    bytes = job.bytes(i);
    row = i * block_rows;
  }
  ADACC_HD void set_tile(std::size_t tile) {
    index = tile;
    cols = format->cols_of_tile(tile);
  }
  ADACC_HD void load(std::size_t tile) {
    set_tile(tile);
    const bool aligned = format->cols * sizeof(T) % 16 == 0 && cols % packet == 0;
    block.each([&](int me) {
      const Thread t = thread_of(me);
      const T* from = job.x + (row + t.row) * format->cols + index * tile_cols + t.col;
      part[me].load(from, format->cols, t.count, t.columns(cols), aligned);
    });
  }

  ADACC_HD Thread thread_of(int me) const {
    return Thread(static_cast<std::size_t>(me), format->rows);
  }
  ADACC_HD const T& element(std::size_t r, std::size_t c) const {
    return job.x[(row + r) * format->cols + index * tile_cols + c];
  }
  ADACC_HD QuantSection section_layout() const { return section_layout_of(cols); }
  /// Of a tile of `c` columns.
  ADACC_HD QuantSection section_layout_of(std::size_t c) const {
    return QuantSection(O, format->rows, c, sizeof(T));
  }
  ADACC_HD std::byte* section() const { return bytes + format->section(index); }

  ADACC_HD static std::size_t slot_of(std::size_t r, std::size_t c) {
    if constexpr (by_column) return c;
    else if constexpr (by_row) return r;
    else return r * slots_per_row + c / O.group;
  }
  /// Whether a slot has a group in the tile, and of how many elements (of the whole row by_row).
  ADACC_HD std::size_t size_of(std::size_t slot) const {
    if constexpr (by_column) {
      return slot < cols ? format->rows : 0;
    } else if constexpr (by_row) {
      return slot < format->rows ? format->cols : 0;
    } else {
      const std::size_t r = slot / slots_per_row, c = slot % slots_per_row * O.group;
      if (r >= format->rows || c >= cols) return 0;
      return cols - c < O.group ? cols - c : O.group;
    }
  }
  ADACC_HD std::size_t group_of(std::size_t slot) const {
    if constexpr (by_column) return index * tile_cols + slot;
    else if constexpr (by_row) return slot;
    else
      return slot / slots_per_row * format->groups_per_row + index * slots_per_row +
             slot % slots_per_row;
  }

  /// Thread `me`'s share of 0 … n - 1.
  template <class Each>
  ADACC_HD static void strided(int me, std::size_t n, const Each& each) {
    for (std::size_t i = static_cast<std::size_t>(me); i < n; i += Block::threads) each(i);
  }
};

}}}  // namespace adacc::v0_1::detail
