// SPDX-License-Identifier: MIT
/// Extremes of the groups of a tile, by a block of threads (tile.hpp).
///
/// If outliers are single elements, they are found twice: of each quarter of a group, from
/// which its threshold follows (elements.hpp), and again without what has a place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Of a thread's rows.
template <class Tile>
struct RowExtremes {
  std::int32_t lo[Tile::most_rows], hi[Tile::most_rows];
};

/// Extremes of a thread's rows over columns begin … end - 1 of the tile.
template <class Tile, class Rows>
ADACC_HD void reduce_rows(Tile& tile, Rows& rows, std::size_t begin, std::size_t end) {
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    const auto& part = tile.part[me];
    ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
      std::int32_t lo = empty_lo, hi = empty_hi;
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        const std::int32_t o = ordered(part.at(i, j));
        const bool in = i < t.count && t.col + j >= begin && t.col + j < end;
        lo = in ? smaller_of(lo, o) : lo, hi = in ? larger_of(hi, o) : hi;
      }
      rows[me].lo[i] = lo, rows[me].hi[i] = hi;
    }
  });
}

/// Merges the extremes of `width` neighbouring threads: all of them get the result.
template <int width, class Tile, class Rows>
ADACC_HD void merge_lanes(Tile& tile, Rows& rows) {
  tile.block.template lanes<width>(
      [&](int me) -> auto& { return rows[me].lo; },
      [](std::int32_t a, std::int32_t b) { return smaller_of(a, b); });
  tile.block.template lanes<width>(
      [&](int me) -> auto& { return rows[me].hi; },
      [](std::int32_t a, std::int32_t b) { return larger_of(a, b); });
}

/// Widens slice `slice` of group k of every row by columns begin … end - 1, counted from `origin`
/// to the left of the tile.
template <class Tile>
ADACC_HD void reduce_stretch(Tile& tile, std::size_t begin, std::size_t end, std::size_t origin,
                             std::size_t k, std::size_t slice) {
  begin = begin < origin ? 0 : begin - origin;
  end = end < origin ? 0 : end - origin;
  end = end < tile.cols ? end : tile.cols;
  if (begin >= end) return;
  typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
  reduce_rows(tile, rows, begin, end);
  merge_lanes<32>(tile, rows);
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    if (me % 32 != 0) return;
    ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
      if (i >= t.count) continue;
      const std::size_t at = ((t.row + i) * Tile::slots_per_row + k) * 4 + slice;
      Tile::Block::minimum(tile.shared.slice.lo[at], rows[me].lo[i]);
      Tile::Block::maximum(tile.shared.slice.hi[at], rows[me].hi[i]);
    }
  });
}

/// Extremes of every slice of every group.
template <class Tile>
ADACC_HD void reduce_slices(Tile& tile) {
  if constexpr (Tile::by_column) {
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        std::int32_t lo = empty_lo, hi = empty_hi;
        ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
          if (i >= t.count) continue;
          const std::int32_t o = ordered(part.at(i, j));
          lo = smaller_of(lo, o), hi = larger_of(hi, o);
        }
        tile.shared.slice.lo[t.band * tile_cols + t.col + j] = lo;
        tile.shared.slice.hi[t.band * tile_cols + t.col + j] = hi;
      }
    });
  } else if constexpr (Tile::by_row) {
    for (std::size_t slice = 0; slice < 4; ++slice)
      reduce_stretch(tile, slice_begin(tile.format->cols, slice),
                     slice_begin(tile.format->cols, slice + 1), tile.index * tile_cols, 0, slice);
  } else {
    constexpr std::size_t quarter = Tile::options.group / 4;
    const std::size_t full = tile.cols / Tile::options.group * Tile::options.group;
    typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
    reduce_rows(tile, rows, 0, full);
    merge_lanes<static_cast<int>(quarter / Tile::packet)>(tile, rows);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      if (t.col % quarter != 0 || t.col >= full) return;
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        if (i >= t.count) continue;
        const std::size_t slice = (t.row + i) * (4 * Tile::slots_per_row) + t.col / quarter;
        tile.shared.slice.lo[slice] = rows[me].lo[i], tile.shared.slice.hi[slice] = rows[me].hi[i];
      }
    });
    if (full == tile.cols) return;
    for (std::size_t slice = 0; slice < 4; ++slice)
      reduce_stretch(tile, full + slice_begin(tile.cols - full, slice),
                     full + slice_begin(tile.cols - full, slice + 1), 0, full / Tile::options.group,
                     slice);
  }
}

/// Which of a thread's columns have places, as bits.
template <class Tile>
ADACC_HD std::uint32_t placed_in(const Tile& tile, std::size_t row, std::size_t col) {
  if constexpr (Tile::options.outliers == Outliers::none) return 0;
  const std::size_t word = (Tile::elements ? row * 8 : 0) + col / 32;
  return tile.shared.placed[word] >> col % 32;
}

/// Widens the groups by what has no place.
template <class Tile>
ADACC_HD void widen_groups(Tile& tile) {
  if constexpr (Tile::by_column) {
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      const std::size_t columns = t.columns(tile.cols);
      std::int32_t lo[Tile::packet], hi[Tile::packet];
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) lo[j] = empty_lo,
                                                                  hi[j] = empty_hi;
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        if (i >= t.count) continue;
        const std::uint32_t placed = placed_in(tile, t.row + i, t.col);
        ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
          const std::int32_t o = ordered(part.at(i, j));
          const bool in = (placed >> j & 1) == 0;
          lo[j] = in ? smaller_of(lo[j], o) : lo[j], hi[j] = in ? larger_of(hi[j], o) : hi[j];
        }
      }
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        if (j >= columns) continue;
        Tile::Block::minimum(tile.shared.lo[t.col + j], lo[j]);
        Tile::Block::maximum(tile.shared.hi[t.col + j], hi[j]);
      }
    });
  } else {
    constexpr std::size_t wanted = Tile::by_row ? 32 : Tile::options.group / Tile::packet;
    constexpr std::size_t width = wanted < 32 ? wanted : 32;
    typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      const std::size_t columns = t.columns(tile.cols);
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        std::int32_t lo = empty_lo, hi = empty_hi;
        const std::uint32_t placed = i < t.count ? placed_in(tile, t.row + i, t.col) : 0;
        ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
          const std::int32_t o = ordered(part.at(i, j));
          const bool in = i < t.count && j < columns && (placed >> j & 1) == 0;
          lo = in ? smaller_of(lo, o) : lo, hi = in ? larger_of(hi, o) : hi;
        }
        rows[me].lo[i] = lo, rows[me].hi[i] = hi;
      }
    });
    merge_lanes<static_cast<int>(width)>(tile, rows);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      if (static_cast<std::size_t>(me) % width != 0 || t.col >= tile.cols) return;
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        if (i >= t.count) continue;
        Tile::Block::minimum(tile.shared.lo[Tile::slot_of(t.row + i, t.col)], rows[me].lo[i]);
        Tile::Block::maximum(tile.shared.hi[Tile::slot_of(t.row + i, t.col)], rows[me].hi[i]);
      }
    });
  }
}

/// Starts extremes anew, because some of what they hold will get places.
template <class Tile>
ADACC_HD void restart_groups(Tile& tile) {
  tile.block.each([&](int me) {
    Tile::strided(me, QuantShared::slots, [&](std::size_t i) {
      tile.shared.lo[i] = empty_lo, tile.shared.hi[i] = empty_hi;
    });
  });
}

}}}  // namespace adacc::v0_1::detail
