/// The smallest budget that some plan fits, and what limits it.
///
/// Not the plan of least stored bytes: what is not stored comes back in backward, and a long run of
/// recomputation holds many activations at once. So the arena itself is searched for its minimum.
#pragma once

#include <cstddef>

#include "../../core/error.hpp"
#include "../request.hpp"
#include "search.hpp"

namespace adacc { inline namespace v0_1 {

struct SmallestPlan {
  /// No plan within the tolerance has a smaller arena; on larger graphs, but for the 63 bytes of
  /// one buffer's padding.
  bool proven = false;
  Plan plan;
  std::size_t arena_bytes = 0;
};

/// The plan with the smallest arena among those within `request.tolerance`; the budget says
/// nothing here. Looks at `most_nodes` partial plans, and no longer than the request's deadline;
/// where it found none by then, returns the plan that retains whatever is open.
constexpr SmallestPlan smallest_plan(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request, std::size_t most_nodes = 1000000) {
  detail::SearchLimits limits;
  limits.smallest = true;
  limits.tolerance = request.tolerance;
  limits.most_nodes = most_nodes;
  limits.most_ties = most_nodes / 1000;
  limits.now = request.now;
  if (request.now != nullptr)
    limits.deadline = limits.give_up = request.now() + request.deadline_seconds;
  detail::SearchResult result = detail::Search(graph, profile, limits).run();
  if (!result.found) {
    result.plan = plan_from_types(graph);
    result.arena_bytes = peak_bytes(graph, result.plan);
  }
  return {result.finished, static_cast<Plan&&>(result.plan), result.arena_bytes};
}

/// The error for a budget that no plan fits: it names the smallest one that can be met and the
/// instruction of `smallest` that limits it.
constexpr Error over_budget(const Graph& graph, const PlanRequest& request,
                            const SmallestPlan& smallest) {
  const Schedule schedule = make_schedule(graph, smallest.plan);
  const std::size_t worst = live_bytes_of(schedule).worst();
  const Instruction& run = schedule.instructions[worst];
  const char* name = run.op == Op::loss_gradient ? graph.loss.name : graph.node(run.node).name;
  return Error::say("no plan fits into a budget of ", shown(request.budget_bytes),
                    smallest.proven ? ": the smallest that can be met is "
                                    : ": the smallest known that can be met is ",
                    shown(smallest.arena_bytes), ", limited by ",
                    run.again ? "the recomputing " : "", name_of(run.op), " of activation ",
                    run.node, " (", name, "), instruction ", worst, " of ",
                    schedule.instructions.size());
}

}}  // namespace adacc::v0_1
