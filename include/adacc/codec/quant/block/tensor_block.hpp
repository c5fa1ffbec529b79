// SPDX-License-Identifier: MIT
/// How a block of threads divides the tiles of the quantizing codecs, and what its threads share.
///
/// The bytes are specified in codec/quant/layout.hpp, the arithmetic in quantize.hpp. A tile is 64 rows by 256
/// columns; the threads hold 128 columns (of bfloat16: all) at a time. Each thread has in registers a packet of
/// neighbouring columns (4, or 8 of bfloat16) in 8 rows of one slice: so a warp reads whole rows, and few threads
/// need to agree on the extremes of a slice. If groups lie within the held columns and nothing is beyond them, an
/// element is read from memory once.
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

/// N elements as words of the device: two bfloat16 in one word, other types unchanged.
template <class T, std::size_t N>
struct ElementWords {
  static constexpr bool pairs = std::is_same_v<T, bfloat16>;
  SmallPacket<std::conditional_t<pairs, std::uint32_t, T>, pairs ? N / 2 : N> packet;

  /// Sets elements j and j + 1; j is even.
  ADACC_HD void set(std::size_t j, float a, float b) {
    if constexpr (!pairs) {
      packet.at[j] = from_number<T>(a), packet.at[j + 1] = from_number<T>(b);
    } else {
#if defined(__CUDA_ARCH__)
      // A NaN becomes the one that to_bfloat16() makes of the device's own.
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packet.at[j / 2]) : "f"(b), "f"(a));
#else
      packet.at[j / 2] = std::uint32_t{to_bfloat16(b).bits} << 16 | to_bfloat16(a).bits;
#endif
    }
  }
  ADACC_HD SmallPacket<T, N> elements() const { return bits_as<SmallPacket<T, N>>(packet); }
};

/// Byte k of a word.
ADACC_HD inline std::uint32_t byte_of(std::uint32_t word, unsigned k) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x4440 | k);
#else
  return word >> 8 * k & 0xFF;
#endif
}

/// The lower or the upper of two bfloat16 in a word.
ADACC_HD inline float half_of_pair(std::uint32_t pair, std::size_t upper) {
  return bits_as<float>(upper != 0 ? pair & 0xFFFF0000 : pair << 16);
}

// The smaller and the larger of two numbers, or of each half of two pairs of bfloat16; a NaN if either is one. -0 is
// below 0.

ADACC_HD inline float least_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
#else
  return a != a || (b == b && ordered(a) < ordered(b)) ? a : b;
#endif
}
ADACC_HD inline float most_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return a != a || (b == b && ordered(a) > ordered(b)) ? a : b;
#endif
}
ADACC_HD inline std::uint32_t least_of(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t least;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  return least;
#else
  return bits_as<std::uint32_t>(least_of(half_of_pair(a, 1), half_of_pair(b, 1))) |
         bits_as<std::uint32_t>(least_of(half_of_pair(a, 0), half_of_pair(b, 0))) >> 16;
#endif
}
ADACC_HD inline std::uint32_t most_of(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t most;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
#else
  return bits_as<std::uint32_t>(most_of(half_of_pair(a, 1), half_of_pair(b, 1))) |
         bits_as<std::uint32_t>(most_of(half_of_pair(a, 0), half_of_pair(b, 0))) >> 16;
#endif
}

/// Quotient and remainder; a division of 64 bits is a hundred instructions, and hardly ever needed.
struct Divided {
  std::size_t quotient, remainder;
};
ADACC_HD inline Divided divided(std::size_t a, std::size_t b) {
  if (std::uint64_t{a | b} >> 32 != 0) return {a / b, a % b};
  const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
  return {x / y, x % y};
}

/// The elements of a part of a tile that one thread has: `packet` columns from col in `count` rows from row. The
/// threads hold one part at a time: 64 rows by as many columns as a warp reads at once, half a tile (of bfloat16: all
/// of it).
template <class T>
struct TileThread {
  static constexpr std::size_t packet = std::is_same_v<T, bfloat16> ? 8 : 4;
  static constexpr std::size_t part_cols = 32 * packet;
  static constexpr std::size_t parts = tile_cols / part_cols;
  static constexpr std::size_t bands = 8;  ///< bands of rows, one per warp: two in a slice
  static constexpr std::size_t most_rows = block_rows / bands;

  std::size_t band, row, count, col;

  /// The tile has `rows` rows.
  ADACC_HD constexpr TileThread(std::size_t thread, std::size_t rows, std::size_t part)
      : band(thread / 32), row(0), count(0), col(part * part_cols + thread % 32 * packet) {
    const std::size_t begin = slice_begin(rows, band / 2), end = slice_begin(rows, band / 2 + 1);
    const std::size_t middle = begin + (end - begin + 1) / 2;
    row = band % 2 == 0 ? begin : middle;
    count = (band % 2 == 0 ? middle : end) - row;
  }

  /// How many of the thread's columns are among the tile's `cols`.
  ADACC_HD constexpr std::size_t columns(std::size_t cols) const {
    return cols <= col ? 0 : cols - col < packet ? cols - col : packet;
  }
};

