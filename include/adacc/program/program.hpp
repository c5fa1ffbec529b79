// SPDX-License-Identifier: MIT
/// A step, compiled: graph, plan, schedule and layout together.
///
/// Pure data and constexpr throughout, so a network's peak can be a constant:
///
///     static_assert(adacc::peak_bytes<Net>(adacc::Shape(32, 16)) <= 256 * adacc::KiB);
#pragma once

#include <cstddef>

#include "../core/clock.hpp"
#include "../core/no_memory.hpp"
#include "../model/graph_builder.hpp"
#include "declinable.hpp"
#include "exact.hpp"
#include "layout.hpp"
#include "passes/packed.hpp"
#include "passes/transfers.hpp"
#include "plan.hpp"
#include "schedule.hpp"

namespace adacc { inline namespace v0_1 {

struct Program {
  Graph graph;
  Plan plan;
  Mode mode = Mode::train;
  Schedule schedule;
  Layout layout;
  /// By activation: whether backward reads the bits of forward. If a step keeps a declined activation
  /// exactly, this says so until the next step begins.
  Array<bool> exact;
  Array<Declinable> declinables;  ///< with their fates in the latest step

  /// Bytes of arena for the step, exactly: the activation peak.
  constexpr std::size_t peak_bytes() const { return layout.arena_bytes; }
};

namespace detail {

/// Array number `index` of a program, for code that visits them all: the arrays of its graph first.
template <std::size_t index>
constexpr auto& array_of(Program& program) {
  if constexpr (index == 0) return program.graph.nodes;
  else if constexpr (index == 1) return program.graph.ids;
  else if constexpr (index == 2) return program.graph.candidates;
  else if constexpr (index == 3) return program.graph.parameters;
  else if constexpr (index == 4) return program.graph.gradients;
  else if constexpr (index == 5) return program.plan.policies;
  else if constexpr (index == 6) return program.schedule.instructions;
  else if constexpr (index == 7) return program.schedule.buffers;
  else if constexpr (index == 8) return program.schedule.transfers;
  else if constexpr (index == 9) return program.schedule.loops;
  else if constexpr (index == 10) return program.layout.offsets;
  else if constexpr (index == 11) return program.exact;
  else return program.declinables;
}
inline constexpr std::size_t graph_array_count = 5, array_count = 13;

}  // namespace detail

/// A schedule and the places of buffers.
struct PlacedSchedule {
  Schedule schedule;
  Layout layout;
};

constexpr bool travels(const Plan& plan) {
  for (const Policy& policy : plan.policies)
    if (policy.travels()) return true;
  return false;
}

namespace detail {

/// `schedule`, placed, with the transfers of `plan`. Fails if the plan's room is too small for them.
///
/// The room bounds live bytes, and the arena should take no more. If gaps enlarge the arena, more is sent
/// and reads begin later, in steps of a sixteenth of the room, until the arena is at most 1/32 larger than
/// the room. If no step gets there, the smallest arena is taken. Fails if `time` is up before: an
/// arena found in a hurry could differ from the arena found with time.
constexpr Result<PlacedSchedule> place_with_transfers(const Graph& graph, const Plan& plan,
                                                      Mode mode, Schedule schedule,
                                                      PacerRef time = {}) {
  const auto as_it_is = [&] {
    PlacedSchedule placed{static_cast<Schedule&&>(schedule), {}};
    placed.layout = make_layout(placed.schedule);
    return placed;
  };
  if (mode != Mode::train || !travels(plan)) return as_it_is();
  TransferPass pass(graph, plan, schedule);
  if (pass.empty()) return as_it_is();
  PlacedSchedule best;
  const std::size_t room = plan.room_bytes != 0 ? plan.room_bytes : pass.smallest_limit();
  const std::size_t enough = room + room / 32;
  for (std::size_t sixteenths = 16; sixteenths >= 8; --sixteenths) {
    if (sixteenths < 16 && time.look())
      return Error::say("time was up before a layout with transfers was found");
    PlacedSchedule next;
    const std::size_t aim = sixteenths == 16 ? room : room / 16 * sixteenths;
    if (!pass.run(room, aim, next.schedule))
      return Error::say("the plan sends activations to a store to stay within ", shown(room),
                        " of live bytes, and needs at least ", shown(pass.smallest_limit()));
    next.layout = make_layout(next.schedule, enough);
    if (sixteenths == 16 || next.layout.arena_bytes < best.layout.arena_bytes)
      best = static_cast<PlacedSchedule&&>(next);
    if (best.layout.arena_bytes <= enough) break;
  }
  return best;
}

}  // namespace detail

/// The schedule of place_schedule() without loops. Fails if the plan's room is too small.
constexpr Result<PlacedSchedule> place_straight_schedule(const Graph& graph, const Plan& plan,
                                                         Mode mode = Mode::train) {
  return detail::place_with_transfers(graph, plan, mode, make_straight_schedule(graph, plan, mode));
}

/// The placed schedule for a step of `graph` under `plan`, with transfers. `plan` must have passed
/// examine(graph, plan). Loops lower live bytes. If the gaps of their layout take more than the saved
/// bytes, there are no loops: no arena is larger than without loops. Fails if the plan's room is too
/// small, or if the plan sends something and `time` is up.
constexpr Result<PlacedSchedule> place_schedule(const Graph& graph, const Plan& plan,
                                                Mode mode = Mode::train, PacerRef time = {}) {
  Result<PlacedSchedule> placed =
      detail::place_with_transfers(graph, plan, mode, make_schedule(graph, plan, mode), time);
  if (graph.parts <= 1 || (placed && placed->schedule.loops.empty())) return placed;
  // Nothing is sent in the middle of a loop: without loops the room may do.
  Schedule straight = make_straight_schedule(graph, plan, mode);
  // An arena ends with its last byte, live bytes with the padding behind it.
  if (placed && !travels(plan) && live_bytes(straight) >= placed->layout.arena_bytes + alignment)
    return placed;
  Result<PlacedSchedule> other =
      detail::place_with_transfers(graph, plan, mode, static_cast<Schedule&&>(straight), time);
  if (!placed || (other && other->layout.arena_bytes < placed->layout.arena_bytes)) return other;
  return placed;
}

namespace detail {

/// The program of make_program() without PackedPass, which only fills gaps of the layout.
constexpr Result<Program> compile(Graph graph, Plan plan, Mode mode) {
  if (const Error why = examine(graph, plan)) return Error::misuse(why.text());
  Result<PlacedSchedule> placed = place_schedule(graph, plan, mode);
  if (!placed) return placed.error;
  Program program;
  program.schedule = static_cast<Schedule&&>(placed->schedule);
  program.layout = static_cast<Layout&&>(placed->layout);
  program.exact = exact_in_backward(graph, plan);
  program.declinables = declinables_of(graph, plan, program.schedule);
  program.graph = static_cast<Graph&&>(graph);
  program.plan = static_cast<Plan&&>(plan);
  program.mode = mode;
  return program;
}

}  // namespace detail

/// Compiles a step of `graph` under `plan`. Fails if the plan does not fit the graph.
constexpr Result<Program> make_program(Graph graph, Plan plan, Mode mode = Mode::train) {
  return detail::or_no_memory("to make the program", [&]() -> Result<Program> {
    Result<Program> program =
        detail::compile(static_cast<Graph&&>(graph), static_cast<Plan&&>(plan), mode);
    if (program) detail::PackedPass(program->graph, program->schedule, program->layout).run();
    return program;
  });
}

/// Compiles a step of `network` for inputs of shape `input` under the policies in its types, to run
/// in `Context`.
template <class Context = Cpu, class Network>
constexpr Result<Program> make_program(const Network& network, Shape input,
                                       const GraphOptions& options = {}, Mode mode = Mode::train) {
  Result<Graph> graph = make_graph<Context>(network, input, options);
  if (!graph) return graph.error;
  Plan plan = plan_from_types(*graph);
  return make_program(static_cast<Graph&&>(*graph), static_cast<Plan&&>(plan), mode);
}

/// The exact activation peak, in bytes, of a training step of a default-constructed Network; 0 for
/// an input without a program (make_program says why).
template <class Network>
constexpr std::size_t peak_bytes(Shape input, const GraphOptions& options = {}) {
  const Result<Program> program = make_program(Network{}, input, options);
  return program ? program->peak_bytes() : 0;
}

}}  // namespace adacc::v0_1
