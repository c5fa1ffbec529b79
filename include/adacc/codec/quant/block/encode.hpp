// SPDX-License-Identifier: MIT
/// Encodes tiles of the quantizing codecs by a block of threads (thread_block.hpp).
///
/// quant_encode_part() encodes tiles: with scales of whole rows, a block of threads has all tiles of 64 rows,
/// otherwise one tile. If several blocks share the header of their 64 rows, they add their counts to it (integer sums
/// and maxima: the order does not matter), and quant_prepare() clears it in a kernel before. The last of them
/// completes the header by the samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "channels.hpp"
#include "codes.hpp"
#include "elements.hpp"
#include "extremes.hpp"
#include "groups.hpp"
#include "sample.hpp"
#include "tensor_block.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Whether several blocks of threads encode tiles of the same 64 rows.
template <QuantOptions O>
ADACC_HD bool quant_shares_headers(const QuantFormat& format) {
  return O.group != whole_row && format.whole.tiles > 1;
}

/// Block `part` of threads clears its words of all block headers, if headers are shared.
template <class Block, class T>
ADACC_HD void quant_prepare(Block& block, std::size_t part, const QuantJob<T>& job) {
  block.each([&](int me) {
    const std::size_t word = part * Block::threads + static_cast<std::size_t>(me);
    if (word / 16 < job.format.blocks()) put(job.bytes(word / 16) + word % 16 * 4, 0U);
  });
}

