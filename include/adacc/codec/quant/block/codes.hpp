// SPDX-License-Identifier: MIT
/// Codes of a tile, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../../../core/random.hpp"
#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The byte of quantized()'s result that holds the code.
template <class Tile>
inline constexpr unsigned code_byte =
    Tile::options.symmetric || Tile::options.rounding == Rounding::stochastic ? 2 : 1;

/// quant_code() in byte code_byte. within: x is one of the elements from which the group was made.
template <class Tile>
ADACC_HD inline std::uint32_t quantized(float x, float base, float inverse, std::int32_t random,
                                        bool within) {
  constexpr bool symmetric = Tile::options.symmetric;
#if defined(__CUDA_ARCH__)
  constexpr float top = 65536.0F * code_steps<Tile::bits, symmetric>;
  constexpr int zero = symmetric ? middle_code<Tile::bits> * 65536 : 0;
  float steps = symmetric ? x * inverse : (x * 0.5F - base) * inverse;
  if (!within) steps = fminf(fmaxf(steps, symmetric ? -top : 0.0F), top);
  if (code_byte<Tile> == 2)
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(steps) + (zero + random));
  // Steps are not negative here, so a fraction of a step makes no difference. Rounded down to 1/256 at 2^15, the sum
  // has the whole code in the second byte of its bits.
  return __float_as_uint(__fmaf_rd(steps, 1.0F / 65536, 32768.5F));
#else
  static_cast<void>(within);
  return static_cast<std::uint32_t>(quant_code<Tile::bits, symmetric>(x, base, inverse, random))
         << 8 * code_byte<Tile>;
#endif
}

/// Byte `byte` of each of four words.
template <unsigned byte>
ADACC_HD inline std::uint32_t gathered_bytes(const std::uint32_t (&from)[4]) {
#if defined(__CUDA_ARCH__)
  constexpr unsigned two = byte | (byte + 4) << 4;
  return __byte_perm(__byte_perm(from[0], from[1], two), __byte_perm(from[2], from[3], two),
                     0x5410);
#else
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) out |= (from[i] >> 8 * byte & 0xFF) << 8 * i;
  return out;
#endif
}

/// Halfword of element first + j, where first is a multiple of `packet`. Saves registers: no index is known only at
/// run time.
template <std::size_t packet>
ADACC_HD std::int32_t half_of(const PhiloxBlock& random, std::uint64_t first, std::size_t j) {
  std::uint32_t word = random.word[j / 2];
  if (packet == 4 && first % 8 != 0) word = random.word[j / 2 + 2 - packet / 8 * 2];
  return static_cast<std::int32_t>(j % 2 == 0 ? word & 0xFFFF : word >> 16);
}

/// Byte j of a row of the part, which has n columns.
template <class Tile>
ADACC_HD std::byte packed_byte(const Tile& tile, std::size_t row, std::size_t j, std::size_t n) {
  const std::uint8_t* const codes = &tile.shared.codes[row][tile.held * Tile::part_cols];
  if constexpr (Tile::bits == 8) {
    return std::byte{codes[j]};
  } else {
    const std::size_t strip = j / 16 * strip_cols, left = n - strip;
    const std::size_t in_strip = left < strip_cols ? left : strip_cols, half = div_up(in_strip, 2);
    const std::size_t low = strip + j % 16, high = low + half;
    const unsigned upper = j % 16 + half < in_strip ? codes[high] : 0U;
    return static_cast<std::byte>(codes[low] | upper << 4);
  }
}

