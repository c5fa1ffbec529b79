// SPDX-License-Identifier: MIT
/// The hyperbolic tangent in a plain loop.
#pragma once

#include <cmath>
#include <cstddef>

#include "../../model/contract.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// Any shape, elementwise. Backward reads the output: the derivative is 1 - y^2.
struct Tanh {
  static constexpr const char* name = "plain_tanh";
  static constexpr auto backward_reads = reads::output;
  static constexpr auto split = Split::rows;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};

  template <class Context, class T>
  void forward(Context&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::tanh(x[i]);
  }

  template <class Context, class T>
  void backward(Context&, View<const T> y, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < y.size(); ++i) dx[i] = dy[i] * (1 - y[i] * y[i]);
  }
};

}}}  // namespace adacc::v0_1::plain
