// SPDX-License-Identifier: MIT
/// A plan: one policy for every activation of a graph.
///
/// Plans come from types, from the caller, or from a planner; schedule and layout do not care.
/// Policies are indexed by activation id, so copies of a repeated block may differ.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

struct Plan {
  Array<Policy> policies;   ///< one per activation; none is `planned`
  std::size_t version = 1;  ///< grows with every change while training runs
  /// Live bytes to stay within by sending activations to a store, no more than needed; 0: as few
  /// live bytes as possible. Means nothing if no policy travels.
  std::size_t room_bytes = 0;
  Fingerprint made_for;  ///< the graph's; unknown if the caller wrote the policies down

  constexpr const Policy& operator[](int activation) const {
    return policies[static_cast<std::size_t>(activation)];
  }
};

/// The plan spelled out by the types of a model. Policies still open (`Planned`) become `open`.
constexpr Plan plan_from_types(const Graph& graph, Policy open = retain()) {
  Plan plan;
  plan.made_for = graph.fingerprint;
  plan.policies.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes)
    plan.policies.push_back(node.policy.planned() ? open : node.policy);
  return plan;
}

/// The plan to retain every activation.
constexpr Plan retain_all(const Graph& graph) {
  Plan plan;
  plan.made_for = graph.fingerprint;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) plan.policies.push_back(retain());
  return plan;
}

namespace detail {

/// A codec without values may serve only backward readers naming it, and nothing may be recomputed
/// from its blobs.
constexpr Error check_readers(const Graph& graph, const Plan& plan, int id) {
  const Node& node = graph.node(id);
  const CodecInfo* codec = plan[id].codec();
  const bool named = graph.candidates_of(node).contains(codec);
  if (!named && node.read_in_backward)
    return Error::say("the codec ", codec->name,
                      " keeps no values, and a layer whose backward "
                      "reads activation ",
                      id, " (", node.name, ") needs them");
  for (int k = id + 1; k < graph.node_count(); ++k) {
    if (!plan[k].recomputes()) continue;
    bool reads = false;
    graph.forward_reads(k, [&](int source) { reads |= source == id; });
    if (reads)
      return Error::say("the codec ", codec->name, " keeps no values, and activation ", k, " (",
                        graph.node(k).name, ") is recomputed from activation ", id, " (", node.name,
                        "): keep one of them otherwise");
  }
  return {};
}

}  // namespace detail

/// Whether the plan recomputes any activation more than once.
constexpr bool is_nested(const Plan& plan) {
  for (const Policy& policy : plan.policies)
    if (policy.runs() > 1) return true;
  return false;
}

/// An error if `plan` cannot govern `graph`.
constexpr Error examine(const Graph& graph, const Plan& plan) {
  if (const Error why = examine(graph)) return why;
  if (plan.policies.size() != graph.nodes.size())
    return Error::say("the plan has ", plan.policies.size(), " policies, and the graph has ",
                      graph.nodes.size(), " activations");
  if (const Error why = detail::check_made_for("plan", plan.made_for, graph.fingerprint))
    return why;
  const bool nested = is_nested(plan);
  if (nested && graph.parts > 1)
    return Error::say("the plan recomputes activations more than once, and layers are in ",
                      graph.parts, " parts: only whole layers can be");
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    const Policy& policy = plan.policies[i];
    if (nested && policy.travels())
      return Error::say("the plan recomputes activations more than once, and sends activation ", i,
                        " (", graph.nodes[i].name, ") to a store: a plan can do one of both");
    if (policy.planned())
      return Error::say("the plan leaves activation ", i, " (", graph.nodes[i].name,
                        ") open: it must be kept in some form, or recomputed");
    if (policy.recomputes() && !graph.nodes[i].recomputable)
      return Error::say("the plan recomputes activation ", i, " (", graph.nodes[i].name,
                        "), and nothing says how");
    const Shape shape = graph.nodes[i].output;
    if (policy.codec() != nullptr && policy.form().bytes(shape, graph.scalar) == 0)
      return Error::say("the codec ", policy.codec()->name, " cannot encode activation ", i, " (",
                        graph.nodes[i].name, "), ", name_of(graph.scalar), " ", shape);
    if (policy.keeps() && !policy.form().keeps_values())
      if (const Error why = detail::check_readers(graph, plan, static_cast<int>(i))) return why;
  }
  return {};
}

/// For each activation, whether backward needs the value: to read, or to produce another again.
constexpr Array<bool> needed_in_backward(const Graph& graph, const Plan& plan) {
  Array<bool> needed(graph.nodes.size());
  for (int k = graph.node_count() - 1; k >= 0; --k) {
    for (const int id : graph.backward_reads(k)) needed[static_cast<std::size_t>(id)] = true;
    if (!needed[static_cast<std::size_t>(k)] || !plan[k].recomputes()) continue;
    for (const IdSpan read : {graph.sources(k), graph.adds(k)})
      for (const int id : read)
        if (id != step_input) needed[static_cast<std::size_t>(id)] = true;
  }
  return needed;
}

}}  // namespace adacc::v0_1
