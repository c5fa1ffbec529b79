/// GPT-2 as a type: pre-norm blocks of attention and MLP, tied output head, policies as parameter.
///
/// The same network for the trainer, the benchmark and the tests. A set of policies names what
/// becomes of each kind of activation; a member of `Set` is the policy of what that layer makes.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

namespace gpt {

struct Config {
  int layers = 4;
  std::size_t heads = 4;
  std::size_t channels = 128;
  std::size_t context = 128;  ///< the longest sequence
  std::size_t vocab = 256;
};

/// Keep everything.
struct RetainSet {
  using Norm = adacc::Retain;  ///< what feeds qkv and fc
  using Qkv = adacc::Retain;
  using Attention = adacc::Retain;
  using Middle = adacc::Retain;  ///< the residual stream between attention and MLP
  using Hidden = adacc::Retain;  ///< GELU's input
  using Gelu = adacc::Retain;
  using Output = adacc::Retain;  ///< the residual stream between blocks, and around them
};

/// Leave every choice to the planner.
struct PlannedSet {
  using Norm = adacc::Planned;
  using Qkv = adacc::Planned;
  using Attention = adacc::Planned;
  using Middle = adacc::Planned;
  using Hidden = adacc::Planned;
  using Gelu = adacc::Planned;
  using Output = adacc::Planned;
};

/// Checkpoint block outputs, run everything inside a block again.
struct RecomputeSet {
  using Norm = adacc::Recompute;
  using Qkv = adacc::Recompute;
  using Attention = adacc::Recompute;
  using Middle = adacc::Recompute;
  using Hidden = adacc::Recompute;
  using Gelu = adacc::Recompute;
  using Output = adacc::Retain;
};

/// Compress everything, with one codec.
template <class Codec>
struct CompressSet {
  using Norm = adacc::Compress<Codec>;
  using Qkv = Norm;
  using Attention = Norm;
  using Middle = Norm;
  using Hidden = Norm;
  using Gelu = Norm;
  using Output = Norm;
};

using Int8Set = CompressSet<adacc::Int8Outlier>;
using Int4Set = CompressSet<adacc::Int4Outlier>;

/// Compress everything, each activation with the codec that the layers which read it prefer.
using ToleratedSet = CompressSet<adacc::Tolerated>;

/// By hand: what is cheap to run again is, what tolerates it is compressed, the rest stays.
struct MixedSet {
  using Int8 = adacc::Compress<adacc::Int8Outlier>;
  using Norm = adacc::Recompute;
  using Qkv = adacc::Retain;
  using Attention = Int8;
  using Middle = adacc::Retain;
  using Hidden = Int8;
  using Gelu = adacc::Recompute;
  using Output = adacc::Retain;
};

template <class Set>
using AttentionHalf = adacc::Residual<adacc::Layer<adacc::LayerNorm, typename Set::Norm>,
                                      adacc::Layer<adacc::Linear, typename Set::Qkv>,
                                      adacc::Layer<adacc::CausalAttention, typename Set::Attention>,
                                      adacc::Layer<adacc::Linear, typename Set::Middle>>;

template <class Set>
using MlpHalf = adacc::Residual<adacc::Layer<adacc::LayerNorm, typename Set::Norm>,
                                adacc::Layer<adacc::Linear, typename Set::Hidden>,
                                adacc::Layer<adacc::Gelu, typename Set::Gelu>,
                                adacc::Layer<adacc::Linear, typename Set::Output>>;

template <class Set>
using Block = adacc::Sequential<AttentionHalf<Set>, MlpHalf<Set>>;

template <class Set>
using Model = adacc::Sequential<adacc::Layer<adacc::Embedding, typename Set::Output>,
                                adacc::Repeat<Block<Set>>,
                                adacc::Layer<adacc::LayerNorm, typename Set::Norm>>;

template <class Set>
using Gpt = adacc::Network<Model<Set>, adacc::CrossEntropyHead>;

/// The network of `config`. Weights start at 0.02 times a normal number, those that write to the
/// residual stream smaller by sqrt(2 layers), as GPT-2's.
template <class Set = RetainSet>
Gpt<Set> make(const Config& config) {
  using adacc::Linear;
  const std::size_t c = config.channels;
  const float weight = 0.02F;
  const float residual = weight / std::sqrt(2.0F * static_cast<float>(config.layers));
  const AttentionHalf<Set> attention{{{}},
                                     {Linear{.out = 3 * c, .init_stddev = weight}},
                                     {{.heads = config.heads}},
                                     {Linear{.out = c, .init_stddev = residual}}};
  const MlpHalf<Set> mlp{{{}},
                         {Linear{.out = 4 * c, .init_stddev = weight}},
                         {{}},
                         {Linear{.out = c, .init_stddev = residual}}};
  adacc::Embedding embedding;
  embedding.vocab = config.vocab;
  embedding.context = config.context;
  embedding.channels = c;
  adacc::CrossEntropyHead head;
  head.vocab = config.vocab;
  return {Model<Set>{{embedding}, {config.layers, Block<Set>{attention, mlp}}, {{}}}, head};
}

/// The graph of the network for `batch` sequences of `time` tokens.
template <class Set = RetainSet>
adacc::Result<adacc::Graph> graph(const Config& config, std::size_t batch, std::size_t time,
                                  int workers) {
  return adacc::make_graph(make<Set>(config), adacc::Shape(batch, time), {.workers = workers});
}

/// The plan that the types of a set spell out for `graph`, which may come from any set.
template <class Set>
adacc::Plan plan_of(const Config& config, std::size_t batch, std::size_t time) {
  const auto typed = graph<Set>(config, batch, time, 1);
  return typed ? adacc::plan_from_types(*typed) : adacc::Plan{};
}

/// The names of the sets, for `named_plan`.
inline constexpr const char* set_names[] = {"retain", "recompute", "int8",
                                            "int4",   "tolerated", "mixed"};

/// The plan of the set called `name`; empty for names that are not in set_names.
inline adacc::Plan named_plan(const std::string& name, const Config& config, std::size_t batch,
                              std::size_t time) {
  if (name == "retain") return plan_of<RetainSet>(config, batch, time);
  if (name == "recompute") return plan_of<RecomputeSet>(config, batch, time);
  if (name == "int8") return plan_of<Int8Set>(config, batch, time);
  if (name == "int4") return plan_of<Int4Set>(config, batch, time);
  if (name == "tolerated") return plan_of<ToleratedSet>(config, batch, time);
  if (name == "mixed") return plan_of<MixedSet>(config, batch, time);
  return {};
}

/// One line that says which network this is; checkpoints are matched by it.
inline std::string describe(const Config& config) {
  return "GPT-2, layers " + std::to_string(config.layers) + ", heads " +
         std::to_string(config.heads) + ", channels " + std::to_string(config.channels) +
         ", context " + std::to_string(config.context) + ", vocabulary " +
         std::to_string(config.vocab);
}

/// The configuration that `describe` described.
inline std::optional<Config> parse_description(const std::string& text) {
  Config config;
  if (std::sscanf(
          text.c_str(), "GPT-2, layers %d, heads %zu, channels %zu, context %zu, vocabulary %zu",
          &config.layers, &config.heads, &config.channels, &config.context, &config.vocab) != 5)
    return std::nullopt;
  return config;
}

}  // namespace gpt
