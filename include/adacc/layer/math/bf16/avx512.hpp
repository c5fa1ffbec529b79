// SPDX-License-Identifier: MIT
/// Kernels of bf16 products for AVX-512 by fp32 multiply-adds: for processors without AVX512_BF16, or where its
/// instruction is slow.
#pragma once

#include <cstddef>

#include "../../../core/intrinsics.hpp"
#include "pack_avx512.hpp"
#include "widened.hpp"

#if ADACC_HAS_LEVELS
ADACC_INTRINSICS_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

struct Avx512Pairs : Avx512Packing, WidenedTiles {
  template <class Out>
  static void multiply(const PairTile<Out>& tile) {
    multiply_widened<Avx512Pairs>(tile);
  }

  ADACC_AVX512 [[gnu::noinline]] static void widen(const WidenedRows& part) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
    for (std::size_t r = 0; r < part.rows; ++r) {
      const std::byte* const from = part.from + r * part.from_stride;
      float* const to = part.to + r * part.to_stride;
      for (std::size_t w = 0; w < part.words; w += 16) {
        const __mmask16 some = first_lanes(part.words - w);
        const __m512i pair = _mm512_maskz_loadu_epi32(some, from + 4 * w);
        _mm512_mask_storeu_ps(to + w, some, _mm512_castsi512_ps(_mm512_and_si512(pair, upper)));
        _mm512_mask_storeu_ps(to + part.lower + w, some,
                              _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
      }
    }
  }

  ADACC_AVX512 [[gnu::noinline]] static void add(const WidenedGroup& group) {
    const bool packed = group.packed;
    switch (group.vectors) {
      case 1: return packed ? add<1, true>(group) : add<1, false>(group);
      case 2: return packed ? add<2, true>(group) : add<2, false>(group);
      default: return packed ? add<3, true>(group) : add<3, false>(group);
    }
  }

 private:
  template <std::size_t Vectors, bool Packed>
  ADACC_AVX512 static void add(const WidenedGroup& group) {
    constexpr std::size_t panel = PairBlocks::panel, rows = PairBlocks::kernel_rows;
    using Steps = WidenedSteps<Packed>;
    __m512 sum[rows][Vectors];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        sum[r][v] = _mm512_loadu_ps(group.sums + r * group.sums_row + 16 * v);
    const float *a = group.a, *b = group.b;
    for (std::size_t p = 0; p < group.pairs; ++p, a += Steps::pair) {
#pragma GCC unroll 2
      for (std::size_t half = 0; half < 2; ++half, b += panel) {
        __m512 right[Vectors];
#pragma GCC unroll 16
        for (std::size_t v = 0; v < Vectors; ++v) right[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r) {
          const __m512 left = _mm512_set1_ps(a[r * Steps::row + half * Steps::lower]);
#pragma GCC unroll 16
          for (std::size_t v = 0; v < Vectors; ++v)
            sum[r][v] = _mm512_fmadd_ps(left, right[v], sum[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        _mm512_storeu_ps(group.sums + r * group.sums_row + 16 * v, sum[r][v]);
  }
};

}}}  // namespace adacc::v0_1::detail
ADACC_INTRINSICS_END
#endif
