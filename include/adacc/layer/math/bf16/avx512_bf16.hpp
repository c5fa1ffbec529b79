// SPDX-License-Identifier: MIT
/// Kernels of bf16 products for AVX512_BF16, whose instruction multiplies pairs.
///
/// 8 rows by 3 vectors of sums stay in registers: the instruction's latency asks for six sums at least. It rounds and
/// treats denormal numbers as the definition says, in every mode of the thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/intrinsics.hpp"
#include "pack_avx512.hpp"

#if ADACC_HAS_LEVELS
ADACC_INTRINSICS_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

struct Avx512Bf16Pairs : Avx512Packing {
  static constexpr std::size_t in_place_rows = PairBlocks::max_rows / 2;
  static constexpr std::size_t panels_at_once = 1;

  template <class Out>
  ADACC_AVX512_BF16 [[gnu::noinline]] static void multiply(const PairTile<Out>& tile) {
    const bool packed = tile.packed_a != nullptr;
    for (std::size_t i = 0; i < tile.rows; i += PairBlocks::kernel_rows) switch (tile.wide() / 16) {
        case 1: packed ? group<1, true>(tile, i) : group<1, false>(tile, i); break;
        case 2: packed ? group<2, true>(tile, i) : group<2, false>(tile, i); break;
        default: packed ? group<3, true>(tile, i) : group<3, false>(tile, i);
      }
  }

 private:
  /// Sums of 8 rows from `first` on.
  template <std::size_t Vectors, bool Packed, class Out>
  ADACC_AVX512_BF16 static void group(const PairTile<Out>& tile, std::size_t first) {
    constexpr std::size_t rows = PairBlocks::kernel_rows;
    const std::size_t some_rows = least(rows, tile.rows - first);
    // In place, a row ends within a pair if k is odd: the last pair is read by itself.
    const std::size_t whole = Packed ? tile.pairs() : tile.k / 2;
    const std::byte* row[rows];
    __m512 sum[rows][Vectors];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      const void* const from =
          Packed ? static_cast<const void*>(tile.packed_a + first * tile.pairs() + r)
                 : tile.a + (first + least(r, some_rows - 1)) * tile.a_stride;
      row[r] = static_cast<const std::byte*>(from);
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) {
        const __mmask16 some = lanes(tile.cols, v);
        sum[r][v] = _mm512_setzero_ps();
        if (tile.bias != nullptr) sum[r][v] = _mm512_maskz_loadu_ps(some, tile.bias + 16 * v);
        if constexpr (PairTile<Out>::fp32)
          if (tile.add && r < some_rows)
            sum[r][v] = _mm512_maskz_loadu_ps(some, tile.c + (first + r) * tile.ldc + 16 * v);
      }
    }
    const std::uint32_t* b = tile.b;
    for (std::size_t p = 0; p < whole; ++p, b += 16 * Vectors) {
      __m512i right[Vectors];
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) right[v] = _mm512_loadu_si512(b + 16 * v);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, row[r] + p * (Packed ? 4 * rows : 4), sizeof pair);
        add<Vectors>(sum[r], pair, right);
      }
    }
    if (whole != tile.pairs()) {
      __m512i right[Vectors];
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) right[v] = _mm512_loadu_si512(b + 16 * v);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        std::uint16_t element;
        __builtin_memcpy(&element, row[r] + 4 * whole, sizeof element);
        add<Vectors>(sum[r], element, right);
      }
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      if (r >= some_rows) break;
      Out* const c = tile.c + (first + r) * tile.ldc;
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) {
        const __mmask16 some = lanes(tile.cols, v);
        if constexpr (PairTile<Out>::fp32) _mm512_mask_storeu_ps(c + 16 * v, some, sum[r][v]);
        else _mm256_mask_storeu_epi16(c + 16 * v, some, rounded(sum[r][v]));
      }
    }
  }

  static __mmask16 lanes(std::size_t cols, std::size_t vector) {
    return first_lanes(cols > 16 * vector ? cols - 16 * vector : 0);
  }

  template <std::size_t Vectors>
  ADACC_AVX512_BF16 [[gnu::always_inline]] static inline void add(__m512 (&sum)[Vectors],
                                                                  std::uint32_t pair,
                                                                  const __m512i (&right)[Vectors]) {
    __m512i left = _mm512_set1_epi32(static_cast<int>(pair));
#if defined(__clang__)
    asm("" : "+v"(left));  // clang 16 crashes where the broadcast becomes the instruction's operand
#endif
#pragma GCC unroll 16
    for (std::size_t v = 0; v < Vectors; ++v)
      sum[v] = _mm512_dpbf16_ps(sum[v], reinterpret_cast<__m512bh>(left),
                                reinterpret_cast<__m512bh>(right[v]));
  }
};

}}}  // namespace adacc::v0_1::detail
ADACC_INTRINSICS_END
#endif
