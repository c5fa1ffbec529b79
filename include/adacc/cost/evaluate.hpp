// SPDX-License-Identifier: MIT
/// The cost of a plan: bytes, seconds and gradient error, from the very schedule that will run.
///
/// This is the one definition of a plan's quality. Solvers may work with models, but each plan they return has been
/// evaluated here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../program/layout.hpp"
#include "../program/plan.hpp"
#include "../program/program.hpp"
#include "../program/schedule.hpp"
#include "link.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

struct PlanCost {
  std::size_t live_bytes = 0;     ///< the largest sum of live bytes, alignment included
  double seconds = 0;             ///< seconds of one step, CostProfile::rest included
  double error = 0;               ///< relative squared error of the gradient
  double stall_seconds = 0;       ///< part of `seconds`: waiting for transfers
  std::size_t written_bytes = 0;  ///< written to the store by each step
};

/// Seconds of one instruction.
constexpr double seconds_of(const CostProfile& profile, const Plan& plan, const Instruction& inst) {
  const NodeCost& cost = profile.node(inst.node);
  switch (inst.op) {
    case Op::forward: return cost.forward;
    case Op::backward: return cost.backward;
    case Op::add: return cost.add;
    case Op::add_gradient: return cost.add_gradient;
    case Op::loss:
    case Op::loss_gradient:
    case Op::hand_over: return profile.loss;
    case Op::update:  // in CostProfile::rest
    case Op::write_begin:
    case Op::write_wait:
    case Op::read_begin:
    case Op::read_wait: return 0;
    case Op::encode:
    case Op::decode: break;
  }
  const int column = profile.column(plan[inst.node].codec());
  if (column < 0) return 0;
  const CodecCost& codec = profile.codec_cost(inst.node, column);
  return inst.op == Op::encode ? codec.encode : codec.decode;
}

/// The exact peak of a step of `graph` under `plan`, in bytes: the arena, layout included. The largest std::size_t if
/// the plan's room is too small.
constexpr std::size_t peak_bytes(const Graph& graph, const Plan& plan) {
  const Result<PlacedSchedule> placed = place_schedule(graph, plan);
  return placed ? placed->layout.arena_bytes : static_cast<std::size_t>(-1);
}

/// Calls visit(k, column, error) for each activation with other values in backward than in forward, and each codec to
/// blame (by column in the profile); `error` is the codec's share of the gradient error. For a decoded activation
/// this is the codec's error, for a recomputed one the carried error of each lossy codec among the activations from
/// which it is made. At most 64 codecs.
template <class Visit>
constexpr void each_error(const Graph& graph, const CostProfile& profile, const Plan& plan,
                          const Visit& visit) {
  Array<std::uint64_t> lossy(graph.nodes.size());  // codecs behind each activation's value
  for (int k = 0; k < graph.node_count(); ++k) {
    const Policy& policy = plan[k];
    std::uint64_t& columns = lossy[static_cast<std::size_t>(k)];
    if (policy.keeps() && !policy.form().lossless())
      if (const int column = profile.column(policy.codec()); column >= 0)
        columns = std::uint64_t{1} << column;
    if (policy.recomputes())
      graph.forward_reads(k,
                          [&](int source) { columns |= lossy[static_cast<std::size_t>(source)]; });
    if (columns == 0 || !graph.node(k).read_in_backward) continue;
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      if ((columns >> c & 1) == 0) continue;
      const CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
      visit(k, static_cast<int>(c), policy.recomputes() ? cost.carried_error : cost.error);
    }
  }
}

/// The gradient error of `plan` under the additive model.
constexpr double error_of(const Graph& graph, const CostProfile& profile, const Plan& plan) {
  double sum = 0;
  each_error(graph, profile, plan, [&](int, int, double error) { sum += error; });
  return sum;
}

/// Evaluates `plan`, which must have passed examine(graph, plan), as must the profile.
/// - schedule: the schedule of the plan
/// - link: the cost of transfers; without a link they take no time
/// - visit: `visit(const LaneTime&)` gets each stretch of time in both lanes (link.hpp), for example to find where,
///   and for how long, a step waits:
///
///     evaluate(graph, profile, plan, schedule, link, [&](const LaneTime& time) {
///       if (time.kind == LaneTime::Kind::stall) stalls[time.instruction] = time.seconds();
///     });
template <class Visit>
constexpr PlanCost evaluate(const Graph& graph, const CostProfile& profile, const Plan& plan,
                            const Schedule& schedule, const LinkCost& link, const Visit& visit) {
  PlanCost cost;
  cost.live_bytes = live_bytes(schedule);
  cost.error = error_of(graph, profile, plan);
  const StepTime time = simulate(
      schedule, link, [&](const Instruction& inst) { return seconds_of(profile, plan, inst); },
      visit);
  cost.seconds = profile.rest + time.seconds;
  cost.stall_seconds = time.write_stall_seconds + time.read_stall_seconds;
  cost.written_bytes = time.written_bytes;
  return cost;
}
constexpr PlanCost evaluate(const Graph& graph, const CostProfile& profile, const Plan& plan,
                            const Schedule& schedule, const LinkCost& link = {}) {
  return evaluate(graph, profile, plan, schedule, link, [](const LaneTime&) {});
}

/// The schedule of `plan`; if the plan's room is too small, the schedule without transfers.
constexpr Schedule schedule_of(const Graph& graph, const Plan& plan) {
  if (travels(plan))
    if (Result<PlacedSchedule> placed = place_schedule(graph, plan))
      return static_cast<Schedule&&>(placed->schedule);
  return make_schedule(graph, plan);
}
constexpr PlanCost evaluate(const Graph& graph, const CostProfile& profile, const Plan& plan,
                            const LinkCost& link = {}) {
  return evaluate(graph, profile, plan, schedule_of(graph, plan), link);
}

}}  // namespace adacc::v0_1
