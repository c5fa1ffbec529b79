// SPDX-License-Identifier: MIT
/// Whole columns as outliers, by a block of threads: which columns have places, and the section of a tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../quantize.hpp"
#include "outlier_cut.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The outlier level of a column; -1 if the column is not flagged.
template <class Tile>
ADACC_HD int column_level(const Tile& tile, int me) {
  const std::int32_t m = tile.shared.column[me];
  if (static_cast<std::size_t>(me) >= tile.cols() || m <= tile.shared.channel_limit) return -1;
  return static_cast<int>(outlier_level(m, tile.shared.channel_limit));
}

/// Marks the columns that have a place, by their largest magnitudes; writes the section, counts.
template <class Tile>
ADACC_HD void place_columns(Tile& tile) {
  const QuantSection layout = tile.section_layout();
  std::byte* const to = tile.section();
  tile.block.each([&](int me) {
    tile.shared.column[me] = 0;
    tile.shared.exponents[me] = 0;
    if (me < 8) tile.shared.placed[me] = 0;
    if (me < static_cast<int>(outlier_levels)) tile.shared.levels[me] = 0;
    if (me == 0) tile.shared.channel_limit = largest_magnitude;
    Tile::strided(me, layout.bytes / 4, [&](std::size_t i) { words(to)[i] = 0; });
  });
  for (std::size_t p = 0; p < Tile::parts; ++p) {
    tile.load(tile.index, p);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        std::int32_t most = 0;
        ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) if (i < t.count) most =
            larger(most, magnitude_of(ordered(part.at(i, j))));
        Tile::Block::maximum(tile.shared.column[t.col + j], most);
      }
    });
  }
  tile.block.each([&](int me) {
    if (static_cast<std::size_t>(me) < tile.cols())
      Tile::Block::add(tile.shared.exponents[tile.shared.column[me] >> 23], 1);
  });
  // channel_threshold(), all exponents at once.
  tile.block.exclusive_sum([&](int me) { return tile.shared.exponents[me]; },
                           [&](int me, std::uint32_t before, std::uint32_t) {
                             const bool median =
                                 2 * (before + tile.shared.exponents[me]) >= tile.cols() &&
                                 (me == 0 || 2 * std::size_t{before} < tile.cols());
                             if (median && me > 0 && me < 254 && tile.cols() >= fewest_for_outliers)
                               tile.shared.channel_limit =
                                   outlier_threshold((me + 1) << 23, Tile::options.outlier_ratio);
                           });
  tile.block.each([&](int me) {
    const std::int32_t m = tile.shared.column[me];
    if (static_cast<std::size_t>(me) >= tile.cols() || m <= tile.shared.channel_limit) return;
    Tile::Block::add(tile.shared.levels[outlier_level(m, tile.shared.channel_limit)], 1);
    Tile::Block::add(tile.shared.flagged, static_cast<std::uint32_t>(tile.rows()));
  });
  tile.block.exclusive_sum(
      [&](int me) {
        const OutlierCut limit = outlier_cut(tile, layout.places);
        const int level = column_level(tile, me);
        return (level > limit.level ? 1U : 0U) +
               (level >= 0 && level == limit.level ? 1U << 16 : 0U);
      },
      [&](int me, std::uint32_t before, std::uint32_t total) {
        const OutlierCut limit = outlier_cut(tile, layout.places);
        const auto few = [&](std::uint32_t n) { return n < limit.left ? n : limit.left; };
        const int level = column_level(tile, me);
        const std::uint32_t at = (before & 0xFFFF) + few(before >> 16);
        const bool placed = level > limit.level ||
                            (level >= 0 && level == limit.level && before >> 16 < limit.left);
        if (placed) {
          tile.shared.places[at] = static_cast<std::uint16_t>(me);
          Tile::Block::add(tile.shared.placed[me / 32], 1U << me % 32);
          put(to + layout.indices + 2 * at, static_cast<std::uint16_t>(me));
        }
        if (me != 0) return;
        const std::uint32_t used = (total & 0xFFFF) + few(total >> 16);
        tile.shared.exponents[0] = used;
        tile.shared.used += used * static_cast<std::uint32_t>(tile.rows());
        if (layout.places != 0) put(to, used);
      });
  tile.block.each([&](int me) {
    const std::size_t rows = tile.rows();
    Tile::strided(me, tile.shared.exponents[0] * rows, [&](std::size_t i) {
      put(to + QuantSection::values + i * sizeof(typename Tile::Element),
          tile.element(i % rows, tile.shared.places[i / rows]));
    });
    // Counts elements beyond largest_magnitude, and finds the largest of the others; known already for columns
    // without the former.
    if (static_cast<std::size_t>(me) >= tile.cols()) return;
    std::int32_t largest = tile.shared.column[me];
    if (largest > largest_magnitude) {
      largest = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        const std::int32_t m =
            magnitude_of(ordered(to_number(tile.element(row, static_cast<std::size_t>(me)))));
        if (m <= largest_magnitude) largest = larger(largest, m);
        else Tile::Block::add(tile.shared.nonfinite, 1);
      }
    }
    if (largest != 0)
      Tile::Block::maximum(tile.shared.largest, static_cast<std::uint32_t>(largest));
  });
}

}}}  // namespace adacc::v0_1::detail
