// SPDX-License-Identifier: MIT
/// BERT's encoder, ready-made: post-norm blocks, attention in both directions, GELU by its definition.
///
/// Devlin, Chang, Lee, Toutanova, "BERT", arXiv 1810.04805. io/weights/bert.hpp reads pretrained
/// files. Layers on top are the caller's: pooling.hpp makes one row of a sequence.
///
///     const Network net{Sequential{bert::encoder(config), layer(MeanOverTime{})}, ContrastiveLoss{}};
///
/// Sequences that end early are padded with any token, and the context has their lengths
/// (KernelCall::lengths). A token w of type k is given as w + k vocab (embedding.hpp). There is no
/// dropout: pretrained weights can be tuned without.
#pragma once

#include <cstddef>

#include "../layer/attention.hpp"
#include "../layer/embedding.hpp"
#include "../layer/erf_gelu.hpp"
#include "../layer/layer_norm.hpp"
#include "../layer/linear.hpp"
#include "../model/layer.hpp"
#include "../model/repeat.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "../policy/planned.hpp"

namespace adacc { inline namespace v0_1 { namespace bert {

struct Config {
  int layers = 4;
  std::size_t heads = 4;
  std::size_t channels = 128;
  std::size_t hidden = 512;   ///< width of the MLP
  std::size_t context = 128;  ///< the longest sequence
  std::size_t vocab = 256;
  std::size_t types = 2;   ///< kinds of tokens
  float epsilon = 1e-12F;  ///< for the norms
};

/// Tokens (B, T) -> (B, T, channels), every activation under `Policy`. Weights start at 0.02 times a
/// normal number.
template <class Policy = Planned>
auto encoder(const Config& config) {
  constexpr float weight = 0.02F;
  const std::size_t c = config.channels;
  const LayerNorm norm{.epsilon = config.epsilon};
  const Residual attention{layer<Policy>(Linear{.out = 3 * c, .init_stddev = weight}),
                           layer<Policy>(BidirectionalAttention{.heads = config.heads}),
                           layer<Policy>(Linear{.out = c, .init_stddev = weight})};
  const Residual mlp{layer<Policy>(Linear{.out = config.hidden, .init_stddev = weight}),
                     layer<Policy>(ErfGelu{}),
                     layer<Policy>(Linear{.out = c, .init_stddev = weight})};
  const Embedding embedding{.vocab = config.vocab,
                            .context = config.context,
                            .channels = c,
                            .tied = nullptr,
                            .types = config.types};
  return Sequential{
      layer<Policy>(embedding), layer<Policy>(norm),
      repeat(config.layers, Sequential{attention, layer<Policy>(norm), mlp, layer<Policy>(norm)})};
}

}}}  // namespace adacc::v0_1::bert
