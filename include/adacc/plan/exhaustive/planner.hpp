// SPDX-License-Identifier: MIT
/// The exhaustive planner: branch and bound over the policies of every activation.
///
/// Depends on nothing, works in constant expressions, and proves what it finds. For graphs of a
/// dozen open activations or two; on larger ones its deadline, or its limit of nodes, ends the
/// search, and it returns the best plan found with the gap to its bound.
#pragma once

#include <cstddef>

#include "../proposals.hpp"
#include "../request.hpp"
#include "../simple_plans.hpp"
#include "../tuning.hpp"
#include "search.hpp"

namespace adacc { inline namespace v0_1 {

/// The plan with the smallest arena among those within `tolerance`. Looks at `most_nodes` partial
/// plans (0: as many as take about a second at most), as far as there is time. Without a plan if it found
/// none by then.
[[gnu::cold]] constexpr SmallestPlan smallest_plan(const Graph& graph, const CostProfile& profile,
                                                   double tolerance, std::size_t most_nodes = 0,
                                                   PacerRef time = {}) {
  if (most_nodes == 0) most_nodes = ExhaustiveTuning::smallest_nodes(graph.nodes.size());
  detail::SearchLimits limits;
  limits.goal = detail::Goal::arena_bytes;
  limits.tolerance = tolerance;
  limits.most_nodes = most_nodes;
  limits.most_ties = ExhaustiveTuning::most_ties(most_nodes);
  limits.time = limits.give_up = time;
  detail::SearchResult result = detail::Search(graph, profile, limits).run();
  return {static_cast<Plan&&>(result.plan), result.arena_bytes, result.least_bytes};
}

namespace detail {

constexpr const char* exhaustive = "exhaustive";

/// Proposes the fastest plan that it finds before `deadline` in `most_nodes` partial plans; if
/// there is none, the smallest, in Proposals::shared_time(). Returns whether it looked at
/// all.
[[gnu::cold]] constexpr bool search_exhaustively(const Graph& graph, const CostProfile& profile,
                                                 const PlanRequest& request,
                                                 const Deadline& deadline, std::size_t most_nodes,
                                                 Proposals& proposals) {
  SearchLimits limits;
  limits.budget_bytes = request.budget_bytes;
  limits.tolerance = request.tolerance;
  limits.gap = request.gap;
  limits.most_nodes = request.clock ? static_cast<std::size_t>(-1) : most_nodes;
  Pacer time(deadline), give_up(deadline.part(ExhaustiveTuning::give_up));
  limits.time = time;
  limits.give_up = give_up;
  SearchResult result = Search(graph, profile, limits).run();
  if (result.found) {
    static_cast<void>(proposals.offer(static_cast<Plan&&>(result.plan), exhaustive));
    proposals.raise_bound(result.bound_seconds, exhaustive);
  } else {
    proposals.offer_smallest(
        smallest_plan(graph, profile, request.tolerance, 0, proposals.shared_time()), exhaustive);
    if (!proposals.found()) return result.finished;
    proposals.raise_bound(result.bound_seconds, exhaustive);
    proposals.note(
        Error::say("the search for the fastest plan ended early: this is the smallest one"));
  }
  if (!result.finished) proposals.time_out();
  if (request.least_error && proposals.best().cost.error > 0) {
    limits.goal = Goal::error;
    limits.most_seconds = proposals.seek_least_error();
    limits.tolerance = proposals.best().cost.error;
    limits.give_up = time;
    SearchResult least = Search(graph, profile, limits).run();
    if (least.found)
      static_cast<void>(proposals.offer(static_cast<Plan&&>(least.plan), exhaustive));
  }
  return result.finished;
}

}  // namespace detail

/// The fastest plan of `graph` within `request`; of equally fast ones that with the smaller peak of
/// live bytes, then with the smaller error. With a gap of 0 the search ends at the optimum. Looks
/// at `most_nodes` partial plans; if the request brings a clock, its deadline alone counts.
constexpr Result<PlanOutcome> plan_exhaustively(const Graph& graph, const CostProfile& profile,
                                                const PlanRequest& request,
                                                std::size_t most_nodes) {
  if (const Error why = examine(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  static_cast<void>(detail::search_exhaustively(graph, profile, request, proposals.deadline(),
                                                most_nodes, proposals));
  detail::propose_simple(graph, false, detail::exhaustive, proposals);
  return proposals.outcome();
}

/// A Planner.
constexpr Result<PlanOutcome> plan_exhaustively(const Graph& graph, const CostProfile& profile,
                                                const PlanRequest& request) {
  return plan_exhaustively(graph, profile, request, ExhaustiveTuning::most_nodes);
}

}}  // namespace adacc::v0_1
