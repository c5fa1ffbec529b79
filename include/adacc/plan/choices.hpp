// SPDX-License-Identifier: MIT
/// The options of each activation, which are policies, and the cost of each by itself.
///
/// Seconds and stored bytes of a policy depend on the activation alone, if backward needs the activation.
/// This need depends on which others are recomputed from the activation.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../cost/profile.hpp"
#include "../program/plan.hpp"

namespace adacc { inline namespace v0_1 {

/// The forms in which activation `id` may be kept if its type leaves the form open: as is, then encoded by
/// each of the candidates, without repetition.
constexpr Array<Form> forms_of(const Graph& graph, int id) {
  Array<Form> forms;
  forms.push_back(Form{});
  const CodecSpan codecs = graph.candidates_of(id);
  for (std::size_t i = 0; i < codecs.count; ++i) {
    bool known = false;
    for (const Form& other : forms) known = known || other.codec == codecs[i];
    if (!known) forms.push_back(Form{codecs[i]});
  }
  return forms;
}

/// The policies that activation `id` may have: the one fixed by its type, or else keep, in each of
/// forms_of(), and then recompute.
constexpr Array<Policy> policies_of(const Graph& graph, int id) {
  const Node& node = graph.node(id);
  Array<Policy> policies;
  if (!node.policy.planned()) {
    policies.push_back(node.policy);
    return policies;
  }
  for (const Form& form : forms_of(graph, id)) policies.push_back(keep(form));
  if (node.recomputable) policies.push_back(recompute());
  return policies;
}

/// Bytes of the arena taken by activation `id` from forward to backward under `policy`, alignment included.
constexpr std::size_t stored_bytes(const Graph& graph, int id, const Policy& policy) {
  if (!policy.keeps() || policy.travels()) return 0;
  const Node& node = graph.node(id);
  return align_up(policy.form().encoded() ? policy.form().bytes(node.output, graph.scalar)
                                          : node.output_bytes);
}

/// Seconds that `policy` adds to a step in which backward needs activation `id`. A forward with several
/// outputs is charged to the last one, so recomputing only the others is underestimated.
constexpr double seconds_of(const Graph& graph, const CostProfile& profile, int id,
                            const Policy& policy) {
  const NodeCost& cost = profile.node(id);
  if (policy.recomputes())
    return graph.made_with_next(id)
               ? 0
               : profile.node(graph.maker_of(id)).forward +
                     cost.add * static_cast<double>(graph.separate_add_count(id));
  const int column = policy.codec() == nullptr ? -1 : profile.column(policy.codec());
  if (column < 0) return 0;
  return profile.codec_cost(id, column).encode + profile.codec_cost(id, column).decode;
}

/// The gradient error added by keeping activation `id` in its form under `policy`. Errors of others, carried by
/// recomputed activations, are not counted here.
constexpr double error_of(const Graph& graph, const CostProfile& profile, int id,
                          const Policy& policy) {
  if (!policy.keeps() || policy.form().lossless() || !graph.node(id).read_in_backward) return 0;
  const int column = profile.column(policy.codec());
  return column < 0 ? 0 : profile.codec_cost(id, column).error;
}

}}  // namespace adacc::v0_1
