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
      if (size == 0) return;
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

/// Calls visit(row, column, magnitude, level) for a thread's flagged elements. They are few, and read again.
template <class Tile, class Visit>
ADACC_HD void for_flags(const Tile& tile, int me, std::uint64_t flags, const Visit& visit) {
  for (; flags != 0; flags &= flags - 1) {
    const std::size_t bit = lowest_bit(flags), i = bit / Tile::packet;
    const auto t = tile.thread_of(me, i / Tile::most_rows);
    const std::size_t row = t.row + i % Tile::most_rows, col = t.col + bit % Tile::packet;
    const std::int32_t m = magnitude_of(ordered(to_number(tile.element(row, col))));
    visit(row, col, m, outlier_level(m, tile.shared.threshold[Tile::slot_of(row, col)]));
  }
}

/// Marks the elements that have a place, writes the section, counts. Widens the groups with something beyond by the
/// elements that are not flagged. Returns whether flagged elements are left without a place.
template <class Tile>
ADACC_HD bool place_elements(Tile& tile) {
  const QuantSection layout = tile.section_layout();
  std::byte* const to = tile.section();
  typename Tile::Block::template PerThread<std::uint64_t> flags;
  tile.block.each([&](int me) {
    Tile::strided(me, QuantShared::slot_count,  // words of bits
                  [&](std::size_t i) { tile.shared.placed[i] = tile.shared.partly[i] = 0; });
    Tile::strided(me, layout.bytes / 4, [&](std::size_t i) { words(to)[i] = 0; });
    if (me < static_cast<int>(outlier_levels)) tile.shared.levels[me] = 0;
  });
  tile.block.each([&](int me) {
    std::int32_t largest = 0;
    std::uint64_t own = 0;
    Spread spread;
    for_open(
        tile, me,
        [&](std::size_t row, std::size_t col, float x, std::size_t bit) {
          const std::int32_t m = magnitude_of(ordered(x));
          largest = larger(largest, m <= largest_magnitude ? m : 0);
          if (m > tile.shared.threshold[Tile::slot_of(row, col)]) own |= std::uint64_t{1} << bit;
          else spread.add(x);
        },
        [&](std::size_t slot) {
          widen_group(tile, slot, spread);
          spread = {};
        });
    flags[me] = own;
    if (largest != 0)
      Tile::Block::maximum(tile.shared.largest, static_cast<std::uint32_t>(largest));
    for_flags(tile, me, own, [&](std::size_t, std::size_t, std::int32_t m, unsigned level) {
      Tile::Block::add(tile.shared.levels[level], 1);
      Tile::Block::add(tile.shared.flagged, 1);
      if (m > largest_magnitude) Tile::Block::add(tile.shared.nonfinite, 1);
    });
  });
  tile.block.each([&](int me) {
    const OutlierCut limit = outlier_cut(tile, layout.places);
    for_flags(tile, me, flags[me],
              [&](std::size_t row, std::size_t col, std::int32_t, unsigned level) {
                const std::uint32_t bit = 1U << col % 32;
                const std::size_t word = row * 8 + col / 32;
                // Each bit is set once, so adding is setting.
                if (static_cast<int>(level) > limit.level)
                  Tile::Block::add(tile.shared.placed[word], bit);
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
  return tile.shared.used != tile.shared.flagged;
}

}}}  // namespace adacc::v0_1::detail
