// SPDX-License-Identifier: MIT
/// Real numbers kept in 8 bits, and integer arithmetic from one scale to another.
///
/// A network in int8 computes with integers alone: int8 times int8, summed in int32. The sum comes to the scale of the
/// output by a multiplication with a fixed-point number and a shift (Jacob et al., "Quantization and training of neural
/// networks for efficient integer-arithmetic-only inference", 2018).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../codec/float_bits.hpp"

namespace adacc { inline namespace v0_1 {
namespace plain {

/// The numbers scale * (q - zero) for q from -128 to 127. With `zero` at -128 none is negative: a layer writing such
/// numbers is its own ReLU.
struct Int8Grid {
  float scale = 1;
  std::int32_t zero = -128;

  static constexpr std::int32_t lowest = -128, highest = 127;

  /// The q nearest to x; between two, the one farther from 0; the end of the range if x lies beyond. x is not a NaN.
  template <class T>
  constexpr std::int8_t quantize(T x) const {
    const T q = x / static_cast<T>(scale) + static_cast<T>(zero);
    if (q <= static_cast<T>(lowest)) return static_cast<std::int8_t>(lowest);
    if (q >= static_cast<T>(highest)) return static_cast<std::int8_t>(highest);
    return static_cast<std::int8_t>(q < 0 ? q - T(0.5) : q + T(0.5));
  }
  template <class T>
  constexpr T real(std::int32_t q) const {
    return static_cast<T>(scale) * static_cast<T>(q - zero);
  }
};

/// Rows of weights to int8, each row with its own scale, at which its largest magnitude becomes 127. A row of zeros, or
/// nearly so, has scale 1; a row with a NaN or an infinity has a NaN for its scale.
template <class T>
void quantize_rows(const T* values, std::size_t rows, std::size_t cols, std::int8_t* to,
                   float* scales) {
  for (std::size_t r = 0; r < rows; ++r, values += cols, to += cols) {
    T largest = 0;
    bool finite = true;
    for (std::size_t c = 0; c < cols; ++c) {
      const T size = values[c] < 0 ? -values[c] : values[c];
      if (size > largest) largest = size;
      finite = finite && detail::is_number(values[c]);
    }
    scales[r] = !finite           ? detail::quiet_nan<float>()
                : largest > 1e-30 ? static_cast<float>(largest / 127)
                                  : 1.0F;
    const Int8Grid grid{finite ? scales[r] : 1.0F, 0};
    for (std::size_t c = 0; c < cols; ++c)
      to[c] = finite ? grid.quantize(values[c]) : std::int8_t{0};
  }
}

}  // namespace plain

namespace detail {

/// A factor as an integer and a shift: mantissa / 2^shift, the mantissa with 31 significant bits. Factors below 2^-32
/// become 0; the largest is 2^30.
struct FixedPoint {
  std::int32_t mantissa = 0;
  std::int32_t shift = 1;

  static constexpr FixedPoint of(double factor) {
    FixedPoint fixed{0, 31};
    if (!(factor > 0)) return fixed;
    for (; factor < 0.5 && fixed.shift <= 62; ++fixed.shift) factor *= 2;
    for (; factor >= 1 && fixed.shift > 1; --fixed.shift) factor /= 2;
    constexpr double whole = 2147483648.0, largest = 2147483647.0;
    if (fixed.shift > 62) return {0, 1};
    const double mantissa = factor * whole + 0.5;
    fixed.mantissa = static_cast<std::int32_t>(mantissa < largest ? mantissa : largest);
    return fixed;
  }
  /// value * mantissa / 2^shift, rounded to nearest, halves up.
  constexpr std::int64_t times(std::int32_t value) const {
    const std::int64_t product = static_cast<std::int64_t>(value) * mantissa;
    return (product + (std::int64_t{1} << (shift - 1))) >> shift;
  }
};

}  // namespace detail

}}  // namespace adacc::v0_1
