// SPDX-License-Identifier: MIT
/// Several steps of one stage in one arena, all but one of which wait.
///
/// Between forward and backward of a micro-batch a stage of a pipeline begins others. A step waiting at
/// the hand-over keeps only the bytes for backward; all buffers within forward or within backward
/// belong to the one running step. So n steps need n times the waiting bytes, and once the room to work
/// in, rather than n arenas.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "layout.hpp"
#include "program.hpp"

namespace adacc { inline namespace v0_1 {

/// Bytes of a step that can wait. Pure data, compared by planners.
struct InFlightBytes {
  std::size_t held = 0;     ///< by each step, from forward to backward
  std::size_t working = 0;  ///< by the running step, beside them
  std::size_t whole = 0;    ///< by a step without waiting: the arena

  /// The arena of `steps` steps in flight.
  constexpr std::size_t arena(int steps) const {
    return apart(steps) ? sum(steps, held, working) : sum(steps - 1, whole_room(), whole);
  }
  /// Whether the arena is cut into held and working bytes; otherwise each step has an arena.
  constexpr bool apart(int steps) const {
    return sum(steps, held, working) < sum(steps, whole_room(), 0);
  }
  constexpr std::size_t whole_room() const { return align_up(whole); }

 private:
  /// The largest number, too many bytes for any budget, if the sum is not addressable.
  static constexpr std::size_t sum(int times, std::size_t bytes, std::size_t more) {
    std::size_t all = 0;
    const bool fits =
        multiply(static_cast<std::size_t>(times), bytes, all) && detail::add(all, more, all);
    return fits ? all : static_cast<std::size_t>(-1);
  }
};

/// Where the buffers of several steps in flight lie.
struct InFlightLayout {
  InFlightBytes bytes;
  Layout apart;  ///< held buffers from 0 on, all others from bytes.held on
  Layout whole;
  Array<bool> held;  ///< by buffer

  /// The layout of step `slot` of `steps`, in the arena shared by all.
  constexpr Layout of(int slot, int steps) const {
    const bool two = bytes.apart(steps);
    const auto i = static_cast<std::size_t>(slot), n = static_cast<std::size_t>(steps);
    Layout layout = two ? apart : whole;
    for (std::size_t b = 0; b < layout.offsets.size(); ++b)
      layout.offsets[b] += !two      ? i * bytes.whole_room()
                           : held[b] ? i * bytes.held
                                     : (n - 1) * bytes.held;
    layout.arena_bytes = bytes.arena(steps);
    return layout;
  }
};

/// The layout of steps running `placed`. Fails if `placed` sends anything to a store, where places
/// would be one step's alone.
constexpr Result<InFlightLayout> make_in_flight_layout(const PlacedSchedule& placed) {
  const Schedule& schedule = placed.schedule;
  if (!schedule.transfers.empty())
    return Error::say(
        "a step that offloads activations cannot wait in a pipeline: plan it without a store");
  int wait = static_cast<int>(schedule.instructions.size());
  for (int i = 0; i < wait; ++i)
    if (schedule.instructions[static_cast<std::size_t>(i)].op == Op::hand_over) wait = i;
  InFlightLayout flight;
  flight.whole = placed.layout;
  flight.bytes.whole = placed.layout.arena_bytes;
  flight.held.resize(schedule.buffers.size());
  Schedule working;
  working.instructions = schedule.instructions;
  working.buffers = schedule.buffers;
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    Buffer& buffer = working.buffers[b];
    flight.held[b] = buffer.first >= 0 && buffer.first < wait && buffer.last > wait;
    if (flight.held[b]) buffer.first = buffer.last = -1;  // the buffer has a place already
  }
  flight.apart = make_layout(working);
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    if (!flight.held[b]) continue;
    flight.apart.offsets[b] = flight.bytes.held;
    flight.bytes.held += schedule.buffers[b].room();
  }
  flight.bytes.working = flight.apart.arena_bytes;
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b)
    if (!flight.held[b]) flight.apart.offsets[b] += flight.bytes.held;
  flight.apart.live_bytes += flight.bytes.held;
  return flight;
}

/// A step able to wait at its hand-over, and where its buffers lie if several are in flight.
struct InFlightProgram {
  Program program;
  InFlightLayout layout;

  /// The program of step `slot` of `steps`. Beside other steps, declinable encodes stay as planned: the
  /// gaps of the arena belong to the others.
  constexpr Program of(int slot, int steps) const {
    Program copy = program;
    copy.layout = layout.of(slot, steps);
    for (Declinable& one : copy.declinables) one.movable = one.movable && steps == 1;
    return copy;
  }
};

/// Compiles a step of `graph` under `plan`, which has passed examine(graph, plan). Fails as
/// make_in_flight_layout() does, or if the plan's room is too small.
constexpr Result<InFlightProgram> make_in_flight_program(const Graph& graph, const Plan& plan) {
  // Steps share the room to work in, laid out anew: no gap belongs to one step.
  Result<Program> program = detail::compile(graph, plan, Mode::train);
  if (!program) return program.error;
  Result<InFlightLayout> layout = make_in_flight_layout({program->schedule, program->layout});
  if (!layout) return layout.error;
  return InFlightProgram{static_cast<Program&&>(*program), static_cast<InFlightLayout&&>(*layout)};
}

/// The arena of `steps` steps running `placed`. Fails as make_in_flight_layout() does.
constexpr Result<std::size_t> arena_bytes(const PlacedSchedule& placed, int steps) {
  if (steps == 1) return placed.layout.arena_bytes;
  const Result<InFlightLayout> layout = make_in_flight_layout(placed);
  if (!layout) return layout.error;
  return layout->bytes.arena(steps);
}

}}  // namespace adacc::v0_1
