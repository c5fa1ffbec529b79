// SPDX-License-Identifier: MIT
/// Extremes of the groups of a tile, by a block of threads (tile.hpp).
///
/// If outliers are single elements, extremes are found twice: for each quarter of a group, from which the threshold
/// follows (elements.hpp), and again without the elements that have a place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The extremes of a thread's rows.
template <class Tile>
struct RowExtremes {
  std::int32_t lo[Tile::most_rows], hi[Tile::most_rows];
};

/// The extremes of a few numbers; of none, +infinity and -infinity. A NaN makes both NaN, which serves as well as the
/// bits of that NaN: its group is beyond every threshold.
struct Spread {
  float lo = bits_as<float>(0x7F800000U), hi = bits_as<float>(0xFF800000U);

  ADACC_HD void add(float x) { lo = least_of(lo, x), hi = most_of(hi, x); }
};

template <class Tile>
ADACC_HD void widen_group(Tile& tile, std::size_t slot, const Spread& spread) {
  Tile::Block::minimum(tile.shared.lo[slot], ordered(spread.lo));
  Tile::Block::maximum(tile.shared.hi[slot], ordered(spread.hi));
}

/// Extremes of a thread's rows over columns begin … end - 1 of the tile.
template <class Tile, class Rows>
ADACC_HD void reduce_rows(Tile& tile, Rows& rows, std::size_t begin, std::size_t end) {
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    const auto& part = tile.part[me];
    ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
      Spread spread;
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet;
                        ++j) if (i < t.count && t.col + j >= begin && t.col + j < end)
          spread.add(part.at(i, j));
      rows[me].lo[i] = ordered(spread.lo), rows[me].hi[i] = ordered(spread.hi);
    }
  });
}

/// Merges the extremes of `width` neighbouring threads; all of these get the result.
template <int width, class Tile, class Rows>
ADACC_HD void merge_lanes(Tile& tile, Rows& rows) {
  tile.block.template lanes<width>(
      [&](int me) -> auto& { return rows[me].lo; },
      [](std::int32_t a, std::int32_t b) { return smaller(a, b); });
  tile.block.template lanes<width>(
      [&](int me) -> auto& { return rows[me].hi; },
      [](std::int32_t a, std::int32_t b) { return larger(a, b); });
}

/// Widens slice `slice` of group k of every row by columns begin … end - 1, counted from `origin`
/// to the left of the tile.
template <class Tile>
ADACC_HD void reduce_stretch(Tile& tile, std::size_t begin, std::size_t end, std::size_t origin,
                             std::size_t k, std::size_t slice) {
  begin = begin < origin ? 0 : begin - origin;
  end = end < origin ? 0 : end - origin;
  const std::size_t left = tile.held * Tile::part_cols;
  const std::size_t right = left + tile.cols_of_part(tile.held);
  begin = begin < left ? left : begin;
  end = end < right ? end : right;
  if (begin >= end) return;
  typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
  reduce_rows(tile, rows, begin, end);
  merge_lanes<32>(tile, rows);
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    if (me % 32 != 0) return;
    ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
      if (i >= t.count) continue;
      const std::size_t at = Tile::slot_at(t.row + i, k) * 4 + slice;
      Tile::Block::minimum(tile.shared.slice.lo[at], rows[me].lo[i]);
      Tile::Block::maximum(tile.shared.slice.hi[at], rows[me].hi[i]);
    }
  });
}

