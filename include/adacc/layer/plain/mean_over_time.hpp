// SPDX-License-Identifier: MIT
/// The mean over time of each channel: describes a signal, wherever in the window the signal happens.
#pragma once

#include <cstddef>

#include "../../model/contract.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// (B, T, C) to (B, C).
struct MeanOverTime {
  static constexpr const char* name = "plain_mean_over_time";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[2]); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (in.rank() == 3 && in.elems() > 0) return {};
    return {.error = Error::say(name, ": the input is ", in, "; expected (batch, time, channels)")};
  }

  template <class Context, class T>
  void forward(Context&, View<const T> x, View<T> y) const {
    const std::size_t time = x.shape()[1], channels = x.cols();
    for (std::size_t b = 0; b < y.rows(); ++b)
      for (std::size_t c = 0; c < channels; ++c) {
        T sum = 0;
        for (std::size_t t = 0; t < time; ++t) sum += x.row(b * time + t)[c];
        y.row(b)[c] = sum / static_cast<T>(time);
      }
  }

  template <class Context, class T>
  void backward(Context&, View<const T> dy, View<T> dx) const {
    const std::size_t time = dx.shape()[1], channels = dx.cols();
    for (std::size_t r = 0; r < dx.rows(); ++r)
      for (std::size_t c = 0; c < channels; ++c)
        dx.row(r)[c] = dy.row(r / time)[c] / static_cast<T>(time);
  }
};

}}}  // namespace adacc::v0_1::plain