/// Starts extremes and counts, and writes the zeros between the sections of a block.
template <class Tile>
ADACC_HD void quant_clear(Tile& tile, bool padding) {
  // Slices that are found as a whole need no initial value.
  constexpr bool slices = !Tile::by_column && (Tile::by_row || !Tile::whole);
  tile.block.each([&](int me) {
    QuantShared& s = tile.shared;
    if constexpr (Tile::channels)
      Tile::strided(me, Tile::slot_count,
                    [&](std::size_t i) { s.lo[i] = empty_lo, s.hi[i] = empty_hi; });
    else if constexpr (slices)
      Tile::strided(me, 4 * Tile::slot_count,
                    [&](std::size_t i) { s.slice.lo[i] = empty_lo, s.slice.hi[i] = empty_hi; });
    // Columns are read four at a time, also beyond the last one.
    if constexpr (Tile::by_column && !Tile::whole)
      Tile::strided(me, Tile::slot_count, [&](std::size_t i) { s.base[i] = s.inverse[i] = 0; });
    if (me == 0)
      s.used = s.flagged = s.listed = s.nonfinite = s.largest = s.any_marked = s.any_from_zero = 0;
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

/// Puts the counts into the header of the block of 64 rows. Returns whether all tiles of the block are encoded now.
template <class Tile>
ADACC_HD bool quant_report(Tile& tile) {
  const QuantShared& s = tile.shared;
  if (!quant_shares_headers<Tile::options>(tile.job.format)) {
    tile.block.each([&](int me) {
      if (me >= 16) return;
      const std::uint32_t word = me == 0   ? s.flagged
                                 : me == 1 ? s.flagged - s.used
                                 : me == 2 ? s.nonfinite
                                 : me == 4 ? s.largest
                                           : 0;
      put(tile.bytes + 4 * me, word);
    });
    return true;
  }
  return tile.block.any([&](int me) {
    if (me != 0) return false;
    std::uint32_t* const header = words(tile.bytes);
    if (s.flagged != 0) Tile::Block::add(header[0], s.flagged);
    if (s.flagged != s.used) Tile::Block::add(header[1], s.flagged - s.used);
    if (s.nonfinite != 0) Tile::Block::add(header[2], s.nonfinite);
    Tile::Block::maximum(header[4], s.largest);
    // The word is zero again in a complete blob.
    return Tile::Block::last(header[5], static_cast<std::uint32_t>(tile.format->tiles));
  });
}

/// The number of pieces of work.
template <QuantOptions O>
ADACC_HD std::size_t quant_encode_parts(const QuantFormat& format) {
  return format.blocks() * (O.group == whole_row ? 1 : format.whole.tiles);
}

/// Encodes a tile whose groups lie within parts: each part while it is held, unless an element is beyond its group.
/// Such parts wait for the places of the tile; the threads read them again, unless they hold the whole tile.
template <class Tile>
ADACC_HD void encode_by_part(Tile& tile, std::size_t index) {
  std::uint32_t waiting = 0;
  for (std::size_t p = 0; p < Tile::parts; ++p) {
    tile.load(index, p);
    reduce_slices(tile);
    if (find_thresholds(tile)) waiting |= 1U << p;
    else encode_part_codes(tile, true);
  }
  if (waiting == 0) return clear_section(tile);
  if constexpr (Tile::held_whole) tile.block.each([&](int me) { tile.part[me].forget_numbers(); });
  flag_elements(tile);
  const bool listed = all_listed(tile);
  if (!listed) place_by_level(tile);
  tile.block.each([&](int me) {
    if (listed) place_listed(tile, me);
    finish_open_groups(tile, me);
  });
  for (std::size_t p = 0; p < Tile::parts; ++p) {
    if ((waiting >> p & 1) == 0) continue;
    if constexpr (!Tile::held_whole) tile.load(index, p);
    encode_part_codes(tile, false);
  }
}

/// Encodes tiles first … end - 1 of 64 rows; each step reads the parts again.
template <class Tile>
ADACC_HD void encode_by_step(Tile& tile, std::size_t first, std::size_t end) {
  const auto for_parts = [&](const auto& step) {
    for (std::size_t i = first; i < end; ++i)
      for (std::size_t p = 0; p < Tile::parts; ++p) step(i, p);
  };
  bool any = Tile::channels;
  if constexpr (Tile::channels) {
    for (std::size_t i = first; i < end; ++i) {
      tile.set_tile(i);
      keep_extremes(tile);
      place_columns(tile);
      for (std::size_t p = 0; p < Tile::parts; ++p) {
        if (Tile::parts > 1) tile.load(i, p);
        widen_groups(tile);
      }
      saturate_groups(tile);
    }
  } else {
    for_parts([&](std::size_t i, std::size_t p) {
      tile.load(i, p);
      reduce_slices(tile);
    });
    any = find_thresholds(tile);
    for (std::size_t i = first; i < end; ++i) {
      tile.set_tile(i);
      if (!any) {
        clear_section(tile);
        continue;
      }
      if (i != first)
        tile.block.each([&](int me) {
          if (me == 0) tile.shared.listed = 0;
        });
      flag_elements(tile);
      if (all_listed(tile)) tile.block.each([&](int me) { place_listed(tile, me); });
      else place_by_level(tile);
    }
  }
  if (any) tile.block.each([&](int me) { finish_open_groups(tile, me); });
  for_parts([&](std::size_t i, std::size_t p) {
    tile.load_again(i, p);
    encode_part_codes(tile, !any);
  });
}

/// Encodes piece `part` of quant_encode_parts(), by one block of threads.
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_KERNEL_PART void quant_encode_part(Block& block, QuantShared& shared, std::size_t part,
                                         const QuantJob<T>& job) {
  constexpr bool by_row = O.group == whole_row;
  const std::size_t tiles = job.format.whole.tiles, cols = job.format.cols;
  const Divided place = by_row ? Divided{part, 0} : divided(part, tiles);
  const std::size_t rows = place.quotient, first = place.remainder;
  const std::size_t end = by_row ? tiles : first + 1;
  if (part == 0)
    block.each([&](int me) {
      if (me < 16) write_header_word(job.blob, job.header, me);
    });
  const bool whole =
      job.block(rows).rows == block_rows && cols % 32 == 0 && end * tile_cols <= cols;
  const auto encode = [&](auto known_whole) {
    QuantTile<Bits, O, T, Block, decltype(known_whole)::value> all{block, shared, job};
    all.set_rows(rows);
    quant_clear(all, first == 0);
    if constexpr (decltype(all)::by_part) encode_by_part(all, first);
    else encode_by_step(all, first, end);
    return quant_report(all);
  };
  const bool last = whole ? encode(std::true_type{}) : encode(std::false_type{});
#if defined(__CUDA_ARCH__)
  // Divided again, so that no register had to hold it.
  asm volatile("" : "+l"(part));
#endif
  const std::size_t again = by_row ? part : divided(part, tiles).quotient;
  QuantTile<Bits, O, T, Block, false> tile{block, shared, job};
  tile.set_rows(again);
  for (std::size_t i = by_row ? 0 : divided(part, tiles).remainder, left = by_row ? tiles : 1;
       left > 0; ++i, --left) {
    tile.set_tile(i);
    amend_codes(tile);
  }
  if (last) quant_sample<Bits, O>(block, shared.samples, again, job);
}

}}}  // namespace adacc::v0_1::detail
