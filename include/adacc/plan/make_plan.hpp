/// The planner to call: exact search where it ends at once, patterns for everything larger.
#pragma once

#include <cstddef>

#include "direct.hpp"
#include "pattern_planner.hpp"

namespace adacc::inline v0_1 {

/// Open activations up to which the exact search is quick.
inline constexpr std::size_t few_open_activations = 8;

namespace detail {

inline bool few_open(const Graph& graph) {
  std::size_t open = 0;
  for (const Node& node : graph.nodes) open += node.policy.kind == PolicyKind::planned ? 1U : 0U;
  return open <= few_open_activations;
}

}  // namespace detail

/// A Planner. Solvers that are linked, as that on lp_solve, are called by their own names: every
/// planner keeps the same contract.
inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request) {
  if (detail::few_open(graph) || graph.by_hand) {
    Result<PlanOutcome> exact = plan_exactly(graph, profile, request);
    if (!exact || !exact->timed_out || graph.by_hand) return exact;
  }
  return plan_by_patterns(graph, profile, request);
}

/// The smallest budget that make_plan() can meet within request.tolerance, whatever the request's
/// own budget. Fails where the request or the profile make no sense.
inline Result<std::size_t> smallest_peak(const Graph& graph, const CostProfile& profile,
                                         const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  if (detail::few_open(graph) || graph.by_hand)
    return smallest_plan(graph, profile, request).arena_bytes;
  return detail::PatternPlanner(graph, profile, request).smallest_arena();
}

}  // namespace adacc::inline v0_1
