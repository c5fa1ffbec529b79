// SPDX-License-Identifier: MIT
/// The layout of float and double (IEEE 754), to convert between their bits and text.
#pragma once

#include <cstdint>

#include "config.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
struct FloatLayout;
template <>
struct FloatLayout<float> {
  using Bits = std::uint32_t;
  static constexpr int fraction = 23, bias = 127, top_exponent = 255;
};
template <>
struct FloatLayout<double> {
  using Bits = std::uint64_t;
  static constexpr int fraction = 52, bias = 1023, top_exponent = 2047;
};

/// The number mantissa 2^exponent; only if `finite`.
struct FloatParts {
  std::uint64_t mantissa = 0;
  int exponent = 0;
  bool negative = false, finite = true;
  bool next_below_is_nearer = false;  ///< a power of two: numbers below are denser
};

template <class T>
constexpr FloatParts parts_of(T value) {
  using Format = FloatLayout<T>;
  const std::uint64_t bits = __builtin_bit_cast(typename Format::Bits, value);
  const std::uint64_t hidden = std::uint64_t{1} << Format::fraction;
  const int biased = static_cast<int>(bits >> Format::fraction) & Format::top_exponent;
  FloatParts parts;
  parts.negative = (bits >> (8 * sizeof(T) - 1)) != 0;
  parts.finite = biased != Format::top_exponent;
  parts.mantissa = (bits & (hidden - 1)) | (biased != 0 ? hidden : 0);
  parts.exponent = (biased != 0 ? biased : 1) - Format::bias - Format::fraction;
  parts.next_below_is_nearer = parts.mantissa == hidden && biased > 1;
  return parts;
}

/// The number nearest to mantissa 2^exponent, ties to even; an infinity beyond the range. `more` says: the exact
/// number is larger than mantissa 2^exponent, by less than 2^exponent.
template <class T>
constexpr T nearest(std::uint64_t mantissa, int exponent, bool more, bool negative) {
  using Format = FloatLayout<T>;
  constexpr std::uint64_t infinity = std::uint64_t{Format::top_exponent} << Format::fraction;
  std::uint64_t bits = 0;
  if (mantissa != 0) {
    int width = 0;
    while (width < 64 && mantissa >> width != 0) ++width;
    const int lead = exponent + width - 1;  // the number is in [2^lead, 2^(lead + 1))
    const int least = 1 - Format::bias;     // least lead of normal numbers
    const int kept = Format::fraction + 1 - (lead < least ? least - lead : 0);
    const int drop = width - kept;
    if (lead > Format::bias) {
      bits = infinity;
    } else if (kept >= 0) {
      std::uint64_t whole = drop <= 0 ? mantissa << -drop : drop < 64 ? mantissa >> drop : 0;
      if (drop > 0) {
        const std::uint64_t half = std::uint64_t{1} << (drop - 1);
        const std::uint64_t rest = drop < 64 ? mantissa & (2 * half - 1) : mantissa;
        if (rest > half || (rest == half && (more || (whole & 1) != 0))) ++whole;
      }
      // The mantissa's first bit adds 1 to the exponent, as does a carry out of it.
      bits =
          lead < least
              ? whole
              : (static_cast<std::uint64_t>(lead + Format::bias - 1) << Format::fraction) + whole;
      if (bits > infinity) bits = infinity;
    }
  }
  if (negative) bits |= std::uint64_t{1} << (8 * sizeof(T) - 1);
  return __builtin_bit_cast(T, static_cast<typename Format::Bits>(bits));
}

}}}  // namespace adacc::v0_1::detail
