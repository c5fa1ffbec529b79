// SPDX-License-Identifier: MIT
/// Packing of pairs with AVX-512: for kernels with and without an instruction for pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/intrinsics.hpp"
#include "pack.hpp"

#if ADACC_HAS_LEVELS
ADACC_INTRINSICS_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// Names of vectors' first `count` lanes, of 16.
constexpr std::uint16_t first_lanes(std::size_t count) {
  return static_cast<std::uint16_t>(count >= 16 ? 0xFFFF : (1U << count) - 1);
}

struct Avx512Packing {
  /// The nearest bf16 in the upper half of each lane; lower halves are of no use. NaNs stay NaNs.
  ADACC_AVX512 static inline __m512i rounded_up_half(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
  }
  ADACC_AVX512 static inline __m256i rounded(__m512 x) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_up_half(x), 16));
  }

  /// Two rows of up to 16 elements as pairs, the first row in the lower halves.
  ADACC_AVX512 static inline __m512i pairs(__mmask16 some, const float* a, const float* b) {
    const __m512i low = _mm512_srli_epi32(rounded_up_half(_mm512_maskz_loadu_ps(some, a)), 16);
    if (b == nullptr) return low;
    return _mm512_mask_blend_epi16(0xAAAAAAAA, low,
                                   rounded_up_half(_mm512_maskz_loadu_ps(some, b)));
  }
  ADACC_AVX512 static inline __m512i pairs(__mmask16 some, const bfloat16* a, const bfloat16* b) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, a));
    if (b == nullptr) return low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, b));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }

  /// Up to 32 elements of a row as 16 pairs; behind `count` are zeros.
  ADACC_AVX512 static inline __m512i row_of_pairs(std::size_t count, const float* row) {
    const std::size_t second = count > 16 ? count - 16 : 0;
    const __m256i a = rounded(_mm512_maskz_loadu_ps(first_lanes(count), row));
    if (second == 0) return _mm512_zextsi256_si512(a);
    const __m256i b = rounded(_mm512_maskz_loadu_ps(first_lanes(second), row + 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  }
  ADACC_AVX512 static inline __m512i row_of_pairs(std::size_t count, const bfloat16* row) {
    const __mmask32 some = count >= 32 ? 0xFFFFFFFFU : (1U << count) - 1;
    return _mm512_maskz_loadu_epi16(some, row);
  }

  ADACC_AVX512 static void transpose(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
      t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
      r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
    }
  }

  template <class T>
  ADACC_AVX512 [[gnu::noinline]] static void pack(std::size_t count, std::size_t wide,
                                                  std::size_t k, Operand<T> b, std::uint32_t* to) {
    if (b.row_stride == 1) return pack_columns(count, wide, k, b, to);
    if (b.col_stride != 1) return pack_pairs(count, wide, k, b, to);
    for (std::size_t p = 0; p < k; p += 2, to += wide) {
      const T* const row = b.data + p * b.row_stride;
      const T* const next = p + 1 < k ? row + b.row_stride : nullptr;
      prefetch_row(b.data + least(p + prefetch_rows, k - 1) * b.row_stride, count);
      prefetch_row(b.data + least(p + prefetch_rows + 1, k - 1) * b.row_stride, count);
      for (std::size_t j = 0; j < wide; j += 16) {
        const bool any = j < count;
        const __mmask16 some = first_lanes(any ? count - j : 0);
        _mm512_storeu_si512(to + j, pairs(some, row + j, next == nullptr ? next : next + j));
      }
    }
  }

  /// The k of a column are contiguous: squares of 16 x 16 pairs, transposed in registers.
  template <class T>
  ADACC_AVX512 static void pack_columns(std::size_t count, std::size_t wide, std::size_t k,
                                        Operand<T> b, std::uint32_t* to) {
    const std::size_t all = div_up(k, 2);
    for (std::size_t j = 0; j < wide; j += 16)
      for (std::size_t p = 0; p < all; p += 16) {
        __m512i square[16];
        for (std::size_t i = 0; i < 16; ++i) {
          if (j + i >= count) {
            square[i] = _mm512_setzero_si512();
            continue;
          }
          const T* const row = b.data + (j + i) * b.col_stride + 2 * p;
          prefetch_row(row + 32, 32);
          square[i] = row_of_pairs(least(32, k - 2 * p), row);
        }
        transpose(square);
        for (std::size_t i = 0; i < least(16, all - p); ++i)
          _mm512_storeu_si512(to + (p + i) * wide + j, square[i]);
      }
  }

  /// Rows of A whose columns are contiguous are packed in strips of 32, one cache line of each k.
  ADACC_AVX512 [[gnu::noinline]] static void pack_rows(std::size_t rows, std::size_t k,
                                                       Operand<bfloat16> a, std::uint32_t* to) {
    if (a.row_stride != 1) return pack_row_groups(rows, k, a, to);
    constexpr std::size_t group = PairBlocks::kernel_rows, strip = 4 * group, ahead = 24;
    const std::size_t all = div_up(k, 2), next = all * group;
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (std::size_t i = 0; i < rows; i += strip) {
      const std::size_t count = least(strip, rows - i), groups = div_up(count, group);
      const __mmask32 some = count == strip ? 0xFFFFFFFFU : (1U << count) - 1;
      for (std::size_t p = 0; p < all; ++p) {
        const bfloat16* const from = a.data + 2 * p * a.col_stride + i;
        __builtin_prefetch(a.data + least(2 * p + ahead, k - 1) * a.col_stride + i);
        __builtin_prefetch(a.data + least(2 * p + ahead + 1, k - 1) * a.col_stride + i);
        const __m512i x = _mm512_maskz_loadu_epi16(some, from);
        const __m512i y = 2 * p + 1 == k ? _mm512_setzero_si512()
                                         : _mm512_maskz_loadu_epi16(some, from + a.col_stride);
        const __m512i u = _mm512_permutex2var_epi16(x, low, y);
        const __m512i v = _mm512_permutex2var_epi16(x, high, y);
        const __m256i part[] = {_mm512_castsi512_si256(u), _mm512_extracti64x4_epi64(u, 1),
                                _mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)};
        std::uint32_t* const at = to + i * all + p * group;
#pragma GCC unroll 4
        for (std::size_t g = 0; g < 4; ++g)
          if (g < groups) __builtin_memcpy(at + g * next, &part[g], sizeof part[g]);
      }
    }
  }
};

}}}  // namespace adacc::v0_1::detail
ADACC_INTRINSICS_END
#endif
