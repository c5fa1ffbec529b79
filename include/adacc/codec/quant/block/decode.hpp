// SPDX-License-Identifier: MIT
/// Decodes tiles of the quantizing codecs by a block of threads (thread_block.hpp).
///
/// Threads have the same columns and rows as in encoding, so they store packets of 16 bytes side by side. Then the
/// outliers overwrite elements. Positions and counts are checked, for any bytes of the blob; if the header is not the
/// expected one, all elements are NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../../float_bits.hpp"
#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// quant_value(), in one operation if the device has it: no intermediate result overflows.
template <unsigned Bits, bool Symmetric>
ADACC_HD inline float decoded_value(std::uint32_t code, float scale, float minimum) {
#if defined(__CUDA_ARCH__)
  if constexpr (!Symmetric) return __fmaf_rn(scale, static_cast<float>(code), minimum);
#endif
  return quant_value<Bits, Symmetric>(static_cast<std::int32_t>(code), scale, minimum);
}

/// Scales and minima of a thread's columns.
template <std::size_t P>
struct DecodedGroups {
  float scale[P], minimum[P];

  ADACC_HD void set(std::size_t j, bfloat16 s, bfloat16 m) {
    scale[j] = to_float(s), minimum[j] = to_float(m);
  }
};

/// Whether any of the scales belongs to a marked group; takes the marks off.
template <std::size_t N>
ADACC_HD bool take_marks(SmallPacket<bfloat16, N>& scales) {
  using Words = SmallPacket<std::uint32_t, N / 2>;
  Words words = bits_as<Words>(scales);
  std::uint32_t any = 0;
  ADACC_UNROLL for (std::size_t w = 0; w < N / 2; ++w) {
    any |= words.at[w];
    words.at[w] &= 0x7FFF7FFF;
  }
  scales = bits_as<SmallPacket<bfloat16, N>>(words);
  return (any & 0x80008000) != 0;
}

/// Decodes a row of a thread's columns from their codes.
template <unsigned Bits, bool Symmetric, class T, std::size_t P>
ADACC_HD ElementWords<T, P> decoded_row(const std::uint32_t (&codes)[P / 4],
                                        const DecodedGroups<P>& groups) {
  ElementWords<T, P> out;
  ADACC_UNROLL for (std::size_t j = 0; j < P; j += 2) {
    float pair[2];
    ADACC_UNROLL for (std::size_t i = 0; i < 2; ++i) pair[i] = decoded_value<Bits, Symmetric>(
        byte_of(codes[(j + i) / 4], (j + i) % 4), groups.scale[j + i], groups.minimum[j + i]);
    out.set(j, pair[0], pair[1]);
  }
  return out;
}

/// The code of a column, from the codes of a row of `cols`.
template <unsigned Bits>
ADACC_HD std::uint32_t code_of(const std::byte* codes, std::size_t cols, std::size_t col) {
  const CodePlace place = code_place(Bits, cols, col);
  return get<std::uint8_t>(codes + place.byte) >> place.shift & ((1U << Bits) - 1);
}

/// Puts NaN among the elements decoded by the calling thread: in marked groups where codes say so; everywhere if the
/// blob is not `valid`. Rare: no registers are held for it.
template <unsigned Bits, QuantOptions O, class T>
ADACC_HD void put_nans(const TileThread<T>& thread, const QuantBlock& b, std::size_t left,
                       std::size_t columns, bool valid, const std::byte* bytes, T* x) {
  ADACC_ROLL for (std::size_t r = thread.row; r < thread.row + thread.count; ++r) {
    ADACC_ROLL for (std::size_t j = 0; j < columns; ++j) {
      const std::size_t col = left + thread.col + j;
      const bfloat16 scale{
          get<std::uint16_t>(bytes + b.scales + 2 * b.template group_of<O>(r, col))};
      const std::uint32_t code = code_of<Bits>(bytes + b.codes + r * b.row_bytes, b.cols, col);
      const bool marked = is_marked(scale) && code == nan_code<Bits, O.symmetric>;
      if (!valid || marked) x[r * b.cols + thread.col + j] = quiet_nan<T>();
    }
  }
}

