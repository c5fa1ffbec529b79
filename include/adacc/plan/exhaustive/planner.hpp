// SPDX-License-Identifier: MIT
/// The exhaustive planner: branch and bound over the policies of every activation.
///
/// The planner depends on nothing, works in constant expressions, and proves its results, for graphs of a
/// dozen open activations or two. In larger graphs, a deadline or a limit of nodes ends the search: the
/// result is the best plan found, with the gap to the bound.
#pragma once

#include <cstddef>

#include "../proposals.hpp"
#include "../request.hpp"
#include "../simple_plans.hpp"
#include "../tuning.hpp"
#include "search.hpp"

namespace adacc { inline namespace v0_1 {

/// The plan with the smallest arena among plans within `tolerance`; without a plan if none is found. Looks at
/// `most_nodes` partial plans at most (0: as many as take about a second), as far as there is time.
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

/// Proposes the fastest plan found before `deadline` in `most_nodes` partial plans; if there is none, the
/// smallest, in Proposals::shared_time(). Returns true if the whole tree was searched.
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

/// The fastest plan of `graph` within `request`; among equally fast ones, the one with the smallest peak of
/// live bytes, then with the smallest error. With a gap of 0 the search ends at the optimum. The search is
/// limited to `most_nodes` partial plans or, if the request has a clock, by the deadline alone.
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
