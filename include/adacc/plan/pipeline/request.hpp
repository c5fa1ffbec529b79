// SPDX-License-Identifier: MIT
/// A pipeline to be planned: the request and the outcome.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"
#include "../../program/in_flight.hpp"
#include "../../program/plan.hpp"
#include "timing.hpp"

namespace adacc { inline namespace v0_1 {

/// The machine of a stage.
struct StageMachine {
  std::size_t memory_bytes =
      0;                    ///< for everything: parameters, gradients, moments, boundaries, steps
  double speed = 1;         ///< divides the profile's times
  double link_rate = 0;     ///< bytes a second from and to the next stage; 0: sending takes no time
  double link_latency = 0;  ///< seconds for each message
};

/// The scheme of the stages' plans.
enum class Recomputation : unsigned char {
  planned,    ///< by make_plan() for each stage; stages may begin in the middle of a block
  full,       ///< each copy of a repeated block keeps only its output, and is recomputed
  selective,  ///< everything is kept but attention's output from q, k and v, which is recomputed
};

struct PipelineRequest {
  Array<StageMachine> stages;  ///< one for each, in the order of the network
  int micro_batches = 1;       ///< in a step; the graph is for one micro-batch
  /// Bytes of a trained and of a frozen parameter element on the stage, with gradient and moments.
  double bytes_per_trained = 16, bytes_per_frozen = 4;
  /// More bytes kept by the optimizer for each parameter, by entry of Graph::parameters. Empty:
  /// bytes_per_trained includes them.
  Array<std::size_t> moment_bytes{};
  /// Seconds of an update for each trained parameter element on a machine of speed 1, once a step.
  double seconds_per_trained = 0;
  double tolerance = 1e-2;  ///< for the gradient's error, by all stages together
  double gap = 2e-3;        ///< PlanRequest::gap of each stage
  Recomputation recomputation = Recomputation::planned;
  ClockRef clock = {};           ///< for the deadline and PipelineOutcome::solve_seconds
  double deadline_seconds = 60;  ///< then the best cuts known are taken
};

/// A stage and its plan.
struct StageOutcome {
  int first = 0, last = 0;  ///< nodes of the network
  Plan plan;                ///< for stage_of(graph, first, last)
  int in_flight = 1;        ///< micro-batches between forward and backward, at most
  InFlightBytes step_bytes;
  std::size_t state_bytes = 0;     ///< parameters, gradients and moments
  std::size_t boundary_bytes = 0;  ///< buffers for receiving and sending (boundary_bytes())
  std::size_t peak_bytes = 0;      ///< state, boundary and the arena of all steps in flight
  double error = 0;                ///< the gradient's, by this plan
  double retain_seconds = 0;       ///< forward and backward of a micro-batch if all were retained
  StageTime time;

  std::size_t arena_bytes() const { return step_bytes.arena(in_flight); }
};

struct PipelineOutcome {
  Array<StageOutcome> stages;
  PipelineTime time;
  std::size_t plans = 0;     ///< made while planning
  double solve_seconds = 0;  ///< 0 without a clock
  bool timed_out = false;

  Array<StageTime> times() const {
    Array<StageTime> times;
    for (const StageOutcome& stage : stages) times.push_back(stage.time);
    return times;
  }
};

/// Bytes of the buffers in which a stage of Pipeline (ranks/pipeline/pipeline.hpp) receives and sends: the inputs
/// of the micro-batches in flight and one ahead; and one buffer each for the output on the way out, the output's
/// gradient on the way in, and the input's gradient on the way out. `input_bytes` is 0 for the first stage,
/// whose input is the caller's; `output_bytes` is 0 for the last.
constexpr std::size_t boundary_bytes(std::size_t input_bytes, std::size_t output_bytes,
                                     int in_flight, int micro_batches) {
  const int inputs = in_flight < micro_batches ? in_flight + 1 : in_flight;
  return static_cast<std::size_t>(inputs + 1) * align_up(input_bytes) + 2 * align_up(output_bytes);
}

}}  // namespace adacc::v0_1
