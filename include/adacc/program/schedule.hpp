// SPDX-License-Identifier: MIT
/// From graph and plan to the instructions of a step, written down.
#pragma once

#include "lifetimes.hpp"
#include "passes/loops.hpp"
#include "passes/updates.hpp"
#include "scheduler.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

/// The sink for everything.
struct ScheduleWriter : Lifetimes {
  Array<Instruction> instructions;

  constexpr void append(const Instruction& inst) {
    instructions.push_back(inst);
    Lifetimes::append(inst);
  }
};

/// The instructions of a Scheduler, written down.
constexpr Schedule write_schedule(const Graph& graph, const Plan& plan, Mode mode) {
  ScheduleWriter writer;
  writer.instructions.reserve(graph.nodes.size() * 5 + 8);
  writer.buffers.reserve(graph.nodes.size() * 5 + 8);
  Scheduler<ScheduleWriter> scheduler(graph, mode, writer);
  scheduler.run(plan);
  Schedule schedule;
  schedule.instructions = static_cast<Array<Instruction>&&>(writer.instructions);
  schedule.buffers = static_cast<Array<Buffer>&&>(writer.buffers);
  schedule.output = scheduler.output();
  schedule.output_gradient = scheduler.output_gradient();
  schedule.input_gradient = scheduler.input_gradient();
  return schedule;
}

/// A step's instructions with loops, of single segments and of `pairs`.
constexpr Schedule make_schedule(const Graph& graph, const Plan& plan, Mode mode,
                                 const LoopRules& rules, const Array<bool>& pairs,
                                 LoopPass::Pairs how) {
  Schedule schedule = write_schedule(graph, plan, mode);
  if (rules.active()) LoopPass(rules, plan, pairs, schedule, how).run();
  if (mode == Mode::train) insert_updates(graph, schedule);
  return schedule;
}

}  // namespace detail

/// The instructions of one step, without loops. `plan` must have passed examine(graph, plan).
constexpr Schedule make_straight_schedule(const Graph& graph, const Plan& plan,
                                          Mode mode = Mode::train) {
  Schedule schedule = detail::write_schedule(graph, plan, mode);
  if (mode == Mode::train) detail::insert_updates(graph, schedule);
  return schedule;
}

/// The instructions of one step, with loops if layers are cut and loops lower the live bytes.
constexpr Schedule make_schedule(const Graph& graph, const Plan& plan, Mode mode = Mode::train) {
  const detail::LoopRules rules(graph);
  const Array<bool> pairs = rules.pairs(plan);
  return detail::make_schedule(graph, plan, mode, rules, pairs,
                               detail::LoopPass::Pairs::if_smaller);
}

}}  // namespace adacc::v0_1
