/// Of the plans that are as fast as a planner's, one of least gradient error.
///
/// A planner minimizes time within a tolerance, and spends all of the tolerance where that buys a
/// microsecond. Training is better served by the other order: no slower than planned (within the
/// gap that the planner is asked for), and then as exact as that allows.
#pragma once

#include "request.hpp"

namespace adacc { inline namespace v0_1 {

/// Asks `planner` once for the fastest plan within `request`, and then, with the tolerance lowered
/// by bisection, up to `rounds` times for one with less error and at most a share request.gap more
/// time. The first outcome decides what is feasible: an error is the planner's own.
constexpr Result<PlanOutcome> plan_least_error(Planner planner, const Graph& graph,
                                               const CostProfile& profile, PlanRequest request,
                                               int rounds = 6) {
  Result<PlanOutcome> best = planner(graph, profile, request);
  if (!best) return best;
  const double most_seconds = best->seconds * (1 + request.gap);
  double low = 0;
  request.tolerance = 0;
  for (int i = 0; i < rounds && best->error > low; ++i) {
    Result<PlanOutcome> outcome = planner(graph, profile, request);
    if (outcome && outcome->seconds <= most_seconds) {
      if (outcome->error < best->error) best = static_cast<Result<PlanOutcome>&&>(outcome);
    } else {
      low = request.tolerance;
    }
    // Errors span orders of magnitude, so the first steps go down by more than halves.
    request.tolerance = low > 0 ? (low + best->error) / 2 : best->error / 8;
  }
  return best;
}

}}  // namespace adacc::v0_1
