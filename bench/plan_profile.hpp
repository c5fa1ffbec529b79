/// A profile for plans of models that no machine here could run: times from operations and bytes,
/// at rates as measured on one thread, and gradient errors as measured on a small model.
#pragma once

#include <adacc/plan/cost_profile.hpp>

#include <cstring>
#include <random>

namespace plan_profile {

struct Rates {
  double flops = 60e9;   ///< of matrix products, per second
  double bytes = 8e9;    ///< moved by everything else, per second
  double codec = 2.5e9;  ///< bytes of the tensor that a codec encodes, or decodes, per second
};

inline bool is(const char* name, const char* other) { return std::strstr(name, other) != nullptr; }

/// Floating-point operations of a node's forward pass: products only.
inline double flops(const adacc::Node& node) {
  const auto rows = static_cast<double>(node.output.rows());
  const auto in = static_cast<double>(node.input.cols());
  const auto out = static_cast<double>(node.output.cols());
  if (is(node.name, "linear")) return 2 * rows * in * out;
  if (is(node.name, "attention")) return 2 * rows * static_cast<double>(node.input[1]) * out;
  return 0;
}

/// Relative squared gradient error of int4 over all layers of a model: what the activation that
/// feeds `reader` costs.
inline double int4_error(const adacc::Node& node, const char* reader) {
  if (is(reader, "attention")) return 0.022;  // q, k and v
  if (is(node.name, "attention")) return 0.003;
  if (is(reader, "gelu")) return 0.009;
  if (is(node.name, "gelu")) return 0.003;
  if (is(reader, "norm")) return 0.003;
  return 0.006;
}

/// `jitter` scales every time by 1 plus or minus at most that much, each by its own draw.
inline adacc::CostProfile make(const adacc::Graph& graph, double jitter, Rates rates = {}) {
  std::mt19937 random(1);
  const auto shake = [&](double seconds) {
    const double unit = static_cast<double>(random() >> 8) / 8388608.0 - 1;
    return seconds * (1 + jitter * unit);
  };
  adacc::CostProfile profile = adacc::empty_profile(graph);
  const auto elems = [](adacc::Shape shape) { return static_cast<double>(shape.elems()); };
  double total = 0;
  int copies = 1;
  for (const adacc::Node& node : graph.nodes)
    copies = node.copy + 1 > copies ? node.copy + 1 : copies;
  for (int k = 0; k < graph.node_count(); ++k) {
    const adacc::Node& node = graph.node(k);
    adacc::NodeCost& cost = profile.nodes[static_cast<std::size_t>(k)];
    const double moved = 4 * (elems(node.input) + elems(node.output)) / rates.bytes;
    const double product = flops(node) / rates.flops;
    cost.forward = shake(moved + product);
    cost.backward = shake(1.5 * moved + 2 * product);
    cost.add = shake(8 * elems(node.output) / rates.bytes);
    cost.add_gradient = shake(8 * elems(node.output) / rates.bytes);
    total += cost.forward + cost.backward;
    const char* reader = k + 1 < graph.node_count() ? graph.node(k + 1).name : "loss";
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      adacc::CodecCost& codec = profile.codec_cost(k, static_cast<int>(c));
      const char* name = profile.codecs[c]->name;
      const double speed = is(name, "bf16") ? 0.5 : 1;
      codec.encode = shake(speed * 4 * elems(node.output) / rates.codec);
      codec.decode = shake(speed * 3 * elems(node.output) / rates.codec);
      const double scale = is(name, "int4") ? 1 : is(name, "int8") ? 3e-3 : 4e-4;
      codec.error = scale * int4_error(node, reader) / copies;
      codec.carried_error = 2 * codec.error;
    }
  }
  profile.loss = total / (3 * (graph.node_count() + 1));
  profile.rest = 0.02 * total;
  return profile;
}

}  // namespace plan_profile