/// Reduces a thread's columns over its rows, to its band of the slices.
template <class Tile>
ADACC_HD void reduce_columns(Tile& tile) {
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    const auto& part = tile.part[me];
    using Part = TilePart<typename Tile::Element>;
    constexpr std::size_t words = Part::words;
    typename Part::Word lo[words], hi[words];
    ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) lo[w] = hi[w] = part.rows[0][w];
    ADACC_UNROLL for (std::size_t i = 1; i < Tile::most_rows; ++i) {
      if (i >= t.count) continue;
      ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) lo[w] = least_of(lo[w], part.rows[i][w]),
                                                           hi[w] = most_of(hi[w], part.rows[i][w]);
    }
    SmallPacket<std::int32_t, 4> low, high;
    ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
      low.at[j % 4] = t.count == 0 ? empty_lo : ordered(Part::number(lo, j));
      high.at[j % 4] = t.count == 0 ? empty_hi : ordered(Part::number(hi, j));
      if (j % 4 != 3) continue;
      const std::size_t at = t.band * tile_cols + t.col + j - 3;
      store_packet(&tile.shared.slice.lo[at], low);
      store_packet(&tile.shared.slice.hi[at], high);
    }
  });
}

/// Finds the extremes of each slice of each group; groups without thresholds may use any slices.
template <class Tile>
ADACC_HD void reduce_slices(Tile& tile) {
  if constexpr (Tile::by_column) {
    reduce_columns(tile);
  } else if constexpr (Tile::by_row) {
    constexpr std::size_t slices = Tile::options.outliers == Outliers::none ? 1 : 4;
    for (std::size_t slice = 0; slice < slices; ++slice)
      reduce_stretch(tile, slice_begin(tile.format->cols, slice * (4 / slices)),
                     slice_begin(tile.format->cols, (slice + 1) * (4 / slices)),
                     tile.index * tile_cols, 0, slice);
  } else {
    constexpr std::size_t quarter = Tile::options.group / 4;
    const std::size_t full = tile.cols() / Tile::options.group * Tile::options.group;
    typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
    reduce_rows(tile, rows, 0, full);
    merge_lanes<static_cast<int>(quarter / Tile::packet)>(tile, rows);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      if (t.col % quarter != 0 || t.col >= full) return;
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        if (i >= t.count) continue;
        const std::size_t slice =
            Tile::slot_of(t.row + i, t.col) * 4 + t.col % Tile::options.group / quarter;
        tile.shared.slice.lo[slice] = rows[me].lo[i], tile.shared.slice.hi[slice] = rows[me].hi[i];
      }
    });
    if (full == tile.cols()) return;
    for (std::size_t slice = 0; slice < 4; ++slice)
      reduce_stretch(tile, full + slice_begin(tile.cols() - full, slice),
                     full + slice_begin(tile.cols() - full, slice + 1), 0,
                     full / Tile::options.group, slice);
  }
}

/// The columns of a thread that have places, as bits.
template <class Tile>
ADACC_HD std::uint32_t placed_in(const Tile& tile, std::size_t row, std::size_t col) {
  if constexpr (Tile::options.outliers == Outliers::none) return 0;
  const std::size_t word = (!Tile::channels ? row * 8 : 0) + col / 32;
  return tile.shared.placed[word] >> col % 32;
}

/// Whether the extremes of a slot are still to be found. Without outliers that may have places, they are the extremes
/// of its slices.
template <class Tile>
ADACC_HD bool is_open(const Tile& tile, std::size_t slot) {
  if constexpr (Tile::channels) return true;
  else return has_beyond(tile, slot);
}

/// Widens the groups by the held elements that have no place.
template <class Tile>
ADACC_HD void widen_groups(Tile& tile) {
  if constexpr (Tile::by_column) {
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      const std::size_t columns = t.columns(tile.cols());
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        if (j >= columns) continue;
        Spread spread;
        ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows;
                          ++i) if (i < t.count && (placed_in(tile, t.row + i, t.col) >> j & 1) == 0)
            spread.add(part.at(i, j));
        widen_group(tile, t.col + j, spread);
      }
    });
  } else {
    constexpr std::size_t wanted = Tile::by_row ? 32 : Tile::options.group / Tile::packet;
    constexpr std::size_t width = wanted < 32 ? wanted : 32;
    typename Tile::Block::template PerThread<RowExtremes<Tile>> rows;
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      const std::size_t columns = t.columns(tile.cols());
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        Spread spread;
        const std::uint32_t placed = i < t.count ? placed_in(tile, t.row + i, t.col) : 0;
        ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet;
                          ++j) if (i < t.count && j < columns && (placed >> j & 1) == 0)
            spread.add(part.at(i, j));
        rows[me].lo[i] = ordered(spread.lo), rows[me].hi[i] = ordered(spread.hi);
      }
    });
    merge_lanes<static_cast<int>(width)>(tile, rows);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      if (static_cast<std::size_t>(me) % width != 0 || t.col >= tile.cols()) return;
      ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
        if (i >= t.count) continue;
        Tile::Block::minimum(tile.shared.lo[Tile::slot_of(t.row + i, t.col)], rows[me].lo[i]);
        Tile::Block::maximum(tile.shared.hi[Tile::slot_of(t.row + i, t.col)], rows[me].hi[i]);
      }
    });
  }
}

