// SPDX-License-Identifier: MIT
/// The arithmetic of quantizing codecs, element by element: x' = minimum + scale * code.
///
/// Every compiler and machine computes the same bits, with or without fused multiplication and addition, and in any
/// order. Therefore: groups are reduced by integer minima and maxima only; scales and minima are bfloat16, so that
/// scale * code is exact; x * 0.5 is exact; codes are rounded in fixed point. Floats are compared by their bits, where
/// NaNs and infinities are larger than all numbers. CUDA twins share every function here.
///
/// How encoding goes:
/// 1. Each element becomes a float (`to_number`) and an ordered integer (`ordered`). The elements of a group are cut
///    into four slices (`slice_begin`). The ordered extremes of a slice are lo and hi; the largest magnitude of a slice
///    is the larger `magnitude_of` the two.
/// 2. Outliers::elements: `group_threshold` of the four magnitudes; elements beyond it are flagged.
///    Outliers::channels: the largest magnitudes of the tile's columns give `channel_threshold`; a column beyond it is
///    flagged, with all its elements.
///    Outliers::none: the threshold is `largest_magnitude`.
/// 3. Flagged elements (columns) get places in the tile by level (`outlier_level`; for a column, the level of its
///    largest magnitude), from the highest level down, while whole levels fit; in the first level that does not fit,
///    by position (row by row).
/// 4. Group extremes lo and hi are taken over the numbers without a place, each `saturated`; `quant_group` makes scale
///    and minimum of them. A group with a NaN or an infinity without a place is marked: `nan_code` then stands for
///    these, and for no number.
/// 5. Each element gets a code (`quant_code`), also if it has a place; NaNs and infinities of marked groups get
///    `nan_code`. With QuantOptions::positive, a positive number in a group whose minimum is 0 has code 1 at least.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/bfloat16.hpp"
#include "../../core/config.hpp"
#include "../../core/extremes.hpp"
#include "../../core/random.hpp"
#include "../float_bits.hpp"
#include "layout.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

// Elements.

