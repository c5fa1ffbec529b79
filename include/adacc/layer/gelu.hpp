// SPDX-License-Identifier: MIT
/// GELU in GPT-2's form, with a hyperbolic tangent.
///
///     y = x / 2 * (1 + tanh(u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3)
///
/// Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016. Computed as x * s, with the logistic sigmoid s = 1 / (1 +
/// exp(-2u)), which is the same function: small negative values do not cancel, and forward is faster with Eigen's
/// vectorized exponential than with its tanh. In backward, x is held to [-9, 9] inside u and its derivative: beyond,
/// the slope is 1 or 0 all the same, and x^3 cannot overflow into 0 times infinity. Holding x takes the time won there
/// by the exponential.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct GeluTerms {
  static constexpr T limit = 9;
  static constexpr T linear = static_cast<T>(0.79788456080286535588L);  // sqrt(2 / pi)
  static constexpr T cubic = static_cast<T>(0.044715L * 0.79788456080286535588L);
};

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN, forward and backward.
struct Gelu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The slope is smooth and bounded: at its bend, an error of a step of int4 changes it little.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "gelu";
  static constexpr bool runs_in_bf16 = true;
  static constexpr bool dx_overwrites_dy = true;

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    using W = Wide<T>;
    constexpr W a = detail::GeluTerms<W>::linear, b = detail::GeluTerms<W>::cubic;
    constexpr std::size_t piece = detail::piece_elems<T>;
    detail::for_each_piece(cpu, x.size(), piece, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n);
      const auto in = numbers.array();
      detail::store(y.data() + i, n, in / (W(1) + (in * (in.square() * (-2 * b) - 2 * a)).exp()));
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    using W = Wide<T>;
    constexpr W a = detail::GeluTerms<W>::linear, b = detail::GeluTerms<W>::cubic;
    constexpr W limit = detail::GeluTerms<W>::limit;
    detail::for_each_piece(cpu, x.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      // Two values, used twice each; an expression would be computed twice.
      const detail::Numbers numbers(x.data() + i, n), up(dy.data() + i, n);
      const auto in = numbers.array();
      const detail::StackArray<W> held = ((in.max)(-limit).min)(limit);
      const detail::StackArray<W> s =
          (W(1) + (held * (held.square() * (-2 * b) - 2 * a)).exp()).inverse();
      detail::store(dx.data() + i, n,
                    up.array() * s * (W(1) + in * (W(1) - s) * (held.square() * (6 * b) + 2 * a)));
    });
  }
};

}}  // namespace adacc::v0_1
