// SPDX-License-Identifier: MIT
/// One of sixteen floats for each lane of a vector: by a permutation, where the target has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "intrinsics.hpp"
#include "vector_target.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

#if ADACC_HAS_LEVELS
ADACC_INTRINSICS_BEGIN
ADACC_AVX512 inline void permute_16(const float* table, const void* indices, void* to) {
  const __m512i index = _mm512_loadu_si512(indices);
  _mm512_storeu_ps(to, _mm512_permutexvar_ps(index, _mm512_loadu_ps(table)));
}
ADACC_AVX2 inline void permute_8(const float* table, const void* indices, void* to) {
  __m256i index;
  __builtin_memcpy(&index, indices, sizeof index);
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
  const __m256 fourth_bit = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
  const __m256 all = _mm256_blendv_ps(low, high, fourth_bit);
  __builtin_memcpy(to, &all, sizeof all);
}
ADACC_INTRINSICS_END
#endif

ADACC_TARGET_CODE_BEGIN
/// to[i] = table[the lower 4 bits of index[i]].
template <class Target>
[[gnu::always_inline]] inline void look_up(
    const float (&table)[16], const typename Simd<std::uint32_t, Target::bytes>::type& index,
    typename Simd<float, Target::bytes>::type& to) {
#if ADACC_HAS_LEVELS
  constexpr bool chosen = !std::is_same_v<Target, BuildTarget>;
  if constexpr (Target::bytes == 64 && (chosen || build_level >= InstructionLevel::avx512))
    return permute_16(table, &index, &to);
  else if constexpr (Target::bytes == 32 && (chosen || build_level >= InstructionLevel::avx2))
    return permute_8(table, &index, &to);
#endif
  for (std::size_t i = 0; i < Target::bytes / sizeof(float); ++i) to[i] = table[index[i] & 15];
}
ADACC_TARGET_CODE_END

}}}  // namespace adacc::v0_1::detail
