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
#include "math/lanes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
struct SwiGluValue {
  template <class V>
  V operator()(const V& gate, const V& value) const {
    return gate / (V::all(1) + exp(-gate)) * value;
  }
};

/// Of a row with `hidden` gates, and as many values behind them.
template <class T, class Target>
void swiglu_gradient(const T* x, const T* dy, std::size_t hidden, T* dx) {
  each_vector<Wide<T>, Target>(hidden, [&]<class V>(std::size_t i) {
    const V gate = load_lanes<V>(x + i), value = load_lanes<V>(x + hidden + i);
    const V up = load_lanes<V>(dy + i), one = V::all(1), s = one / (one + exp(-gate));
    store_lanes(up * value * s * (one + gate * (one - s)), dx + i);
    store_lanes(up * gate * s, dx + hidden + i);
  });
}
ADACC_TARGET_CODE_END

}  // namespace detail

/// (..., 2 H) -> (..., H): gates g in the columns [0, H), the gated values u in [H, 2 H). A NaN stays a NaN, forward
/// and backward.
struct SwiGlu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// A product of two channels, each as tolerant as linear layers and SiLU are.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.15;
  static constexpr const char* name = "swiglu";
  static constexpr LayerFacts facts{.runs_in_bf16 = true};

  constexpr Shape output_shape(Shape in) const { return in.with_cols(in.cols() / 2); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (in.cols() % 2 != 0)
      return {.error = Error::say("swiglu takes gates and what they gate side by side, but ",
                                  in.cols(), " columns are not divisible by 2")};
    return {.error = detail::check_rows(name, in)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    const std::size_t hidden = y.cols();
    each_row(cpu, x.shape(), [&]<class Target>(Target, std::size_t r) {
      const T* const gates = x.data() + 2 * r * hidden;
      Target::template call<detail::map_numbers_at<detail::SwiGluValue, T, Target, T, T>>(
          hidden, y.data() + r * hidden, gates, gates + hidden);
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    const std::size_t hidden = dy.cols();
    each_row(cpu, x.shape(), [&]<class Target>(Target, std::size_t r) {
      Target::template call<detail::swiglu_gradient<T, Target>>(
          x.data() + 2 * r * hidden, dy.data() + r * hidden, hidden, dx.data() + 2 * r * hidden);
    });
  }

 private:
  template <class Body>
  static void each_row(const Cpu& cpu, Shape in, const Body& body) {
    const InstructionLevel level = detail::target_level();
    detail::for_each_row(cpu, in.rows(), in.cols(), [&](std::size_t r) {
      detail::with_target(level, [&](auto target) { body(target, r); });
    });
  }
};

}}  // namespace adacc::v0_1
