// SPDX-License-Identifier: MIT
/// Encodes tiles of the quantizing codecs by a block of threads (thread_block.hpp).
///
/// Three steps, each a kernel: quant_prepare() clears the headers of the blob's blocks;
/// quant_encode_part() encodes tiles, which add what they counted to these headers (integer sums
/// and maxima: the order does not matter); quant_sample() completes them. If the scale is of a
/// whole row, a block of threads has all tiles of 64 rows and reads them again for each step,
/// otherwise it has one tile and reads it once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channels.hpp"
#include "codes.hpp"
#include "elements.hpp"
#include "extremes.hpp"
#include "sample.hpp"
#include "tensor_block.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Block `part` of threads: of the words of all block headers and that of the blob.
template <class Block, class T>
ADACC_HD void quant_prepare(Block& block, std::size_t part, const QuantJob<T>& job) {
  block.each([&](int me) {
    const std::size_t word = part * Block::threads + static_cast<std::size_t>(me);
    if (word < 16) write_header_word(job.blob, job.header, static_cast<int>(word));
    if (word / 16 < job.format.blocks()) put(job.bytes(word / 16) + word % 16 * 4, 0U);
  });
}

/// Starts extremes and counts, and writes the zeros between the sections of a block.
template <class Tile>
ADACC_HD void quant_clear(Tile& tile, bool padding) {
  tile.block.each([&](int me) {
    QuantShared& s = tile.shared;
    Tile::strided(me, QuantShared::slots, [&](std::size_t i) {
      s.lo[i] = empty_lo, s.hi[i] = empty_hi;
      s.placed[i] = 0, s.partly[i] = 0;
    });
    if constexpr (Tile::elements)
      Tile::strided(me, 4 * QuantShared::slots,
                    [&](std::size_t i) { s.slice.lo[i] = empty_lo, s.slice.hi[i] = empty_hi; });
    if (me == 0) s.used = s.flagged = s.nonfinite = s.largest = 0;
    if (!padding) return;
    const QuantBlock& b = *tile.format;
    const std::size_t last = b.tiles - 1;
    const QuantSection section = tile.section_layout_of(b.cols_of_tile(last));
    const auto fill_zeros = [&](std::size_t begin, std::size_t end) {
      Tile::strided(me, end - begin, [&](std::size_t i) { tile.bytes[begin + i] = std::byte{0}; });
    };
    fill_zeros(b.minima + (Tile::options.symmetric ? 0 : 2 * b.groups), b.sections);
    fill_zeros(b.section(last) + section.bytes, b.codes);
    fill_zeros(b.codes + b.rows * b.row_bytes, b.bytes);
  });
}

/// Outliers::none: counts what is no number, and finds the largest that is.
template <class Tile>
ADACC_HD void count_numbers(Tile& tile, std::size_t first, std::size_t end) {
  const bool odd = tile.block.any([&](int me) {
    bool some = false;
    std::int32_t largest = 0;
    Tile::strided(me, QuantShared::slots, [&](std::size_t slot) {
      if (tile.size_of(slot) == 0) return;
      const std::int32_t m =
          larger_of(magnitude_of(tile.shared.lo[slot]), magnitude_of(tile.shared.hi[slot]));
      if (m > largest_magnitude) some = true;
      else largest = larger_of(largest, m);
    });
    if (largest != 0)
      Tile::Block::maximum(tile.shared.largest, static_cast<std::uint32_t>(largest));
    return some;
  });
  for (std::size_t i = first; odd && i < end; ++i) {
    if (Tile::by_row) tile.load(i);
    tile.block.each([&](int me) {
      const auto t = tile.thread_of(me);
      const auto& part = tile.part[me];
      const std::size_t columns = t.columns(tile.cols);
      std::int32_t largest = 0;
      std::uint32_t count = 0;
      ADACC_UNROLL for (std::size_t r = 0; r < Tile::most_rows; ++r) {
        ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
          if (r >= t.count || j >= columns) continue;
          const std::int32_t m = magnitude_of(ordered(part.at(r, j)));
          largest = larger_of(largest, m <= largest_magnitude ? m : 0);
          count += m > largest_magnitude ? 1U : 0U;
        }
      }
      if (largest != 0)
        Tile::Block::maximum(tile.shared.largest, static_cast<std::uint32_t>(largest));
      if (count == 0) return;
      Tile::Block::add(tile.shared.flagged, count);
      Tile::Block::add(tile.shared.nonfinite, count);
    });
  }
}

/// Adds what was counted to the header of the block of 64 rows.
template <class Tile>
ADACC_HD void quant_report(Tile& tile) {
  tile.block.each([&](int me) {
    if (me != 0) return;
    std::uint32_t* const header = words(tile.bytes);
    const QuantShared& s = tile.shared;
    if (s.flagged != 0) Tile::Block::add(header[0], s.flagged);
    if (s.flagged != s.used) Tile::Block::add(header[1], s.flagged - s.used);
    if (s.nonfinite != 0) Tile::Block::add(header[2], s.nonfinite);
    Tile::Block::maximum(header[4], s.largest);
  });
}

/// How many pieces of work there are.
template <QuantOptions O>
ADACC_HD std::size_t quant_encode_parts(const QuantFormat& format) {
  return format.blocks() * (O.group == whole_row ? 1 : format.whole.tiles);
}

/// Block `part` of threads, of quant_encode_parts().
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_encode_part(Block& block, QuantShared& shared, std::size_t part,
                                const QuantJob<T>& job) {
  using Tile = QuantTile<Bits, O, T, Block>;
  constexpr bool by_row = Tile::by_row;
  const std::size_t tiles = job.format.whole.tiles;
  const std::size_t first = by_row ? 0 : part % tiles, end = by_row ? tiles : first + 1;
  Tile tile{block, shared, job};
  tile.set_rows(by_row ? part : part / tiles);
  quant_clear(tile, first == 0);

  for (std::size_t i = first; i < end; ++i) {
    tile.load(i);
    if constexpr (Tile::channels) place_columns(tile);
    if constexpr (Tile::elements) reduce_slices(tile);
    else widen_groups(tile);
  }
  if constexpr (Tile::elements) {
    const bool any = find_tile_thresholds(tile);
    if (any) restart_groups(tile);
    for (std::size_t i = first; i < end; ++i) {
      if (by_row && any) tile.load(i);
      else tile.set_tile(i);
      if (any) {
        place_elements(tile);
        widen_groups(tile);
      } else {
        clear_section(tile);
      }
    }
  }
  if constexpr (O.outliers == Outliers::none) count_numbers(tile, first, end);
  finish_tile_groups(tile);
  for (std::size_t i = first; i < end; ++i) {
    if (by_row) tile.load(i);
    encode_tile_codes(tile);
  }
  quant_report(tile);
}

}}}  // namespace adacc::v0_1::detail
