// SPDX-License-Identifier: MIT
/// The order of work in the stages of a pipeline, and the time of a step.
///
/// One forward, one backward (Narayanan et al., "PipeDream", SOSP 2019; the flush at the end as in
/// "Efficient large-scale language model training on GPU clusters", SC 2021). With n stages from a stage to
/// the end, this stage begins n micro-batches, then does a backward for each further forward. So at most n
/// are in flight there, and backward goes through the micro-batches in order.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"

namespace adacc { inline namespace v0_1 {

/// The most micro-batches between forward and backward at stage `stage` of `stages`.
constexpr int in_flight(int stages, int stage, int micro_batches) {
  return stages - stage < micro_batches ? stages - stage : micro_batches;
}

/// A pipeline task of a stage: forward or backward of a micro-batch.
struct PipelineTask {
  int micro_batch = 0;
  bool backward = false;
};

/// Pipeline task `i`, from 0 to 2 * micro_batches - 1, of a stage.
constexpr PipelineTask task_of(int stages, int stage, int micro_batches, int i) {
  const int ahead = stages - stage - 1 < micro_batches ? stages - stage - 1 : micro_batches;
  const int steady = 2 * (micro_batches - ahead);
  if (i < ahead) return {i, false};
  if (i < ahead + steady)
    return (i - ahead) % 2 == 0 ? PipelineTask{ahead + (i - ahead) / 2, false}
                                : PipelineTask{(i - ahead) / 2, true};
  return {i - micro_batches, true};
}

/// The times of a stage, in seconds.
struct StageTime {
  double forward = 0;     ///< for a micro-batch
  double backward = 0;    ///< for a micro-batch, with the loss and recomputation
  double activation = 0;  ///< sending the output to the next stage
  double gradient = 0;    ///< sending the input's gradient to the stage before
  double update = 0;      ///< once after the last backward

  constexpr double computing() const { return forward + backward; }
};

struct PipelineTime {
  double seconds = 0;  ///< for a step, updates included
  double bubble = 0;   ///< waiting, as a share of the stages' time before updates
};

/// Plays a step. A stage computes one task at a time, and sends meanwhile, in each direction one tensor
/// after the other. Receivers always have room. Calls `visit(stage, turn, from, to)` for every task, in
/// each stage in the order of time.
template <class Visit>
constexpr PipelineTime simulate_pipeline(const Array<StageTime>& stages, int micro_batches,
                                         const Visit& visit) {
  const int count = static_cast<int>(stages.size());
  const auto batches = static_cast<std::size_t>(micro_batches);
  struct Lane {
    int turn = 0;
    double now = 0, busy = 0;
    double sent_forward = 0, sent_backward = 0;  // when the link is free
  };
  Array<Lane> lanes(stages.size());
  // The times at which tensors arrive, by stage and micro-batch; negative until known.
  Array<double> activations(stages.size() * batches), gradients(stages.size() * batches);
  for (double& at : activations) at = -1;
  for (double& at : gradients) at = -1;
  PipelineTime time;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < count; ++s) {
      const auto i = static_cast<std::size_t>(s);
      Lane& lane = lanes[i];
      for (; lane.turn < 2 * micro_batches; ++lane.turn) {
        const PipelineTask turn = task_of(count, s, micro_batches, lane.turn);
        const std::size_t at = i * batches + static_cast<std::size_t>(turn.micro_batch);
        const bool alone = turn.backward ? s + 1 == count : s == 0;
        const double ready = alone ? 0 : turn.backward ? gradients[at] : activations[at];
        if (ready < 0) break;
        const double from = ready > lane.now ? ready : lane.now;
        const double takes = turn.backward ? stages[i].backward : stages[i].forward;
        lane.now = from + takes;
        lane.busy += takes;
        visit(s, turn, from, lane.now);
        moved = true;
        const auto send = [](double now, double& link, double takes_so_long) {
          link = (now > link ? now : link) + takes_so_long;
          return link;
        };
        if (!turn.backward && s + 1 < count)
          activations[at + batches] = send(lane.now, lane.sent_forward, stages[i].activation);
        if (turn.backward && s > 0)
          gradients[at - batches] = send(lane.now, lane.sent_backward, stages[i].gradient);
      }
    }
  }
  double computed = 0, busy = 0;
  for (int s = 0; s < count; ++s) {
    const Lane& lane = lanes[static_cast<std::size_t>(s)];
    const double end = lane.now + stages[static_cast<std::size_t>(s)].update;
    if (end > time.seconds) time.seconds = end;
    if (lane.now > computed) computed = lane.now;
    busy += lane.busy;
  }
  time.bubble = computed > 0 ? 1 - busy / (computed * count) : 0;
  return time;
}

constexpr PipelineTime simulate_pipeline(const Array<StageTime>& stages, int micro_batches) {
  return simulate_pipeline(stages, micro_batches, [](int, PipelineTask, double, double) {});
}

}}  // namespace adacc::v0_1
