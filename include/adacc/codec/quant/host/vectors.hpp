// SPDX-License-Identifier: MIT
/// Sixteen lanes of vectors (core/simd.hpp), for the loops of quantizing codecs.
///
/// g++ 12 makes slow loops if they end in bytes, and neither compiler keeps extremes in registers across a group;
/// with vectors both do, on any machine. Vectors are passed by reference: by value would change the calling
/// convention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/vector_target.hpp"
#include "../../read_ahead.hpp"
#include "../quantize.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

using Floats16 = Simd<float, 64>::type;
using Ints16 = Simd<std::int32_t, 64>::type;
using Halves16 = Simd<std::uint16_t, 32>::type;
using Bytes16 = Simd<std::uint8_t, 16>::type;
inline constexpr std::size_t vector_lanes = 16;

inline void load_numbers(const float* x, Floats16& to) { std::memcpy(&to, x, sizeof to); }
inline void load_numbers(const double* x, Floats16& to) {
  float numbers[vector_lanes];
  for (std::size_t i = 0; i < vector_lanes; ++i) numbers[i] = to_number(x[i]);
  std::memcpy(&to, numbers, sizeof to);
}
inline void load_numbers(const bfloat16* x, Floats16& to) {
  Halves16 bits;
  std::memcpy(&bits, x, sizeof bits);
  const Ints16 wide = ADACC_CONVERT_LANES(bits, Ints16) << 16;
  std::memcpy(&to, &wide, sizeof to);
}

/// The third bytes of all lanes: bits 16 to 23.
template <bool Streamed>
inline void store_codes(const Ints16& fixed, std::uint8_t* codes) {
  const Bytes16 bytes = ADACC_CONVERT_LANES(fixed >> 16, Bytes16);
  store_vector<Streamed>(bytes, codes);
}
template <bool Streamed>
inline void store_codes(const Ints16& first, const Ints16& second, std::uint8_t* codes) {
#if defined(__AVX512VBMI__) && ADACC_HAS_VECTORS
  // One instruction; the code above takes a shift and a narrowing for each vector.
  using Bytes64 = Simd<std::uint8_t, 64>::type;
  const auto bytes = ADACC_SHUFFLE_LANES((Bytes64)first, (Bytes64)second, 2, 6, 10, 14, 18, 22, 26,
                                         30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74, 78, 82, 86,
                                         90, 94, 98, 102, 106, 110, 114, 118, 122, 126);
  store_vector<Streamed>(bytes, codes);
#else
  store_codes<Streamed>(first, codes);
  store_codes<Streamed>(second, codes + vector_lanes);
#endif
}

/// ordered() of as many elements as there are lanes.
template <class T>
inline void load_orders(const T* x, Ints16& to) {
  Floats16 numbers;
  load_numbers(x, numbers);
  std::memcpy(&to, &numbers, sizeof to);
  to ^= to >> 31 & 0x7FFFFFFF;
}
template <class T>
inline void load_orders(const T* x, std::int32_t& to) {
  to = ordered(to_number(*x));
}

/// The smaller, and the larger, in each lane; also for one integer.
template <class Ints>
inline void keep_smaller(Ints& into, const Ints& x) {
  into = ADACC_CHOOSE_LANES(x < into, x, into);
}
template <class Ints>
inline void keep_larger(Ints& into, const Ints& x) {
  into = ADACC_CHOOSE_LANES(into < x, x, into);
}

/// A constant hidden from the compiler: for minima and maxima with known constants, g++ 12 makes comparisons and
/// blends.
inline float hidden(float constant) {
#if !defined(_MSC_VER) || defined(__clang__)
  asm("" : "+m"(constant));
#endif
  return constant;
}

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
