// SPDX-License-Identifier: MIT
/// SiLU, also called swish: x times its logistic sigmoid.
///
///     y = x * s,  s = 1 / (1 + exp(-x)),  dy/dx = s * (1 + x * (1 - s))
///
/// Elfwing, Uchibe, Doya, "Sigmoid-weighted linear units", 2017.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/lanes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
struct SiluValue {
  template <class V>
  V operator()(const V& in) const {
    return in / (V::all(1) + exp(-in));
  }
};

struct SiluGradient {
  template <class V>
  V operator()(const V& in, const V& up) const {
    const V one = V::all(1), s = one / (one + exp(-in));
    return up * s * (one + in * (one - s));
  }
};
ADACC_TARGET_CODE_END

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN, forward and backward.
struct Silu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The slope is smooth and bounded: at its bend, an error of a step of int4 changes it little.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "silu";
  static constexpr LayerFacts facts{.dx_overwrites_dy = true, .runs_in_bf16 = true};

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::map_numbers<detail::SiluValue>(cpu, y, x);
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    detail::map_numbers<detail::SiluGradient>(cpu, dx, x, dy);
  }
};

}}  // namespace adacc::v0_1
