// SPDX-License-Identifier: MIT
/// The planner to call: exhaustive for small graphs, by segments for larger ones.
#pragma once

#include <cstddef>

#include "../core/config.hpp"
#include "proposals.hpp"
#include "request.hpp"

#if defined(ADACC_SEPARATE_PLANNER)
#define ADACC_PLANNER_INLINE
#else
#define ADACC_PLANNER_INLINE inline
#endif

namespace adacc { inline namespace v0_1 {

/// A Planner.
ADACC_PLANNER_INLINE Result<PlanOutcome> make_plan(const Graph& graph, const CostProfile& profile,
                                                   const PlanRequest& request);

/// make_plan() with a linear solver for prices and bounds; with Solver::lp_solve, the solver alone.
inline Planner plan_with(const LinearSolver& solver, Solver by = Solver::automatic) {
  return {make_plan, {by, &solver}};
}

/// The smallest budget known by the deadline (if there is a clock) for make_plan() to meet within
/// request.tolerance, in bytes. The request's own budget has no influence, but must make sense. Fails if the
/// request or the profile make no sense.
ADACC_PLANNER_INLINE Result<std::size_t> smallest_peak(const Graph& graph,
                                                       const CostProfile& profile,
                                                       const PlanRequest& request);

}}  // namespace adacc::v0_1

#if !defined(ADACC_SEPARATE_PLANNER)
#include "planner.hpp"
#endif