/// Whether a group has an element beyond its threshold.
template <class Tile>
ADACC_HD bool has_beyond(const Tile& tile, std::size_t slot) {
  return tile.shared.threshold[slot] != nothing_beyond;
}

/// Rows of a column that for_open() reads before the first is looked at, so that a block waits for memory once. With more,
/// registers would be spilled.
template <class Tile>
inline constexpr std::size_t rows_together = Tile::held_whole ? 1 : Tile::most_rows / Tile::parts;

/// The columns with something beyond, of the first `columns` of a packet from col: bit j for column j.
template <class Tile>
ADACC_HD std::uint32_t open_columns(const Tile& tile, std::size_t col, std::size_t columns) {
  std::uint32_t open = 0;
  ADACC_UNROLL for (std::size_t p = 0; p < Tile::packet; p += 4) {
    const auto four = load_packet<SmallPacket<std::int32_t, 4>>(&tile.shared.threshold[col + p]);
    ADACC_UNROLL for (std::size_t j = 0; j < 4; ++j) open |=
        (four.at[j] != nothing_beyond ? 1U : 0U) << (p + j);
  }
  return open & ((1U << columns) - 1);
}

/// Calls visit(row, column, number, k) for element k of a thread's elements of a group with something beyond, and
/// end(slot, row, column) behind each group, with the place of element 0. These elements are few. Threads that do not
/// hold the whole tile read them again: no registers are held for them.
template <class Tile, class Visit, class End>
ADACC_HD void for_open(const Tile& tile, int me, const Visit& visit, const End& end) {
  for (std::size_t p = 0; p < Tile::parts; ++p) {
    const auto t = tile.thread_of(me, p);
    const std::size_t columns = t.columns(tile.cols());
    const auto number = [&](std::size_t i, std::size_t j) {
      if constexpr (Tile::by_column && Tile::held_whole) return tile.part[me].selected(i, j);
      else return static_cast<float>(to_number(tile.element(t.row + i, t.col + j)));
    };
    const auto seen = [&](std::size_t i, std::size_t j, float x) {
      visit(t.row + i, t.col + j, x, Tile::by_column ? i : j);
    };
    if constexpr (Tile::by_column) {
      constexpr std::size_t together = rows_together<Tile>;
      for (std::uint32_t open = open_columns(tile, t.col, columns); open != 0; open &= open - 1) {
        const std::size_t j = lowest_bit(open);
        ADACC_UNROLL for (std::size_t first = 0; first < Tile::most_rows; first += together) {
          float column[together];
          ADACC_UNROLL for (std::size_t i = 0; i < together; ++i) column[i] =
              first + i < t.count ? number(first + i, j) : 0.0F;
          ADACC_UNROLL for (std::size_t i = 0; i < together; ++i) if (first + i < t.count)
              seen(first + i, j, column[i]);
        }
        end(t.col + j, t.row, t.col + j);
      }
    } else {
      for (std::size_t i = 0; i < t.count; ++i) {
        const std::size_t slot = Tile::slot_of(t.row + i, t.col);
        if (columns == 0 || !has_beyond(tile, slot)) continue;
        for (std::size_t j = 0; j < columns; ++j) seen(i, j, number(i, j));
        end(slot, t.row + i, t.col);
      }
    }
  }
}

