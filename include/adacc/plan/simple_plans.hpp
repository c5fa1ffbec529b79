// SPDX-License-Identifier: MIT
/// Plans with small arenas, made without a search, for when time is up.
#pragma once

#include <cstddef>

#include "../cost/sparse_plans.hpp"
#include "proposals.hpp"
#include "tuning.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The plan that keeps every `stride`th of `sites`, checkpoint_sites(graph), and recomputes the other open
/// activations if possible. With a stride above the number of sites, all are recomputed from the step's input.
constexpr Plan simple_plan(const Graph& graph, const Array<int>& sites, std::size_t stride,
                           Kept kept) {
  Plan plan = checkpointed(graph, sites, stride, kept);
  if (stride > sites.size()) plan.policies[static_cast<std::size_t>(sites[0])] = recompute();
  const Plan types = plan_from_types(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    Policy& policy = plan.policies[static_cast<std::size_t>(k)];
    if (!node.policy.planned()) policy = types[k];
    else if (policy.recomputes() && !node.recomputable) policy = kept_policy(graph, k, kept);
  }
  return plan;
}

/// If time is up, proposes simple plans, first those with usually the smallest arenas, until one meets the
/// request, or all if the `smallest` is wanted. At least one; others only in SimpleTuning's overtime.
[[gnu::cold]] constexpr void propose_simple(const Graph& graph, bool smallest, const char* by,
                                            Proposals& proposals) {
  if (!proposals.time().passed()) return;
  const Array<int> sites = checkpoint_sites(graph);
  std::size_t middle = 1;
  while (middle * middle < sites.size()) middle *= 2;
  bool first = true;
  for (std::size_t off = 1; off <= middle; off *= 2)
    for (const std::size_t stride : {middle * off, middle / off})
      for (const Kept kept : {Kept::coarse, Kept::precise, Kept::whole}) {
        if (!smallest && proposals.found()) return;
        const Plan plan = simple_plan(graph, sites, stride, kept);
        if (!proposals.tolerates(plan)) continue;
        if (!first && proposals.deadline().passed_by(SimpleTuning::overtime_share,
                                                     SimpleTuning::overtime_seconds))
          return;
        first = false;
        proposals.offer_known(plan, by);
      }
}

}}}  // namespace adacc::v0_1::detail
