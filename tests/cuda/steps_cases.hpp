// SPDX-License-Identifier: MIT
/// The networks that are trained on the device and, for comparison, on the CPU (steps_cpu.cpp, which
/// the host's compiler compiles, as users have it).
#pragma once

#include <adacc/codec/statistics.hpp>
#include <adacc/core/random.hpp>
#include <adacc/cost/gradient_sketch.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/lora_linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/models/bert.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/optimizer/adamw.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace steps {

using namespace adacc;

inline constexpr double rate = 3e-3, clip = 1;
inline const AdamW adamw{.weight_decay = 0.1F};
inline constexpr std::uint64_t seed = 11;

/// Batches of a language model.
template <std::size_t length>
struct Texts {
  static constexpr std::size_t batch = 2, time = length, vocab = 61;
  static Shape shape() { return Shape(batch, time); }
  using Number = std::int32_t;
  /// Tokens and, one place further, targets of a step.
  static std::vector<std::int32_t> numbers(std::uint32_t step, std::size_t shift) {
    std::vector<std::int32_t> list;
    for (std::size_t i = 0; i < batch * time; ++i)
      list.push_back(static_cast<std::int32_t>(
          random_word({.seed = 9, .step = step}, (i + shift) / 3) % vocab));
    return list;
  }
  static std::vector<std::int32_t> inputs(std::uint32_t step) { return numbers(step, 0); }
  static std::vector<std::int32_t> targets(std::uint32_t step) { return numbers(step, 1); }
};

/// A GPT.
struct Language : Texts<64> {
  static gpt::Config config() { return {2, 4, 64, time, vocab}; }
  static auto network() { return gpt::make(config()); }
};

/// Retains or recomputes every activation, or keeps in int8 those that backward may read so.
inline Plan named_plan(const Graph& graph, const std::string& name) {
  if (name != "int8") return plan_from_types(graph, name == "retain" ? retain() : recompute());
  constexpr const CodecInfo* codec = &codec_info<Int8Outlier>;
  Plan plan = retain_all(graph);
  for (int k = 0; k < graph.node_count(); ++k)
    if (graph.candidates_of(k).contains(codec))
      plan.policies[static_cast<std::size_t>(k)] = compress(codec);
  return plan;
}

/// A Llama, whose plan is open.
struct Decoder : Texts<32> {
  static constexpr const char* name = "Llama";
  static llama::Config config() {
    return {.layers = 2,
            .heads = 4,
            .kv_heads = 2,
            .channels = 32,
            .hidden = 44,
            .context = time,
            .vocab = vocab};
  }
  static auto network() { return llama::make(config()); }
};

/// The same with adapters, which alone are trained.
struct Adapted : Decoder {
  static auto network() { return llama::make_lora(config(), {.rank = 3, .alpha = 6}); }
};

/// A BERT that names every token, those behind a sequence's end aside: its plan is open. The second sequence of a batch is
/// short.
struct Encoder : Texts<32> {
  static constexpr const char* name = "BERT";
  static auto network() {
    return Network{Sequential{bert::encoder({.layers = 2,
                                             .heads = 4,
                                             .channels = 32,
                                             .hidden = 44,
                                             .context = time,
                                             .vocab = vocab,
                                             .types = 2})},
                   CrossEntropyHead{.vocab = vocab}};
  }
  static std::vector<std::int32_t> lengths() { return {32, 21}; }
  /// The second half of each sequence is of the second type.
  static std::vector<std::int32_t> inputs(std::uint32_t step) {
    std::vector<std::int32_t> list = numbers(step, 0);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (i % time >= time / 2) list[i] += static_cast<std::int32_t>(vocab);
    return list;
  }
  static std::vector<std::int32_t> targets(std::uint32_t step) {
    std::vector<std::int32_t> list = numbers(step, 0);
    for (std::size_t i = time + 21; i < list.size(); ++i) list[i] = ignored_target;
    return list;
  }
};

