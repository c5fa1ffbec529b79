// SPDX-License-Identifier: MIT
/// Pipeline::switch_to() and set_budget(): stages under other plans, where the network was cut before.
///
/// Between two steps nothing is in flight, and what a stage holds beside its arena (parameters, gradients,
/// moments, what it receives and sends) does not depend on its plan. So a change exchanges the arena and the
/// steps in it. Whether a plan can be made and laid out is shared by all ranks before any of them gives up
/// what it has, and so is whether all of them had the memory.
#pragma once

#include <cstddef>

#include "../plan/make_plan.hpp"
#include "../plan/pipeline/stage_plans.hpp"
#include "collectives.hpp"
#include "pipeline.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::switch_to(const Result<Plan>& mine) {
  if (broken_) return broken_;
  Error why = mine.error;
  if (!why) why = check(graph(), *mine);
  if (!why) {
    const Result<PlacedSchedule> placed = place_schedule(graph(), *mine);
    why = placed ? make_in_flight_layout(*placed).error : placed.error;
  }
  if ((why = share_error(group_, why))) return why;
  const Graph cut = graph();
  const Plan before = plan();
  const Dispatch<T, Context> dispatch = steps_[0].dispatch();
  const auto run = [&](const Plan& next) {
    steps_.clear();
    arena_ = {};  // there need not be room for both
    return arrange(dispatch, cut, next);
  };
  const Error failed = run(*mine);
  if (!(why = share_error(group_, failed))) return {};
  // Without the memory that it had a stage cannot go on.
  if (const Error lost = run(before)) broken_ = lost;
  return why;
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::set_budget(std::size_t bytes, const CostProfile& costs,
                                                  double tolerance) {
  if (broken_) return broken_;
  if (const Error why = check(whole_, costs)) return switch_to(why);
  CostProfile stage = profile_of_stage(whole_, costs, graph());
  stage.rest = 0;  // updates are behind all micro-batches
  PlanRequest request;
  request.budget_bytes = bytes;
  request.in_flight = in_flight();
  request.tolerance = tolerance_of_stage(whole_, graph(), tolerance);
  Result<PlanOutcome> found = make_plan(graph(), stage, request);
  if (!found) return switch_to(found.error);
  return switch_to(found->plan);
}

}}  // namespace adacc::v0_1
