// SPDX-License-Identifier: MIT
/// Scales and minima of a tile's groups, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Stores scale and minimum, and keeps what turns numbers into codes.
template <class Tile>
ADACC_HD void finish_group(Tile& tile, std::size_t slot, std::int32_t lo, std::int32_t hi) {
  const bool empty = lo > hi;
  const bool numbers = empty || larger(magnitude_of(lo), magnitude_of(hi)) <= largest_magnitude;
  QuantGroup group = no_numbers();
  if (numbers)
    group = quant_group<Tile::bits, Tile::options.symmetric>(empty ? 0 : lo, empty ? 0 : hi);
  const QuantCoder coder = quant_coder<Tile::options.symmetric>(group);
  tile.shared.base[slot] = coder.base, tile.shared.inverse[slot] = coder.inverse;
  const std::size_t g = tile.group_of(slot);
  put(tile.bytes + tile.format->scales + 2 * g, group.scale.bits);
  if (!Tile::options.symmetric) put(tile.bytes + tile.format->minima + 2 * g, group.minimum.bits);
}

/// The open ones, from their extremes.
template <class Tile>
ADACC_HD void finish_open_groups(Tile& tile) {
  tile.block.each([&](int me) {
    Tile::strided(me, Tile::slot_count, [&](std::size_t slot) {
      if (tile.size_of(slot) != 0 && is_open(tile, slot))
        finish_group(tile, slot, tile.shared.lo[slot], tile.shared.hi[slot]);
    });
  });
}

}}}  // namespace adacc::v0_1::detail
