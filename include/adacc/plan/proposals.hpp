// SPDX-License-Identifier: MIT
/// From plans proposed by a search to the one returned.
///
/// Every planner hands plans to Proposals. This class checks each plan against graph and request, lays
/// the plan out, and keeps the best; a solver contributes nothing but plans and proven bounds. So outcomes
/// of all planners mean the same, and no plan passes budget or tolerance.
#pragma once

#include <cstddef>

#include "../core/bytes.hpp"
#include "../core/extremes.hpp"
#include "../core/same_text.hpp"
#include "../cost/evaluate.hpp"
#include "../program/fullest.hpp"
#include "../program/in_flight.hpp"
#include "../program/layout.hpp"
#include "../program/schedule.hpp"
#include "choices.hpp"
#include "request.hpp"

namespace adacc { inline namespace v0_1 {

/// An error if no graph can meet `request`.
[[gnu::cold]] constexpr Error examine(const PlanRequest& request) {
  if (request.budget_bytes == 0)
    return Error::say("the budget is 0 bytes: a step needs room for its activations");
  if (!(request.tolerance >= 0))
    return Error::say("the tolerance of the gradient's error must be 0 or more, and not NaN");
  if (const Error why = check_most_runs(request.most_runs)) return why;
  if (request.in_flight < 1)
    return Error::say("a step is in flight at least once, and ", request.in_flight,
                      " were asked for");
  if (request.in_flight > 1 && request.link.exists())
    return Error::say("steps in flight share an arena, and none of them can use a store");
  if (!(request.gap >= 0))
    return Error::say("the gap at which a plan is good enough must be 0 or more, and not NaN");
  if (request.clock && !(request.deadline_seconds >= 0))
    return Error::say("the deadline must be 0 seconds or more, and not NaN");
  const LinkCost& link = request.link;
  if (!(link.write_rate >= 0 && link.read_rate >= 0 && link.latency >= 0 && link.begin >= 0 &&
        link.begin_per_byte >= 0))
    return Error::say("the cost of the link to the store must be 0 or more, and not NaN");
  if (link.exists() != (link.write_rate > 0 || link.read_rate > 0))
    return Error::say("a link to a store must have a rate for writing and one for reading");
  if (request.prices.by == Solver::lp_solve && request.prices.linear == nullptr)
    return Error::say(
        "lp_solve is to plan, but is not lent: link adacc::lp_solve, include "
        "adacc/plan/lp/lp_solve.hpp, and plan with adacc::plan_with(adacc::lp_solve())");
  return {};
}

/// An error if `graph` cannot meet `request`, or `graph` and `profile` contradict each other.
[[gnu::cold]] constexpr Error examine(const Graph& graph, const CostProfile& profile,
                                      const PlanRequest& request) {
  if (const Error why = examine(request)) return why;
  if (request.in_flight > 1 && graph.has_loss)
    return Error::say("steps that end with a loss do not wait, and ", request.in_flight,
                      " in flight were asked for");
  if (const Error why = graph_mistake(graph)) return why;
  if (const Error why = examine(graph, profile)) return why;
  const Plan retain = plan_from_types(graph);
  if (const Error why = examine(graph, retain)) return why;
  // Retaining every open activation adds no error, and carries least.
  if (error_of(graph, profile, retain) > request.tolerance)
    return Error::say(
        "no plan is within the tolerance of the gradient's error: the codecs that "
        "types fix pass it by themselves");
  return {};
}

/// The smallest plan known, and a lower bound on the arenas of all plans within the tolerance.
struct SmallestPlan {
  Plan plan;
  std::size_t arena_bytes = 0;
  std::size_t least_bytes = 0;