/// Writes the codes of a part from shared memory, 16 bytes at a time if rows allow.
template <class Tile>
ADACC_HD void store_part_codes(Tile& tile, int me) {
  const std::size_t left = tile.held * Tile::part_cols, n = tile.cols_of_part(tile.held);
  const std::size_t from = (tile.index * tile_cols + left) * Tile::bits / 8;
  std::byte* const to = tile.bytes + tile.format->codes + from;
  const std::size_t stride = tile.format->row_bytes;
  const std::size_t bytes = code_bytes(Tile::bits, n);  // of a row of the part
  if (n == 0) return;
  if (Tile::whole || (stride % 16 == 0 && bytes % 16 == 0)) {
    const std::size_t packets = bytes / 16;
    Tile::strided(me, tile.rows() * packets, [&](std::size_t i) {
      const std::size_t row = i / packets, p = i % packets;
      using Codes = Packet16<std::uint8_t>;
      if constexpr (Tile::bits == 8) {
        store_packet(to + row * stride + 16 * p,
                     load_packet<Codes>(&tile.shared.codes[row][left + 16 * p]));
      } else if (32 * (p + 1) <= n) {
        using Four = Packet16<std::uint32_t>;
        const Four low = load_packet<Four>(&tile.shared.codes[row][left + 32 * p]);
        const Four high = load_packet<Four>(&tile.shared.codes[row][left + 32 * p + 16]);
        Four out;
        ADACC_UNROLL for (std::size_t w = 0; w < 4; ++w) out.at[w] = low.at[w] | high.at[w] << 4;
        store_packet(to + row * stride + 16 * p, out);
      } else {  // a strip of 31 columns
        for (std::size_t j = 16 * p; j < 16 * (p + 1); ++j)
          to[row * stride + j] = packed_byte(tile, row, j, n);
      }
    });
  } else {
    Tile::strided(me, tile.rows() * bytes, [&](std::size_t i) {
      to[i / bytes * stride + i % bytes] = packed_byte(tile, i / bytes, i % bytes, n);
    });
  }
}

/// Codes of a thread's row, a byte each.
template <class Tile>
using RowCodes = SmallPacket<std::uint32_t, Tile::packet / 4>;

/// Calls use(row of the tile, its codes) for a thread's rows.
template <class Tile, class Use>
ADACC_HD void codes_of_thread(Tile& tile, int me, bool within, const Use& use) {
  constexpr bool stochastic = Tile::options.rounding == Rounding::stochastic;
  const auto t = tile.thread_of(me);
  const auto& part = tile.part[me];
  float base[Tile::packet], inverse[Tile::packet];
  if constexpr (Tile::by_column) {
    using Four = Packet16<float>;
    ADACC_UNROLL for (std::size_t p = 0; p < Tile::packet / 4; ++p) {
      const Four bases = load_packet<Four>(&tile.shared.base[t.col + 4 * p]);
      const Four inverses = load_packet<Four>(&tile.shared.inverse[t.col + 4 * p]);
      ADACC_UNROLL for (std::size_t j = 0; j < 4; ++j) base[4 * p + j] = bases.at[j],
                                                                    inverse[4 * p + j] =
                                                                        inverses.at[j];
    }
  }
  const bool whole_blocks = Tile::whole || tile.format->cols % 8 == 0;
  ADACC_UNROLL for (std::size_t i = 0; i < Tile::most_rows; ++i) {
    if (i >= t.count) continue;
    if constexpr (!Tile::by_column) {
      const std::size_t slot = Tile::slot_of(t.row + i, t.col);
      const float b = tile.shared.base[slot], v = tile.shared.inverse[slot];
      ADACC_UNROLL for (std::size_t j = 0; j < Tile::packet; ++j) base[j] = b, inverse[j] = v;
    }
    [[maybe_unused]] const std::uint64_t first =
        (tile.row + t.row + i) * tile.format->cols + tile.index * tile_cols + t.col;
    [[maybe_unused]] PhiloxBlock random = {};
    if constexpr (stochastic) {
      if (whole_blocks) random = random_block(tile.job.stream, first / 8);
    }
    RowCodes<Tile> out;
    ADACC_UNROLL for (std::size_t p = 0; p < Tile::packet / 4; ++p) {
      std::uint32_t four[4];
      ADACC_UNROLL for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t j = 4 * p + k;
        std::int32_t add = half_code;
        if constexpr (stochastic)
          add = whole_blocks ? half_of<Tile::packet>(random, first, j)
                             : random_half(tile.job.stream, first + j);
        four[k] = quantized<Tile>(part.at(i, j), base[j], inverse[j], add, within);
      }
      out.at[p] = gathered_bytes<code_byte<Tile>>(four);
    }
    use(t.row + i, out);
  }
}

