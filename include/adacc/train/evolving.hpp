/// Training under a plan that evolves: statistics in, new programs between steps.
///
/// Puts Training and Evolution together. Everything happens at the boundary before a step: where
/// observations or a new budget call for another plan, it is compiled, the arena exchanged, and the
/// step runs under it; parameters, moments and batches know nothing of it, and no step is lost.
#pragma once

#include <cstddef>
#include <utility>

#include "../evolve/evolution.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float>
class EvolvingTraining {
 public:
  /// Seconds of a steady clock, for times that drift; null: times are not watched.
  double (*clock)() = nullptr;

  /// Plans `network` (which must outlive it) for inputs of shape `input` and takes the memory for
  /// it, as Training::make does. `arena_bytes` is what others that borrow the arena need of it,
  /// whatever the plan.
  template <class Network>
  static Result<EvolvingTraining> make(const Network& network, Shape input, CostProfile profile,
                                       const PlanRequest& request, Planner planner,
                                       const Cpu& cpu = Cpu{}, const EvolutionOptions& options = {},
                                       std::size_t arena_bytes = 0) {
    Result<Graph> graph = make_graph(network, input, {.scalar = dtype_of<T>, .workers = cpu.workers()});
    if (!graph) return graph.error;
    return make(make_dispatch<T, Cpu>(network), std::move(*graph), std::move(profile), request,
                planner, cpu, options, arena_bytes);
  }
  template <class Network>
  static Result<EvolvingTraining> make(const Network&&, Shape, CostProfile, const PlanRequest&,
                                       Planner, const Cpu& = Cpu{}, const EvolutionOptions& = {},
                                       std::size_t = 0) = delete;

  static Result<EvolvingTraining> make(Dispatch<T, Cpu> dispatch, Graph graph, CostProfile profile,
                                       const PlanRequest& request, Planner planner, const Cpu& cpu,
                                       const EvolutionOptions& options = {},
                                       std::size_t arena_bytes = 0) {
    Result<Evolution> evolution =
        Evolution::start(std::move(graph), std::move(profile), request, planner, options);
    if (!evolution) return evolution.error;
    Result<Program> program = make_program(evolution->graph(), evolution->plan());
    if (!program) return program.error;
    Result<Training<T>> training =
        Training<T>::make(std::move(dispatch), std::move(*program), cpu, arena_bytes);
    if (!training) return training.error;
    EvolvingTraining made;
    made.evolution_ = std::move(*evolution);
    made.training_ = std::move(*training);
    return made;
  }

  /// The boundary, and then a step of Training. What the boundary did is in last_update().
  template <class X, class Y>
  Result<typename Training<T>::Outcome> step(View<X> input, View<Y> targets, double lr) {
    boundary();
    const bool watched = evolution_.wants_statistics(training_.updates);
    training_.compiled().watch(watched);
    const double start = clock == nullptr ? 0 : clock();
    Result<typename Training<T>::Outcome> outcome = training_.step(input, targets, lr);
    if (!outcome || !outcome->finite) return outcome;
    if (watched) observe_codecs();
    else if (clock != nullptr) evolution_.observe_seconds(clock() - start);
    return outcome;
  }

  /// The arena may be as large as this from the next step on, up or down. Where no plan fits, the
  /// next boundary says so and the old budget stays.
  void set_budget(std::size_t bytes) { evolution_.set_budget(bytes); }

  /// Changes made at the boundary before the step that ran last, or why a change was not made.
  const EvolutionUpdate& last_update() const { return update_; }

  /// Between steps, for what is observed elsewhere: where wants_probe(training().updates) or
  /// wants_profile(), and observe_error() or observe_profile() with what was measured.
  Evolution& evolution() { return evolution_; }
  const Evolution& evolution() const { return evolution_; }
  Training<T>& training() { return training_; }
  const Training<T>& training() const { return training_; }

 private:
  void boundary() {
    update_ = evolution_.advance(training_.updates);
    if (!update_.changed) return;
    Result<Program> program = make_program(evolution_.graph(), evolution_.plan());
    const Error why = program ? training_.switch_to(std::move(*program)) : program.error;
    if (!why) return;
    evolution_.undo();
    update_ = {};
    update_.failed = why;
  }

  void observe_codecs() {
    for (int k = 0; k < evolution_.graph().node_count(); ++k)
      if (evolution_.plan()[k].codec() != nullptr)
        evolution_.observe_statistics(k, training_.compiled().statistics(k));
  }

  Evolution evolution_;
  Training<T> training_;
  EvolutionUpdate update_;
};

}}  // namespace adacc::v0_1
