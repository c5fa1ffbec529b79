// SPDX-License-Identifier: MIT
/// Square roots of a few numbers at once, in place.
///
/// std::sqrt sets errno, so compilers do not vectorize loops over it unless the whole program is built with
/// -fno-math-errno, which a header cannot request. Four lanes suffice: the divider of x86 processors takes as long
/// per element at any width.
#pragma once

#include <cmath>
#include <cstddef>

#include "../core/vector_target.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

ADACC_TARGET_CODE_BEGIN
template <class T>
inline void square_roots(T* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = std::sqrt(x[i]);
}

inline void square_roots(float* x, std::size_t count) {
#if defined(__SSE__)
  const std::size_t quads = count / 4 * 4;
  for (std::size_t i = 0; i < quads; i += 4) _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#elif defined(__aarch64__)
  const std::size_t quads = count / 4 * 4;
  for (std::size_t i = 0; i < quads; i += 4) vst1q_f32(x + i, vsqrtq_f32(vld1q_f32(x + i)));
#else
  const std::size_t quads = 0;
#endif
  for (std::size_t i = quads; i < count; ++i) x[i] = std::sqrt(x[i]);
}
ADACC_TARGET_CODE_END

}}}  // namespace adacc::v0_1::detail
