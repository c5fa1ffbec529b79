/// From a plan to what is known of it: peak, time, error, and why each activation got its policy.
///
/// Every planner ends here, so that their outcomes mean the same. Nothing is taken from a solver
/// but the plan and the bound that it proved.
#pragma once

#include <cstddef>

#include "../cost/evaluate.hpp"
#include "../program/layout.hpp"
#include "../program/schedule.hpp"
#include "options.hpp"
#include "request.hpp"

namespace adacc { inline namespace v0_1 {

/// An error where `request` cannot be met by any graph, or `graph` and `profile` contradict each
/// other.
constexpr Error check(const Graph& graph, const CostProfile& profile, const PlanRequest& request) {
  if (request.budget_bytes == 0)
    return Error::say("the budget is 0 bytes: a step needs room for its activations");
  if (!(request.tolerance >= 0))
    return Error::say("the tolerance of the gradient's error must be 0 or more, and not NaN");
  if (!(request.gap >= 0))
    return Error::say("the gap at which a plan is good enough must be 0 or more, and not NaN");
  if (request.now != nullptr && !(request.deadline_seconds >= 0))
    return Error::say("the deadline must be 0 seconds or more, and not NaN");
  if (const Error why = check(graph)) return why;
  if (const Error why = check(graph, profile)) return why;
  const Plan retain = plan_from_types(graph);
  if (const Error why = check(graph, retain)) return why;
  // Retaining what is open adds no error, and leaves least to carry.
  if (error_of(graph, profile, retain) > request.tolerance)
    return Error::say(
        "no plan is within the tolerance of the gradient's error: the codecs that "
        "types fix pass it by themselves");
  return {};
}

namespace detail {

/// The gradient error of activation `id` under `policy`, without what a recomputed one carries.
constexpr double own_error(const Graph& graph, const CostProfile& profile, int id,
                           const Policy& policy) {
  if (!policy.keeps() || policy.form().lossless() || !graph.node(id).read_in_backward) return 0;
  const int column = profile.column(policy.codec());
  return column < 0 ? 0 : profile.codec_cost(id, column).error;
}

/// Fills `reasons` and `seconds_per_byte`: the best rate at which one activation could turn more
/// bytes into less time without passing the tolerance.
constexpr void explain(const Graph& graph, const CostProfile& profile, const PlanRequest& request,
                       PlanOutcome& outcome) {
  const Array<bool> needed = needed_in_backward(graph, outcome.plan);
  outcome.reasons.clear();
  outcome.reasons.resize(graph.nodes.size());
  outcome.seconds_per_byte = 0;
  for (int k = 0; k < graph.node_count(); ++k) {
    PlanReason& reason = outcome.reasons[static_cast<std::size_t>(k)];
    const Policy& mine = outcome.plan[k];
    if (!needed[static_cast<std::size_t>(k)]) {
      reason.kind = PlanReason::Kind::unread;
      continue;
    }
    const double bytes = static_cast<double>(stored_bytes(graph, k, mine));
    const double seconds = seconds_of(graph, profile, k, mine);
    const double room = request.tolerance - outcome.error + own_error(graph, profile, k, mine);
    reason.saved_bytes = static_cast<double>(align_up(graph.node(k).output_bytes)) - bytes;
    bool better = false;
    for (const Policy& other : policies_of(graph, k)) {
      const double other_bytes = static_cast<double>(stored_bytes(graph, k, other));
      const double gain = seconds - seconds_of(graph, profile, k, other);
      if (gain > reason.paid_seconds) reason.paid_seconds = gain;
      if (gain >= 0 && other_bytes <= bytes && (gain > 0 || other_bytes < bytes)) better = true;
      if (gain > 0 && other_bytes > bytes && own_error(graph, profile, k, other) <= room &&
          gain / (other_bytes - bytes) > outcome.seconds_per_byte)
        outcome.seconds_per_byte = gain / (other_bytes - bytes);
    }
    reason.kind = !graph.node(k).policy.planned() ? PlanReason::Kind::fixed
                  : better                                         ? PlanReason::Kind::error
                  : reason.paid_seconds > 0                        ? PlanReason::Kind::price
                                                                   : PlanReason::Kind::affordable;
  }
}

}  // namespace detail

/// The outcome that `plan` makes. `plan` must have passed check(graph, plan); no plan within the
/// request is faster than `bound_seconds`. The caller sets what only it knows: time and notes.
constexpr PlanOutcome finish_outcome(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request, Plan plan, double bound_seconds,
                                     const char* solver) {
  PlanOutcome outcome;
  outcome.solver = solver;
  outcome.plan = static_cast<Plan&&>(plan);
  const PlanCost cost = evaluate(graph, profile, outcome.plan);
  outcome.live_bytes = cost.live_bytes;
  outcome.seconds = cost.seconds;
  outcome.error = cost.error;
  outcome.peak_bytes = peak_bytes(graph, outcome.plan);
  const Plan retain = plan_from_types(graph);
  outcome.retain_seconds = evaluate(graph, profile, retain).seconds;
  outcome.retain_peak_bytes = peak_bytes(graph, retain);
  outcome.bound_seconds = bound_seconds < outcome.seconds ? bound_seconds : outcome.seconds;
  outcome.gap = (outcome.seconds - outcome.bound_seconds) / outcome.seconds;
  detail::explain(graph, profile, request, outcome);
  return outcome;
}

}}  // namespace adacc::v0_1
