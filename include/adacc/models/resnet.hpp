// SPDX-License-Identifier: MIT
/// Residual networks for small pictures, ready-made: three stages of blocks of two convolutions, each
/// stage with half the pixels and twice the channels of the one before; policies as parameter.
///
/// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, section 4.2, with group norm
/// in place of batch norm (group_norm.hpp says why). Where a stage begins and shapes change, the shortcut
/// is a convolution of one pixel with stride 2 (their option B). 6 * blocks + 2 layers have weights, not
/// counting these; 3 blocks make 20.
///
/// `make_preactivated` puts norms and ReLUs in front of convolutions: He et al., "Identity mappings in
/// deep residual networks", 2016. Each block makes four tensors. Backward needs two of them which no
/// norm can make again, the stream and the first convolution's output; with a ReLU on the stream three,
/// because the ReLU loses the negative numbers.
#pragma once

#include <cmath>
#include <cstddef>

#include "../layer/conv2d.hpp"
#include "../layer/group_norm.hpp"
#include "../layer/linear.hpp"
#include "../layer/pool2d.hpp"
#include "../layer/relu.hpp"
#include "../layer/softmax_cross_entropy.hpp"
#include "../model/layer.hpp"
#include "../model/network.hpp"
#include "../model/repeat.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "../policy/planned.hpp"
#include "../policy/recompute.hpp"
#include "../policy/retain.hpp"

namespace adacc { inline namespace v0_1 { namespace resnet {

struct Config {
  int blocks = 3;             ///< per stage, at least 2
  std::size_t channels = 16;  ///< in the first stage
  std::size_t groups = 8;     ///< for the norms
  std::size_t classes = 10;
};

/// Keep every activation read by backward.
struct RetainSet {
  using Conv = Retain;    ///< input of norms
  using Norm = Retain;    ///< norm and ReLU, which feed the second convolution of a block
  using Stream = Retain;  ///< the residual stream
};

/// Leave every choice to the planner.
struct PlannedSet {
  using Conv = Planned;
  using Norm = Planned;
  using Stream = Planned;
};

/// By hand: run norms again, keep outputs of convolutions and the residual stream.
struct NormsAgainSet {
  using Conv = Retain;
  using Norm = Recompute;
  using Stream = Retain;
};

namespace detail {

/// A square convolution: the number of pixels stays, or is divided by the stride's square.
template <class Policy>
auto conv(std::size_t in, std::size_t out, std::size_t stride = 1, std::size_t kernel = 3) {
  return layer<Policy>(
      Conv2d{.out = out,
             .kernel = kernel,
             .stride = stride,
             .padding = kernel / 2,
             .bias = false,
             // He et al., "Delving deep into rectifiers", 2015
             .init_stddev = std::sqrt(2 / static_cast<float>(kernel * kernel * in))});
}

}  // namespace detail

/// The network of `config`, for pictures (B, H, W, any channels) and class numbers (B).
template <class Set = PlannedSet>
auto make(const Config& config) {
  using Conv = typename Set::Conv;
  using Norm = typename Set::Norm;
  using Stream = typename Set::Stream;
  using detail::conv;
  const GroupNorm norm{.groups = config.groups}, rectified{.groups = config.groups, .relu = true};
  const auto block = [&](std::size_t c) {
    return Sequential{
        Residual{conv<Conv>(c, c), layer<Norm>(rectified), conv<Conv>(c, c), layer<Stream>(norm)},
        layer<Stream>(Relu{})};
  };
  const auto stage = [&](std::size_t c) {
    return Sequential{ProjectedResidual{Sequential{conv<Conv>(c / 2, c, 2, 1), layer<Stream>(norm)},
                                        conv<Conv>(c / 2, c, 2), layer<Norm>(rectified),
                                        conv<Conv>(c, c), layer<Stream>(norm)},
                      layer<Stream>(Relu{}), repeat(config.blocks - 1, block(c))};
  };
  const std::size_t c = config.channels;
  return Network{
      Sequential{conv<Conv>(3, c), layer<Stream>(rectified), repeat(config.blocks, block(c)),
                 stage(2 * c), stage(4 * c), layer<Stream>(MeanOverPicture{}),
                 layer<Stream>(Linear{.out = config.classes})},
      SoftmaxCrossEntropy{}};
}

/// The network with norm and ReLU in front of each convolution, and only sums on the stream.
template <class Set = PlannedSet>
auto make_preactivated(const Config& config) {
  using Conv = typename Set::Conv;
  using Norm = typename Set::Norm;
  using Stream = typename Set::Stream;
  using detail::conv;
  const auto norm = layer<Norm>(GroupNorm{.groups = config.groups, .relu = true});
  const auto block = [&](std::size_t c) {
    return Residual{norm, conv<Conv>(c, c), norm, conv<Stream>(c, c)};
  };
  const auto stage = [&](std::size_t c) {
    return Sequential{norm,
                      ProjectedResidual{conv<Stream>(c / 2, c, 2, 1), conv<Conv>(c / 2, c, 2), norm,
                                        conv<Stream>(c, c)},
                      repeat(config.blocks - 1, block(c))};
  };
  const std::size_t c = config.channels;
  // The first convolution runs again wherever norms do: with three channels, at little cost.
  return Network{Sequential{conv<Norm>(3, c), repeat(config.blocks, block(c)), stage(2 * c),
                            stage(4 * c), norm, layer<Stream>(MeanOverPicture{}),
                            layer<Stream>(Linear{.out = config.classes})},
                 SoftmaxCrossEntropy{}};
}

template <class Set = PlannedSet>
using ResNet = decltype(make<Set>(Config{}));

template <class Set = PlannedSet>
using PreactivatedResNet = decltype(make_preactivated<Set>(Config{}));

}}}  // namespace adacc::v0_1::resnet
