// SPDX-License-Identifier: MIT
/// The planner to call: exhaustive if that ends at once, by segments for everything larger.
#pragma once

#include <cstddef>

#include "arena.hpp"
#include "offload.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The smallest plan that make_plan() falls back to.
[[gnu::cold]] inline void propose_smallest(const Graph& graph, const CostProfile& profile,
                                           const PlanRequest& request, Proposals& proposals) {
  if (searches_all(graph, request))
    proposals.offer_smallest(smallest_plan(graph, profile, request.tolerance), exhaustive);
  if (!proposals.smallest().proven()) {
    const ChainTuning tuning;
    const ChainTables tables(graph, profile, tuning);
    ChainPlanner(tables, graph, profile, request, {}, tuning, proposals).propose_smallest();
  }
  if (request.link.exists()) OffloadPlanner(graph, profile, request, proposals).propose_smallest();
}

}  // namespace detail

/// A Planner.
[[gnu::cold]] inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                                   const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  if (!request.link.exists()) {
    detail::ArenaPlanner(graph, profile).search(request, proposals);
    return proposals.outcome();
  }
  if (!proposals.retain_fits()) detail::OffloadPlanner(graph, profile, request, proposals).search();
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
