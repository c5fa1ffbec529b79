/// The planner to call: exact search where it ends at once, patterns for everything larger.
#pragma once

#include <cstddef>

#include "direct.hpp"
#include "pattern_planner.hpp"

namespace adacc {

/// Open activations up to which the exact search is quick.
inline constexpr std::size_t few_open_activations = 8;

/// A Planner. Solvers that are linked, as that on lp_solve, are called by their own names: every
/// planner keeps the same contract.
inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request) {
  std::size_t open = 0;
  for (const Node& node : graph.nodes) open += node.policy.kind == PolicyKind::planned ? 1U : 0U;
  if (open <= few_open_activations) {
    Result<PlanOutcome> exact = plan_exactly(graph, profile, request);
    if (!exact || !exact->timed_out) return exact;
  }
  return plan_by_patterns(graph, profile, request);
}

}  // namespace adacc