/// Decodes a thread's part of a tile. Whole: all rows and columns of the thread exist, and all are aligned.
template <bool Whole, unsigned Bits, QuantOptions O, class T>
ADACC_HD void decode_thread(const TileThread<T>& thread, const QuantBlock& b, std::size_t left,
                            std::size_t cols, bool valid, const std::byte* bytes, T* x) {
  using Thread = TileThread<T>;
  constexpr std::size_t P = Thread::packet, R = Thread::most_rows;
  const std::size_t columns = Whole ? P : thread.columns(cols), col = left + thread.col;
  if (columns == 0) return;
  constexpr bfloat16 zero = {0};
  const auto parameter = [&](std::size_t array, std::size_t group) {
    return bfloat16{get<std::uint16_t>(bytes + array + 2 * group)};
  };
  DecodedGroups<P> groups;
  bool marked = false;
  if constexpr (O.group == 0) {
    using Parameters = SmallPacket<bfloat16, P>;
    Parameters scales = {}, minima = {};
    if (Whole) {
      scales = load_packet<Parameters>(bytes + b.scales + 2 * col);
      if (!O.symmetric) minima = load_packet<Parameters>(bytes + b.minima + 2 * col);
    } else {
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
        if (j >= columns) continue;
        scales.at[j] = parameter(b.scales, col + j);
        if (!O.symmetric) minima.at[j] = parameter(b.minima, col + j);
      }
    }
    marked = take_marks(scales);
    ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) groups.set(j, scales.at[j], minima.at[j]);
  }
  // The groups of the thread's rows lie together.
  using OfRows = SmallPacket<bfloat16, R>;
  [[maybe_unused]] OfRows row_scales = {}, row_minima = {};
  if constexpr (O.group != 0 && Whole) {
    const std::size_t g = 2 * b.template group_of<O>(thread.row, col);
    row_scales = load_packet<OfRows>(bytes + b.scales + g);
    if (!O.symmetric) row_minima = load_packet<OfRows>(bytes + b.minima + g);
    marked = take_marks(row_scales);
  }

  // If rows of codes are aligned: P neighbouring codes in one load; the two halves of a strip are in the same bytes.
  const std::size_t strip = thread.col % strip_cols;
  const bool whole_strip = thread.col - strip + strip_cols <= cols;
  const bool codes_aligned =
      Whole || (columns == P && b.row_bytes % P == 0 && (Bits == 8 || whole_strip));
  const std::size_t byte = Bits == 8 ? col : (col - strip) / 2 + strip % 16;
  const unsigned shift = Bits == 8 || strip < 16 ? 0U : 4U;
  const bool aligned = Whole || (b.cols * sizeof(T) % 16 == 0 && columns == P);
  const std::byte* codes = bytes + b.codes + thread.row * b.row_bytes;
  T* to = x + thread.row * b.cols + thread.col;
  ADACC_UNROLL for (std::size_t r = 0; r < R; ++r, codes += b.row_bytes, to += b.cols) {
    if (!Whole && r >= thread.count) continue;
    const std::size_t row = thread.row + r;
    if constexpr (O.group != 0) {
      const std::size_t g = b.template group_of<O>(row, col);
      bfloat16 s = Whole ? row_scales.at[r] : parameter(b.scales, g);
      if constexpr (!Whole) {
        marked = marked || is_marked(s);
        s = without_mark(s);
      }
      const bfloat16 m = O.symmetric ? zero : Whole ? row_minima.at[r] : parameter(b.minima, g);
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) groups.set(j, s, m);
    }
    SmallPacket<std::uint32_t, P / 4> in = {};
    if (codes_aligned) {
      in = load_packet<SmallPacket<std::uint32_t, P / 4>>(codes + byte);
      if (Bits == 4) {
        ADACC_UNROLL for (std::size_t w = 0; w < P / 4; ++w) in.at[w] =
            in.at[w] >> shift & 0x0F0F0F0F;
      }
    } else {
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
        if (j >= columns) continue;
        in.at[j / 4] |= code_of<Bits>(codes, b.cols, col + j) << j % 4 * 8;
      }
    }
    auto out = decoded_row<Bits, O.symmetric, T, P>(in.at, groups);
    if (aligned) {
      constexpr std::size_t size = Packet16<T>::size;
      ADACC_UNROLL for (std::size_t p = 0; p < P / size; ++p) {
        constexpr std::size_t words = std::extent_v<decltype(out.packet.at)> * size / P;
        SmallPacket<std::remove_reference_t<decltype(out.packet.at[0])>, words> packet;
        ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) packet.at[w] =
            out.packet.at[p * words + w];
        stream_packet(to + p * size, packet);
      }
    } else {
      const SmallPacket<T, P> elements = out.elements();
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) if (j < columns) to[j] = elements.at[j];
    }
  }
  if (!valid || marked) put_nans<Bits, O>(thread, b, left, columns, valid, bytes, x);
}

/// Decodes tile `part`, counted over all blocks of job.format.
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_decode_tile(Block& block, std::size_t part, const QuantJob<T>& job,
                                const std::byte* blob, T* to) {
  using Thread = TileThread<T>;
  const std::size_t tiles = job.format.whole.tiles;
  const Divided place = divided(part, tiles);
  const std::size_t i = place.quotient, tile = place.remainder;
  const QuantBlock& b = job.block(i);
  const std::byte* const bytes = blob + job.format.start_of(i);
  const std::size_t cols = b.cols_of_tile(tile), left = tile * tile_cols;
  T* const x = to + i * block_rows * b.cols + left;

  // Rows of T, of codes and of parameters begin at multiples of 16 bytes.
  const bool whole = b.rows == block_rows && cols == tile_cols && b.cols % 32 == 0;
  const bool valid = header_is(block, blob, job.header);
  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    ADACC_UNROLL for (std::size_t p = 0; p < Thread::parts; ++p) {
      if (whole)
        decode_thread<true, Bits, O>(Thread(thread, block_rows, p), b, left, cols, valid, bytes, x);
      else decode_thread<false, Bits, O>(Thread(thread, b.rows, p), b, left, cols, valid, bytes, x);
    }
  });

  const QuantSection layout(O, b.rows, cols, sizeof(T));
  if (layout.places == 0) return;
  const std::byte* const from = bytes + b.section(tile);
  block.each([&](int me) {
    const std::size_t used = get<std::uint32_t>(from);
    if (used == 0 || !valid) return;
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
