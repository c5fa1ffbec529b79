// SPDX-License-Identifier: MIT
/// The planner to call: exhaustive if that ends at once, by segments for everything larger.
#pragma once

#include <cstddef>

#include "arena.hpp"
#include "offload.hpp"

namespace adacc { inline namespace v0_1 {

/// A Planner.
[[gnu::cold]] inline Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                                   const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  if (!request.link.exists()) {
    detail::ArenaPlanner(graph, profile).search(request, proposals);
    return proposals.outcome();
  }
  detail::OffloadPlanner planner(graph, profile, request, proposals);
  if (!proposals.retain_fits()) planner.search();
  if (!proposals.found()) planner.propose_smallest();
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
  if (request.link.exists())
    detail::OffloadPlanner(graph, profile, request, proposals).propose_smallest();
  else detail::ArenaPlanner(graph, profile).propose_smallest(request, proposals);
  return proposals.smallest().arena_bytes;
}

}}  // namespace adacc::v0_1
