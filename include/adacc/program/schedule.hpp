// SPDX-License-Identifier: MIT
/// From graph and plan to the instructions of a step, written down.
#pragma once

#include "loops.hpp"
#include "scheduler.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

/// The sink that keeps everything.
struct ScheduleWriter : Lifetimes {
  Array<Instruction> instructions;

  constexpr void append(const Instruction& run) {
    instructions.push_back(run);
    Lifetimes::append(run);
  }
};

}  // namespace detail

/// The instructions of one step, without loops. `plan` must have passed check(graph, plan).
constexpr Schedule make_straight_schedule(const Graph& graph, const Plan& plan,
                                          Mode mode = Mode::train) {
  detail::ScheduleWriter writer;
  writer.instructions.reserve(graph.nodes.size() * 5 + 8);
  writer.buffers.reserve(graph.nodes.size() * 5 + 8);
  Scheduler<detail::ScheduleWriter> scheduler(graph, mode, writer);
  scheduler.run(plan);
  Schedule schedule;
  schedule.instructions = static_cast<Array<Instruction>&&>(writer.instructions);
  schedule.buffers = static_cast<Array<Buffer>&&>(writer.buffers);
  schedule.output = scheduler.output();
  schedule.output_gradient = scheduler.output_gradient();
  schedule.input_gradient = scheduler.input_gradient();
  return schedule;
}

/// The same with loops, if layers are cut and that lowers the bytes that live.
constexpr Schedule make_schedule(const Graph& graph, const Plan& plan, Mode mode = Mode::train) {
  Schedule schedule = make_straight_schedule(graph, plan, mode);
  const detail::LoopRules rules(graph);
  if (rules.active()) detail::LoopPass(rules, plan, schedule).run();
  return schedule;
}

}}  // namespace adacc::v0_1
