// SPDX-License-Identifier: MIT
/// The one type of network there is: compact models, the selector and the large network differ by its
/// sizes alone.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/conv2d.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/pool2d.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/model/trained_by_name.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "camera.hpp"

namespace anole {

using Model = adacc::Sequential<
    adacc::Layer<adacc::Conv2d>, adacc::Layer<adacc::Relu>, adacc::Layer<adacc::MaxPool2d>,
    adacc::Layer<adacc::Conv2d>, adacc::Layer<adacc::Relu>, adacc::Layer<adacc::MaxPool2d>,
    adacc::Layer<adacc::Conv2d>, adacc::Layer<adacc::Relu>, adacc::Layer<adacc::Linear>>;
using Net = adacc::Network<Model, adacc::SoftmaxCrossEntropy>;

/// Channels of the two convolutions, units of the hidden layer, answers; and how many pixels the first
/// convolution's windows are apart: a selector that looks at every second one costs a quarter.
struct Sizes {
  std::size_t first = 0, second = 0, hidden = 0, outputs = 0;
  std::size_t stride = 1;

  Net net() const {
    return {Model{{adacc::Conv2d{.out = first, .stride = stride, .padding = 1}},
                  {},
                  {},
                  {adacc::Conv2d{.out = second, .padding = 1}},
                  {},
                  {},
                  {adacc::Conv2d{.out = hidden, .kernel = left()}},  // over all that is left
                  {},
                  {adacc::Linear{.out = outputs}}},
            {}};
  }

  /// Weights and biases.
  std::size_t parameters() const {
    return first * 10 + second * (9 * first + 1) + hidden * (left() * left() * second + 1) +
           outputs * (hidden + 1);
  }
  /// Of one picture.
  std::size_t multiply_adds() const {
    const std::size_t places = pixels / (stride * stride);
    return places * 9 * first + places / 4 * 9 * first * second +
           left() * left() * second * hidden + hidden * outputs;
  }

  /// The network of this form with about `wanted` parameters, and no fewer: wider by one factor in every
  /// layer.
  Sizes widened_to(std::size_t wanted) const {
    const double factor =
        std::sqrt(static_cast<double>(wanted) / static_cast<double>(parameters()));
    const auto wider = [&](std::size_t n) {
      return static_cast<std::size_t>(std::lround(factor * static_cast<double>(n)));
    };
    Sizes large{wider(first), wider(second), 1, outputs, stride};
    while (large.parameters() < wanted) ++large.hidden;
    return large;
  }

 private:
  /// Pixels of a side behind two poolings.
  std::size_t left() const { return side / 4 / stride; }
};

inline adacc::Shape input_shape(std::size_t batch) { return adacc::Shape(batch, side, side, 1); }

inline adacc::Shape answers_shape(std::size_t batch) { return adacc::Shape(batch, 1, 1); }

/// What online learning trains: the last layer. The rest is frozen.
inline constexpr const char* head = "linear";

/// A graph of `net` for `batch` pictures; if `head_alone`, only the head is trained.
inline adacc::Result<adacc::Graph> graph_of(const Net& net, std::size_t batch, bool head_alone) {
  adacc::Result<adacc::Graph> graph = adacc::make_graph(net, input_shape(batch), {});
  if (!graph || !head_alone) return graph;
  const auto trained = adacc::trained_by_name(*graph, head);
  if (!trained) return trained.error;
  return adacc::make_graph(net, input_shape(batch), {.trained = &*trained});
}

/// Parameters of one network as two graphs of it place them: those that are trained come first, so with
/// another set of them they lie elsewhere.
inline void copy_parameters(const adacc::Graph& from, const float* source, const adacc::Graph& to,
                            float* target) {
  for (std::size_t i = 0; i < from.parameters.size(); ++i)
    std::memcpy(target + to.parameters[i].offset, source + from.parameters[i].offset,
                from.parameters[i].shape.elems() * sizeof(float));
}

/// The largest of `count` numbers: which one.
inline std::size_t largest(const float* numbers, std::size_t count) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i)
    if (numbers[i] > numbers[best]) best = i;
  return best;
}

}  // namespace anole
