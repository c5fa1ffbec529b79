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
#include "math/numbers.hpp"
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
  static constexpr bool runs_in_bf16 = true;
  static constexpr bool dx_overwrites_dy = true;

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    using W = Wide<T>;
    constexpr std::size_t piece = detail::piece_elems<T>;
    detail::for_each_piece(cpu, x.size(), piece, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n);
      const auto in = numbers.array();
      detail::store(y.data() + i, n, in / (W(1) + (-in).exp()));
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    using W = Wide<T>;
    detail::for_each_piece(cpu, x.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n), up(dy.data() + i, n);
      const auto in = numbers.array();
      // Used twice below; an expression would be computed twice.
      const detail::StackArray<W> s = (W(1) + (-in).exp()).inverse();
      detail::store(dx.data() + i, n, up.array() * s * (W(1) + in * (W(1) - s)));
    });
  }
};

}}  // namespace adacc::v0_1