/// Codes of 8 bits of a whole part leave a warp as one stretch of memory. Other codes go to shared memory first, so
/// rows leave in order. within: no element of the part is beyond its group.
template <class Tile>
ADACC_HD void encode_part_codes(Tile& tile, bool within) {
  if constexpr (Tile::whole && Tile::bits == 8) {
    tile.block.each([&](int me) {
      const std::size_t stride = tile.format->row_bytes;
      std::byte* to = tile.bytes + tile.format->codes + tile.index * tile_cols +
                      tile.thread_of(me).row * stride + tile.thread_of(me).col;
      codes_of_thread(tile, me, within, [&](std::size_t, const RowCodes<Tile>& codes) {
        store_packet(to, codes);
        to += stride;
      });
    });
  } else {
    tile.block.each([&](int me) {
      codes_of_thread(tile, me, within, [&](std::size_t row, const RowCodes<Tile>& codes) {
        store_packet(&tile.shared.codes[row][tile.thread_of(me).col], codes);
      });
    });
    tile.block.each([&](int me) { store_part_codes(tile, me); });
  }
}

/// The final code of an element of the tile, from its quant_code().
template <class Tile>
ADACC_HD std::int32_t amended_code(const Tile& tile, bool marked, std::size_t row, std::size_t col,
                                   std::uint32_t from) {
  const std::size_t slot = Tile::slot_of(row, col);
  const float x = to_number(tile.element(row, col));
  auto code = static_cast<std::int32_t>(from);
  if (Tile::options.positive) code = positive_code(x, tile.shared.base[slot], code);
  if (marked && tile.shared.marked[slot] != 0)
    code = marked_code<Tile::bits, Tile::options.symmetric>(ordered(x), code);
  return code;
}

/// Amends the codes of the tile in memory, once all are written, if a group has codes other than quant_code(). This
/// is rare enough to read them again, so no registers are held for it meanwhile.
template <class Tile>
ADACC_HD void amend_codes(Tile& tile) {
  tile.block.each([&](int me) {
    const bool marked = tile.shared.any_marked != 0;
    if (!marked && !(Tile::options.positive && tile.shared.any_from_zero != 0)) return;
    const std::size_t cols = tile.cols(), first = tile.index * tile_cols * Tile::bits / 8;
    const std::size_t bytes = code_bytes(Tile::bits, cols);
    std::byte* const codes = tile.bytes + tile.format->codes + first;
    const std::size_t all = tile.rows() * bytes;
    ADACC_ROLL for (auto i = static_cast<std::size_t>(me); i < all; i += Tile::Block::threads) {
      const std::size_t row = i / bytes, byte = i % bytes;
      std::byte* const at = codes + row * tile.format->row_bytes + byte;
      const std::uint32_t both = get<std::uint8_t>(at);
      if constexpr (Tile::bits == 8) {
        put(at, static_cast<std::uint8_t>(amended_code(tile, marked, row, byte, both)));
      } else {
        const std::size_t strip = byte / 16 * strip_cols, left = cols - strip, j = byte % 16;
        const std::size_t in_strip = left < strip_cols ? left : strip_cols;
        const std::size_t half = div_up(in_strip, 2);
        std::int32_t code = amended_code(tile, marked, row, strip + j, both & 15);
        if (j + half < in_strip)
          code |= amended_code(tile, marked, row, strip + j + half, both >> 4) << 4;
        put(at, static_cast<std::uint8_t>(code));
      }
    }
  });
}

}}}  // namespace adacc::v0_1::detail
