/// What each activation may become, and what that costs by itself.
///
/// Seconds and stored bytes of a policy depend on the activation alone, given that backward needs
/// it; whether it does depends on what is recomputed from it.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../cost/profile.hpp"
#include "../program/plan.hpp"

namespace adacc { inline namespace v0_1 {

/// The policies among which activation `id` is chosen: the one that its type fixes, or else
/// retain, every candidate codec, recompute, in this order.
constexpr Array<Policy> policies_of(const Graph& graph, int id) {
  const Node& node = graph.node(id);
  Array<Policy> policies;
  if (node.policy.kind != PolicyKind::planned) {
    policies.push_back(node.policy);
    return policies;
  }
  policies.push_back({PolicyKind::retain, nullptr});
  const CodecSpan codecs = graph.candidates_of(node);
  for (std::size_t i = 0; i < codecs.count; ++i) {
    const Policy policy{PolicyKind::compress, codecs[i]};
    bool known = false;
    for (const Policy& other : policies) known = known || other == policy;
    if (!known) policies.push_back(policy);
  }
  if (node.recomputable) policies.push_back({PolicyKind::recompute, nullptr});
  return policies;
}

/// Bytes of activation `id` from forward to backward under `policy`, alignment included.
constexpr std::size_t stored_bytes(const Graph& graph, int id, const Policy& policy) {
  const Node& node = graph.node(id);
  if (policy.kind == PolicyKind::recompute) return 0;
  if (policy.kind != PolicyKind::compress) return align_up(node.output_bytes);
  return align_up(
      policy.codec->encoded_bytes(node.output.rows(), node.output.cols(), graph.scalar));
}

/// Seconds that `policy` adds to a step in which backward needs activation `id`.
constexpr double seconds_of(const Graph& graph, const CostProfile& profile, int id,
                            const Policy& policy) {
  const NodeCost& cost = profile.node(id);
  if (policy.kind == PolicyKind::recompute)
    return cost.forward + cost.add * static_cast<double>(graph.node(id).add_count);
  const int column = policy.codec == nullptr ? -1 : profile.column(policy.codec);
  if (column < 0) return 0;
  return profile.codec_cost(id, column).encode + profile.codec_cost(id, column).decode;
}

/// For each activation, whether backward needs it: to read it, or to produce another again.
constexpr Array<bool> needed_in_backward(const Graph& graph, const Plan& plan) {
  Array<bool> needed(graph.nodes.size());
  for (int k = graph.node_count() - 1; k >= 0; --k) {
    const auto need = [&](int id) { needed[static_cast<std::size_t>(id)] = true; };
    graph.backward_reads(k, need);
    if (!needed[static_cast<std::size_t>(k)] || plan[k].kind != PolicyKind::recompute) continue;
    graph.forward_reads(k, need);
  }
  return needed;
}

}}  // namespace adacc::v0_1