template <class Tile>
ADACC_HD void clear_marks(Tile& tile) {
  tile.block.each([&](int me) {
    Tile::strided(me, Tile::slot_count, [&](std::size_t i) { tile.shared.marked[i] = 0; });
  });
}

/// Widens groups with magnitudes beyond largest_magnitude by their numbers without a place, and marks groups with
/// NaNs or infinities without one. Rare.
template <class Tile>
ADACC_HD void widen_or_mark(Tile& tile, int me) {
  for_open(
      tile, me,
      [&](std::size_t row, std::size_t col, float x, std::size_t) {
        if ((placed_in(tile, row, col) & 1) != 0) return;
        const std::size_t slot = Tile::slot_of(row, col);
        if (is_number(x)) {
          Tile::Block::minimum(tile.shared.lo[slot], saturated(ordered(x)));
          Tile::Block::maximum(tile.shared.hi[slot], saturated(ordered(x)));
        } else {
          Tile::Block::maximum(tile.shared.marked[slot], std::uint32_t{1});
          Tile::Block::maximum(tile.shared.any_marked, std::uint32_t{1});
        }
      },
      [](std::size_t, std::size_t, std::size_t) {});
}

/// Widens the groups with something beyond, in all parts, by the numbers without a place; marks groups with NaNs or
/// infinities without one. flag_elements() has widened them where every flagged element has a place.
template <class Tile>
ADACC_HD void widen_open_groups(Tile& tile) {
  if (!tile.has_marks) clear_marks(tile);
  tile.has_marks = true;
  tile.block.each([&](int me) {
    Spread spread;
    bool beyond = false;
    for_open(
        tile, me,
        [&](std::size_t row, std::size_t col, float x, std::size_t) {
          if ((placed_in(tile, row, col) & 1) == 0) spread.add(x);
        },
        [&](std::size_t slot, std::size_t, std::size_t) {
          const std::int32_t lo = ordered(spread.lo), hi = ordered(spread.hi);
          if (lo <= hi && larger(magnitude_of(lo), magnitude_of(hi)) > largest_magnitude)
            beyond = true;
          else widen_group(tile, slot, spread);
          spread = {};
        });
    if (beyond) widen_or_mark(tile, me);
  });
}

/// If outliers are columns: keeps the extremes of earlier tiles, for saturate_groups().
template <class Tile>
ADACC_HD void keep_extremes(Tile& tile) {
  if constexpr (Tile::by_row)
    tile.block.each([&](int me) {
      Tile::strided(me, Tile::slot_count, [&](std::size_t i) {
        tile.shared.slice.lo[i] = tile.shared.lo[i], tile.shared.slice.hi[i] = tile.shared.hi[i];
      });
    });
}

/// If outliers are columns: finds the extremes of groups with magnitudes beyond largest_magnitude again.
template <class Tile>
ADACC_HD void saturate_groups(Tile& tile) {
  typename Tile::Block::template PerThread<bool> found;
  tile.block.each([&](int me) {
    found[me] = false;
    Tile::strided(me, Tile::slot_count, [&](std::size_t i) {
      QuantShared& s = tile.shared;
      const bool beyond = s.lo[i] <= s.hi[i] &&
                          larger(magnitude_of(s.lo[i]), magnitude_of(s.hi[i])) > largest_magnitude;
      s.threshold[i] = beyond ? largest_magnitude : nothing_beyond;
      if (!beyond) return;
      found[me] = true;
      s.lo[i] = Tile::by_row ? s.slice.lo[i] : empty_lo;
      s.hi[i] = Tile::by_row ? s.slice.hi[i] : empty_hi;
    });
  });
  if (!tile.block.any([&](int me) { return found[me]; })) return;
  widen_open_groups(tile);
}

}}}  // namespace adacc::v0_1::detail
