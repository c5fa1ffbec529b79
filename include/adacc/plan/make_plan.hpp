// SPDX-License-Identifier: MIT
/// The planner to call: exhaustive if that ends at once, by segments for everything larger.
#pragma once

#include <cstddef>

#include "chain/planner.hpp"
#include "exhaustive/planner.hpp"
#include "offload.hpp"

namespace adacc { inline namespace v0_1 {

/// Open activations up to which the exhaustive search is quick.
inline constexpr std::size_t few_open_activations = 8;

namespace detail {

inline bool searches_all(const Graph& graph, const PlanRequest& request) {
  std::size_t open = 0;
  for (const Node& node : graph.nodes) open += node.policy.planned() ? 1U : 0U;
  return open <= few_open_activations && request.solver != Solver::lp_solve;
}

/// A Planner that does without a store.
[[gnu::cold]] inline Result<PlanOutcome> plan_in_arena(const Graph& graph,
                                                       const CostProfile& profile,
                                                       const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  if (proposals.retain_fits()) return proposals.outcome();
  // If the exhaustive search does not end in its share of the time, the rest is for segments.
  if (searches_all(graph, request) &&
      search_exhaustively(graph, profile, request, proposals.deadline().part(0.5), 500000,
                          proposals) &&
      (proposals.found() || proposals.smallest().proven()))
    return proposals.outcome();
  const ChainTuning tuning;
  ChainPlanner(graph, profile, request, proposals.deadline(), tuning, proposals).search();
  return proposals.outcome();
}

/// The smallest plan that make_plan() falls back to.
[[gnu::cold]] inline void propose_smallest(const Graph& graph, const CostProfile& profile,
                                           const PlanRequest& request, Proposals& proposals) {
  if (searches_all(graph, request))
    proposals.offer_smallest(smallest_plan(graph, profile, request.tolerance), exhaustive);
  if (!proposals.smallest().proven()) {
    const ChainTuning tuning;
    ChainPlanner(graph, profile, request, {}, tuning, proposals).propose_smallest();
  }
  if (request.link.exists())
    OffloadPlanner(graph, profile, request, plan_in_arena, proposals).propose_smallest();
}

}  // namespace detail

/// A Planner.
[[gnu::cold]] inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                                   const PlanRequest& request) {
  if (!request.link.exists()) return detail::plan_in_arena(graph, profile, request);
  if (const Error why = check(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  if (!proposals.retain_fits())
    detail::OffloadPlanner(graph, profile, request, detail::plan_in_arena, proposals).search();
  if (!proposals.found()) detail::propose_smallest(graph, profile, request, proposals);
  return proposals.outcome();
}

/// The smallest known budget that make_plan() can meet within request.tolerance; the request's own
/// budget must make sense, but says nothing here. Fails if the request or the profile make no
/// sense.
[[gnu::cold]] inline Result<std::size_t> smallest_peak(const Graph& graph,
                                                       const CostProfile& profile,
                                                       const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  detail::propose_smallest(graph, profile, request, proposals);
  return proposals.smallest().arena_bytes;
}

}}  // namespace adacc::v0_1
