// SPDX-License-Identifier: MIT
/// A decoder in the style of Llama, ready-made: pre-norm by root mean squares, rotary positions, heads
/// of keys and values that groups of query heads share, SwiGLU, no biases but those of Qwen2's queries, keys and values.
/// Qwen3 normalizes heads of queries and keys.
///
/// Touvron et al., "LLaMA", arXiv 2302.13971; Qwen2 Technical Report, arXiv 2407.10671; Qwen3 Technical Report, arXiv
/// 2505.09388. io/weights/llama.hpp reads pretrained models.
#pragma once

#include <cstddef>

#include "../layer/causal_attention.hpp"
#include "../layer/cross_entropy_head.hpp"
#include "../layer/embedding.hpp"
#include "../layer/linear.hpp"
#include "../layer/rms_norm.hpp"
#include "../layer/rotary_embedding.hpp"
#include "../layer/swiglu.hpp"
#include "../model/frozen.hpp"
#include "../model/layer.hpp"
#include "../model/network.hpp"
#include "../model/repeat.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "../policy/planned.hpp"
#include "lora.hpp"

namespace adacc { inline namespace v0_1 { namespace llama {

/// Networks that differ from Llama in one place.
enum class Family : unsigned char {
  llama,
  qwen2,  ///< queries, keys and values have biases
  qwen3   ///< each head of queries and keys is normalized
};

struct Config {
  int layers = 4;
  std::size_t heads = 4;
  std::size_t kv_heads = 2;  ///< a divisor of heads
  std::size_t channels = 128;
  std::size_t hidden = 344;   ///< width of the MLP
  std::size_t context = 128;  ///< the longest sequence
  std::size_t vocab = 256;
  float epsilon = 1e-5F;             ///< for the norms
  double base = 10000;               ///< for the rotary angles
  bool tied_head = false;            ///< the output head is the token table
  std::size_t device_tile_rows = 0;  ///< of the head (CrossEntropyHead)
  Family family = Family::llama;
  std::size_t head_channels = 0;  ///< 0: channels / heads

  /// Channels of a head.
  constexpr std::size_t head_size() const {
    if (head_channels != 0) return head_channels;
    return heads == 0 ? 0 : channels / heads;
  }
  constexpr bool biases() const { return family == Family::qwen2; }
  constexpr bool head_norms() const { return family == Family::qwen3; }
};

namespace detail {

/// The network of `config` with linear layers from make_linear(out, bias, init_stddev); `rest` is applied to all other layers with
/// parameters, and to the loss.
template <class Policy, class MakeLinear, class Rest>
auto make_of(const Config& config, const MakeLinear& make_linear, const Rest& rest) {
  const auto linear = [&](std::size_t out, bool bias = false) {
    return layer<Policy>(make_linear(out, bias, 0.02F));
  };
  const std::size_t c = config.channels, size = config.head_size();
  const auto norm = rest(layer<Policy>(RmsNorm{.epsilon = config.epsilon}));
  const Residual attention{
      norm, linear((config.heads + 2 * config.kv_heads) * size, config.biases()),
      rest(layer<Policy>(RotaryEmbedding{.heads = config.heads,
                                         .kv_heads = config.kv_heads,
                                         .base = config.base,
                                         .norms = config.head_norms(),
                                         .epsilon = config.epsilon})),
      layer<Policy>(CausalAttention{.heads = config.heads, .kv_heads = config.kv_heads}),
      linear(c)};
  const Residual mlp{norm, linear(2 * config.hidden), layer<Policy>(SwiGlu{}), linear(c)};
  const char* const table = config.tied_head ? "tokens" : nullptr;
  const Embedding embedding{.vocab = config.vocab,
                            .context = config.context,
                            .channels = c,
                            .tied = table,
                            .positions = false};
  return Network{
      Sequential{rest(layer<Policy>(embedding)), repeat(config.layers, Sequential{attention, mlp}),
                 norm},
      rest(CrossEntropyHead{
          .vocab = config.vocab, .tied = table, .device_tile_rows = config.device_tile_rows})};
}

}  // namespace detail

/// Tokens (B, T) and the next of each to the mean loss, every activation under `Policy`. Weights start
/// at 0.02 times a normal number.
template <class Policy = Planned>
auto make(const Config& config) {
  return detail::make_of<Policy>(
      config,
      [](std::size_t out, bool bias, float stddev) {
        return Linear{.out = out, .bias = bias, .init_stddev = stddev};
      },
      [](const auto& part) { return part; });
}

/// The network with adapters, which alone are trained. The nodes are the same as without.
template <class Policy = Planned>
auto make_lora(const Config& config, const Lora& lora) {
  return detail::make_of<Policy>(
      config,
      [&](std::size_t out, bool bias, float stddev) { return lora.linear(out, bias, stddev); },
      [](const auto& part) { return frozen(part); });
}

}}}  // namespace adacc::v0_1::llama
