// SPDX-License-Identifier: MIT
/// How a block of threads divides the tiles of the quantizing codecs, and what its threads share.
///
/// The bytes are those of codec/quant/layout.hpp, the arithmetic is that of quantize.hpp. A tile is
/// 64 rows by 256 columns. A thread has a packet of neighbouring columns (4, or 8 of bfloat16) in
/// some of the rows of one slice, all of which it holds in registers: so a warp reads whole rows,
/// an element is read from memory once, and a slice's extremes need few threads to agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../../../core/bfloat16.hpp"
#include "../../../core/config.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/random.hpp"
#include "../../../core/view.hpp"
#include "../../thread_block.hpp"
#include "../layout.hpp"
#include "../quantize.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

ADACC_HD inline std::uint32_t bits_set(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(word));
#else
  return static_cast<std::uint32_t>(__builtin_popcount(word));
#endif
}

/// The position of the lowest bit of a word that is not 0.
ADACC_HD inline std::size_t lowest_bit(std::uint64_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::size_t>(__ffsll(static_cast<long long>(word)) - 1);
#else
  return static_cast<std::size_t>(__builtin_ctzll(word));
#endif
}

/// Which elements of a tile a thread has: `packet` columns from col in `count` rows from row.
template <class T>
struct TileThread {
  static constexpr std::size_t packet = std::is_same_v<T, bfloat16> ? 8 : 4;
  static constexpr std::size_t per_row = tile_cols / packet;  ///< threads
  static constexpr std::size_t bands = 256 / per_row;         ///< of rows: one or two in a slice
  static constexpr std::size_t most_rows = block_rows / bands;

  std::size_t band, row, count, col;

  /// The tile has `rows` rows.
  ADACC_HD constexpr TileThread(std::size_t thread, std::size_t rows)
      : band(thread / per_row), row(0), count(0), col(thread % per_row * packet) {
    const std::size_t slice = band * 4 / bands;
    const std::size_t begin = slice_begin(rows, slice), end = slice_begin(rows, slice + 1);
    const std::size_t middle = bands == 4 ? end : begin + (end - begin + 1) / 2;
    row = bands == 8 && band % 2 == 1 ? middle : begin;
    count = (bands == 8 && band % 2 == 0 ? middle : end) - row;
  }

  /// How many of its columns are among the tile's `cols`.
  ADACC_HD constexpr std::size_t columns(std::size_t cols) const {
    return cols <= col ? 0 : cols - col < packet ? cols - col : packet;
  }
};

/// What a thread holds of a tile: numbers, of bfloat16 as they were.
template <class T>
struct TilePart {
  using Thread = TileThread<T>;
  using Held = std::conditional_t<std::is_same_v<T, bfloat16>, bfloat16, float>;
  SmallPacket<Held, Thread::packet> rows[Thread::most_rows];

  ADACC_HD float at(std::size_t row, std::size_t col) const { return to_number(rows[row].at[col]); }

  /// `from` is the thread's first element, `columns` how many of a row there are. Aligned: rows
  /// begin at multiples of 16 bytes.
  ADACC_HD void load(const T* from, std::size_t stride, std::size_t count, std::size_t columns,
                     bool aligned) {
    ADACC_UNROLL for (std::size_t i = 0; i < Thread::most_rows; ++i) {
      ADACC_UNROLL for (std::size_t j = 0; j < Thread::packet; ++j) rows[i].at[j] = Held{};
      if (i >= count || columns == 0) continue;
      if (aligned) {
        constexpr std::size_t size = Packet16<T>::size;
        ADACC_UNROLL for (std::size_t p = 0; p < Thread::packet / size; ++p) {
          const auto in = load_packet<Packet16<T>>(from + i * stride + p * size);
          ADACC_UNROLL for (std::size_t j = 0; j < size; ++j) rows[i].at[p * size + j] =
              static_cast<Held>(in.at[j]);
        }
      } else {
        ADACC_UNROLL for (std::size_t j = 0; j < Thread::packet; ++j) if (j < columns) rows[i]
            .at[j] = static_cast<Held>(from[i * stride + j]);
      }
    }
  }
};

/// Shared memory of a block that encodes. Groups of a tile have slots: a column's is the column,
/// that of group k of a row is row * slots_per_row + k.
struct QuantShared {
  static constexpr std::size_t slots = 512;

  struct Slices {
    std::int32_t lo[4 * slots], hi[4 * slots];
  };
  // Of every slot four slices, or of every column eight bands; later the codes of the tile.
  union {
    Slices slice;
    alignas(16) std::uint8_t codes[block_rows][tile_cols];
  };
  std::int32_t lo[slots], hi[slots], threshold[slots];
  float base[slots], inverse[slots];
  // Bit c % 32 of word 8 * row + c / 32: has a place; is of the level of which only some have one.
  std::uint32_t placed[slots], partly[slots];
  std::uint32_t levels[outlier_levels];
  std::uint32_t exponents[256];
  std::int32_t column[tile_cols];
  std::uint16_t places[tile_cols];  ///< columns with a place
  std::int32_t channel_limit;
  std::uint32_t used, flagged, nonfinite, largest;
};

/// What one launch works on.
template <class T>
struct QuantJob {
  QuantFormat format;
  QuantBlock last;
  const T* x;
  std::byte* blob;
  RandomKey stream;
  BlobHeader header;

  ADACC_HD const QuantBlock& block(std::size_t i) const {
    return i + 1 < format.blocks() ? format.whole : last;
  }
  ADACC_HD std::byte* bytes(std::size_t i) const { return blob + format.start_of(i); }
};

template <unsigned Bits, QuantOptions O, class T>
QuantJob<T> quant_job(View<const T> x, std::byte* blob, const RandomKey& key) {
  const std::size_t rows = x.rows(), cols = x.cols();
  const QuantFormat format(Bits, O, rows, cols, sizeof(T));
  return {format,
          QuantBlock(Bits, O, format.rows_of(format.blocks() - 1), cols, sizeof(T)),
          x.data(),
          blob,
          key.with_purpose(Purpose::rounding),
          blob_header(fnv1a(QuantName(Bits, O).text), dtype_of<T>, rows, cols)};
}

template <class U>
ADACC_HD void put(std::byte* to, U value) {
  store_packet(to, SmallPacket<U, 1>{{value}});
}
template <class U>
ADACC_HD U get(const std::byte* from) {
  return load_packet<SmallPacket<U, 1>>(from).at[0];
}

}}}  // namespace adacc::v0_1::detail