  /// No plan has a smaller arena.
  constexpr bool proven() const { return arena_bytes <= least_bytes; }
};

/// The error for a budget too small for every plan. It names the smallest budget that can be met, and the
/// limiting instruction of `smallest`.
[[gnu::cold]] constexpr Error over_budget(const Graph& graph, const PlanRequest& request,
                                          const SmallestPlan& smallest) {
  const Schedule schedule = schedule_of(graph, smallest.plan);
  const std::size_t worst = live_bytes_of(schedule).worst();
  const Instruction& inst = schedule.instructions[worst];
  const char* name = inst.op == Op::loss_gradient ? graph.loss.name : graph.node(inst.node).name;
  // Sums of whole buffers count the padding of an arena's last buffer, too.
  const bool close = smallest.arena_bytes < smallest.least_bytes + alignment;
  // A stage of a caller's backward is a node without an activation, behind all nodes with one. It has a number
  // or a name from the caller.
  const bool stage = inst.op == Op::backward && graph.node(inst.node).is_backward_stage();
  int number = inst.node;
  for (int k = 0; stage && k < graph.node_count(); ++k)
    number -= !graph.node(k).is_backward_stage();
  const bool named = stage && !detail::same_text(name, "stage");
  // A caller with kernels of its own knows its names, and not the instructions.
  const bool outside = graph.has_outside();
  const Error where = named     ? Error::say(" of ", name)
                      : stage   ? Error::say(" stage ", number)
                      : outside ? Error::say(" of ", ActivationName(graph, inst.node))
                                : Error::say(" of activation ", number, " (", name, ")");
  Error error = Error::say("no plan fits into a budget of ", shown(request.budget_bytes),
                           smallest.proven() ? ": the smallest that can be met is "
                           : close           ? ": the smallest that can be met is about "
                                             : ": the smallest known that can be met is ",
                           shown(smallest.arena_bytes), ", limited by ",
                           inst.again ? "the recomputing " : "", name_of(inst.op), where.text());
  if (!outside)
    return Error::say(error.text(), ", instruction ", worst, " of ", schedule.instructions.size());
  constexpr std::size_t most_kinds = 3;
  const Array<detail::LiveKind> kinds =
      detail::live_kinds(graph, schedule, static_cast<int>(worst));
  for (std::size_t i = 0; i < kinds.size() && i < most_kinds; ++i)
    error = Error::say(error.text(), i == 0 ? ": " : ", ", kinds[i]);
  return error;
}

namespace detail {

/// Compares seconds (but for the rounding of sums in different orders), then live bytes, then error.
template <class Cost>
constexpr bool faster(const Cost& a, const Cost& b) {
  const double rounding = 1e-12 * b.seconds;
  if (a.seconds < b.seconds - rounding) return true;
  if (a.seconds > b.seconds + rounding) return false;
  return a.live_bytes != b.live_bytes ? a.live_bytes < b.live_bytes : a.error < b.error;
}

/// Fills `reasons` and `seconds_per_byte`: the most seconds per byte saved by giving one activation more
/// bytes, within the tolerance.
[[gnu::cold]] constexpr void explain(const Graph& graph, const CostProfile& profile,
                                     const PlanRequest& request, PlanOutcome& outcome) {
  const Array<bool> needed = needed_in_backward(graph, outcome.plan);
  outcome.reasons.resize(graph.nodes.size());
  for (int k = 0; k < graph.node_count(); ++k) {
    PlanReason& reason = outcome.reasons[static_cast<std::size_t>(k)];
    const Policy& policy = outcome.plan[k];
    if (!needed[static_cast<std::size_t>(k)]) {
      reason.kind = PlanReason::Kind::unread;
      continue;
    }
    const double bytes = static_cast<double>(stored_bytes(graph, k, policy));
    const double seconds = seconds_of(graph, profile, k, policy);
    const double room = request.tolerance - outcome.error + error_of(graph, profile, k, policy);
    reason.saved_bytes = static_cast<double>(align_up(graph.node(k).output_bytes)) - bytes;
    bool better = false;
    for (const Policy& other : policies_of(graph, k)) {
      const double other_bytes = static_cast<double>(stored_bytes(graph, k, other));
      const double gain = seconds - seconds_of(graph, profile, k, other);
      if (gain > reason.paid_seconds) reason.paid_seconds = gain;
      if (gain >= 0 && other_bytes <= bytes && (gain > 0 || other_bytes < bytes)) better = true;
      if (gain > 0 && other_bytes > bytes && error_of(graph, profile, k, other) <= room &&
          gain / (other_bytes - bytes) > outcome.seconds_per_byte)
        outcome.seconds_per_byte = gain / (other_bytes - bytes);
    }
    reason.kind = !graph.node(k).policy.planned() ? PlanReason::Kind::fixed
                  : better                        ? PlanReason::Kind::error
                  : reason.paid_seconds > 0       ? PlanReason::Kind::price
                                                  : PlanReason::Kind::affordable;
  }
}

}  // namespace detail

/// A whole plan with its cost and arena.
struct Proposal {
  Plan plan;
  PlanCost cost;
  std::size_t arena_bytes = 0;
  const char* by = "";
};

/// The plans found by a planner for one request, and the bounds proven. The request must have passed
/// examine(graph, profile, request). All three must outlive this object.
class Proposals {
 public:
  constexpr Proposals(const Graph& graph, const CostProfile& profile, const PlanRequest& request)
      : Proposals(graph, profile, request, Deadline(request.clock, request.deadline_seconds)) {}
  /// With a deadline that is running already.
  constexpr Proposals(const Graph& graph, const CostProfile& profile, const PlanRequest& request,
                      const Deadline& deadline)
      : graph_(graph), profile_(profile), request_(request), time_(deadline) {
    last_ = proposal_of(plan_from_types(graph), retain_name, {});
    keep_last();
    retain_arena_bytes_ = last_.arena_bytes;
    retain_seconds_ = last_.cost.seconds;
  }

