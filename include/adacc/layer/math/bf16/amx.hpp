// SPDX-License-Identifier: MIT
/// Kernels of bf16 products for AMX: 2 x 2 tiles of sums, of 16 rows and 16 columns each.
///
/// One instruction adds the product of 16 rows by 16 pairs and 16 pairs by 16 columns to a tile of sums; its result is
/// defined by PairBlockSum, in every mode of the thread. Panels of B have the layout of tiles. Rows of A are read in place,
/// or packed one after the other. Ends of rows, columns and k are copied to scratch and filled up with zeros there, so
/// all tiles are whole. 3800 GFLOP/s were measured with nothing but this instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/amx.hpp"
#include "../../../core/intrinsics.hpp"
#include "definition.hpp"
#include "pack_avx512.hpp"

#if ADACC_HAS_AMX && ADACC_HAS_LEVELS
ADACC_INTRINSICS_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

struct AmxPairs : Avx512Packing {
  static constexpr std::size_t in_place_rows = PairBlocks::max_rows;
  static constexpr std::size_t panels_at_once = 16;

  template <class Out>
  ADACC_AVX512_BF16 [[gnu::noinline]] static void multiply(const PairTile<Out>& tile) {
    if (tile.k == 0) return first_terms(tile);
    const Tiles tiles;
    for (std::size_t j = 0; j < tile.cols; j += block_cols)
      for (std::size_t i = 0; i < tile.rows; i += block_rows) {
        const Block<Out> block(tile, i, j);
        if (block.rows > Tiles::rows) {
          if (block.cols > Tiles::rows) block.template run<2, 2>();
          else block.template run<2, 1>();
        } else {
          if (block.cols > Tiles::rows) block.template run<1, 2>();
          else block.template run<1, 1>();
        }
      }
  }

