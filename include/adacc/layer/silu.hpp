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
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// Any shape, elementwise. A NaN stays a NaN, forward and backward.
struct Silu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The slope is smooth and bounded: at its bend, an error of a step of int4 changes it little.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "silu";
  static constexpr bool dx_overwrites_dy = true;

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::for_each_piece(cpu, x.size(), detail::tile_elems, [&](std::size_t i, std::size_t n) {
      const auto in = detail::as_array(x.data() + i, n);
      detail::as_array(y.data() + i, n) = in / (T(1) + (-in).exp());
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    detail::for_each_piece(cpu, x.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      const auto in = detail::as_array(x.data() + i, n);
      // Used twice below; an expression would be computed twice.
      const detail::StackArray<T> s = (T(1) + (-in).exp()).inverse();
      detail::as_array(dx.data() + i, n) =
          detail::as_array(dy.data() + i, n) * s * (T(1) + in * (T(1) - s));
    });
  }
};

}}  // namespace adacc::v0_1
