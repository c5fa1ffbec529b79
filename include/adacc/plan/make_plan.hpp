/// The planner to call: exact search where it ends at once, patterns for everything larger.
#pragma once

#include <cstddef>

#include "chain/planner.hpp"
#include "exhaustive/planner.hpp"

namespace adacc { inline namespace v0_1 {

/// Open activations up to which the exact search is quick.
inline constexpr std::size_t few_open_activations = 8;

namespace detail {

inline bool few_open(const Graph& graph) {
  std::size_t open = 0;
  for (const Node& node : graph.nodes) open += node.policy.planned() ? 1U : 0U;
  return open <= few_open_activations;
}

/// `request` with what is left of its deadline, counted from `start`.
inline PlanRequest remaining(const PlanRequest& request, double start) {
  PlanRequest rest = request;
  if (request.now == nullptr) return rest;
  const double left = request.deadline_seconds - (request.now() - start);
  rest.deadline_seconds = left > 0 ? left : 0;
  return rest;
}

inline double begin(const PlanRequest& request) {
  return request.now == nullptr ? 0 : request.now();
}

}  // namespace detail

/// A Planner. Solvers that are linked, as that on lp_solve, are called by their own names: every
/// planner keeps the same contract.
inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request) {
  if (graph.has_outside()) return plan_exactly(graph, profile, request);
  if (!detail::few_open(graph)) return plan_by_patterns(graph, profile, request);
  // Where the exact search does not end in its share of the time, the rest is for patterns.
  const double start = detail::begin(request);
  PlanRequest share = request;
  share.deadline_seconds /= 2;
  Result<PlanOutcome> exact = plan_exactly(graph, profile, share);
  const bool in_time =
      request.now == nullptr || request.now() - start < 0.75 * share.deadline_seconds;
  if (exact ? !exact->timed_out : in_time) return exact;
  Result<PlanOutcome> found = plan_by_patterns(graph, profile, detail::remaining(request, start));
  if (!found || (exact && exact->seconds <= found->seconds)) found = exact;
  if (found && request.now != nullptr) found->solve_seconds = request.now() - start;
  return found;
}

/// The smallest known budget that make_plan() can meet within request.tolerance; the request's own
/// budget must make sense, but says nothing here. Fails where the request or the profile make no
/// sense.
inline Result<std::size_t> smallest_peak(const Graph& graph, const CostProfile& profile,
                                         const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  if (detail::few_open(graph) || graph.has_outside())
    return smallest_plan(graph, profile, request).arena_bytes;
  return detail::PatternPlanner(graph, profile, request).smallest_arena();
}

/// As make_plan(); fills `smallest_peak_bytes` with smallest_peak(), and does once what both need.
inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request, std::size_t& smallest_peak_bytes) {
  if (const Error why = check(graph, profile, request)) return why;
  if (detail::few_open(graph) || graph.has_outside()) {
    const double start = detail::begin(request);
    smallest_peak_bytes = smallest_plan(graph, profile, request).arena_bytes;
    return make_plan(graph, profile, detail::remaining(request, start));
  }
  detail::PatternPlanner planner(graph, profile, request);
  smallest_peak_bytes = planner.smallest_arena();
  return planner.run();
}

}}  // namespace adacc::v0_1
