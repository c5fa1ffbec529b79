// SPDX-License-Identifier: MIT
/// A network whose channels grow from some step on, so that a codec fails on them and the plan of a
/// training evolves.
#pragma once

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/cost/profile.hpp>

#include <array>
#include <cstdint>

#include "../step/random_model.hpp"

namespace growing_net {

using namespace adacc;

/// Groups along rows: outlying channels beyond the few places widen every group's scale.
using RowInt8 = Int8OutlierWith<Int8Options{.group = whole_row}>;

/// y = x w; backward reads x.
struct Dense {
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<RowInt8, Bf16>;
  static constexpr std::array<ParameterSpec, 1> parameters(Shape in) {
    return {{{"weight", Shape(in.cols(), in.cols()), Init::uniform(0.2F)}}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    const std::size_t n = call.x.cols();
    for (std::size_t r = 0; r < call.x.rows(); ++r) {
      const T *in = call.x.row(r), *w = call.params[0].data();
      T* out = call.y.row(r);
      for (std::size_t o = 0; o < n; ++o) out[o] = 0;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t o = 0; o < n; ++o) out[o] += in[i] * w[i * n + o];
    }
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    const std::size_t n = call.x.cols();
    for (std::size_t r = 0; r < call.x.rows(); ++r) {
      const T *in = call.x.row(r), *dout = call.dy.row(r), *w = call.params[0].data();
      T *din = call.dx.row(r), *dw = call.dparams[0].data();
      for (std::size_t i = 0; i < n; ++i) {
        T sum = 0;
        for (std::size_t o = 0; o < n; ++o) {
          sum += dout[o] * w[i * n + o];
          dw[i * n + o] += in[i] * dout[o];
        }
        din[i] = sum;
      }
    }
  }
};

/// The step from which some channels grow, by a tenth of themselves a step.
inline std::uint32_t injected_from = 0;

struct GrowingChannels {
  static constexpr auto backward_reads = reads::none;
  static float factor(const Cpu& cpu, std::size_t channel) {
    if (channel % 9 != 4 || cpu.key.step < injected_from) return 1;
    return 1 + 0.1F * static_cast<float>(cpu.key.step - injected_from);
  }
  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor(cpu, i % x.cols());
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] * factor(cpu, i % dy.cols());
  }
};

using Net =
    Network<Sequential<Layer<Dense>, Layer<Dense>, Layer<GrowingChannels>, Repeat<Layer<Dense>>>,
            random_model::HalfSquare>;
constexpr int victim = 2;
inline const Net net{{{}, {}, {}, Repeat<Layer<Dense>>{8, {}}}, {}};
inline const Shape shape(128, 64);

inline CostProfile profile(const Graph& of) {
  CostProfile made = empty_profile(of);
  for (int k = 0; k < of.node_count(); ++k) {
    made.nodes[static_cast<std::size_t>(k)] = {1e-2, 2e-2, 0, 0};
    made.codec_cost(k, made.column(&codec_info<RowInt8>)) = {1e-3 + 1e-6 * k, 1e-3, 1e-3, 2e-3};
    made.codec_cost(k, made.column(&codec_info<Bf16>)) = {0.8e-3 + 1e-6 * k, 0.8e-3, 1e-6, 2e-6};
  }
  // Here int8 is worth its error.
  made.codec_cost(victim, made.column(&codec_info<RowInt8>)).encode = 1e-5;
  made.codec_cost(victim, made.column(&codec_info<RowInt8>)).decode = 1e-5;
  return made;
}

/// Bytes that a step takes with everything retained.
inline std::size_t retain_bytes() {
  const auto graph = make_graph(net, shape);
  return make_program(*graph, retain_all(*graph))->peak_bytes();
}

}  // namespace growing_net
