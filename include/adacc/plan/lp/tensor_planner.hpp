/// The planner on lp_solve's branch and bound: link adacc::lp_solve.
///
/// Solves the direct program of plan/lp/tensor_program.hpp again and again, each time with
/// what cuts off the plan that it last returned and that did not fit, until one fits. Every program
/// on the way bounds all plans from below, so the last one's bound proves the gap.
#pragma once

#include <cstddef>

#include "../exhaustive/planner.hpp"
#include "lp_solve.hpp"
#include "tensor_program.hpp"

namespace adacc { inline namespace v0_1 {

/// A Planner for graphs of some dozen activations in which nothing repeats. Where lp_solve fails
/// or runs out of time, the exact planner takes over and the outcome's note says so.
inline Result<PlanOutcome> plan_with_lp_solve(const Graph& graph, const CostProfile& profile,
                                              const PlanRequest& request) {
  using Outcome = LinearSolution::Outcome;
  constexpr int most_rounds = 400, most_layouts = 20;
  constexpr std::size_t padding =
      alignment - 1;  // behind the highest buffer: live, not in the arena
  if (const Error why = check(graph, profile, request)) return why;
  if (graph.by_hand) return plan_exactly(graph, profile, request);  // the program is for chains
  const double start = request.now == nullptr ? 0 : request.now();
  const std::size_t budget = request.budget_bytes;
  const std::size_t live_budget = budget + padding < padding ? budget : budget + padding;
  detail::TensorProgram program(graph, profile, live_budget, request.tolerance);
  LinearOptions options;
  options.gap = request.gap;
  options.offset = program.base_seconds();
  options.now = request.now;
  options.deadline = start + request.deadline_seconds / 2;  // the rest is for the exact planner
  LinearSolution solution;
  int layouts = 0;
  for (int round = 0; round < most_rounds; ++round) {
    solution = solve_with_lp_solve(program.program(), options);
    if (!solution) break;
    if (solution.bound > options.bound) options.bound = solution.bound;  // rows only tighten it
    Plan plan = program.choose(solution.values);
    const Schedule schedule = make_schedule(graph, plan);
    if (live_bytes(schedule) > live_budget) {
      program.cut_overflow(solution.values);
    } else if (check(graph, plan) || error_of(graph, profile, plan) > request.tolerance ||
               make_layout(schedule).arena_bytes > budget) {
      // One plan at a time: where many fit but for their layouts, the tree search is faster.
      if (++layouts > most_layouts) break;
      program.cut_plan();
    } else {
      PlanOutcome outcome = finish_outcome(graph, profile, request, static_cast<Plan&&>(plan),
                                           solution.bound + program.base_seconds(), "lp_solve");
      outcome.timed_out = solution.status == Outcome::feasible;
      if (request.now != nullptr) outcome.solve_seconds = request.now() - start;
      return outcome;
    }
  }
  PlanRequest rest = request;
  if (request.now != nullptr) {
    rest.deadline_seconds = start + request.deadline_seconds - request.now();
    if (rest.deadline_seconds < 0) rest.deadline_seconds = 0;
  }
  Result<PlanOutcome> outcome = plan_exactly(graph, profile, rest);
  if (!outcome) return outcome;
  outcome->note = Error::say("lp_solve ",
                             solution.status == Outcome::infeasible  ? "found no plan that fits"
                             : solution.status == Outcome::timed_out ? "ran out of time"
                             : solution ? "found only plans that do not fit"
                                        : "failed",
                             ": the exact planner took over");
  if (request.now != nullptr) outcome->solve_seconds = request.now() - start;
  return outcome;
}

}}  // namespace adacc::v0_1