  /// True if retaining every open activation fits: no plan is faster, or has less error.
  constexpr bool retain_fits() {
    if (retain_arena_bytes_ > request_.budget_bytes) return false;
    raise_bound(retain_seconds_, retain_name);
    return true;
  }
  /// The arena if every open activation is retained.
  constexpr std::size_t retain_arena_bytes() const { return retain_arena_bytes_; }
  /// The time for searches, until the request's deadline.
  constexpr Pacer& time() { return time_; }
  constexpr const Deadline& deadline() const { return time_.deadline(); }
  /// The time for tables and smallest plans, which serve other requests of the graph, too: the time lent for
  /// all of these requests, or else this one's.
  constexpr Pacer& shared_time() { return lent_time_ != nullptr ? *lent_time_ : time_; }
  constexpr void lend_shared_time(Pacer& time) { lent_time_ = &time; }

  /// Returns the cost and arena of `plan`; keeps the plan if it meets the request and is better than those
  /// before. A plan with transfers not laid out before time is up gets the largest number for its arena.
  [[gnu::cold]] constexpr const Proposal& offer(Plan plan, const char* by) {
    last_ = proposal_of(static_cast<Plan&&>(plan), by, time_);
    keep_last();
    return last_;
  }

  /// Offers `plan` as the smallest one. From now on, plans of offer() do not become smallest(): plans found by
  /// chance for one budget do not change the budget named in errors.
  [[gnu::cold]] constexpr void offer_smallest(const SmallestPlan& plan, const char* by) {
    raise_least_bytes(plan.least_bytes);
    if (plan.plan.policies.empty()) return;
    static_cast<void>(offer(plan.plan, by));
    if (last_.cost.error > request_.tolerance) return;
    if (!smallest_offered_ || last_.arena_bytes < smallest_.arena_bytes)
      smallest_.plan = last_.plan, smallest_.arena_bytes = last_.arena_bytes;
    smallest_offered_ = true;
  }

  /// Offers `plan`, which becomes smallest() if it is smaller: if time is up, every known plan counts.
  [[gnu::cold]] constexpr void offer_known(const Plan& plan, const char* by) {
    if (plan.policies.empty()) return;
    static_cast<void>(offer(plan, by));
    if (last_.cost.error <= request_.tolerance && last_.arena_bytes < smallest_.arena_bytes)
      smallest_.plan = last_.plan, smallest_.arena_bytes = last_.arena_bytes;
  }

  /// Whether `plan` is a plan of the graph with a gradient error within the tolerance.
  constexpr bool tolerates(const Plan& plan) const {
    return !examine(graph_, plan) && error_of(graph_, profile_, plan) <= request_.tolerance;
  }
  constexpr bool meets(const Proposal& proposal) const {
    return proposal.arena_bytes <= request_.budget_bytes &&
           proposal.cost.error <= request_.tolerance && proposal.cost.seconds <= most_seconds_ &&
           (request_.most_written_bytes == 0 ||
            proposal.cost.written_bytes <= request_.most_written_bytes);
  }
  constexpr bool found() const { return !best_.plan.policies.empty(); }
  /// The best plan so far, if found().
  constexpr const Proposal& best() const { return best_; }
  constexpr const SmallestPlan& smallest() const { return smallest_; }