/// Every kind of gradient, none of them tied: a head with rows of padding, types of tokens, positions behind the last,
/// thin products and a layer whose backward adds.
struct Untied : Texts<32> {
  static auto network() {
    return Network{
        Sequential{
            layer<Retain>(Embedding{
                .vocab = vocab, .context = time + 9, .channels = 32, .tied = nullptr, .types = 2}),
            layer<Retain>(LayerNorm{}), layer<Retain>(LoraLinear{.out = 32, .rank = 4}),
            layer<Retain>(RmsNorm{})},
        CrossEntropyHead{.vocab = vocab, .tied = nullptr, .padded_vocab = 77}};
  }
};

/// The lengths of a case's sequences; empty: all are full.
template <class Case>
std::vector<std::int32_t> lengths_of() {
  if constexpr (requires { Case::lengths(); }) return Case::lengths();
  else return {};
}

/// A perceptron with every other kind of layer, odd sizes and dropout.
template <class Policy>
struct Perceptron {
  static auto network() {
    return Network{Sequential{layer<Policy>(Linear{.out = 37}), layer<Policy>(RmsNorm{}),
                              layer<Policy>(Silu{}), layer<Policy>(Dropout{.rate = 0.2F}),
                              Residual{layer<Policy>(Linear{.out = 37, .bias = false}),
                                       layer<Policy>(Relu{}), layer<Policy>(Linear{.out = 37})},
                              layer<Policy>(Linear{.out = 5})},
                   MeanSquaredError{}};
  }
  static Shape shape() { return Shape(45, 7); }
  using Number = float;
  static std::vector<float> numbers(std::uint32_t step, std::size_t count) {
    std::vector<float> list;
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(2 * unit_float(random_word({.seed = 8, .step = step}, i)) - 1);
    return list;
  }
  static std::vector<float> inputs(std::uint32_t step) { return numbers(step, 45 * 7); }
  static std::vector<float> targets(std::uint32_t step) { return numbers(step, 45 * 5); }
};

/// Eight linear layers, whose plan is open. Nothing mixes rows, so that some of the input's that grow are
/// outliers of every activation.
struct Deep {
  using Net = Network<Repeat<Layer<Linear>>, MeanSquaredError>;
  static constexpr std::size_t rows = 128, cols = 64;
  static Net network() {
    return {{8, {Linear{.out = cols, .bias = false, .init_stddev = 0.125F}}}, {}};
  }
  static Shape shape() { return Shape(rows, cols); }
  static std::vector<float> numbers(std::uint32_t step, float growth) {
    std::vector<float> list;
    for (std::size_t i = 0; i < rows * cols; ++i)
      list.push_back((2 * unit_float(random_word({.seed = 7, .step = step}, i)) - 1) *
                     (i / cols % 9 == 4 ? growth : 1));
    return list;
  }
  static std::vector<float> inputs(std::uint32_t step, float growth = 1) {
    return numbers(step, growth);
  }
  static std::vector<float> targets(std::uint32_t step) { return numbers(step + 1000, 1); }
};

struct Trained {
  std::vector<double> losses;
  std::vector<float> params;
};

/// What the parameters are at first; the same for every plan.
template <class Case>
std::vector<float> initial_params();

/// Steps on the CPU, under the policies of the types.
template <class Case>
Trained cpu_train(int count);
/// Of the GPT under a named plan, and of others under a named_plan().
Trained cpu_train_gpt(const std::string& plan, int count);
template <class Case>
Trained cpu_train_open(const std::string& plan, int count);

/// Writes the parameters of a Decoder as Hugging Face has them, and reads such a file into those of an Adapted.
Error write_decoder(const std::string& path, const std::vector<float>& params);
Error read_adapted(const std::string& path, View<float> params);

/// Gradient errors of all classes of a Deep with these parameters, probed on its first batch by the CPU.
std::vector<double> cpu_errors(const std::vector<float>& params);
GradientSketch cpu_sketch(const std::vector<float>& gradient, const RandomKey& key);

/// What a codec of the CPU's says that it saw, from its blob, and of the rows of x.
template <class T>
CodecStatistics cpu_seen(const std::string& codec, const std::vector<T>& x,
                         const std::vector<std::byte>& blob, Shape shape);

/// The CPU's bytes for an activation of float or bfloat16; empty if it has no such codec.
template <class T>
std::vector<std::byte> cpu_encode(const std::string& codec, const RandomKey& key,
                                  const std::vector<T>& x, Shape shape, std::size_t bytes);

}  // namespace steps
