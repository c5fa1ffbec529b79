// SPDX-License-Identifier: MIT
/// The arithmetic of quantizing codecs, element by element: x' = minimum + scale * code.
///
/// The same bits come out of every compiler and machine, whether it fuses multiplication and
/// addition or not, in whatever order it goes. Therefore: groups are reduced by integer minima and
/// maxima only; scales and minima are bfloat16, so that scale * code is exact; x * 0.5 is exact;
/// codes are rounded in fixed point. Floats are compared through their bits, where NaNs and
/// infinities are larger than all numbers. CUDA twins share every function here.
///
/// How encoding goes, in these terms:
/// 1. Each element becomes a float (`to_number`) and an ordered integer (`ordered`). A group's
///    elements are cut into four slices (`slice_begin`); lo and hi are its ordered extremes, and a
///    slice's largest magnitude is the larger of its `magnitude_of` lo and hi.
/// 2. Outliers::elements: `group_threshold` of the four; what is beyond is flagged.
///    Outliers::channels: the largest magnitudes of the tile's columns give `channel_threshold`; a
///    column beyond it is flagged, and all its elements go with it.
///    Outliers::none: the threshold is `largest_magnitude`.
/// 3. Flagged ones get places in the tile by level (`outlier_level`; of a column: its largest
///    magnitude's), from the highest level down, while whole levels fit; of the level that does
///    not, the first by position (row by row).
/// 4. lo and hi are taken over the numbers without a place, each `saturated`; `quant_group` makes scale and
///    minimum of them. A group with a NaN or an infinity that has no place is marked: `nan_code` stands for
///    these then, and for no number.
/// 5. Every element gets a code (`quant_code`), also those with a place; NaNs and infinities of marked groups
///    get `nan_code`. With QuantOptions::positive, a positive number in a group whose minimum is 0 has code 1 at least.
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

/// 0x1.Fp127 (3.2966e38), as an integer. A number beyond it is an outlier, and is taken for this one where it
/// has no place: its group could decode to an infinity otherwise.
inline constexpr std::int32_t largest_magnitude = 0x7F780000;

/// Whether a magnitude is that of a NaN or an infinity.
ADACC_HD constexpr bool is_nonfinite(std::int32_t magnitude) { return magnitude >= 0x7F800000; }

/// An ordered integer, of magnitude largest_magnitude at most.
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

/// Groups of fewer elements tell nothing about what is typical.
inline constexpr std::size_t fewest_for_outliers = 32;

/// ratio * typical, as a magnitude; no more than largest_magnitude, which is also the answer if
/// nothing is typical.
ADACC_HD constexpr std::int32_t outlier_threshold(std::int32_t typical, unsigned ratio) {
  if (typical == 0 || typical > largest_magnitude) return largest_magnitude;
  const float limit = static_cast<float>(ratio) * bits_as<float>(typical);
  return smaller(bits_as<std::int32_t>(limit), largest_magnitude);
}

/// From the largest magnitudes of the four slices of a group of n elements: typical is the second
/// smallest, which stays what it was while outliers are in no more than two slices.
ADACC_HD constexpr std::int32_t group_threshold(std::int32_t m0, std::int32_t m1, std::int32_t m2,
                                                std::int32_t m3, std::size_t n, unsigned ratio) {
  if (n < fewest_for_outliers) return largest_magnitude;
  const std::int32_t least = smaller(larger(m0, m1), larger(m2, m3));
  const std::int32_t most = larger(smaller(m0, m1), smaller(m2, m3));
  return outlier_threshold(smaller(least, most), ratio);
}

/// For channels: `counts[e]` columns of a tile of n have a largest magnitude with the exponent
/// field e (magnitude >> 23, 0 … 255). Typical is the power of two above the median.
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

/// Doublings beyond the threshold, at most 14; 15 for what is beyond largest_magnitude.
ADACC_HD constexpr unsigned outlier_level(std::int32_t magnitude, std::int32_t threshold) {
  if (magnitude > largest_magnitude) return outlier_levels - 1;
  const std::int32_t doublings = (magnitude - threshold) >> 23;
  return doublings < 14 ? static_cast<unsigned>(doublings) : 14;
}

// Groups.

