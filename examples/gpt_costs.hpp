/// What a GPT's step costs on a machine that is described by two numbers.
///
/// For models that cannot be measured because they are larger than this machine. Matrix products
/// take their floating-point operations over the machine's rate of products, everything else its
/// bytes over the memory's bandwidth; a codec takes what it takes beside a copy of its floats.
/// Times that were measured (--profile) are better wherever there are any.
///
/// Gradient errors are those that bench/gradient_error measures per kind of activation on its
/// reference model (docs/codecs.md), each kind's divided among the layers of this model. They stand
/// in until the errors of the model itself are probed.
#pragma once

#include <adacc/cost/profile.hpp>

#include <cstring>
#include <random>

namespace gpt {

struct Machine {
  double gflops = 100;  ///< 1e9 floating-point operations a second in matrix products
  double gbps = 20;     ///< 1e9 bytes a second, read plus written
};
/// As one thread has them of the processors that this was written on.
inline constexpr Machine one_thread{60, 8};

inline bool is(const adacc::Node& node, const char* name) {
  return std::strcmp(node.name, name) == 0;
}

/// The relative squared gradient error of a kind of activation in all layers together.
struct KindError {
  double bf16, int8, int4;
  double of(const adacc::CodecInfo& codec) const {
    if (codec.lossless) return 0;
    if (std::strncmp(codec.name, "int4", 4) == 0) return int4;
    if (std::strncmp(codec.name, "int8", 4) == 0) return int8;
    return bf16;
  }
};

/// The kind of activation k, by its producer and its reader.
inline KindError error_of_kind(const adacc::Graph& graph, int k) {
  const adacc::Node& node = graph.node(k);
  const auto read_by = [&](const char* name) {
    return k + 1 < graph.node_count() && is(graph.node(k + 1), name);
  };
  if (read_by("causal_attention")) return {3.2e-6, 3.1e-5, 9.0e-3};  // q, k and v
  if (is(node, "causal_attention")) return {1.4e-7, 1.4e-6, 3.8e-4};
  if (read_by("gelu")) return {8.6e-8, 2.9e-6, 8.9e-4};
  if (is(node, "gelu")) return {5.9e-8, 5.1e-7, 1.3e-4};
  if (is(node, "layer_norm")) return {2.4e-7, 1.8e-6, 5.0e-4};
  return {2.2e-7, 2.2e-6, 5.8e-4};  // the residual stream
}

/// Writes the reference model's gradient errors into a profile of a GPT's graph. What is computed
/// again from lossy values is taken to suffer twice what its own encoding would.
inline void assume_errors(const adacc::Graph& graph, adacc::CostProfile& profile) {
  int last = 0;
  for (const adacc::Node& node : graph.nodes) last = node.copy > last ? node.copy : last;
  for (int k = 0; k < graph.node_count(); ++k)
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      adacc::CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
      cost.error = error_of_kind(graph, k).of(*profile.codecs[c]) / (last + 1);
      cost.carried_error = 2 * cost.error;
    }
}

/// Floating-point operations of a node's forward pass, in matrix products.
inline double product_flops(const adacc::Node& node) {
  const auto rows = static_cast<double>(node.output.rows());
  const auto out = static_cast<double>(node.output.cols());
  if (is(node, "linear")) return 2 * rows * static_cast<double>(node.input.cols()) * out;
  // Two products over the tokens so far, half of the sequence on average.
  if (is(node, "causal_attention")) return 2 * rows * static_cast<double>(node.input[1]) * out;
  return 0;
}

/// The profile of `graph`, which must be a GPT's, on `machine`.
inline adacc::CostProfile estimated_costs(const adacc::Graph& graph, const Machine& machine = {}) {
  adacc::CostProfile profile = adacc::empty_profile(graph);
  const double flop = 1e-9 / machine.gflops, byte = 1e-9 / machine.gbps;
  const auto seconds = [&](double flops, double bytes) {
    return flops * flop > bytes * byte ? flops * flop : bytes * byte;
  };
  for (int k = 0; k < graph.node_count(); ++k) {
    const adacc::Node& node = graph.node(k);
    const auto out = static_cast<double>(node.output_bytes);
    const double in = node.takes_tokens ? out : static_cast<double>(node.input.elems()) * 4;
    const double flops = product_flops(node);
    adacc::NodeCost& cost = profile.nodes[static_cast<std::size_t>(k)];
    cost.forward = seconds(flops, in + out);
    cost.backward = seconds(2 * flops, 2 * (in + out));
    cost.add = cost.add_gradient = 3 * out * byte;
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      adacc::CodecCost& codec = profile.codec_cost(k, static_cast<int>(c));
      const double copy = 2 * out * byte;  // the time of copying the floats
      codec.encode = 1.0 * copy;
      codec.decode = 0.8 * copy;
    }
  }
  assume_errors(graph, profile);
  // The head's weights are channels x vocabulary; three products with them make the loss.
  double logits = 0;
  for (std::size_t i = 0; i < graph.loss.parameter_count; ++i)
    logits += static_cast<double>(graph.parameters[graph.loss.first_parameter + i].shape.elems());
  profile.loss = seconds(6 * static_cast<double>(graph.output().rows()) * logits, 0);
  profile.rest = 28 * static_cast<double>(graph.parameter_elems) * byte;  // AdamW's 7 floats
  return profile;
}

/// Scales every time of `profile` by 1 plus or minus at most `jitter`, each by its own draw: as if
/// equal blocks had been measured each by itself.
inline void shake(adacc::CostProfile& profile, double jitter) {
  std::mt19937 random(1);
  const auto shaken = [&](double& seconds) {
    const double unit = static_cast<double>(random() >> 8) / 8388608.0 - 1;
    seconds *= 1 + jitter * unit;
  };
  for (adacc::NodeCost& cost : profile.nodes)
    for (double* time : {&cost.forward, &cost.backward, &cost.add, &cost.add_gradient})
      shaken(*time);
  for (adacc::CodecCost& cost : profile.codec_costs)
    for (double* time : {&cost.encode, &cost.decode}) shaken(*time);
}

}  // namespace gpt
