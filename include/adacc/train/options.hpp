// SPDX-License-Identifier: MIT
/// What a Training can be told when it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/clock.hpp"
#include "../cost/profile.hpp"
#include "../evolve/options.hpp"
#include "../model/graph_builder.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "../optimizer/stored_moments.hpp"
#include "../plan/request.hpp"
#include "../store/store.hpp"

namespace adacc { inline namespace v0_1 {

/// How a training is planned, and how its plan follows what is seen.
struct PlanningOptions {
  /// Whether the plan follows what is seen while training runs: codecs that fail are left, others
  /// return, and errors are probed (and times measured anew, if there is a clock) in at most a
  /// hundredth of the time. set_budget() works without it, too.
  bool evolving = true;
  EvolutionOptions evolution{};
  /// Whether steps that get slower or faster make times be measured anew, and transfers to the store
  /// that do, the plan follow. These are the decisions that a run and its repetition may take
  /// differently, since they look at the clock.
  bool watch_times = true;
  /// Whether all that a profile holds is measured and probed before the first step, whatever the
  /// budget: for those who keep it (io/profile_text.hpp). Needs a clock, and takes about as many
  /// steps as there are kinds of gradient errors.
  bool profile_at_start = false;
  CostProfile profile{};         ///< measured before: times and errors; without nodes there is none
  Planner planner = nullptr;     ///< null: make_plan; plan_with(lp_solve()), if that is linked
  double gap = 2e-3;             ///< plans within this share of the best step time are good enough
  double deadline_seconds = 10;  ///< of planning, with a clock
  /// Where the plan may send activations (docs/offload.md); it outlives the training. How fast it is
  /// is measured before anything is planned, with the clock, unless `link` says so; a run that goes
  /// on from a checkpoint goes on with the link as that one had found it to be.
  StoreRef store{};
  LinkCost link{};
  std::size_t most_written_bytes = 0;  ///< to the store, by a step; 0: all that it has room for
};

/// All of it has a default: `{.budget_bytes = 450 * KiB}` is enough.
///
/// Costs. A plan needs to know what layers and codecs take. With `planning.profile` that is what it says.
/// Otherwise costs are estimated first; with a clock they are measured before the first step whose
/// budget is less than what retaining everything needs, on its batch, which takes as long as about
/// 20 steps, and the plan is made anew. Without a clock the estimate it remains, and the same
/// program makes the same plan on every machine.
template <class Context, class Optimizer>
struct TrainingOptions {
  std::size_t budget_bytes = 0;  ///< of the arena; 0: what retaining everything needs
  /// Of parameters, gradients, the optimizer's state (or its window, if that is in a store) and arena in
  /// sum; 0: no matter. What is left
  /// for the arena is its budget, if `budget_bytes` is not less.
  std::size_t total_bytes = 0;
  double tolerance = 1e-2;  ///< the largest relative squared error of the gradient
  ClockRef clock{};         ///< of steady seconds, such as steady_seconds; outlives the training
  Context context{};        ///< where it runs: Cpu(ExecutorRef(pool)) for several threads
  std::uint64_t seed = 0;   ///< of parameters and of layers that draw numbers; 0: the context's
  Clipping clip{};          ///< `.clip = 1`, or {1, ClipBy::previous}
  Optimizer optimizer{};
  /// Where the optimizer's state is, if not in memory: a store of its own, and the memory that the state
  /// passes through on its way to each update and back (docs/updates.md).
  MomentStore moment_store{};
  /// How the network becomes a graph. Its scalar is the training's, and its workers are at least the
  /// context's. A graph that is passed to make() takes only `updates` and `parameters` from here:
  ///
  /// Updates::fused: each layer's parameters are updated in the step, as soon as their gradient is
  /// complete, and that is a buffer of the arena, gone behind it (docs/updates.md). Without `clip`, or with
  /// it by the previous norm, and without accumulation.
  ///
  /// ParameterForm::bf16: the block of parameters takes half the bytes, layers compute on copies in
  /// the arena, and updates round stochastically (docs/parameters.md). For elementwise optimizers.
  GraphOptions graph{};
  PlanningOptions planning{};
  std::size_t arena_bytes = 0;  ///< that others who borrow the arena need of it
  std::string model{};  ///< what checkpoints call the network, if its parameters do not tell all
};

namespace detail {

/// The options of the graph of a training: of its type of numbers, for the workers of its context.
template <class Options>
GraphOptions graph_options(const Options& options, Dtype scalar) {
  GraphOptions graph = options.graph;
  const int workers = options.context.workers();
  if (graph.workers < workers) graph.workers = workers;
  graph.scalar = scalar;
  // A graph that is there, and one that is made, become those of the training in one place.
  graph.updates = Updates::separate;
  graph.parameters = ParameterForm::full;
  return graph;
}

}  // namespace detail

}}  // namespace adacc::v0_1
