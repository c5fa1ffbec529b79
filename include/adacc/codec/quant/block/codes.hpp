// SPDX-License-Identifier: MIT
/// Scales and codes of a tile, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../../../core/random.hpp"
#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Stores scales and minima, and keeps what turns numbers into codes.
template <class Tile>
ADACC_HD void finish_tile_groups(Tile& tile) {
  tile.block.each([&](int me) {
    Tile::strided(me, QuantShared::slots, [&](std::size_t slot) {
      if (tile.size_of(slot) == 0) return;
      const std::int32_t lo = tile.shared.lo[slot], hi = tile.shared.hi[slot];
      const bool empty = lo > hi;
      const bool numbers =
          empty || larger_of(magnitude_of(lo), magnitude_of(hi)) <= largest_magnitude;
      QuantGroup group = no_numbers();
      if (numbers)
        group = quant_group<Tile::bits, Tile::options.symmetric>(empty ? 0 : lo, empty ? 0 : hi);
      const QuantCoder coder = quant_coder<Tile::options.symmetric>(group);
      tile.shared.base[slot] = coder.base, tile.shared.inverse[slot] = coder.inverse;
      const std::size_t g = tile.group_of(slot);
      put(tile.bytes + tile.format->scales + 2 * g, group.scale.bits);
      if (!Tile::options.symmetric)
        put(tile.bytes + tile.format->minima + 2 * g, group.minimum.bits);
    });
  });
}

/// Halfword of element first + j, where first is a multiple of `packet`; without an index that is
/// only known at run time, for the sake of registers.
template <std::size_t packet>
ADACC_HD std::int32_t half_of(const PhiloxBlock& random, std::uint64_t first, std::size_t j) {
  std::uint32_t word = random.word[j / 2];
  if (packet == 4 && first % 8 != 0) word = random.word[j / 2 + 2 - packet / 8 * 2];
  return static_cast<std::int32_t>(j % 2 == 0 ? word & 0xFFFF : word >> 16);
}

/// Byte j of a row of the tile.
template <class Tile>
ADACC_HD std::byte packed_byte(const Tile& tile, std::size_t row, std::size_t j) {
  if constexpr (Tile::bits == 8) {
    return std::byte{tile.shared.codes[row][j]};
  } else {
    const std::size_t strip = j / 16 * strip_cols, left = tile.cols - strip;
    const std::size_t n = left < strip_cols ? left : strip_cols, half = div_up(n, 2);
    const std::size_t low = strip + j % 16, high = low + half;
    const unsigned upper = j % 16 + half < n ? tile.shared.codes[row][high] : 0U;
    return static_cast<std::byte>(tile.shared.codes[row][low] | upper << 4);
  }
}

/// Writes the codes from shared memory, 16 bytes at a time if rows allow it.
template <class Tile>
ADACC_HD void store_tile_codes(Tile& tile, int me) {
  const std::size_t from = Tile::bits == 8 ? tile.index * tile_cols : tile.index * (tile_cols / 2);
  std::byte* const to = tile.bytes + tile.format->codes + from;
  const std::size_t stride = tile.format->row_bytes;
  const std::size_t bytes =  // of a row of the tile
      Tile::bits == 8 ? tile.cols : tile.cols / strip_cols * 16 + div_up(tile.cols % strip_cols, 2);
  if (stride % 16 == 0 && bytes % 16 == 0) {
    const std::size_t packets = bytes / 16;
    Tile::strided(me, tile.format->rows * packets, [&](std::size_t i) {
      const std::size_t row = i / packets, p = i % packets;
      using Codes = Packet16<std::uint8_t>;
      if constexpr (Tile::bits == 8) {
        store_packet(to + row * stride + 16 * p,
                     load_packet<Codes>(&tile.shared.codes[row][16 * p]));
      } else if (32 * (p + 1) <= tile.cols) {
        using Four = Packet16<std::uint32_t>;
        const Four low = load_packet<Four>(&tile.shared.codes[row][32 * p]);
        const Four high = load_packet<Four>(&tile.shared.codes[row][32 * p + 16]);
        Four out;
        ADACC_UNROLL for (std::size_t w = 0; w < 4; ++w) out.at[w] = low.at[w] | high.at[w] << 4;
        store_packet(to + row * stride + 16 * p, out);
      } else {  // a strip of 31 columns
        for (std::size_t j = 16 * p; j < 16 * (p + 1); ++j)
          to[row * stride + j] = packed_byte(tile, row, j);
      }
    });
  } else {
    Tile::strided(me, tile.format->rows * bytes, [&](std::size_t i) {
      to[i / bytes * stride + i % bytes] = packed_byte(tile, i / bytes, i % bytes);
    });
  }
}

/// Codes go to shared memory first, so that rows leave it in order.
template <class Tile>
ADACC_HD void encode_tile_codes(Tile& tile) {
  constexpr bool stochastic = Tile::options.rounding == Rounding::stochastic;
  tile.block.each([&](int me) {
    const auto t = tile.thread_of(me);
    const auto& part = tile.part[me];
    float base[Tile::packet], inverse[Tile::packet];
    if constexpr (Tile::by_column) {
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j)
          base[j] = tile.shared.base[t.col + j],
          inverse[j] = tile.shared.inverse[t.col + j];
    }
    const bool whole_blocks = tile.format->cols % 8 == 0;
    ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
      if (i >= t.count) continue;
      if constexpr (!Tile::by_column) {
        const std::size_t slot = Tile::slot_of(t.row + i, t.col);
        ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j)
            base[j] = tile.shared.base[slot],
            inverse[j] = tile.shared.inverse[slot];
      }
      SmallPacket<std::uint8_t, Tile::packet> out;
      [[maybe_unused]] const std::uint64_t first =
          (tile.row + t.row + i) * tile.format->cols + tile.index * tile_cols + t.col;
      [[maybe_unused]] PhiloxBlock random = {};
      if constexpr (stochastic) {
        if (whole_blocks) random = random_block(tile.job.stream, first / 8);
      }
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) {
        std::int32_t add = half_code;
        if constexpr (stochastic)
          add = whole_blocks ? half_of<Tile::packet>(random, first, j)
                             : random_half(tile.job.stream, first + j);
        out.at[j] = static_cast<std::uint8_t>(quant_code<Tile::bits, Tile::options.symmetric>(
            part.at(i, j), base[j], inverse[j], add));
      }
      store_packet(&tile.shared.codes[t.row + i][t.col], out);
    }
  });
  tile.block.each([&](int me) { store_tile_codes(tile, me); });
}

}}}  // namespace adacc::v0_1::detail
