/// The exact planner: branch and bound over the policies of every activation.
///
/// Depends on nothing, works in constant expressions, and proves what it finds. For graphs of a
/// dozen open activations or two; on larger ones its deadline, or its limit of nodes, ends the
/// search, and it returns the best plan found with the gap to its bound.
#pragma once

#include <cstddef>

#include "../outcome.hpp"
#include "../request.hpp"
#include "search.hpp"
#include "smallest.hpp"

namespace adacc { inline namespace v0_1 {

/// The fastest plan of `graph` within `request`; of equally fast ones that with the smaller peak of
/// live bytes, then with the smaller error. With a gap of 0 the search ends at the optimum. Looks
/// at `most_nodes` partial plans; where the request brings a clock, its deadline alone counts.
constexpr Result<PlanOutcome> plan_exactly(const Graph& graph, const CostProfile& profile,
                                           const PlanRequest& request, std::size_t most_nodes) {
  if (const Error why = check(graph, profile, request)) return why;
  const double start = request.now == nullptr ? 0 : request.now();
  detail::SearchLimits limits;
  limits.budget_bytes = request.budget_bytes;
  limits.tolerance = request.tolerance;
  limits.gap = request.gap;
  limits.most_nodes = request.now == nullptr ? most_nodes : static_cast<std::size_t>(-1);
  limits.now = request.now;
  limits.deadline = start + request.deadline_seconds;
  limits.give_up = start + request.deadline_seconds * 0.75;  // the rest is for the smallest plan
  detail::SearchResult result = detail::Search(graph, profile, limits).run();
  Error note;
  if (!result.found) {
    PlanRequest rest = request;
    if (request.now != nullptr) {
      const double left = limits.deadline - request.now();
      rest.deadline_seconds = left > 0 ? left : 0;
    }
    SmallestPlan smallest = smallest_plan(graph, profile, rest, most_nodes);
    if (smallest.arena_bytes > request.budget_bytes) return over_budget(graph, request, smallest);
    note = Error::say("the search for the fastest plan ended early: this is the smallest one");
    result.plan = static_cast<Plan&&>(smallest.plan);
  }
  PlanOutcome outcome = finish_outcome(graph, profile, request, static_cast<Plan&&>(result.plan),
                                       result.bound_seconds, "exact");
  outcome.note = note;
  outcome.timed_out = !result.finished;
  if (request.now != nullptr) outcome.solve_seconds = request.now() - start;
  return outcome;
}

/// A Planner.
constexpr Result<PlanOutcome> plan_exactly(const Graph& graph, const CostProfile& profile,
                                           const PlanRequest& request) {
  return plan_exactly(graph, profile, request, 1000000);
}

}}  // namespace adacc::v0_1
