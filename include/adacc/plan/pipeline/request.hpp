// SPDX-License-Identifier: MIT
/// A pipeline to be planned: what is asked, and what is answered.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"
#include "../../program/in_flight.hpp"
#include "../../program/plan.hpp"
#include "timing.hpp"

namespace adacc { inline namespace v0_1 {

/// A machine that a stage runs on.
struct StageMachine {
  std::size_t memory_bytes =
      0;                    ///< for everything: parameters, gradients, moments, boundaries, steps
  double speed = 1;         ///< the profile's times are divided by it
  double link_rate = 0;     ///< bytes a second from and to the next stage; 0: sending takes no time
  double link_latency = 0;  ///< seconds of each message
};

/// What becomes of activations.
enum class Recomputation : unsigned char {
  planned,    ///< what make_plan() finds for each stage; stages may begin in the middle of a block
  full,       ///< each copy of a repeated block keeps its output alone, and is run again
  selective,  ///< everything is kept but what attention makes of q, k and v, which is made again
};

struct PipelineRequest {
  Array<StageMachine> stages;  ///< one for each, in the order of the network
  int micro_batches = 1;       ///< of a step; the graph is that of one of them
  /// What a trained parameter and a frozen one take on its stage in all: with its gradient and moments.
  double bytes_per_trained = 16, bytes_per_frozen = 4;
  /// And beside that what the optimizer keeps of each parameter, by entry of Graph::parameters; empty:
  /// bytes_per_trained has it.
  Array<std::size_t> moment_bytes{};
  /// Updates take so many seconds for each trained parameter on a machine of speed 1, once a step.
  double seconds_per_trained = 0;
  double tolerance = 1e-2;  ///< of the gradient's error, by all stages together
  double gap = 2e-3;        ///< as in PlanRequest, for each stage
  Recomputation recomputation = Recomputation::planned;
  ClockRef clock = {};           ///< for the deadline and PipelineOutcome::solve_seconds
  double deadline_seconds = 60;  ///< then the best cuts that are known are taken
};

/// A stage and its plan.
struct StageOutcome {
  int first = 0, last = 0;  ///< nodes of the network
  Plan plan;                ///< of stage_of(graph, first, last)
  int in_flight = 1;        ///< micro-batches between forward and backward, at most
  InFlightBytes step_bytes;
  std::size_t state_bytes = 0;     ///< parameters, gradients and moments
  std::size_t boundary_bytes = 0;  ///< what is received and sent (boundary_bytes())
  std::size_t peak_bytes = 0;      ///< of these and the arena of all steps in flight
  double error = 0;                ///< of the gradient, by its plan
  double retain_seconds = 0;       ///< forward and backward of a micro-batch if all were retained
  StageTime time;

  std::size_t arena_bytes() const { return step_bytes.arena(in_flight); }
};

struct PipelineOutcome {
  Array<StageOutcome> stages;
  PipelineTime time;
  std::size_t plans = 0;     ///< that were made
  double solve_seconds = 0;  ///< 0 without a clock
  bool timed_out = false;

  Array<StageTime> times() const {
    Array<StageTime> times;
    for (const StageOutcome& stage : stages) times.push_back(stage.time);
    return times;
  }
};

/// Bytes of the buffers in which a stage receives and sends, as Pipeline (ranks/pipeline/pipeline.hpp) has them:
/// the inputs of the micro-batches in flight and one ahead; and, one of each, the output on its way out
/// and its gradient on its way in, and the gradient of the input on its way out. `input_bytes` is 0 of the
/// first stage, whose input is the caller's, and `output_bytes` of the last.
constexpr std::size_t boundary_bytes(std::size_t input_bytes, std::size_t output_bytes,
                                     int in_flight, int micro_batches) {
  const int inputs = in_flight < micro_batches ? in_flight + 1 : in_flight;
  return static_cast<std::size_t>(inputs + 1) * align_up(input_bytes) + 2 * align_up(output_bytes);
}

}}  // namespace adacc::v0_1
