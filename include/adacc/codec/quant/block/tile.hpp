// SPDX-License-Identifier: MIT
/// The tile encoded by a block of threads: the location, the groups, and the elements held by each thread.
///
/// The steps of encoding are functions of a tile, one subject per file: extremes, outliers (elements, channels),
/// codes. encode.hpp calls them in order. With scales of whole rows, a block of threads goes through all tiles of 64
/// rows, so a tile can be moved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline ADACC_HD std::uint32_t* words(std::byte* at) {
  return static_cast<std::uint32_t*>(static_cast<void*>(at));
}

/// Whole: 64 rows by 256 columns, and rows of elements and codes begin at multiples of 16 bytes. Then no bounds are
/// checked.
template <unsigned Bits, QuantOptions O, class T, class ThreadBlock, bool Whole>
struct QuantTile {
  using Element = T;
  using Block = ThreadBlock;
  using Thread = TileThread<T>;
  static constexpr unsigned bits = Bits;
  static constexpr QuantOptions options = O;
  static constexpr bool whole = Whole;
  static constexpr bool channels = O.outliers == Outliers::channels;
  static constexpr bool by_column = O.group == 0;
  static constexpr bool by_row = O.group == whole_row;
  static constexpr std::size_t slots_per_row = [] {
    if constexpr (by_column || by_row) return std::size_t{1};
    else return tile_cols / O.group;
  }();
  /// Slots from one group of a row to the next: one more than 64 rows, so the groups of a row are in different banks
  /// of shared memory.
  static constexpr std::size_t slot_rows = block_rows + 1;
  /// Slots of a tile of 64 rows.
  static constexpr std::size_t slot_count = by_column ? tile_cols
                                            : by_row  ? block_rows
                                                      : slot_rows * slots_per_row;
  static_assert(slot_count <= QuantShared::slot_count);
  static constexpr std::size_t most_rows = Thread::most_rows, packet = Thread::packet;
  static constexpr std::size_t parts = Thread::parts, part_cols = Thread::part_cols;
  /// Whether each group lies in one part, so parts are encoded one after the other.
  static constexpr bool by_part =
      !channels && (by_column || (Whole && !by_row && O.group <= part_cols));
  /// Whether the threads hold the whole tile until it is encoded. Others are read again: registers would be spilled.
  static constexpr bool held_whole = by_part && parts == 1 && Whole;

  Block& block;
  QuantShared& shared;
  const QuantJob<T>& job;
  const QuantBlock* format = nullptr;  ///< the format of the 64 rows
  std::byte* bytes = nullptr;          ///< the blob's bytes of the 64 rows
  std::size_t row = 0;                 ///< the first row, in the tensor
  std::size_t index = 0, columns = 0;  ///< index and columns of the tile
  std::size_t held = 0;                ///< the part held by the threads
  bool has_marks = false;              ///< QuantShared::marked was cleared
  typename Block::template PerThread<TilePart<T>> part{};

  ADACC_HD std::size_t rows() const { return Whole ? block_rows : format->rows; }
  ADACC_HD std::size_t cols() const { return Whole ? tile_cols : columns; }

  ADACC_HD void set_rows(std::size_t i) {
    format = &job.block(i);
    bytes = job.bytes(i);
    row = i * block_rows;
  }
  ADACC_HD void set_tile(std::size_t tile) {
    index = tile;
    columns = format->cols_of_tile(tile);
  }
  ADACC_HD void load(std::size_t tile, std::size_t p) {
    set_tile(tile);
    held = p;
    const bool aligned = Whole || (format->cols * sizeof(T) % 16 == 0 && cols() % packet == 0);
    block.each([&](int me) {
      const Thread t = thread_of(me);
      const T* from = job.x + (row + t.row) * format->cols + index * tile_cols + t.col;
      part[me].load(from, format->cols, t.count, t.columns(cols()), aligned);
    });
  }
  /// Loads a part again, unless it is the last one loaded.
  ADACC_HD void load_again(std::size_t tile, std::size_t p) {
    if constexpr (parts > 1 || by_row) load(tile, p);
  }

  ADACC_HD Thread thread_of(int me) const { return thread_of(me, held); }
  ADACC_HD Thread thread_of(int me, std::size_t p) const {
    return Thread(static_cast<std::size_t>(me), rows(), p);
  }
  /// Columns of part p.
  ADACC_HD std::size_t cols_of_part(std::size_t p) const {
    const std::size_t left = cols() < p * part_cols ? 0 : cols() - p * part_cols;
    return left < part_cols ? left : part_cols;
  }
  ADACC_HD const T& element(std::size_t r, std::size_t c) const {
    return job.x[(row + r) * format->cols + index * tile_cols + c];
  }
  ADACC_HD QuantSection section_layout() const { return section_layout_of(cols()); }
  /// The section of a tile of `c` columns.
  ADACC_HD QuantSection section_layout_of(std::size_t c) const {
    return QuantSection(O, rows(), c, sizeof(T));
  }
  ADACC_HD std::byte* section() const { return bytes + format->section(index); }

  /// The slot of group k of row r: groups k of all rows lie together, as in the blob.
  ADACC_HD static std::size_t slot_at(std::size_t r, std::size_t k) { return k * slot_rows + r; }
  ADACC_HD static std::size_t slot_of(std::size_t r, std::size_t c) {
    if constexpr (by_column) return c;
    else if constexpr (by_row) return r;
    else return slot_at(r, c / O.group);
  }
  /// Elements of a slot's group in the tile (if by_row, in the whole row); 0 if the slot has none.
  ADACC_HD std::size_t size_of(std::size_t slot) const {
    if constexpr (by_column) {
      return slot < cols() ? rows() : 0;
    } else if constexpr (by_row) {
      return slot < rows() ? format->cols : 0;
    } else {
      const Divided place = divided(slot, slot_rows);
      const std::size_t r = place.remainder, c = place.quotient * O.group;
      if (r >= rows() || c >= cols()) return 0;
      return cols() - c < O.group ? cols() - c : O.group;
    }
  }
  ADACC_HD std::size_t group_of(std::size_t slot) const {
    if constexpr (by_column) {
      return index * tile_cols + slot;
    } else if constexpr (by_row) {
      return slot;
    } else {
      const Divided place = divided(slot, slot_rows);
      return (index * slots_per_row + place.quotient) * format->rows + place.remainder;
    }
  }

  /// Calls each(slot) for thread `me`'s share of the slots; if by_part, of the slots of the part.
  template <class Each>
  ADACC_HD void for_slots(int me, const Each& each) const {
    if constexpr (!by_part) {
      strided(me, slot_count, each);
    } else if constexpr (by_column) {
      strided(me, part_cols, [&](std::size_t i) { each(held * part_cols + i); });
    } else {
      constexpr std::size_t n = slots_per_row / parts;
      strided(me, block_rows * n,
              [&](std::size_t i) { each(slot_at(i % block_rows, held * n + i / block_rows)); });
    }
  }

  /// Thread `me`'s share of 0 … n - 1.
  template <class Each>
  ADACC_HD static void strided(int me, std::size_t n, const Each& each) {
    for (std::size_t i = static_cast<std::size_t>(me); i < n; i += Block::threads) each(i);
  }
};

}}}  // namespace adacc::v0_1::detail
