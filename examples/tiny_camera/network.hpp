// SPDX-License-Identifier: MIT
/// The network of both halves: on the device, and where it is trained and prepared.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/pool2d.hpp>
#include <adacc/layer/plain/quantized_conv2d.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/train/fixed_training.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "scene.hpp"

namespace tiny_camera {

using namespace adacc;

inline constexpr std::size_t batch = 8, convolutions = 5;
inline constexpr Shape pictures(batch, side, side, 1);
inline constexpr int parts_of_step =
    batch;  ///< layers run picture by picture, so that loops save memory

struct Geometry {
  std::size_t in, out, stride;
};
inline constexpr Geometry geometry[convolutions] = {
    {1, 8, 2}, {8, 16, 2}, {16, 24, 1}, {24, 24, 2}, {24, 24, 1}};
constexpr std::size_t weights_of(std::size_t k) { return geometry[k].out * 9 * geometry[k].in; }

/// What a device has, and what of it is spent whatever is trained: int8 weights with their scales, biases and the
/// last layer as they were; then a batch, and what a step's instructions take.
#ifdef DEVICE_KIB
inline constexpr std::size_t device_bytes = DEVICE_KIB * KiB;
#else
inline constexpr std::size_t device_bytes = 256 * KiB;
#endif
inline constexpr std::size_t table_bytes = [] {
  std::size_t bytes =
      sizeof(float) * (parts * geometry[convolutions - 1].out + parts + convolutions);
  for (std::size_t k = 0; k < convolutions; ++k)
    bytes += weights_of(k) + 2 * sizeof(float) * geometry[k].out;
  return bytes;
}();
inline constexpr std::size_t rest_bytes = 36 * KiB;

/// What is known of the network before it runs: its int8 weights, and the grids between its layers.
struct Tables {
  const std::int8_t* weight[convolutions];
  const float* weight_scale[convolutions];
  float scale[convolutions];  ///< of what a convolution puts out

  constexpr plain::Int8Grid grid(std::size_t k) const {
    return {k == 0 ? 1.0F / 255 : scale[k - 1], plain::Int8Grid::lowest};
  }
};

/// A network of which the weights of the convolutions in `learning`, a set of bits, can be trained; the others
/// are constants in int8. What a trained weight's gradient reads is kept in bfloat16, which loses nothing of
/// numbers of 8 bits; all others are dropped by themselves.
template <unsigned learning>
struct Camera {
  template <std::size_t k>
  using Convolution =
      Layer<std::conditional_t<(learning >> k & 1) != 0, plain::QuantizedTrainedConv2d,
                               plain::QuantizedConv2d>,
            Compress<Bf16>>;
  using Model =
      Sequential<Convolution<0>, Convolution<1>, Convolution<2>, Convolution<3>, Convolution<4>,
                 Layer<plain::MeanOverPicture, Retain>, Layer<plain::Linear, Retain>>;
  using Net = Network<Model, plain::SoftmaxCrossEntropy>;

  template <std::size_t k>
  static constexpr Convolution<k> convolution(const Tables& tables) {
    typename std::remove_const_t<decltype(Convolution<k>::functor)> f{.out = geometry[k].out};
    f.from = tables.grid(k), f.to = tables.grid(k + 1);
    f.stride = geometry[k].stride, f.padding = 1;
    if constexpr ((learning >> k & 1) == 0)
      f.weight = tables.weight[k], f.weight_scale = tables.weight_scale[k];
    return {f};
  }
  static constexpr Net network(const Tables& tables) {
    return {{convolution<0>(tables),
             convolution<1>(tables),
             convolution<2>(tables),
             convolution<3>(tables),
             convolution<4>(tables),
             {},
             {plain::Linear{.out = parts}}},
            {}};
  }
};

/// Tensors that may be trained: weight and bias of each convolution; the last layer's always are.
inline constexpr std::size_t tensors = 2 * convolutions;

/// Of a graph of a Camera, whether its parameters are trained: `chosen` says so of each of the tensors.
template <class Chosen>
constexpr TrainedSet trained_set(const Graph& graph, const Chosen& chosen) {
  TrainedSet set(graph.parameters.size());
  for (std::size_t i = 0; i < set.size(); ++i) {
    const Parameter& parameter = graph.parameters[i];
    const auto layer = static_cast<std::size_t>(parameter.node);
    const bool bias = parameter.init.kind == Init::Kind::zeros;
    set[i] = layer >= convolutions || chosen[2 * layer + (bias ? 1 : 0)] != 0;
  }
  return set;
}

/// Moments in bfloat16: together they take what gradients do.
using Optimizer = AdamWWith<Bf16Moments>;

/// How the device learns: so many batches, at a rate that falls to a tenth.
struct Lesson {
  std::uint32_t steps = 150;
  double rate = 3e-3;
  double rate_at(std::uint32_t step) const { return rate * (1 - 0.9 * step / steps); }
};

/// Puts parameters where a network begins on a device: `bias` and `linear` (weight, then bias) as they were
/// trained, weights of convolutions from their int8.
template <class Table>
void load(const Table& table, const Tables& tables, const float* const* bias, const float* head,
          const float* head_bias, float* params) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Parameter& parameter = table[i];
    const auto layer = static_cast<std::size_t>(parameter.node);
    float* const to = params + parameter.offset;
    const std::size_t elems = parameter.shape.elems();
    const bool is_bias = parameter.shape.rank() == 1;
    if (layer < convolutions && !is_bias)
      for (std::size_t e = 0; e < elems; ++e)
        to[e] = tables.weight_scale[layer][e / (elems / geometry[layer].out)] *
                static_cast<float>(tables.weight[layer][e]);
    else
      std::memcpy(to,
                  layer < convolutions ? bias[layer]
                  : is_bias            ? head_bias
                                       : head,
                  elems * sizeof(float));
  }
}

/// The class with the largest of a row of logits.
inline std::int32_t best_of(const float* logits) {
  std::int32_t best = 0;
  for (std::int32_t c = 1; c < static_cast<std::int32_t>(parts); ++c)
    if (logits[c] > logits[best]) best = c;
  return best;
}

/// Fills x and y with pictures first, first + 1, … of the seed.
inline void take_batch(const Conditions& conditions, std::uint64_t seed, std::uint32_t first,
                       float* x, std::int32_t* y) {
  for (std::size_t b = 0; b < batch; ++b)
    y[b] =
        take_picture(conditions, first + static_cast<std::uint32_t>(b), seed, x + b * side * side);
}

}  // namespace tiny_camera