  /// Rows of A, one after the other, each of whole pairs. If the columns are contiguous, squares of 32 rows by 16 pairs
  /// are transposed in registers. All rows of a square of k come first: each k of a tile is then read to its end, so
  /// memory is read in runs of two cache lines.
  ADACC_AVX512_BF16 [[gnu::noinline]] static void pack_rows(std::size_t rows, std::size_t k,
                                                            Operand<bfloat16> a,
                                                            std::uint32_t* to) {
    const std::size_t pairs = div_up(k, 2);
    if (a.row_stride != 1) {
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t p = 0; p < pairs; ++p)
          to[i * pairs + p] = bf16_bits(*a.at(i, 2 * p).data) |
                              (2 * p + 1 < k ? bf16_bits(*a.at(i, 2 * p + 1).data) << 16 : 0);
      return;
    }
    for (std::size_t p = 0; p < pairs; p += 16)
      for (std::size_t i = 0; i < rows; i += block_rows)
        pack_square(least(block_rows, rows - i), k - 2 * p, a.at(i, 2 * p), to + i * pairs + p,
                    pairs);
  }

 private:
  static constexpr std::size_t block_rows = 2 * Tiles::rows, block_cols = 2 * Tiles::rows;
  static constexpr std::size_t depth = 2 * PairBlockSum::pairs;  // of k, in a tile
  static constexpr std::size_t tile_words = Tiles::rows * Tiles::row_bytes / 4;

  /// 16 bytes of each of four k, eight apart.
  ADACC_AVX512 static inline __m512i four_of(const bfloat16* from, std::size_t step) {
    const auto at = [&](std::size_t i) {
      return _mm_loadu_si128(
          static_cast<const __m128i*>(static_cast<const void*>(from + i * step)));
    };
    const __m512i first = _mm512_inserti32x4(_mm512_castsi128_si512(at(0)), at(8), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(first, at(16), 2), at(24), 3);
  }

  /// Up to 32 rows and 16 pairs; `left` elements of k are left. Eight rows at a time: lane l has the k from 8 l on, so all
  /// that remains is to turn 8 x 8 numbers within each lane.
  ADACC_AVX512_BF16 [[gnu::noinline]] static void pack_square(std::size_t count, std::size_t left,
                                                              Operand<bfloat16> a,
                                                              std::uint32_t* to,
                                                              std::size_t stride) {
    const bfloat16* from = a.data;
    std::size_t step = a.col_stride;
    for (std::size_t k = 0; k < least(depth, left); ++k)
      __builtin_prefetch(from + least(k + depth, left - 1) * step);
    alignas(64) bfloat16 part[block_rows * depth];
    if (count < block_rows || left < depth) {
      const __mmask32 some = count >= 32 ? 0xFFFFFFFFU : (1U << count) - 1;
      for (std::size_t k = 0; k < depth; ++k)
        _mm512_store_si512(
            part + k * block_rows,
            k < left ? _mm512_maskz_loadu_epi16(some, from + k * step) : _mm512_setzero_si512());
      from = part, step = block_rows;
    }
    const __mmask16 pairs = first_lanes(div_up(left, 2));
    for (std::size_t first = 0; first < count; first += 8) {
      __m512i x[8], y[8];
#pragma GCC unroll 8
      for (std::size_t k = 0; k < 8; ++k) x[k] = four_of(from + k * step + first, step);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < 4; ++k) {  // pairs of rows 0 to 3, and of 4 to 7
        y[k] = _mm512_unpacklo_epi16(x[2 * k], x[2 * k + 1]);
        y[k + 4] = _mm512_unpackhi_epi16(x[2 * k], x[2 * k + 1]);
      }
#pragma GCC unroll 4
      for (std::size_t k = 0; k < 8; k += 2) {  // two pairs of two rows
        x[k] = _mm512_unpacklo_epi32(y[k], y[k + 1]);
        x[k + 1] = _mm512_unpackhi_epi32(y[k], y[k + 1]);
      }
#pragma GCC unroll 4
      for (std::size_t k = 0; k < 8; k += 4)
        for (std::size_t i = 0; i < 2; ++i) {
          y[k + 2 * i] = _mm512_unpacklo_epi64(x[k + i], x[k + 2 + i]);
          y[k + 2 * i + 1] = _mm512_unpackhi_epi64(x[k + i], x[k + 2 + i]);
        }
      const std::size_t rows = least(8, count - first);
      if (rows == 8 && pairs == 0xFFFF) {
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i) _mm512_storeu_si512(to + (first + i) * stride, y[i]);
      } else {
        for (std::size_t i = 0; i < rows; ++i)
          _mm512_mask_storeu_epi32(to + (first + i) * stride, pairs, y[i]);
      }
    }
  }

  template <class Out>
  static void first_terms(const PairTile<Out>& tile) {
    float sum[PairBlocks::panel];
    for (std::size_t j = 0; j < tile.cols; j += PairBlocks::panel) {
      const PairTile<Out> part = tile.panel_at(j);
      for (std::size_t i = 0; i < part.rows; ++i) part.begin_row(i, sum), part.end_row(i, sum);
    }
  }

  /// Where tiles are loaded from.
  struct Source {
    const void* at;
    std::size_t stride;  // bytes
  };

  /// Up to 32 rows and 32 columns of C.
  template <class Out>
  struct Block {
    static constexpr bool fp32 = PairTile<Out>::fp32;

    const PairTile<Out>& tile;
    std::size_t first_row, first_col, rows, cols;
    const bfloat16* a;     // the first of the block's rows
    std::size_t a_stride;  // elements
    // Scratch: a block of sums, two tiles of A, and two of B.
    float* sums;
    std::uint32_t *a_copy, *b_copy;

    Block(const PairTile<Out>& of, std::size_t row, std::size_t col)
        : tile(of), first_row(row), first_col(col), rows(least(block_rows, of.rows - row)),
          cols(least(block_cols, of.cols - col)), a(of.a), a_stride(of.a_stride), sums(of.scratch),
          a_copy(static_cast<std::uint32_t*>(static_cast<void*>(sums)) + 1024),
          b_copy(a_copy + 2 * tile_words) {
      if (of.packed_a != nullptr) {
        a = static_cast<const bfloat16*>(static_cast<const void*>(of.packed_a));
        a_stride = 2 * of.pairs();
      }
      a += row * a_stride;
    }

    /// The panel's part for a tile of columns.
    template <int across>
    [[gnu::always_inline]] inline Source panel_of() const {
      constexpr std::size_t panel = PairBlocks::panel;
      const std::size_t at = first_col + across * Tiles::rows, in_panel = at % panel;
      const std::size_t wide = round_up(least(panel, tile.cols - (at - in_panel)), Tiles::rows);
      return {tile.b + at / panel * tile.b_stride + in_panel, wide * sizeof(std::uint32_t)};
    }

    bool whole() const { return rows % Tiles::rows == 0 && cols % Tiles::rows == 0; }

    template <int down, int across>
    ADACC_AVX512_BF16 [[gnu::always_inline]] inline void run() const {
      begin<down, across>();
      const std::size_t blocks = tile.k / depth, left = tile.k % depth;
      // Members of a block are read one by one here: a vector of two, read where they were just stored, waits for all
      // stores of the block before.
      Source right[2] = {panel_of<0>(), panel_of<across - 1>()};
      const auto next = [&]() __attribute__((always_inline)) {
        for (int v = 0; v < across; ++v)
          right[v].at = static_cast<const std::byte*>(right[v].at) + Tiles::rows * right[v].stride;
      };
      if (rows % Tiles::rows == 0) {
        const std::byte* left_rows = static_cast<const std::byte*>(static_cast<const void*>(a));
        for (std::size_t i = 0; i < blocks; ++i, next(), left_rows += depth * sizeof(bfloat16))
          add<down, across>({left_rows, a_stride * sizeof(bfloat16)}, right);
      } else {
        for (std::size_t i = 0; i < blocks; ++i, next()) {
          copy_a<down>(a + i * depth, depth);
          add<down, across>({a_copy, Tiles::row_bytes}, right);
        }
      }
      if (left != 0) {
        copy_a<down>(a + blocks * depth, left);
        const std::size_t pairs = div_up(left, 2);
        for (int v = 0; v < across; ++v) {
          std::uint32_t* const to = b_copy + static_cast<std::size_t>(v) * tile_words;
          const std::byte* const from = static_cast<const std::byte*>(right[v].at);
          for (std::size_t p = 0; p < Tiles::rows; ++p)
            _mm512_storeu_si512(to + 16 * p, p < pairs
                                                 ? _mm512_loadu_si512(from + p * right[v].stride)
                                                 : _mm512_setzero_si512());
          right[v] = {to, Tiles::row_bytes};
        }
        add<down, across>({a_copy, Tiles::row_bytes}, right);
      }
      end<down, across>();
    }

    /// Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B.
    template <int down, int across>
    [[gnu::always_inline]] static inline void add(Source left, const Source (&right)[2]) {
      Tiles::load<4>(left.at, left.stride);
      Tiles::load<6>(right[0].at, right[0].stride);
      Tiles::multiply_add<0, 4, 6>();
      if constexpr (across > 1) {
        Tiles::load<7>(right[1].at, right[1].stride);
        Tiles::multiply_add<1, 4, 7>();
      }
      if constexpr (down > 1) {
        Tiles::load<5>(static_cast<const std::byte*>(left.at) + Tiles::rows * left.stride,
                       left.stride);
        Tiles::multiply_add<2, 5, 6>();
        if constexpr (across > 1) Tiles::multiply_add<3, 5, 7>();
      }
    }

    /// Rows of `count` elements; behind them, and below them, zeros.
    template <int down>
    ADACC_AVX512_BF16 void copy_a(const bfloat16* from, std::size_t count) const {
      const __mmask32 some = count >= 32 ? 0xFFFFFFFFU : (1U << count) - 1;
      for (std::size_t i = 0; i < down * Tiles::rows; ++i)
        _mm512_storeu_si512(a_copy + 16 * i,
                            i < rows ? _mm512_maskz_loadu_epi16(some, from + i * a_stride)
                                     : _mm512_setzero_si512());
    }

    template <int down, int across, class Use>
    [[gnu::always_inline]] static inline void each_sum(const float* at, std::size_t row_stride,
                                                       const Use& use) {
      use.template operator()<0>(at);
      if constexpr (across > 1) use.template operator()<1>(at + 16);
      if constexpr (down > 1) use.template operator()<2>(at + Tiles::rows * row_stride);
      if constexpr (down > 1 && across > 1)
        use.template operator()<3>(at + Tiles::rows * row_stride + 16);
    }

    /// The first terms: the old C, a row for all, or zeros.
    template <int down, int across>
    ADACC_AVX512_BF16 void begin() const {
      const float* from = nullptr;
      std::size_t stride = 0;
      if (tile.bias != nullptr) from = tile.bias + first_col;
      if constexpr (fp32)
        if (tile.add) from = tile.c + first_row * tile.ldc + first_col, stride = tile.ldc;
      if (from == nullptr) {
        Tiles::zero<0>(), Tiles::zero<1>(), Tiles::zero<2>(), Tiles::zero<3>();
        return;
      }
      const bool direct = stride == 0 ? cols % Tiles::rows == 0 : whole();
      if (!direct) {
        for (std::size_t i = 0; i < (stride == 0 ? 1 : rows); ++i)
          for (std::size_t v = 0; v < across; ++v)
            _mm512_storeu_ps(sums + i * block_cols + 16 * v,
                             _mm512_maskz_loadu_ps(lanes(v), from + i * stride + 16 * v));
        from = sums;
        if (stride != 0) stride = block_cols;
      }
      each_sum<down, across>(from, stride, [&]<int sum>(const float* at) {
        Tiles::load<sum>(at, stride * sizeof(float));
      });
    }

    template <int down, int across>
    ADACC_AVX512_BF16 void end() const {
      Out* const c = tile.c + first_row * tile.ldc + first_col;
      float* to = sums;
      std::size_t stride = block_cols;
      if constexpr (fp32)
        if (whole()) to = c, stride = tile.ldc;
      each_sum<down, across>(to, stride, [&]<int sum>(const float* at) {
        Tiles::store<sum>(const_cast<float*>(at), stride * sizeof(float));
      });
      if constexpr (fp32) {
        if (whole()) return;
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t v = 0; v < across; ++v)
            _mm512_mask_storeu_ps(c + i * tile.ldc + 16 * v, lanes(v),
                                  _mm512_loadu_ps(sums + i * block_cols + 16 * v));
      } else {
        const __mmask32 some = cols >= 32 ? 0xFFFFFFFFU : (1U << cols) - 1;
        for (std::size_t i = 0; i < rows; ++i) {
          const __m512 low = _mm512_loadu_ps(sums + i * block_cols);
          const __m512 high =
              across > 1 ? _mm512_loadu_ps(sums + i * block_cols + 16) : _mm512_setzero_ps();
          const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
          _mm512_mask_storeu_epi16(c + i * tile.ldc, some, reinterpret_cast<__m512i>(rounded));
        }
      }
    }

    __mmask16 lanes(std::size_t vector) const {
      return first_lanes(cols > 16 * vector ? cols - 16 * vector : 0);
    }
  };
};

}}}  // namespace adacc::v0_1::detail
ADACC_INTRINSICS_END
#endif
