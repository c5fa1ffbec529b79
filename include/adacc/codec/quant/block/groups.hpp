// SPDX-License-Identifier: MIT
/// Scales and minima of a tile's groups, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Stores scale and minimum, and keeps the numbers that turn elements into codes.
template <bool Marked = false, class Tile>
ADACC_HD void finish_group(Tile& tile, std::size_t slot, std::int32_t lo, std::int32_t hi) {
  const QuantGroup group = quant_group<Tile::bits, Tile::options.symmetric, Marked>(lo, hi);
  const QuantCoder coder = quant_coder<Tile::options.symmetric>(group);
  tile.shared.base[slot] = coder.base, tile.shared.inverse[slot] = coder.inverse;
  if constexpr (Tile::options.positive)
    if (group.minimum.bits == 0) Tile::Block::maximum(tile.shared.any_from_zero, std::uint32_t{1});
  const std::size_t g = tile.group_of(slot);
  put(tile.bytes + tile.format->scales + 2 * g, group.scale.bits);
  if (!Tile::options.symmetric) put(tile.bytes + tile.format->minima + 2 * g, group.minimum.bits);
}

/// Finishes thread `me`'s share of the open groups, from their extremes.
template <class Tile>
ADACC_HD void finish_open_groups(Tile& tile, int me) {
  Tile::strided(me, Tile::slot_count, [&](std::size_t slot) {
    if (tile.size_of(slot) == 0 || !is_open(tile, slot)) return;
    const std::int32_t lo = tile.shared.lo[slot], hi = tile.shared.hi[slot];
    if (tile.shared.any_marked != 0 && tile.shared.marked[slot] != 0)
      finish_group<true>(tile, slot, lo, hi);
    else finish_group(tile, slot, lo, hi);
  });
}

}}}  // namespace adacc::v0_1::detail
