// SPDX-License-Identifier: MIT
/// Single elements as outliers, by a block of threads: thresholds, places, the section of a tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../quantize.hpp"
#include "extremes.hpp"
#include "groups.hpp"
#include "outlier_cut.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Turns slices into thresholds. Groups with nothing beyond are finished, the others emptied; returns whether there
/// are others.
template <class Tile>
ADACC_HD bool find_thresholds(Tile& tile) {
  struct Found {
    std::int32_t largest[1];
    bool beyond;
  };
  typename Tile::Block::template PerThread<Found> found;
  tile.block.each([&](int me) {
    Found& result = found[me];
    result = {{0}, false};
    tile.for_slots(me, [&](std::size_t slot) {
      const std::size_t size = tile.size_of(slot);
      if (size == 0) {
        // Columns are read four at a time, also beyond the last one.
        if (Tile::by_column) tile.shared.threshold[slot] = nothing_beyond;
        return;
      }
      // One load each. Whether the compiler joins four loads depends on the path of the source.
      using Slices = SmallPacket<std::int32_t, 4>;
      Slices low{}, high{};
      if constexpr (!Tile::by_column) {
        low = load_packet<Slices>(&tile.shared.slice.lo[slot * 4]);
        high = load_packet<Slices>(&tile.shared.slice.hi[slot * 4]);
      }
      std::int32_t m[4], lo = empty_lo, hi = empty_hi;
      ADACC_UNROLL for (std::size_t slice = 0; slice < 4; ++slice) {
        std::int32_t l = empty_lo, h = empty_hi;
        if constexpr (Tile::by_column) {
          constexpr std::size_t bands = Tile::Thread::bands / 4;
          ADACC_UNROLL for (std::size_t band = 0; band < bands; ++band) {
            const std::size_t at = (slice * bands + band) * tile_cols + slot;
            l = smaller(l, tile.shared.slice.lo[at]), h = larger(h, tile.shared.slice.hi[at]);
          }
        } else {
          l = low.at[slice], h = high.at[slice];
        }
        m[slice] = larger(magnitude_of(l), magnitude_of(h));
        lo = smaller(lo, l), hi = larger(hi, h);
      }
      std::int32_t limit = largest_magnitude;
      if (Tile::options.outliers == Outliers::elements)
        limit = group_threshold(m[0], m[1], m[2], m[3], size, Tile::options.outlier_ratio);
      const std::int32_t most = larger(magnitude_of(lo), magnitude_of(hi));
      if (most > limit) {
        tile.shared.threshold[slot] = limit;
        tile.shared.lo[slot] = empty_lo, tile.shared.hi[slot] = empty_hi;
        result.beyond = true;
      } else {
        tile.shared.threshold[slot] = nothing_beyond;
        result.largest[0] = larger(result.largest[0], most);
        finish_group(tile, slot, lo, hi);
      }
    });
  });
  tile.block.template lanes<32>(
      [&](int me) -> auto& { return found[me].largest; },
      [](std::int32_t a, std::int32_t b) { return larger(a, b); });
  return tile.block.any([&](int me) {
    if (me % 32 == 0)
      Tile::Block::maximum(tile.shared.largest, static_cast<std::uint32_t>(found[me].largest[0]));
    return found[me].beyond;
  });
}

template <class Tile>
ADACC_HD void clear_section(Tile& tile) {
  tile.block.each([&](int me) {
    std::uint32_t* const to = words(tile.section());
    Tile::strided(me, tile.section_layout().bytes / 4, [&](std::size_t i) { to[i] = 0; });
  });
}

/// Counts and lists the flagged elements of a tile, and clears the section. Widens the groups with something beyond by
/// the elements that are not flagged. QuantShared::listed is 0 before.
template <class Tile>
ADACC_HD void flag_elements(Tile& tile) {
  tile.block.each([&](int me) {
    QuantShared& s = tile.shared;
    std::uint32_t* const to = words(tile.section());
    Tile::strided(me, tile.section_layout().bytes / 4, [&](std::size_t i) { to[i] = 0; });
    std::int32_t largest = 0;
    std::uint32_t nonfinite = 0;
    std::uint32_t flags = 0;
    Spread spread;
    for_open(
        tile, me,
        [&](std::size_t row, std::size_t col, float x, std::size_t k) {
          const std::int32_t m = magnitude_of(ordered(x));
          if (m > largest_magnitude) ++nonfinite;
          else largest = larger(largest, m);
          if (m > s.threshold[Tile::slot_of(row, col)]) flags |= 1U << k;
          else spread.add(x);
        },
        [&](std::size_t slot, std::size_t row, std::size_t col) {
          widen_group(tile, slot, spread);
          spread = {};
          const std::size_t first = row * tile_cols + col;
          for (; flags != 0; flags &= flags - 1) {
            const std::uint32_t at = Tile::Block::add(s.listed, 1);
            const std::size_t k = lowest_bit(flags) * (Tile::by_column ? tile_cols : 1);
            if (at < QuantShared::list_size) s.list[at] = static_cast<std::uint16_t>(first + k);
          }
        });
    if (largest != 0) Tile::Block::maximum(s.largest, static_cast<std::uint32_t>(largest));
    if (nonfinite != 0) Tile::Block::add(s.nonfinite, nonfinite);
  });
}

