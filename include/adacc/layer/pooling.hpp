// SPDX-License-Identifier: MIT
/// From the positions of a sequence to one row for all of it: their mean, or the first.
///
/// Encoders have this layer below a head judging whole sequences. Backward reads nothing.
#pragma once

#include <cstddef>

#include "../model/contract.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

constexpr Error check_sequences(const char* layer, Shape in) {
  if (in.rank() == 3 && in.elems() > 0) return {};
  return Error::say(layer, ": the input is ", in,
                    "; expected (batch, time, channels), each at least 1");
}

}  // namespace detail

/// (B, T, C) -> (B, C): the mean over the positions within KernelCall::lengths; zeros for an empty sequence.
struct MeanOverTime {
  static constexpr const char* name = "mean_over_time";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[2]); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_sequences(name, in)};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const View<const T> x = call.x;
    const View<T> y = call.y;
    const std::size_t time = x.shape()[1], channels = x.cols();
    cpu.parallel(y.rows(), [&](std::size_t entry, int) {
      const std::size_t length = cpu.length_of(call.part.first + entry, time);
      auto mean = detail::as_array(y.row(entry), channels);
      mean.setZero();
      for (std::size_t t = 0; t < length; ++t)
        mean += detail::as_array(x.row(entry * time + t), channels);
      if (length > 0) mean *= T(1) / static_cast<T>(length);
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    const View<const T> dy = call.dy;
    const View<T> dx = call.dx;
    const std::size_t time = dx.shape()[1], channels = dx.cols();
    cpu.parallel(dy.rows(), [&](std::size_t entry, int) {
      const std::size_t length = cpu.length_of(call.part.first + entry, time);
      const auto up = detail::as_array(dy.row(entry), channels);
      for (std::size_t t = 0; t < time; ++t) {
        auto down = detail::as_array(dx.row(entry * time + t), channels);
        if (t < length) down = up * (T(1) / static_cast<T>(length));
        else down.setZero();
      }
    });
  }
};

/// (B, T, C) -> (B, C): the first position, which BERT's classifiers read.
struct FirstPosition {
  static constexpr const char* name = "first_position";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[2]); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_sequences(name, in)};
  }

  template <class T>
  void forward(Cpu&, View<const T> x, View<T> y) const {
    const std::size_t time = x.shape()[1], channels = x.cols();
    for (std::size_t entry = 0; entry < y.rows(); ++entry)
      detail::as_array(y.row(entry), channels) = detail::as_array(x.row(entry * time), channels);
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    const std::size_t time = dx.shape()[1], channels = dx.cols();
    cpu.fill(dx, T(0));
    for (std::size_t entry = 0; entry < dy.rows(); ++entry)
      detail::as_array(dx.row(entry * time), channels) = detail::as_array(dy.row(entry), channels);
  }
};

}}  // namespace adacc::v0_1