/// Integers in the order of floats; -0 just below 0, NaNs beyond the infinities of their sign.
ADACC_HD constexpr std::int32_t ordered(float x) {
  const std::int32_t bits = bits_as<std::int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
ADACC_HD constexpr float from_ordered(std::int32_t order) {
  return bits_as<float>(order ^ ((order >> 31) & 0x7FFFFFFF));
}

/// |x| as an integer, from ordered(x).
ADACC_HD constexpr std::int32_t magnitude_of(std::int32_t order) { return order ^ (order >> 31); }

/// 0x1.Fp127 (3.2966e38), as an integer. A number beyond is an outlier, and without a place counts as this number:
/// its group could decode to an infinity otherwise.
inline constexpr std::int32_t largest_magnitude = 0x7F780000;

/// Whether a magnitude belongs to a NaN or an infinity.
ADACC_HD constexpr bool is_nonfinite(std::int32_t magnitude) { return magnitude >= 0x7F800000; }

/// Clamps an ordered integer to magnitudes up to largest_magnitude.
ADACC_HD constexpr std::int32_t saturated(std::int32_t order) {
  return smaller(larger(order, ~largest_magnitude), largest_magnitude);
}

/// ordered() of an empty group's lo and hi: any element changes them.
inline constexpr std::int32_t empty_lo = 0x7FFFFFFF;
inline constexpr std::int32_t empty_hi = -0x7FFFFFFF - 1;

// Outliers.

/// The first element of slice 0 … 3 (4: the end) of a group of n elements: a column's rows from the
/// top, a row's elements from the left.
ADACC_HD constexpr std::size_t slice_begin(std::size_t n, std::size_t slice) {
  return n / 4 * slice + n % 4 * slice / 4;
}

/// In groups of fewer elements no magnitude is typical.
inline constexpr std::size_t fewest_for_outliers = 32;

/// ratio * typical, as a magnitude, but at most largest_magnitude; largest_magnitude if nothing is typical.
ADACC_HD constexpr std::int32_t outlier_threshold(std::int32_t typical, unsigned ratio) {
  if (typical == 0 || typical > largest_magnitude) return largest_magnitude;
  const float limit = static_cast<float>(ratio) * bits_as<float>(typical);
  return smaller(bits_as<std::int32_t>(limit), largest_magnitude);
}

/// The second smallest of four magnitudes.
ADACC_HD constexpr std::int32_t second_smallest(std::int32_t m0, std::int32_t m1, std::int32_t m2,
                                                std::int32_t m3) {
  const std::int32_t least = smaller(larger(m0, m1), larger(m2, m3));
  const std::int32_t most = larger(smaller(m0, m1), smaller(m2, m3));
  return smaller(least, most);
}

/// The threshold of a group of n elements, from the largest magnitudes of the four slices. Typical is the second
/// smallest: outliers in one or two slices do not change it.
ADACC_HD constexpr std::int32_t group_threshold(std::int32_t m0, std::int32_t m1, std::int32_t m2,
                                                std::int32_t m3, std::size_t n, unsigned ratio) {
  if (n < fewest_for_outliers) return largest_magnitude;
  return outlier_threshold(second_smallest(m0, m1, m2, m3), ratio);
}

/// The threshold of a tile of n columns: `counts[e]` columns have a largest magnitude with the exponent field e
/// (magnitude >> 23, 0 … 255). Typical is the power of two above the median.
template <class Count>
ADACC_HD constexpr std::int32_t channel_threshold(const Count* counts, std::size_t n,
                                                  unsigned ratio) {
  if (n < fewest_for_outliers) return largest_magnitude;
  std::size_t seen = counts[0];
  std::int32_t exponent = 0;
  while (2 * seen < n) seen += counts[++exponent];
  if (exponent == 0 || exponent >= 254) return largest_magnitude;
  return outlier_threshold((exponent + 1) << 23, ratio);
}

inline constexpr unsigned outlier_levels = 16;

/// Doublings beyond the threshold, at most 14; 15 for magnitudes beyond largest_magnitude.
ADACC_HD constexpr unsigned outlier_level(std::int32_t magnitude, std::int32_t threshold) {
  if (magnitude > largest_magnitude) return outlier_levels - 1;
  const std::int32_t doublings = (magnitude - threshold) >> 23;
  return doublings < 14 ? static_cast<unsigned>(doublings) : 14;
}

// Groups.

struct QuantGroup {
  bfloat16 scale, minimum;  ///< minimum is 0 if symmetric
};

/// Set in the scale of a marked group: some NaN or infinity of the group has no place.
inline constexpr std::uint16_t group_mark = 0x8000;

ADACC_HD constexpr bool is_marked(bfloat16 scale) { return (scale.bits & group_mark) != 0; }
ADACC_HD constexpr bfloat16 without_mark(bfloat16 scale) {
  return {static_cast<std::uint16_t>(scale.bits & ~group_mark)};
}

/// 2^-100: no scale is smaller, so the reciprocal of a scale is a number. A group whose range is below 255 times
/// 2^-100 has an error of up to half of 2^-100, 4e-31; a group of zeros is exact.
inline constexpr float smallest_scale = 7.888609052210118e-31F;

/// Steps from the smallest to the largest code; from 0 to the largest if symmetric.
template <unsigned Bits, bool Symmetric>
inline constexpr int code_steps = (1 << (Bits - (Symmetric ? 1 : 0))) - 1;

/// The code of zero if symmetric.
template <unsigned Bits>
inline constexpr int middle_code = 1 << (Bits - 1);

/// The code that decodes to NaN in marked groups: no number has this code there.
template <unsigned Bits, bool Symmetric>
inline constexpr int nan_code = Symmetric ? 0 : code_steps<Bits, Symmetric>;

/// Scale and minimum from the ordered extremes of the elements without a place, magnitudes up to largest_magnitude;
/// an empty group (empty_lo, empty_hi) counts as {0}.
template <unsigned Bits, bool Symmetric, bool Marked = false>
ADACC_HD constexpr QuantGroup quant_group(std::int32_t lo, std::int32_t hi) {
  if (lo > hi) lo = hi = 0;
  // A shade more than needed, so that no rounding lets an element exceed the last code.
  constexpr float share =
      (1 + 1.0F / 1048576) / (code_steps<Bits, Symmetric> - (Marked && !Symmetric ? 1 : 0));
  float scale = 0;
  bfloat16 minimum = {0};
  if (Symmetric) {
    scale = bits_as<float>(larger(magnitude_of(lo), magnitude_of(hi))) * share;
  } else {
    minimum = bfloat16_below(from_ordered(lo));
    if (minimum.bits == 0x8000) minimum.bits = 0;  // -0
    // Computed in halves, because the difference may be beyond float.
    scale = 2 * ((from_ordered(hi) * 0.5F - to_float(minimum) * 0.5F) * share);
  }
  bfloat16 above = bfloat16_above(scale > smallest_scale ? scale : smallest_scale);
  if (Marked) above.bits |= group_mark;
  return {above, minimum};
}

/// The numbers of a group for quant_code.
struct QuantCoder {
  float base;     ///< half of minimum; 0 if symmetric
  float inverse;  ///< 2^16 codes per unit of x if symmetric, else of x / 2
};

template <bool Symmetric>
ADACC_HD constexpr QuantCoder quant_coder(QuantGroup group) {
  return {to_float(group.minimum) * 0.5F,
          (Symmetric ? 65536.0F : 131072.0F) / to_float(without_mark(group.scale))};
}

/// The code, clamped; NaNs get the smallest. `random` is 2^15 for rounding to nearest, else the random halfword of
/// the element.
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr std::int32_t quant_code(float x, float base, float inverse,
                                           std::int32_t random) {
  constexpr float top = 65536.0F * code_steps<Bits, Symmetric>;
  constexpr float bottom = Symmetric ? -top : 0.0F;
  float steps = Symmetric ? x * inverse : (x * 0.5F - base) * inverse;
  steps = steps > bottom ? steps : bottom;
  steps = steps < top ? steps : top;
  constexpr std::int32_t zero = Symmetric ? middle_code<Bits> << 16 : 0;
  return (static_cast<std::int32_t>(steps) + (zero + random)) >> 16;
}

/// The code of x if QuantOptions::positive, from quant_code().
ADACC_HD constexpr std::int32_t positive_code(float x, float base, std::int32_t code) {
  return base == 0 && x > 0 && code == 0 ? 1 : code;
}

/// The code of an element of a marked group, from its ordered() and its quant_code().
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr std::int32_t marked_code(std::int32_t order, std::int32_t code) {
  constexpr std::int32_t nan = nan_code<Bits, Symmetric>;
  if (is_nonfinite(magnitude_of(order))) return nan;
  return Symmetric ? code : smaller(code, nan - 1);
}

/// The decoded number: one rounding if asymmetric, none if symmetric. Asymmetric scales and minima come halved,
/// because scale * code may be beyond float even if the sum is not.
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr float quant_value_of(std::int32_t code, float scale, float minimum) {
  if (Symmetric) return scale * static_cast<float>(code - middle_code<Bits>);
  return 2 * (minimum + scale * static_cast<float>(code));
}
/// The factor of scales and minima for quant_value_of.
template <bool Symmetric>
inline constexpr float quant_share = Symmetric ? 1.0F : 0.5F;

template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr float quant_value(std::int32_t code, float scale, float minimum) {
  constexpr float share = quant_share<Symmetric>;
  return quant_value_of<Bits, Symmetric>(code, scale * share, minimum * share);
}

/// The summand that rounds to nearest.
inline constexpr std::int32_t half_code = 32768;

/// The random halfword of element e = row * cols + col of the whole tensor; the stream is
/// Cpu::key.with_purpose(Purpose::rounding).
ADACC_HD constexpr std::int32_t random_half(const PhiloxBlock& block, std::uint64_t element) {
  const std::uint32_t word = block.word[element % 8 / 2];
  return static_cast<std::int32_t>(element % 2 == 0 ? word & 0xFFFF : word >> 16);
}
ADACC_HD constexpr std::int32_t random_half(const RandomKey& stream, std::uint64_t element) {
  return random_half(random_block(stream, element / 8), element);
}

// Statistics: a few fixed elements of every block, read back after encoding.

/// The number of sampled elements of a block.
ADACC_HD constexpr std::uint32_t sample_count(std::size_t rows, std::size_t cols) {
  const std::size_t count = div_up(rows * cols, 1024);
  return count < 64 ? static_cast<std::uint32_t>(count) : 64;
}
/// Row and column of sample i of `count`.
ADACC_HD constexpr std::size_t sample_row(std::uint32_t i, std::uint32_t count, std::size_t rows) {
  return i * rows / count;
}
ADACC_HD constexpr std::size_t sample_col(std::uint32_t i, std::size_t cols) {
  // Steps of the golden ratio of the row, in 1/4096 so that the product fits.
  return (i * 2531 + 1265) % 4096 * (cols / 4096) + (i * 2531 + 1265) % 4096 * (cols % 4096) / 4096;
}

/// Adds an element to noise and signal if it belongs to the bulk: at most two scales away from its decoded value.
/// Returns whether it does. A float's square is exact in double, so nothing depends on fusing; samples are added in
/// their order.
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr bool add_sample(float x, std::int32_t code, QuantGroup group, double& noise,
                                   double& signal) {
  const float scale = to_float(without_mark(group.scale));
  const float error = quant_value<Bits, Symmetric>(code, scale, to_float(group.minimum)) - x;
  const float distance = error < 0 ? -error : error;
  if (!(distance <= 2 * scale)) return false;
  noise += static_cast<double>(error) * static_cast<double>(error);
  signal += static_cast<double>(x) * static_cast<double>(x);
  return true;
}

}}}  // namespace adacc::v0_1::detail