  /// From now on, the best plan is the one of least error among plans at most the request's gap slower than
  /// the fastest. Returns the most seconds of such plans.
  constexpr double seek_least_error() {
    seeks_error_ = true;
    return most_seconds_ = best_.cost.seconds * (1 + request_.gap);
  }

  /// Notes the proof that no plan within the request takes fewer seconds.
  constexpr void raise_bound(double seconds, const char* by) {
    if (seconds > bound_seconds_) bound_seconds_ = seconds, bound_by_ = by;
  }
  constexpr double bound_seconds() const { return bound_seconds_; }
  /// Notes the proof that no plan within the tolerance has a smaller arena.
  constexpr void raise_least_bytes(std::size_t bytes) {
    if (bytes > smallest_.least_bytes) smallest_.least_bytes = bytes;
  }
  /// Drops the bound on arenas, which holds only without a store.
  constexpr void forget_least_bytes() { smallest_.least_bytes = 0; }
  constexpr void time_out() { timed_out_ = true; }
  constexpr void note(const Error& why) { note_ = why; }

  /// The best plan, or the error with the smallest budget that can be met.
  [[gnu::cold]] constexpr Result<PlanOutcome> outcome() const {
    if (!found()) return over_budget(graph_, request_, smallest_);
    return describe(best_);
  }

  /// The outcome for an offered plan, even if the plan does not meet the request.
  [[gnu::cold]] constexpr PlanOutcome describe(const Proposal& proposal) const {
    PlanOutcome out;
    out.plan = proposal.plan;
    out.peak_bytes = proposal.arena_bytes;
    out.live_bytes = proposal.cost.live_bytes;
    out.seconds = proposal.cost.seconds;
    out.error = proposal.cost.error;
    out.stall_seconds = proposal.cost.stall_seconds;
    out.written_bytes = proposal.cost.written_bytes;
    out.retain_peak_bytes = retain_arena_bytes_;
    out.retain_seconds = retain_seconds_;
    out.bound_seconds = bound_seconds_ < out.seconds ? bound_seconds_ : out.seconds;
    out.gap = (out.seconds - out.bound_seconds) / out.seconds;
    out.solver = proposal.by;
    out.bound_by = bound_by_;
    out.timed_out = timed_out_ || time_.passed();
    out.note = note_;
    detail::explain(graph_, profile_, request_, out);
    out.solve_seconds = deadline().elapsed();
    return out;
  }

 private:
  static constexpr const char* retain_name = "retain";

  constexpr Proposal proposal_of(Plan plan, const char* by, PacerRef time) const {
    Proposal proposal{static_cast<Plan&&>(plan), {}, static_cast<std::size_t>(-1), by};
    if (examine(graph_, proposal.plan)) return proposal;  // a mistake of the search
    const Result<PlacedSchedule> placed = place_schedule(graph_, proposal.plan, Mode::train, time);
    if (!placed) return proposal;
    proposal.cost = evaluate(graph_, profile_, proposal.plan, placed->schedule, request_.link);
    if (const Result<std::size_t> arena = arena_bytes(*placed, request_.in_flight))
      proposal.arena_bytes = *arena;
    return proposal;
  }

  constexpr void keep_last() {
    if (last_.arena_bytes == static_cast<std::size_t>(-1) || last_.cost.error > request_.tolerance)
      return;
    if (!smallest_offered_ &&
        (smallest_.plan.policies.empty() || last_.arena_bytes < smallest_.arena_bytes))
      smallest_.plan = last_.plan, smallest_.arena_bytes = last_.arena_bytes;
    if (meets(last_) && (!found() || better(last_.cost, best_.cost))) best_ = last_;
  }

  constexpr bool better(const PlanCost& a, const PlanCost& b) const {
    return seeks_error_ && a.error != b.error ? a.error < b.error : detail::faster(a, b);
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const PlanRequest& request_;
  Pacer time_;
  Pacer* lent_time_ = nullptr;
  std::size_t retain_arena_bytes_ = 0;
  double retain_seconds_ = 0;
  Proposal best_, last_;
  SmallestPlan smallest_;
  bool smallest_offered_ = false;
  bool seeks_error_ = false;
  double most_seconds_ = detail::infinite;
  double bound_seconds_ = 0;
  const char* bound_by_ = "";
  bool timed_out_ = false;
  Error note_;
};

}}  // namespace adacc::v0_1