/// The elements of a part that a thread holds: numbers, or unchanged bfloat16, two in a word.
template <class T>
struct TilePart {
  using Thread = TileThread<T>;
  static constexpr bool pairs = std::is_same_v<T, bfloat16>;
  using Word = std::conditional_t<pairs, std::uint32_t, float>;
  static constexpr std::size_t words = Thread::packet / (pairs ? 2 : 1);
  Word rows[Thread::most_rows][words];

  ADACC_HD static float number(const Word (&row)[words], std::size_t col) {
    if constexpr (pairs) return half_of_pair(row[col / 2], col % 2);
    else return row[col];
  }
  ADACC_HD float at(std::size_t row, std::size_t col) const { return number(rows[row], col); }
  /// The same for a column that is known only at run time: the elements stay in registers.
  ADACC_HD float selected(std::size_t row, std::size_t col) const {
    Word word = rows[row][0];
    ADACC_UNROLL for (std::size_t w = 1; w < words; ++w) {
      const Word next = rows[row][w];
      word = col / (pairs ? 2 : 1) == w ? next : word;
    }
    if constexpr (pairs) return half_of_pair(word, col % 2);
    else return word;
  }

  /// Keeps the compiler from using numbers that were made of the elements before: no registers are held for these.
  ADACC_HD void forget_numbers() {
#if defined(__CUDA_ARCH__)
    if constexpr (pairs) {
      ADACC_UNROLL for (std::size_t i = 0; i < Thread::most_rows; ++i)
          ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) asm volatile("" : "+r"(rows[i][w]));
    }
#endif
  }

  /// `from` is the thread's first element; `columns` elements of a row exist. aligned: rows begin at multiples of 16
  /// bytes.
  ADACC_HD void load(const T* from, std::size_t stride, std::size_t count, std::size_t columns,
                     bool aligned) {
    constexpr std::size_t size = Packet16<T>::size;
    ADACC_UNROLL for (std::size_t i = 0; i < Thread::most_rows; ++i, from += stride) {
      ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) rows[i][w] = Word{};
      if (i >= count || columns == 0) continue;
      if (aligned && pairs) {
        const auto in = load_packet<Packet16<Word>>(from);
        ADACC_UNROLL for (std::size_t w = 0; w < words; ++w) rows[i][w] = in.at[w];
      } else if (aligned) {
        ADACC_UNROLL for (std::size_t p = 0; p < Thread::packet / size; ++p) {
          const auto in = load_packet<Packet16<T>>(from + p * size);
          ADACC_UNROLL for (std::size_t j = 0; j < size; ++j) set(i, p * size + j, in.at[j]);
        }
      } else {
        ADACC_UNROLL for (std::size_t j = 0; j < Thread::packet; ++j) if (j < columns)
            set(i, j, from[j]);
      }
    }
  }

 private:
  ADACC_HD void set(std::size_t row, std::size_t col, T x) {
    if constexpr (pairs) rows[row][col / 2] |= std::uint32_t{x.bits} << col % 2 * 16;
    else rows[row][col] = static_cast<Word>(x);
  }
};

/// A threshold above all magnitudes.
inline constexpr std::int32_t nothing_beyond = 0x7FFFFFFF;

/// The share of each sample of 64 rows in the sums of their header.
struct QuantSamples {
  double noise[64], signal[64];
  std::uint32_t counts[64];
};

/// Shared memory of an encoding block. Groups of a tile have slots (QuantTile::slot_of()).
struct QuantShared {
  static constexpr std::size_t slot_count = 520;

  struct Slices {
    std::int32_t lo[4 * slot_count], hi[4 * slot_count];
  };
  // First four slices of each slot, or eight bands of each column; then the codes of the tile; at last the samples.
  union {
    alignas(16) Slices slice;
    alignas(16) std::uint8_t codes[block_rows][tile_cols];
    QuantSamples samples;
  };
  std::int32_t lo[slot_count], hi[slot_count];
  /// nothing_beyond, if the slot has nothing beyond.
  alignas(16) std::int32_t threshold[slot_count];
  alignas(16) float base[slot_count], inverse[slot_count];
  // Bit c % 32 of word 8 * row + c / 32. placed: has a place; partly: is of the level of which only some have one.
  std::uint32_t placed[slot_count], partly[slot_count];
  std::uint32_t levels[outlier_levels];
  static constexpr std::size_t list_size = 64;
  std::uint32_t listed;           ///< flagged elements of the tile
  std::uint16_t list[list_size];  ///< the first of these to be found: 256 * row + column
  std::uint32_t exponents[256];
  std::int32_t column[tile_cols];
  std::uint16_t places[tile_cols];  ///< columns with a place
  std::int32_t channel_limit;
  std::uint32_t used, flagged, nonfinite, largest;
  std::uint32_t any_marked;     ///< 1 if any slot is marked
  std::uint32_t any_from_zero;  ///< 1 if any group has a minimum of 0, and QuantOptions::positive
  std::uint32_t marked[slot_count];  ///< if any_marked: 1 if a NaN or an infinity has no place
};

/// The input and the output of one launch.
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
