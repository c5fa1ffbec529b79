// SPDX-License-Identifier: MIT
/// bfloat16: the upper half of a float, sixteen bits with a float's range and 8 bits of precision.
///
/// A bfloat16 is storage, not a number to compute with: kernels convert to float, compute, and convert back.
/// Conversions are integer arithmetic on the bits, so scalar, vector and device code agree on every bit, NaNs
/// included, and compilers vectorize them without special instructions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "config.hpp"

namespace adacc { inline namespace v0_1 {

struct bfloat16 {
  std::uint16_t bits;

  /// Compares bits: -0 differs from 0, and a NaN equals itself.
  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// Exact.
ADACC_HD constexpr float to_float(bfloat16 x) {
  return detail::bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

namespace detail {

/// The upper half of a float's bits, rounded to nearest, ties to even. For a NaN the result is unspecified.
ADACC_HD constexpr std::uint32_t rounded_upper_half(std::uint32_t bits) {
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
/// The smallest magnitude whose nearest bfloat16 is infinity.
inline constexpr std::uint32_t rounds_to_infinity = 0x7F7F8000;

}  // namespace detail

/// The nearest bfloat16, ties to even; an infinity beyond the range. A NaN stays a NaN of the same sign (made quiet;
/// the upper bits of the payload remain).
ADACC_HD constexpr bfloat16 to_bfloat16(float x) {
  const std::uint32_t bits = detail::bits_as<std::uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return {static_cast<std::uint16_t>(nan ? bits >> 16 | 0x40 : detail::rounded_upper_half(bits))};
}

/// Like to_bfloat16(), but a finite number stays finite: beyond the range it becomes the largest one of its sign.
ADACC_HD constexpr bfloat16 to_finite_bfloat16(float x) {
  const std::uint32_t bits = detail::bits_as<std::uint32_t>(x), magnitude = bits & 0x7FFFFFFF;
  const std::uint32_t upper = bits >> 16, quiet = magnitude > 0x7F800000 ? 0x40 : 0;
  // From this magnitude on, the upper half is the largest finite number, the infinity or the NaN.
  return {static_cast<std::uint16_t>(
      magnitude >= detail::rounds_to_infinity ? upper | quiet : detail::rounded_upper_half(bits))};
}

/// Stochastic rounding: one of the two nearest bfloat16, drawn by 16 random bits such that the expectation is x.
/// Exact numbers stay. A NaN stays one, as in to_bfloat16().
ADACC_HD constexpr bfloat16 to_bfloat16(float x, std::uint32_t random16) {
  const std::uint32_t bits = detail::bits_as<std::uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return {static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40 : (bits + random16) >> 16)};
}

namespace detail {

/// A number in the type T: the nearest, a bfloat16 by way of float.
template <class T, class Number>
ADACC_HD constexpr T rounded(Number x) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(x));
  else return static_cast<T>(x);
}

}  // namespace detail

/// The smallest bfloat16 >= x; +infinity above the largest finite one. x must not be NaN.
ADACC_HD constexpr bfloat16 bfloat16_above(float x) {
  const std::uint32_t bits = detail::bits_as<std::uint32_t>(x);
  const std::uint32_t cut = ((bits & 0xFFFF) + 0xFFFF) >> 16;               // 1 if any bit is cut
  return {static_cast<std::uint16_t>((bits >> 16) + (cut & ~bits >> 31))};  // negative ones go up
}

/// The largest bfloat16 <= x; -infinity below the smallest finite one. x must not be NaN.
ADACC_HD constexpr bfloat16 bfloat16_below(float x) {
  const std::uint32_t bits = detail::bits_as<std::uint32_t>(x);
  const std::uint32_t cut = ((bits & 0xFFFF) + 0xFFFF) >> 16;
  return {static_cast<std::uint16_t>((bits >> 16) + (cut & bits >> 31))};
}

}}  // namespace adacc::v0_1
