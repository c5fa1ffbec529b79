// SPDX-License-Identifier: MIT
/// Pipeline::switch_to() and set_budget(): stages under other plans, where the network was cut before.
///
/// Between two steps nothing is in flight, and a stage's memory beside the arena (parameters, gradients,
/// moments, buffers of messages) does not depend on the plan. So a change exchanges arena and
/// steps alone. Ranks exchange errors of making and laying out plans before any rank gives up its arena, and
/// again errors of memory after taking the new one.
#pragma once

#include <cstddef>

#include "../../cost/estimate.hpp"
#include "../../plan/make_plan.hpp"
#include "../../plan/pipeline/stage_plans.hpp"
#include "../collectives.hpp"
#include "pipeline.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::switch_to(const Result<Plan>& mine) {
  if (broken_) return broken_;
  if (!idle()) return under_way();
  Error why = mine.error;
  if (!why) why = examine(graph(), *mine);
  const Result<InFlightProgram> next =
      why ? Result<InFlightProgram>(why) : make_in_flight_program(graph(), *mine);
  if ((why = share_error(group_, next.error))) return why;
  const Program before = steps_[0].program();
  const Dispatch<T, Context> dispatch = steps_[0].dispatch();
  const Error failed = arrange(dispatch, *next);
  if (!(why = share_error(group_, failed))) return {};
  // If even the old arena cannot be had again, the stage cannot go on.
  const Result<InFlightProgram> back = make_in_flight_program(before.graph, before.plan);
  broken_ = back ? arrange(dispatch, *back) : back.error;
  return why;
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::set_budget(std::size_t bytes, const CostProfile& costs,
                                                  double tolerance) {
  if (broken_) return broken_;
  const CostProfile known = costs.nodes.empty() ? estimated_profile(whole_) : costs;
  if (const Error why = examine(whole_, known)) return switch_to(why);
  CostProfile stage = profile_of_stage(whole_, known, graph());
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
