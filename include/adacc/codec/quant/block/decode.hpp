// SPDX-License-Identifier: MIT
/// Decodes tiles of the quantizing codecs by a block of threads (thread_block.hpp).
///
/// Threads have the columns and rows that they have when encoding, so they store packets of 16
/// bytes side by side. Then the outliers overwrite. Whatever the bytes of the blob are, positions
/// and counts are checked; if the header is not what it should be, all is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../float_bits.hpp"
#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Part `part` of the blocks times tiles of job.format, to x.
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_decode_tile(Block& block, std::size_t part, const QuantJob<T>& job,
                                const std::byte* blob, T* to) {
  using Thread = TileThread<T>;
  constexpr std::size_t P = Thread::packet, R = Thread::most_rows;
  const std::size_t tiles = job.format.whole.tiles, i = part / tiles, tile = part % tiles;
  const QuantBlock& b = job.block(i);
  const std::byte* const bytes = blob + job.format.start_of(i);
  const std::size_t cols = b.cols_of_tile(tile), left = tile * tile_cols;
  T* const x = to + i * block_rows * b.cols + left;

  block.each([&](int me) {
    const Thread t(static_cast<std::size_t>(me), b.rows);
    const std::size_t columns = t.columns(cols);
    if (columns == 0) return;
    const bool valid = header_is(blob, job.header);
    const auto parameter = [&](std::size_t array, std::size_t group) {
      return to_float(bfloat16{get<std::uint16_t>(bytes + array + 2 * group)});
    };
    float scale[P], minimum[P];
    if constexpr (O.group == 0) {
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
        scale[j] = minimum[j] = 0;
        if (j >= columns) continue;
        scale[j] = parameter(b.scales, left + t.col + j);
        if (!O.symmetric) minimum[j] = parameter(b.minima, left + t.col + j);
      }
    }
    // If rows of codes are aligned: P neighbouring codes in one load; two halves of a strip are
    // in the same bytes.
    const std::size_t strip = t.col % strip_cols;
    const bool whole_strip = t.col - strip + strip_cols <= cols;
    const bool codes_aligned = columns == P && b.row_bytes % P == 0 && (Bits == 8 || whole_strip);
    const std::size_t byte = Bits == 8 ? left + t.col : (left + t.col - strip) / 2 + strip % 16;
    const unsigned shift = Bits == 8 || strip < 16 ? 0U : 4U;
    const bool aligned = b.cols * sizeof(T) % 16 == 0 && columns == P;
    ADACC_UNROLL for (std::size_t r = 0; r < R; ++r) {
      if (r >= t.count) continue;
      const std::size_t row = t.row + r;
      if constexpr (O.group != 0) {
        std::size_t g = row;
        if constexpr (O.group != whole_row) g = row * b.groups_per_row + (left + t.col) / O.group;
        const float s = parameter(b.scales, g);
        const float m = O.symmetric ? 0.0F : parameter(b.minima, g);
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) scale[j] = s, minimum[j] = m;
      }
      const std::byte* const codes = bytes + b.codes + row * b.row_bytes;
      SmallPacket<std::uint8_t, P> in = {};
      if (codes_aligned) {
        in = load_packet<SmallPacket<std::uint8_t, P>>(codes + byte);
        if (Bits == 4) {
          ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) in.at[j] =
              static_cast<std::uint8_t>(in.at[j] >> shift & 15);
        }
      } else {
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          if (j >= columns) continue;
          const CodePlace place = code_place(Bits, b.cols, left + t.col + j);
          in.at[j] = static_cast<std::uint8_t>(
              get<std::uint8_t>(codes + place.byte) >> place.shift & ((1 << Bits) - 1));
        }
      }
      SmallPacket<T, P> out;
      // A group without numbers has NaN for its scale. What arithmetic makes of it has other bits on
      // a GPU than on a CPU, so it is said here which NaN comes out.
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) out.at[j] =
          valid && !is_nan(scale[j])
              ? from_number<T>(quant_value<Bits, O.symmetric>(in.at[j], scale[j], minimum[j]))
              : quiet_nan<T>();
      T* const at = x + row * b.cols + t.col;
      if (aligned) {
        constexpr std::size_t size = Packet16<T>::size;
        ADACC_UNROLL for (std::size_t p = 0; p < P / size; ++p) {
          Packet16<T> packet;
          ADACC_UNROLL for (std::size_t j = 0; j < size; ++j) packet.at[j] = out.at[p * size + j];
          stream_packet(at + p * size, packet);
        }
      } else {
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) if (j < columns) at[j] = out.at[j];
      }
    }
  });

  const QuantSection layout(O, b.rows, cols, sizeof(T));
  if (layout.places == 0) return;
  const std::byte* const from = bytes + b.section(tile);
  block.each([&](int me) {
    const std::size_t used = get<std::uint32_t>(from);
    if (used == 0 || !header_is(blob, job.header)) return;
    const std::size_t count = used < layout.places ? used : layout.places;
    constexpr bool channels = O.outliers == Outliers::channels;
    const std::size_t values = channels ? count * b.rows : count;
    for (std::size_t v = static_cast<std::size_t>(me); v < values; v += Block::threads) {
      const std::size_t index =
          get<std::uint16_t>(from + layout.indices + 2 * (channels ? v / b.rows : v));
      const std::size_t row = channels ? v % b.rows : index / tile_cols;
      const std::size_t col = channels ? index : index % tile_cols;
      if (row < b.rows && col < cols)
        x[row * b.cols + col] = get<T>(from + QuantSection::values + v * sizeof(T));
    }
  });
}

}}}  // namespace adacc::v0_1::detail
