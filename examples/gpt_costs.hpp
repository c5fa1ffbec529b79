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

#include <adacc/plan/cost_profile.hpp>

#include <cstring>

#include "gpt.hpp"

namespace gpt {

struct Machine {
  double gflops = 100;  ///< 1e9 floating-point operations a second in matrix products
  double gbps = 20;     ///< 1e9 bytes a second, read plus written
};

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
  const auto is = [&](int node, const char* name) {
    return node >= 0 && node < graph.node_count() && std::strcmp(graph.node(node).name, name) == 0;
  };
  if (is(k + 1, "causal_attention")) return {3.2e-6, 3.1e-5, 9.0e-3};  // q, k and v
  if (is(k, "causal_attention")) return {1.4e-7, 1.4e-6, 3.8e-4};
  if (is(k + 1, "gelu")) return {8.6e-8, 2.9e-6, 8.9e-4};
  if (is(k, "gelu")) return {5.9e-8, 5.1e-7, 1.3e-4};
  if (is(k, "layer_norm")) return {2.4e-7, 1.8e-6, 5.0e-4};
  return {2.2e-7, 2.2e-6, 5.8e-4};  // the residual stream
}

/// Writes the reference model's gradient errors into a profile of a Gpt's graph. What is computed
/// again from lossy values is taken to suffer twice what its own encoding would.
inline void assume_errors(const adacc::Graph& graph, int layers, adacc::CostProfile& profile) {
  for (int k = 0; k < graph.node_count(); ++k)
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      adacc::CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
      cost.error = error_of_kind(graph, k).of(*profile.codecs[c]) / layers;
      cost.carried_error = 2 * cost.error;
    }
}

/// The profile of `graph`, which must be a Gpt's, on `machine`.
inline adacc::CostProfile estimated_costs(const adacc::Graph& graph, const Config& config,
                                          std::size_t time, const Machine& machine) {
  adacc::CostProfile profile = adacc::empty_profile(graph);
  const double flop = 1e-9 / machine.gflops, byte = 1e-9 / machine.gbps;
  const auto seconds = [&](double flops, double bytes) {
    return flops * flop > bytes * byte ? flops * flop : bytes * byte;
  };
  for (int k = 0; k < graph.node_count(); ++k) {
    const adacc::Node& node = graph.node(k);
    const auto out = static_cast<double>(node.output_bytes);
    const double in = node.takes_tokens ? out : static_cast<double>(node.input.elems()) * 4;
    const auto rows = static_cast<double>(node.output.rows());
    double flops = 0;
    if (std::strcmp(node.name, "linear") == 0)
      flops = 2 * rows * static_cast<double>(node.input.cols() * node.output.cols());
    if (std::strcmp(node.name, "causal_attention") == 0)
      flops = 2 * rows * static_cast<double>(time * config.channels);
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
  assume_errors(graph, config.layers, profile);
  const double logits = 2 * static_cast<double>(graph.output().elems() * config.vocab);
  profile.loss = seconds(3 * logits, 0);
  profile.rest = 28 * static_cast<double>(graph.parameter_elems) * byte;  // AdamW's 7 floats
  return profile;
}

}  // namespace gpt
