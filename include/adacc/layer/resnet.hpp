// SPDX-License-Identifier: MIT
/// A residual network for small pictures, ready-made: three stages of blocks of two convolutions, each
/// stage with half the pixels and twice the channels of the one before; policies as parameter.
///
/// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, section 4.2, with group norm
/// in place of batch norm (group_norm.hpp says why). An activation is the input of one layer, so where a
/// stage begins and shapes change there is no shortcut around its first convolution: the residual
/// stream starts anew behind it. 6 * blocks + 2 layers have weights; 3 blocks make 20.
#pragma once

#include <cmath>
#include <cstddef>

#include "../model/layer.hpp"
#include "../model/network.hpp"
#include "../model/repeat.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "../policy/planned.hpp"
#include "../policy/recompute.hpp"
#include "../policy/retain.hpp"
#include "conv2d.hpp"
#include "group_norm.hpp"
#include "linear.hpp"
#include "pool2d.hpp"
#include "relu.hpp"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 { namespace resnet {

struct Config {
  int blocks = 3;             ///< of each stage, at least 2
  std::size_t channels = 16;  ///< of the first stage
  std::size_t groups = 8;     ///< of the norms
  std::size_t classes = 10;
};

/// Keep everything that backward reads.
struct RetainSet {
  using Conv = Retain;    ///< what feeds norms
  using Norm = Retain;    ///< norm and ReLU, which feed the second convolution of a block
  using Stream = Retain;  ///< the residual stream
};

/// Leave every choice to the planner.
struct PlannedSet {
  using Conv = Planned;
  using Norm = Planned;
  using Stream = Planned;
};

/// By hand: run norms again, keep what convolutions made and the residual stream.
struct NormsAgainSet {
  using Conv = Retain;
  using Norm = Recompute;
  using Stream = Retain;
};

/// The network of `config`, for pictures (B, H, W, any channels) and class numbers (B).
template <class Set = PlannedSet>
auto make(const Config& config) {
  const auto conv = [](std::size_t in, std::size_t out, std::size_t stride = 1) {
    const float stddev = std::sqrt(2 / static_cast<float>(9 * in));  // He et al., 2015
    return layer<typename Set::Conv>(Conv2d{.out = out,
                                            .kernel = 3,
                                            .stride = stride,
                                            .padding = 1,
                                            .bias = false,
                                            .init_stddev = stddev});
  };
  const GroupNorm norm{.groups = config.groups}, rectified{.groups = config.groups, .relu = true};
  const auto block = [&](std::size_t c) {
    return Sequential{Residual{conv(c, c), layer<typename Set::Norm>(rectified), conv(c, c),
                               layer<typename Set::Stream>(norm)},
                      layer<typename Set::Stream>(Relu{})};
  };
  const auto stage = [&](std::size_t c) {
    return Sequential{conv(c / 2, c, 2), layer<typename Set::Stream>(rectified),
                      Residual{conv(c, c), layer<typename Set::Stream>(norm)},
                      layer<typename Set::Stream>(Relu{}), repeat(config.blocks - 1, block(c))};
  };
  const std::size_t c = config.channels;
  return Network{Sequential{conv(3, c), layer<typename Set::Stream>(rectified),
                            repeat(config.blocks, block(c)), stage(2 * c), stage(4 * c),
                            layer<typename Set::Stream>(MeanOverPicture{}),
                            layer<typename Set::Stream>(Linear{.out = config.classes})},
                 SoftmaxCrossEntropy{}};
}

template <class Set = PlannedSet>
using ResNet = decltype(make<Set>(Config{}));

}}}  // namespace adacc::v0_1::resnet
