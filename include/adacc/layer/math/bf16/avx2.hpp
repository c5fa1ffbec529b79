// SPDX-License-Identifier: MIT
/// Kernels of bf16 products for AVX2 with FMA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/intrinsics.hpp"
#include "pack.hpp"
#include "widened.hpp"

#if ADACC_HAS_LEVELS
namespace adacc { inline namespace v0_1 { namespace detail {

struct Avx2Pairs : PlainPacking, WidenedTiles {
  template <class Out>
  static void multiply(const PairTile<Out>& tile) {
    multiply_widened<Avx2Pairs>(tile);
  }

  ADACC_AVX2 [[gnu::noinline]] static void widen(const WidenedRows& part) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
    for (std::size_t r = 0; r < part.rows; ++r) {
      const std::byte* const from = part.from + r * part.from_stride;
      float* const to = part.to + r * part.to_stride;
      std::size_t w = 0;
      for (; w + 8 <= part.words; w += 8) {
        __m256i pair;
        __builtin_memcpy(&pair, from + 4 * w, sizeof pair);
        _mm256_storeu_ps(to + w, _mm256_castsi256_ps(_mm256_and_si256(pair, upper)));
        _mm256_storeu_ps(to + part.lower + w, _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)));
      }
      for (; w < part.words; ++w) widen_word(from + 4 * w, to[w], to[part.lower + w]);
    }
  }

  static void add(const WidenedGroup& group) {
    if (group.packed) add_group<true>(group);
    else add_group<false>(group);
  }

 private:
  static constexpr std::size_t at_once = 4;

  template <bool Packed>
  ADACC_AVX2 [[gnu::noinline]] static void add_group(const WidenedGroup& group) {
    std::size_t left = 2 * group.vectors;
    for (std::size_t first = 0; left != 0;) {
      const std::size_t vectors = least(left, 3);
      for (std::size_t row = 0; row < PairBlocks::kernel_rows; row += at_once) {
        if (vectors == 3) add<3, Packed>(group, row, 8 * first);
        else if (vectors == 2) add<2, Packed>(group, row, 8 * first);
        else add<1, Packed>(group, row, 8 * first);
      }
      first += vectors;
      left -= vectors;
    }
  }

  /// `at_once` rows from `row` on, Vectors of 8 columns from `col` on.
  template <std::size_t Vectors, bool Packed>
  ADACC_AVX2 static void add(const WidenedGroup& group, std::size_t row, std::size_t col) {
    constexpr std::size_t panel = PairBlocks::panel;
    using Steps = WidenedSteps<Packed>;
    const float* const a = group.a + row * Steps::row;
    const std::size_t sums_row = group.sums_row;
    float* const sums = group.sums + row * sums_row + col;
    __m256 sum[at_once][Vectors];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < at_once; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        sum[r][v] = _mm256_loadu_ps(sums + r * sums_row + 8 * v);
    const float* b = group.b + col;
    for (std::size_t p = 0; p < group.pairs; ++p) {
#pragma GCC unroll 2
      for (std::size_t half = 0; half < 2; ++half, b += panel) {
        __m256 right[Vectors];
#pragma GCC unroll 16
        for (std::size_t v = 0; v < Vectors; ++v) right[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < at_once; ++r) {
          const __m256 left =
              _mm256_broadcast_ss(a + r * Steps::row + p * Steps::pair + half * Steps::lower);
#pragma GCC unroll 16
          for (std::size_t v = 0; v < Vectors; ++v)
            sum[r][v] = _mm256_fmadd_ps(left, right[v], sum[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < at_once; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        _mm256_storeu_ps(sums + r * sums_row + 8 * v, sum[r][v]);
  }
};

}}}  // namespace adacc::v0_1::detail
#endif
