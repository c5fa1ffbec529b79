// SPDX-License-Identifier: MIT
/// GPT-2, ready-made: pre-norm blocks of attention and MLP, tied output head, policies as parameter.
///
/// A set of policies has one policy for each kind of activation: a member of `Set` is the policy of
/// the output of a layer.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../layer/causal_attention.hpp"
#include "../layer/cross_entropy_head.hpp"
#include "../layer/embedding.hpp"
#include "../layer/gelu.hpp"
#include "../layer/layer_norm.hpp"
#include "../layer/linear.hpp"
#include "../model/frozen.hpp"
#include "../model/graph_builder.hpp"
#include "../model/layer.hpp"
#include "../model/network.hpp"
#include "../model/repeat.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "../policy/compress.hpp"
#include "../policy/planned.hpp"
#include "../policy/recompute.hpp"
#include "../policy/retain.hpp"
#include "../program/plan.hpp"
#include "lora.hpp"

namespace adacc { inline namespace v0_1 { namespace gpt {

struct Config {
  int layers = 4;
  std::size_t heads = 4;
  std::size_t channels = 128;
  std::size_t context = 128;  ///< the longest sequence
  std::size_t vocab = 256;
  bool tied_head = true;             ///< the output head is the token table, as in GPT-2
  std::size_t device_tile_rows = 0;  ///< of the head (CrossEntropyHead)
};

/// Keep everything.
struct RetainSet {
  using Norm = Retain;  ///< input of qkv and fc
  using Qkv = Retain;
  using Attention = Retain;
  using Middle = Retain;  ///< the residual stream between attention and MLP
  using Hidden = Retain;  ///< GELU's input
  using Gelu = Retain;
  using Output = Retain;  ///< the residual stream between blocks, and around them
};

/// Leave every choice to the planner.
struct PlannedSet {
  using Norm = Planned;
  using Qkv = Planned;
  using Attention = Planned;
  using Middle = Planned;
  using Hidden = Planned;
  using Gelu = Planned;
  using Output = Planned;
};

/// Checkpoint block outputs, run everything inside a block again.
struct RecomputeSet {
  using Norm = Recompute;
  using Qkv = Recompute;
  using Attention = Recompute;
  using Middle = Recompute;
  using Hidden = Recompute;
  using Gelu = Recompute;
  using Output = Retain;
};

/// Compress everything, with one codec.
template <class Codec>
struct CompressSet {
  using Norm = Compress<Codec>;
  using Qkv = Norm;
  using Attention = Norm;
  using Middle = Norm;
  using Hidden = Norm;
  using Gelu = Norm;
  using Output = Norm;
};

using Int8Set = CompressSet<Int8Outlier>;
using Int4Set = CompressSet<Int4Outlier>;

/// Compress everything, each activation with the codec preferred by the readers.
using ToleratedSet = CompressSet<Tolerated>;

/// By hand: cheap layers run again, activations that tolerate a codec are compressed, the rest stays.
struct MixedSet {
  using Int8 = Compress<Int8Outlier>;
  using Norm = Recompute;
  using Qkv = Retain;
  using Attention = Int8;
  using Middle = Retain;
  using Hidden = Int8;
  using Gelu = Recompute;
  using Output = Retain;
};

using adacc::Lora;

/// The trained part of a network, and the type of its numbers.
struct Tuning {
  Lora lora{};
  const TrainedSet* trained = nullptr;  ///< as in GraphOptions
  Dtype scalar = Dtype::f32;            ///< the type of activations
};

namespace detail {

/// The network of `config` with linear layers from linear(out, init_stddev); `rest` is applied to
/// all other layers with parameters.
template <class Set, class MakeLinear, class Rest>
auto make_of(const Config& config, const MakeLinear& linear, const Rest& rest) {
  const std::size_t c = config.channels;
  const float weight = 0.02F;
  const float residual = weight / std::sqrt(2.0F * static_cast<float>(config.layers));
  const Residual attention{rest(layer<typename Set::Norm>(LayerNorm{})),
                           layer<typename Set::Qkv>(linear(3 * c, weight)),
                           layer<typename Set::Attention>(CausalAttention{.heads = config.heads}),
                           layer<typename Set::Middle>(linear(c, residual))};
  const Residual mlp{rest(layer<typename Set::Norm>(LayerNorm{})),
                     layer<typename Set::Hidden>(linear(4 * c, weight)),
                     layer<typename Set::Gelu>(Gelu{}),
                     layer<typename Set::Output>(linear(c, residual))};
  Embedding embedding;
  embedding.vocab = config.vocab;
  embedding.context = config.context;
  embedding.channels = c;
  CrossEntropyHead head;
  head.vocab = config.vocab;
  head.device_tile_rows = config.device_tile_rows;
  if (!config.tied_head) embedding.tied = head.tied = nullptr;
  return Network{Sequential{rest(layer<typename Set::Output>(embedding)),
                            repeat(config.layers, Sequential{attention, mlp}),
                            rest(layer<typename Set::Norm>(LayerNorm{}))},
                 head};
}

}  // namespace detail

/// The network of `config`. Weights start at 0.02 times a normal number; weights of layers writing
/// to the residual stream are smaller by sqrt(2 layers), as in GPT-2.
template <class Set = RetainSet>
auto make(const Config& config) {
  return detail::make_of<Set>(
      config,
      [](std::size_t out, float stddev) { return Linear{.out = out, .init_stddev = stddev}; },
      [](const auto& part) { return part; });
}

/// The network with adapters, which alone are trained. The nodes are the same as without.
template <class Set = RetainSet>
auto make_lora(const Config& config, const Lora& lora) {
  return detail::make_of<Set>(
      config, [&](std::size_t out, float stddev) { return lora.linear(out, true, stddev); },
      [](const auto& part) { return frozen(part); });
}

template <class Set>
using Gpt = decltype(make<Set>(Config{}));
template <class Set>
using LoraGpt = decltype(make_lora<Set>(Config{}, Lora{}));

/// The graph of the network for `batch` sequences of `time` tokens, cut into `parts` parts.
template <class Set = RetainSet>
Result<Graph> graph(const Config& config, std::size_t batch, std::size_t time, int workers,
                    int parts = 1, const Tuning& tuning = {}) {
  const GraphOptions options{
      .scalar = tuning.scalar, .workers = workers, .parts = parts, .trained = tuning.trained};
  if (tuning.lora.rank == 0) return make_graph(make<Set>(config), Shape(batch, time), options);
  return make_graph(make_lora<Set>(config, tuning.lora), Shape(batch, time), options);
}

/// The plan spelled out by the types of a set, for `graph`, which may come from any set.
template <class Set>
Plan plan_of(const Config& config, std::size_t batch, std::size_t time, const Tuning& tuning = {}) {
  const auto typed = graph<Set>(config, batch, time, 1, 1, tuning);
  return typed ? plan_from_types(*typed) : Plan{};
}

/// The names of the sets, for `named_plan`.
inline constexpr const char* set_names[] = {"retain", "recompute", "int8",
                                            "int4",   "tolerated", "mixed"};

/// The plan of the set called `name`; empty for names not in set_names.
inline Plan named_plan(const std::string& name, const Config& config, std::size_t batch,
                       std::size_t time, const Tuning& tuning = {}) {
  if (name == "retain") return plan_of<RetainSet>(config, batch, time, tuning);
  if (name == "recompute") return plan_of<RecomputeSet>(config, batch, time, tuning);
  if (name == "int8") return plan_of<Int8Set>(config, batch, time, tuning);
  if (name == "int4") return plan_of<Int4Set>(config, batch, time, tuning);
  if (name == "tolerated") return plan_of<ToleratedSet>(config, batch, time, tuning);
  if (name == "mixed") return plan_of<MixedSet>(config, batch, time, tuning);
  return {};
}

/// The network in one line; checkpoints are matched by it.
inline std::string describe(const Config& config, const Lora& lora = {}) {
  std::string line = "GPT-2, layers " + std::to_string(config.layers) + ", heads " +
                     std::to_string(config.heads) + ", channels " +
                     std::to_string(config.channels) + ", context " +
                     std::to_string(config.context) + ", vocabulary " +
                     std::to_string(config.vocab) + (config.tied_head ? "" : ", untied head");
  if (lora.rank == 0) return line;
  const NumberText alpha = NumberText::significant(static_cast<double>(lora.alpha), 6);
  return line + ", LoRA of rank " + std::to_string(lora.rank) + ", alpha " + alpha.c_str();
}

/// The configuration in a text of `describe`, adapters aside.
inline std::optional<Config> parse_description(const std::string& text) {
  Config config;
  std::string_view rest(text);
  const auto take = [&](std::string_view words, auto& number) {
    return adacc::detail::take_word(rest, words) && take_number(rest, number);
  };
  if (!take("GPT-2, layers ", config.layers) || !take(", heads ", config.heads) ||
      !take(", channels ", config.channels) || !take(", context ", config.context) ||
      !take(", vocabulary ", config.vocab))
    return std::nullopt;
  config.tied_head = text.find(", untied head") == std::string::npos;
  return config;
}

}}}  // namespace adacc::v0_1::gpt
