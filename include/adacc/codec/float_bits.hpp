// SPDX-License-Identifier: MIT
/// The element types of activations: their bit patterns, and their numbers as floats.
///
/// Codecs recognize NaNs and infinities, and compare magnitudes, as integers. Such comparisons are exact, order NaNs
/// above infinities, vectorize on every machine, and no compiler flag removes them.
#pragma once

#include <cstdint>

#include "../core/bfloat16.hpp"
#include "../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
struct BitPattern;
template <>
struct BitPattern<float> {
  using type = std::uint32_t;
  static constexpr type infinity = 0x7F800000, quiet_nan = 0x7FC00000;
};
template <>
struct BitPattern<double> {
  using type = std::uint64_t;
  static constexpr type infinity = 0x7FF0000000000000, quiet_nan = 0x7FF8000000000000;
};
template <>
struct BitPattern<bfloat16> {
  using type = std::uint16_t;
  static constexpr type infinity = 0x7F80, quiet_nan = 0x7FC0;
};

template <class T>
ADACC_HD constexpr auto pattern_of(T x) {
  return bits_as<typename BitPattern<T>::type>(x);
}

/// |x| as an integer.
template <class T>
ADACC_HD constexpr auto magnitude_bits(T x) {
  using Word = typename BitPattern<T>::type;
  return static_cast<Word>(pattern_of(x) & (static_cast<Word>(-1) >> 1));
}

template <class T>
ADACC_HD constexpr bool is_nan(T x) {
  return magnitude_bits(x) > BitPattern<T>::infinity;
}

/// Neither a NaN nor an infinity.
template <class T>
ADACC_HD constexpr bool is_number(T x) {
  return magnitude_bits(x) < BitPattern<T>::infinity;
}

template <class T>
ADACC_HD constexpr T quiet_nan() {
  return bits_as<T>(BitPattern<T>::quiet_nan);
}

ADACC_HD constexpr float to_number(float x) { return x; }
/// Numbers beyond float become the largest float of their sign.
ADACC_HD constexpr float to_number(double x) {
  constexpr double most = 3.4028234663852886e38;
  const double within = x > most ? most : x < -most ? -most : x;
  return static_cast<float>(is_number(x) ? within : x);
}
ADACC_HD constexpr float to_number(bfloat16 x) { return to_float(x); }

template <class T>
ADACC_HD constexpr T from_number(float x) {
  return static_cast<T>(x);
}
template <>
ADACC_HD constexpr bfloat16 from_number<bfloat16>(float x) {
  return to_bfloat16(x);
}

}}}  // namespace adacc::v0_1::detail
