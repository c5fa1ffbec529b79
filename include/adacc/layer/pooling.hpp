// SPDX-License-Identifier: MIT
/// From the positions of a sequence to one row for all of it: their mean, or the first.
///
/// Encoders have this layer below a head judging whole sequences. Backward reads nothing.
#pragma once

#include <cstddef>

#include "../model/contract.hpp"
#include "math/numbers.hpp"
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
  static constexpr LayerFacts facts{.reads_lengths = true, .runs_in_bf16 = true};
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[2]); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_sequences(name, in)};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    using W = Wide<T>;
    const View<const T> x = call.x;
    const View<T> y = call.y;
    const std::size_t time = x.shape()[1], channels = x.cols();
    cpu.parallel(y.rows(), [&](std::size_t entry, int) {
      const std::size_t length = cpu.length_of(call.part.first + entry, time);
      detail::for_each_span<T>(channels, [&](std::size_t first, std::size_t n) {
        detail::Draft draft(y.row(entry) + first, n);
        auto mean = draft.array();
        mean.setZero();
        for (std::size_t t = 0; t < length; ++t)
          mean += detail::Numbers<T>(x.row(entry * time + t) + first, n).array();
        if (length > 0) mean *= W(1) / static_cast<W>(length);
        draft.store();
      });
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const View<const T> dy = call.dy;
    const View<T> dx = call.dx;
    const std::size_t time = dx.shape()[1], channels = dx.cols();
    cpu.parallel(dy.rows(), [&](std::size_t entry, int) {
      const std::size_t length = cpu.length_of(call.part.first + entry, time);
      detail::for_each_span<T>(channels, [&](std::size_t first, std::size_t n) {
        const detail::Numbers<T> up(dy.row(entry) + first, n);
        for (std::size_t t = 0; t < time; ++t) {
          detail::Draft down(dx.row(entry * time + t) + first, n);
          if (t < length) down.array() = up.array() * (W(1) / static_cast<W>(length));
          else down.array().setZero();
          down.store();
        }
      });
    });
  }
};

/// (B, T, C) -> (B, C): the first position, which BERT's classifiers read.
struct FirstPosition {
  static constexpr const char* name = "first_position";
  static constexpr LayerFacts facts{.reads_lengths = true, .runs_in_bf16 = true};
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
      copy(x.row(entry * time), channels, y.row(entry));
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    const std::size_t time = dx.shape()[1], channels = dx.cols();
    cpu.fill(dx, T{});
    for (std::size_t entry = 0; entry < dy.rows(); ++entry)
      copy(dy.row(entry), channels, dx.row(entry * time));
  }

 private:
  template <class T>
  static void copy(const T* from, std::size_t n, T* to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
  }
};

}}  // namespace adacc::v0_1
