// SPDX-License-Identifier: MIT
/// The definitions of make_plan() and smallest_peak(), with all ways to search, which compile slowly.
/// With ADACC_SEPARATE_PLANNER (core/config.hpp), one source of a program includes this header.
#pragma once

#include <cstddef>

#include "../core/no_memory.hpp"
#include "make_plan.hpp"
#include "offload.hpp"
#include "simple_plans.hpp"
#include "without_store.hpp"

namespace adacc { inline namespace v0_1 {

[[gnu::cold]] ADACC_PLANNER_INLINE Result<PlanOutcome> make_plan(const Graph& graph,
                                                                 const CostProfile& profile,
                                                                 const PlanRequest& request) {
  return detail::or_no_memory("to plan", [&]() -> Result<PlanOutcome> {
    const Deadline deadline(request.clock, request.deadline_seconds);
    if (const Error why = examine(graph, profile, request)) return why;
    Proposals proposals(graph, profile, request, deadline);
    if (!request.link.exists()) {
      detail::ArenaPlanner(graph, profile).search(request, proposals);
      detail::propose_simple(graph, false, detail::by_chain, proposals);
      return proposals.outcome();
    }
    detail::OffloadPlanner planner(graph, profile, request, proposals);
    if (!proposals.retain_fits()) planner.search();
    if (!proposals.found()) planner.propose_smallest();
    detail::propose_simple(graph, false, detail::by_chain, proposals);
    planner.note_unused();
    return proposals.outcome();
  });
}

[[gnu::cold]] ADACC_PLANNER_INLINE Result<std::size_t> smallest_peak(const Graph& graph,
                                                                     const CostProfile& profile,
                                                                     const PlanRequest& request) {
  return detail::or_no_memory("to plan", [&]() -> Result<std::size_t> {
    const Deadline deadline(request.clock, request.deadline_seconds);
    if (const Error why = examine(graph, profile, request)) return why;
    Proposals proposals(graph, profile, request, deadline);
    if (request.link.exists())
      detail::OffloadPlanner(graph, profile, request, proposals).propose_smallest();
    else detail::ArenaPlanner(graph, profile).propose_smallest(request, proposals);
    detail::propose_simple(graph, true, detail::by_chain, proposals);
    return proposals.smallest().arena_bytes;
  });
}

}}  // namespace adacc::v0_1
