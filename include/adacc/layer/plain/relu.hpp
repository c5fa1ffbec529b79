// SPDX-License-Identifier: MIT
/// ReLU in a plain loop: negative elements become zero.
#pragma once

#include <cstddef>

#include "../../model/contract.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// Any shape, elementwise. Backward reads the output, whose sign tells as much as the input's. A NaN stays a NaN:
/// forward, and in dx if y is one. The derivative at zero is 0.
struct Relu {
  static constexpr const char* name = "plain_relu";
  static constexpr auto backward_reads = reads::output;
  static constexpr auto split = Split::rows;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};

  template <class Context, class T>
  void forward(Context&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] < 0 ? T(0) : x[i];
  }

  template <class Context, class T>
  void backward(Context&, View<const T> y, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < y.size(); ++i) dx[i] = y[i] > 0 ? dy[i] : y[i] == 0 ? T(0) : y[i];
  }
};

}}}  // namespace adacc::v0_1::plain
