// SPDX-License-Identifier: MIT
/// SwiGLU: one half of the channels, through SiLU, gates the other.
///
///     y = silu(g) u,  dg = dy u s (1 + g (1 - s)),  du = dy g s,  s = 1 / (1 + exp(-g))
///
/// Shazeer, "GLU variants improve transformer", arXiv 2002.05202. Gate and value come side by side from one linear
/// layer: one product instead of two. Backward reads the input, so SwiGLU keeps one activation, and the next linear
/// layer keeps the output.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// (..., 2 H) -> (..., H): gates g in the columns [0, H), the gated values u in [H, 2 H). A NaN stays a NaN, forward
/// and backward.
struct SwiGlu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// A product of two channels, each as tolerant as linear layers and SiLU are.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.15;
  static constexpr const char* name = "swiglu";
  static constexpr bool runs_in_bf16 = true;

  constexpr Shape output_shape(Shape in) const { return in.with_cols(in.cols() / 2); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (in.cols() % 2 != 0)
      return {.error = Error::say("swiglu takes gates and what they gate side by side, but ",
                                  in.cols(), " columns are not divisible by 2")};
    return {.error = detail::check_rows(name, in)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    each_piece(cpu, x.shape(), [&](std::size_t in, std::size_t out, std::size_t n) {
      const detail::Numbers gates(x.data() + in, n), values(x.data() + in + y.cols(), n);
      const auto gate = gates.array();
      detail::store(y.data() + out, n, gate / (Wide<T>(1) + (-gate).exp()) * values.array());
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    using W = Wide<T>;
    const std::size_t hidden = dy.cols();
    each_piece(cpu, x.shape(), [&](std::size_t in, std::size_t out, std::size_t n) {
      const detail::Numbers gates(x.data() + in, n), values(x.data() + in + hidden, n),
          ups(dy.data() + out, n);
      const auto gate = gates.array(), up = ups.array();
      // Used three times below; an expression would be computed as often.
      const detail::StackArray<W> s = (W(1) + (-gate).exp()).inverse();
      detail::store(dx.data() + in, n, up * values.array() * s * (W(1) + gate * (W(1) - s)));
      detail::store(dx.data() + in + hidden, n, up * gate * s);
    });
  }

 private:
  /// body(first gate in x, first element of y, how many) for all rows, in pieces.
  template <class Body>
  static void each_piece(const Cpu& cpu, Shape in, const Body& body) {
    const std::size_t hidden = in.cols() / 2;
    detail::for_each_row(cpu, in.rows(), in.cols(), [&](std::size_t r) {
      for (std::size_t c = 0; c < hidden; c += detail::stack_elems)
        body(2 * r * hidden + c, r * hidden + c,
             hidden - c < detail::stack_elems ? hidden - c : detail::stack_elems);
    });
  }
};

}}  // namespace adacc::v0_1