struct QuantGroup {
  bfloat16 scale, minimum;  ///< minimum is 0 if symmetric
};

/// Set in the scale of a marked group, whose NaNs and infinities have no place (all of them).
inline constexpr std::uint16_t group_mark = 0x8000;

ADACC_HD constexpr bool is_marked(bfloat16 scale) { return (scale.bits & group_mark) != 0; }
ADACC_HD constexpr bfloat16 without_mark(bfloat16 scale) {
  return {static_cast<std::uint16_t>(scale.bits & ~group_mark)};
}

/// 2^-100: no scale is smaller, so that its reciprocal is a number. The error of a group whose
/// range is below 255 times that is half of it, 4e-31; all zeros are exact.
inline constexpr float smallest_scale = 7.888609052210118e-31F;

/// Steps from the smallest to the largest code; from 0 to the largest if symmetric.
template <unsigned Bits, bool Symmetric>
inline constexpr int code_steps = (1 << (Bits - (Symmetric ? 1 : 0))) - 1;

/// The code of zero if symmetric.
template <unsigned Bits>
inline constexpr int middle_code = 1 << (Bits - 1);

/// The code of marked groups that decodes to NaN: one that no number has there.
template <unsigned Bits, bool Symmetric>
inline constexpr int nan_code = Symmetric ? 0 : code_steps<Bits, Symmetric>;

/// From the ordered extremes of what has no place, magnitudes up to largest_magnitude; an empty
/// group (empty_lo, empty_hi) counts as {0}.
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
    // In halves, because the difference may be beyond float.
    scale = 2 * ((from_ordered(hi) * 0.5F - to_float(minimum) * 0.5F) * share);
  }
  bfloat16 above = bfloat16_above(scale > smallest_scale ? scale : smallest_scale);
  if (Marked) above.bits |= group_mark;
  return {above, minimum};
}

/// What quant_code wants of a group.
struct QuantCoder {
  float base;     ///< half of minimum; 0 if symmetric
  float inverse;  ///< 2^16 codes per unit of x if symmetric, else of x / 2
};

template <bool Symmetric>
ADACC_HD constexpr QuantCoder quant_coder(QuantGroup group) {
  return {to_float(group.minimum) * 0.5F,
          (Symmetric ? 65536.0F : 131072.0F) / to_float(without_mark(group.scale))};
}

/// The code, clamped; NaNs get the smallest. `random` is 2^15 to round to nearest, else the
/// element's halfword.
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

/// The code of x if QuantOptions::positive, from its quant_code().
ADACC_HD constexpr std::int32_t positive_code(float x, float base, std::int32_t code) {
  return base == 0 && x > 0 && code == 0 ? 1 : code;
}

/// The code in a marked group of an element whose ordered() is `order` and whose quant_code() is `code`.
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr std::int32_t marked_code(std::int32_t order, std::int32_t code) {
  constexpr std::int32_t nan = nan_code<Bits, Symmetric>;
  if (is_nonfinite(magnitude_of(order))) return nan;
  return Symmetric ? code : smaller(code, nan - 1);
}

/// One rounding if asymmetric, none if symmetric. Asymmetric scales and minima come halved,
/// because scale * code may be beyond float even if the sum is not.
template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr float quant_value_of(std::int32_t code, float scale, float minimum) {
  if (Symmetric) return scale * static_cast<float>(code - middle_code<Bits>);
  return 2 * (minimum + scale * static_cast<float>(code));
}
/// What scales and minima are multiplied by for quant_value_of.
template <bool Symmetric>
inline constexpr float quant_share = Symmetric ? 1.0F : 0.5F;

template <unsigned Bits, bool Symmetric>
ADACC_HD constexpr float quant_value(std::int32_t code, float scale, float minimum) {
  constexpr float share = quant_share<Symmetric>;
  return quant_value_of<Bits, Symmetric>(code, scale * share, minimum * share);
}

/// What nearest rounding adds.
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

/// How many elements of a block are looked at.
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

/// Adds an element to noise and signal if it is of the bulk: no further than two scales from what
/// it decodes to. A float's square is exact in double, so nothing depends on fusing; samples are
/// added in their order. Returns whether it is.
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
