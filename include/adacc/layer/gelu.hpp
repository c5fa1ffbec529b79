// SPDX-License-Identifier: MIT
/// GELU in GPT-2's form, with a hyperbolic tangent.
///
///     y = x / 2 * (1 + tanh(u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3)
///
/// Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016. Computed as x * s, with the logistic sigmoid s = 1 / (1 +
/// exp(-2u)), which is the same function: small negative values do not cancel, and forward is faster with a
/// vectorized exponential than with a tanh. In backward, x is held to [-9, 9] inside u and its derivative: beyond,
/// the slope is 1 or 0 all the same, and x^3 cannot overflow into 0 times infinity. Holding x takes the time won there
/// by the exponential.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/lanes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct GeluTerms {
  static constexpr T limit = 9;
  static constexpr T linear = static_cast<T>(0.79788456080286535588L);  // sqrt(2 / pi)
  static constexpr T cubic = static_cast<T>(0.044715L * 0.79788456080286535588L);
};

ADACC_TARGET_CODE_BEGIN
struct GeluValue {
  template <class V>
  V operator()(const V& in) const {
    using Terms = GeluTerms<typename V::Number>;
    const V a = V::all(2 * Terms::linear), b = V::all(-2 * Terms::cubic);
    return in / (V::all(1) + exp(in * (in * in * b - a)));
  }
};

struct GeluGradient {
  template <class V>
  V operator()(const V& in, const V& up) const {
    using Terms = GeluTerms<typename V::Number>;
    const V a = V::all(2 * Terms::linear);
    const V one = V::all(1), limit = V::all(Terms::limit);
    const V held = smaller(larger(in, V::all(-Terms::limit)), limit), square = held * held;
    const V s = one / (one + exp(held * (square * V::all(-2 * Terms::cubic) - a)));
    return up * s * (one + in * (one - s) * (square * V::all(6 * Terms::cubic) + a));
  }
};
ADACC_TARGET_CODE_END

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN, forward and backward.
struct Gelu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The slope is smooth and bounded: at its bend, an error of a step of int4 changes it little.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "gelu";
  static constexpr LayerFacts facts{.dx_overwrites_dy = true, .runs_in_bf16 = true};

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::map_numbers<detail::GeluValue>(cpu, y, x);
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    detail::map_numbers<detail::GeluGradient>(cpu, dx, x, dy);
  }
};

}}  // namespace adacc::v0_1
