// SPDX-License-Identifier: MIT
/// The options of a Training, given to make().
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

/// How a training is planned, and how its plan follows the costs seen.
struct PlanningOptions {
  /// Whether the plan follows the costs seen while training runs: failing codecs are left, others
  /// return, and errors are probed (and times measured anew, if there is a clock) in at most a
  /// hundredth of the time. set_budget() works without evolution, too.
  bool evolving = true;
  EvolutionOptions evolution{};
  /// Whether times are measured anew if steps get slower or faster, and the plan follows transfers to
  /// the store if their speed changes. A run and its repetition may take these decisions
  /// differently, since they depend on the clock.
  bool watch_times = true;
  /// Whether a whole profile is measured and probed before the first step, for any
  /// budget: for callers who save the profile (io/profile_text.hpp). Needs a clock, and takes about as many
  /// steps as there are kinds of gradient errors.
  bool profile_at_start = false;
  CostProfile profile{};      ///< measured before: times and errors; without nodes there is none
  Planner planner = nullptr;  ///< null: make_plan; plan_with(lp_solve()), if that is linked
  double gap = 2e-3;          ///< plans within this share of the best step time are good enough
  /// How often a plan may recompute an activation if no other plan fits (PlanRequest::most_runs).
  int most_runs = 1;
  double deadline_seconds = 10;  ///< for planning, with a clock
  /// Where the plan may send activations (docs/offload.md); outlives the training. The speed of the store
  /// is measured with the clock before anything is planned, unless `link` gives the speed. A run resumed
  /// from a checkpoint goes on with the link measured by the saved run.
  StoreRef store{};
  LinkCost link{};
  std::size_t most_written_bytes = 0;  ///< to the store, by a step; 0: all of the store's room
};

/// Every option has a default: `{.budget_bytes = 450 * KiB}` is enough.
///
/// Costs. A plan needs the times of layers and codecs. `planning.profile` gives them, if there is one.
/// Otherwise costs are estimated first. With a clock, costs are measured before the first step with a
/// budget below the need of retaining everything, on the batch of this step. Measuring takes as long as
/// about 20 steps, and the plan is made anew. Without a clock the estimate remains, and the same
/// program makes the same plan on every machine.
template <class Context, class Optimizer>
struct TrainingOptions {
  std::size_t budget_bytes = 0;  ///< for the arena; 0: the need of retaining everything
  /// The budget of parameters, gradients, the optimizer's state (or its moment window, if the state is in a
  /// store) and arena in sum; 0: none. The rest for the arena is the arena's budget, unless
  /// `budget_bytes` is less.
  std::size_t total_bytes = 0;
  double tolerance = 1e-2;  ///< the largest relative squared error of the gradient
  ClockRef clock{};         ///< steady seconds, such as steady_seconds; outlives the training
  Context context{};        ///< where steps run: Cpu(ExecutorRef(pool)) for several threads
  std::uint64_t seed = 0;   ///< for parameters and layers with random numbers; 0: the context's
  Clipping clip{};          ///< `.clip = 1`, or {1, ClipBy::previous}
  Optimizer optimizer{};
  /// Where the optimizer's state is, if not in memory: a store for the state alone, and the moment window,
  /// through which the state passes to each update and back (docs/updates.md).
  MomentStore moment_store{};
  /// How the network becomes a graph. The graph's scalar is the training's, and its workers are at least
  /// the context's. For a graph passed to make(), only `updates` and `parameters` count:
  ///
  /// Updates::fused: each layer's parameters are updated in the step, as soon as their gradient is
  /// complete. The gradient is a buffer of the arena, free after the update (docs/updates.md). Without `clip`
  /// or with a clip by the previous norm, and without accumulation.
  ///
  /// ParameterForm::bf16: the block of parameters takes half the bytes, layers compute on copies in
  /// the arena, and updates round stochastically (docs/parameters.md). For elementwise optimizers. On a device with
  /// activations in bfloat16, parameters in full have copies in bfloat16 (ParameterForm::with_copies).
  GraphOptions graph{};
  PlanningOptions planning{};
  std::size_t arena_bytes = 0;  ///< at least as many, for other steps that borrow the arena
  std::string model{};  ///< the network's name in checkpoints, if its parameters do not tell all
};

namespace detail {

/// Graph options with the training's type of numbers, for at least the workers of its context.
template <class Options>
GraphOptions graph_options(const Options& options, Dtype scalar) {
  GraphOptions graph = options.graph;
  const int workers = options.context.workers();
  if (graph.workers < workers) graph.workers = workers;
  graph.scalar = scalar;
  if constexpr (requires { options.context.attention(); })
    if (graph.attention == nullptr) graph.attention = options.context.attention();
  // Both are set later, in one place for the caller's graphs and for graphs made here.
  graph.updates = Updates::separate;
  graph.parameters = ParameterForm::full;
  return graph;
}

}  // namespace detail

}}  // namespace adacc::v0_1