/// Whether the list has all flagged elements of the tile, and each has a place.
template <class Tile>
ADACC_HD bool all_listed(const Tile& tile) {
  const std::size_t places = tile.section_layout().places;
  return tile.shared.listed <= (places < QuantShared::list_size ? places : QuantShared::list_size);
}

/// Writes the section of a tile if all_listed(). A thread has an element, whose place is the number of elements before
/// it.
template <class Tile>
ADACC_HD void place_listed(Tile& tile, int me) {
  QuantShared& s = tile.shared;
  const QuantSection layout = tile.section_layout();
  const std::uint32_t count = s.listed;
  if (me == 0) {
    if (layout.places != 0) put(tile.section(), count);
    s.flagged += count, s.used += count;
  }
  if (static_cast<std::uint32_t>(me) >= count) return;
  const std::uint16_t own = s.list[me];
  const auto element = tile.element(own / tile_cols, own % tile_cols);
  std::size_t at = 0;
  ADACC_ROLL for (std::uint32_t i = 0; i < count; ++i) at += s.list[i] < own ? 1U : 0U;
  put(tile.section() + QuantSection::values + at * sizeof element, element);
  put(tile.section() + layout.indices + 2 * at, own);
}

/// Calls visit(row, column, level) for a thread's flagged elements.
template <class Tile, class Visit>
ADACC_HD void for_flagged(const Tile& tile, int me, const Visit& visit) {
  for_open(
      tile, me,
      [&](std::size_t row, std::size_t col, float x, std::size_t) {
        const std::int32_t m = magnitude_of(ordered(x));
        const std::int32_t limit = tile.shared.threshold[Tile::slot_of(row, col)];
        if (m > limit) visit(row, col, outlier_level(m, limit));
      },
      [](std::size_t, std::size_t, std::size_t) {});
}

/// Gives places by level, where the list does not have all flagged elements or some have no place: marks the elements with a
/// place, and writes the section of a tile. Widens and marks groups with elements that have none.
template <class Tile>
ADACC_HD void place_by_level(Tile& tile) {
  const QuantSection layout = tile.section_layout();
  std::byte* const to = tile.section();
  tile.block.each([&](int me) {
    Tile::strided(me, QuantShared::slot_count,  // words of bits
                  [&](std::size_t i) { tile.shared.placed[i] = tile.shared.partly[i] = 0; });
    if (me < static_cast<int>(outlier_levels)) tile.shared.levels[me] = 0;
    if (me == 0) tile.shared.flagged += tile.shared.listed;
  });
  tile.block.each([&](int me) {
    for_flagged(tile, me, [&](std::size_t, std::size_t, unsigned level) {
      Tile::Block::add(tile.shared.levels[level], 1);
    });
  });
  tile.block.each([&](int me) {
    const OutlierCut limit = outlier_cut(tile, layout.places);
    for_flagged(tile, me, [&](std::size_t row, std::size_t col, unsigned level) {
      const std::uint32_t bit = 1U << col % 32;
      const std::size_t word = row * 8 + col / 32;
      // Each bit is set once, so adding is setting.
      if (static_cast<int>(level) > limit.level) Tile::Block::add(tile.shared.placed[word], bit);
      else if (static_cast<int>(level) == limit.level)
        Tile::Block::add(tile.shared.partly[word], bit);
    });
  });
  // Two words per thread, row by row; the lower half of the sum counts placed elements.
  tile.block.exclusive_sum(
      [&](int me) {
        const auto w = static_cast<std::size_t>(2 * me);
        return bits_set(tile.shared.placed[w]) + bits_set(tile.shared.placed[w + 1]) +
               ((bits_set(tile.shared.partly[w]) + bits_set(tile.shared.partly[w + 1])) << 16);
      },
      [&](int me, std::uint32_t before, std::uint32_t total) {
        const std::uint32_t left = outlier_cut(tile, layout.places).left;
        const auto few = [&](std::uint32_t n) { return n < left ? n : left; };
        std::uint32_t partly = before >> 16;
        std::uint32_t at = (before & 0xFFFF) + few(partly);
        for (std::size_t w = static_cast<std::size_t>(2 * me);
             w < static_cast<std::size_t>(2 * me) + 2; ++w) {
          std::uint32_t placed = tile.shared.placed[w];
          for (std::uint32_t some = tile.shared.partly[w]; some != 0 && partly < left;
               some &= some - 1) {
            placed |= some & (0U - some);
            ++partly;
          }
          // Later elements of the level have no place: their count does not matter.
          tile.shared.placed[w] = placed;
          for (; placed != 0; placed &= placed - 1, ++at) {
            const std::size_t row = w / 8, col = w % 8 * 32 + lowest_bit(placed);
            put(to + QuantSection::values + at * sizeof(typename Tile::Element),
                tile.element(row, col));
            put(to + layout.indices + 2 * at, static_cast<std::uint16_t>(row * tile_cols + col));
          }
        }
        if (me != 0) return;
        const std::uint32_t used = (total & 0xFFFF) + few(total >> 16);
        if (layout.places != 0) put(to, used);
        tile.shared.used += used;
      });
  if (tile.shared.used != tile.shared.flagged) widen_open_groups(tile);
}

}}}  // namespace adacc::v0_1::detail
