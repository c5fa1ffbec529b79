// SPDX-License-Identifier: MIT
/// The evolving plan of a training: measures, probes and watches between steps.
///
/// Puts Training and Evolution together. Everything happens at the boundary before an update: if
/// observations or a new budget call for another plan, the new plan is compiled, the arena exchanged, and the
/// step runs under the new plan. Parameters, moments and batches do not change, and no step is lost.
///
/// Costs of evolution. Reading the codecs' statistics takes less than a thousandth of a step. Probing
/// gradient errors takes steps of its own, at most one for each hundred updates, and codecs
/// not in use get at most half of these. The number of updates alone decides, so a run that is repeated,
/// or stopped and resumed, probes the same. Measuring times anew, if times drifted by the clock,
/// takes at most a hundredth of the time. If the plan does not use the store, the store is measured every
/// thousand steps, by some twenty activations, written and read, within the same hundredth.
///
/// Several ranks keep one plan by the same rules (ranks/data_parallel/ranked_plan.hpp): all ranks measure
/// together, and change to another plan together.
///
/// A device differs in the link, which nobody times there. Statistics of codecs are copied to
/// the host after the update of a watched step, and gradients are sketched in the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "../cost/measure.hpp"
#include "../cost/measure_link.hpp"
#include "../cost/probe.hpp"
#include "../io/evolution_text.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, class Context, class Optimizer>
class EvolvingPlan : public PlanKeeper<Training<T, Context, Optimizer>> {
 public:
  using Owner = Training<T, Context, Optimizer>;
  using Options = TrainingOptions<Context, Optimizer>;

  EvolvingPlan(Evolution evolution, const Options& options)
      : evolution_(std::move(evolution)), clock_(options.clock),
        evolving_(options.planning.evolving), watch_times_(options.planning.watch_times),
        costs_known_(!options.planning.profile.nodes.empty()),
        profile_at_start_(options.planning.profile_at_start) {}

  Evolution& evolution() override { return evolution_; }
  ClockRef clock() const override { return clock_; }

  /// Whether costs are estimates, to be replaced by a measurement before a step runs.
  bool to_be_measured() const {
    return clock_ && !costs_known_ &&
           (profile_at_start_ ||
            evolution_.wanted_budget_bytes() < evolution_.outcome().retain_peak_bytes);
  }

  Error prepare(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    if (!to_be_measured()) return {};
    costs_known_ = true;  // only one attempt, even if it fails
    const double start = clock_();
    boundary.looked = true;
    Result<CostProfile> profile = measure_costs(training, input, targets, true);
    // If the arena is too small for measuring, the estimated plan stays until steps were timed.
    if (!profile) {
      estimated_ = true;
      return fit_arena(training);
    }
    copy_errors(evolution_.profile(), *profile);
    if (profile_at_start_) probe_all(training, *profile, input, targets);
    measuring_ += clock_() - start;
    PlanRequest request = evolution_.request();
    request.budget_bytes = evolution_.wanted_budget_bytes();
    Result<Evolution> next = Evolution::start(evolution_.graph(), std::move(*profile), request,
                                              evolution_.planner(), evolution_.options());
    if (!next) {
      boundary.update.failed = next.error;
      return fit_arena(training);
    }
    if (training.updates() > 0) next->number_plans_from(evolution_.plan().version);
    if (const Error why = run_plan(training, *next)) {
      boundary.update.failed = why;
      return {};
    }
    evolution_ = std::move(*next);
    read_clock_at_ = 0;
    boundary.measured = true;
    return {};
  }

  Error before(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    if (const Error why = decide(training, boundary, input, targets)) return why;
    watch(training);
    return {};
  }

  void after(Owner& training, double seconds) override {
    const TransferTimes& transfers = training.compiled_step().transfer_times();
    evolution_.observe_transfers(training.compiled_step().program().schedule, transfers);
    if (watched_) {
      // If reading fails, the next step says why.
      static_cast<void>(training.read_watched());
      for (int k = 0; k < evolution_.graph().node_count(); ++k)
        if (evolution_.plan()[k].codec() != nullptr)
          evolution_.observe_statistics(k, training.compiled_step().statistics(k));
    } else if (evolving_ && watch_times_ && seconds > 0) {
      // Waiting, and an update, that nobody times count as long as planned.
      if constexpr (TrainingMemory<Context>::on_host)
        evolution_.observe_seconds(seconds, transfers.stall_seconds());
      else
        evolution_.observe_seconds(seconds + evolution_.profile().rest,
                                   evolution_.outcome().stall_seconds);
    }
    stop_watching(training);
  }

  std::string text() const override { return text_of(evolution_); }

  Error restore(Owner& training, Plan plan, const std::string& text) override {
    return become(text, std::move(plan), evolution_.wanted_request(),
                  [&](const Evolution& evolution) { return switch_to(training, evolution); });
  }

  /// Plans anew if observations, or another budget, ask for another plan.
  void advance(Owner& training, PlanBoundary& boundary) {
    const Error failed = boundary.update.failed;
    boundary.update =
        evolution_.advance(training.updates(), [&] { return run_plan(training, evolution_); });
    if (!boundary.update.failed) boundary.update.failed = failed;
  }

 protected:
  /// Measures and probes if due, and runs the plan that follows.
  Error decide(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) {
    if (const Error why = EvolvingPlan::prepare(training, boundary, input, targets)) return why;
    if (evolving_) look(training, boundary, input, targets);
    advance(training, boundary);
    return {};
  }

  /// Starts to observe the steps of an update.
  void watch(Owner& training) {
    watched_ = evolving_ && evolution_.wants_statistics(training.updates()) && uses_codecs();
    const bool timed = evolving_ && watch_times_ && TrainingMemory<Context>::on_host;
    training.compiled_step().time_transfers(timed ? clock_ : ClockRef{});
    // The caller's program, with codecs that no plan here would choose, may go unwatched.
    watched_ = watched_ && !training.compiled_step().watch(training.watched_.view());
  }
  bool uses_codecs() const {
    const Plan& plan = evolution_.plan();
    for (int k = 0; k < evolution_.graph().node_count(); ++k)
      if (plan[k].codec() != nullptr) return true;
    return false;
  }
  void stop_watching(Owner& training) {
    watched_ = false;
    training.compiled_step().stop_watching();
  }

  /// Costs by now. `at_start`: with the update's time, if there was no update yet. Several ranks measure
  /// together.
  virtual Result<CostProfile> measure_costs(Owner& training, AnyView input, AnyView targets,
                                            bool at_start) {
    return measured(training, input, targets, at_start);
  }
  /// Trains on under the plan of `evolution`; an error changes nothing. Several ranks change plans together.
  virtual Error run_plan(Owner& training, const Evolution& evolution) {
    return switch_to(training, evolution);
  }

  /// Costs on this rank.
  Result<CostProfile> measured(Owner& training, AnyView input, AnyView targets, bool at_start) {
    Result<CostProfile> profile =
        measure(training.context(), training.compiled_step().dispatch(), evolution_.graph(),
                training.arena(), training.params_.lend(), training.gradients(), input, targets,
                clock_, {}, training.compiled_step().lent_loss());
    if (!profile) return profile;
    profile->rest = evolution_.profile().rest;
    if (at_start && training.updates() == 0 && !evolution_.graph().fuses_updates())
      time_update(training, *profile);
    return profile;
  }

  /// The text for a checkpoint, if the plan is that of `evolution`.
  std::string text_of(const Evolution& evolution) const {
    const double elapsed = elapsed_ + (clock_ && started_ > 0 ? clock_() - started_ : 0);
    return evolution_text(evolution, [&](const auto& visit) { fields(*this, elapsed, visit); });
  }

  /// Restores the state saved as `text` with `plan`, if `run(evolution)` can run the plan.
  template <class Run>
  Error become(const std::string& text, Plan plan, const PlanRequest& request, const Run& run) {
    EvolvingPlan then(*this);
    double elapsed = 0;
    Result<Evolution> evolution = parse_evolution(
        text, evolution_.graph(), std::move(plan), request, evolution_.planner(),
        evolution_.options(), [&](const auto& visit) { fields(then, elapsed, visit); });
    if (!evolution) return Error::say("what evolved ", evolution.error.text());
    if (const Error why = run(*evolution)) return why;
    *this = std::move(then);
    evolution_ = std::move(*evolution);
    elapsed_ = elapsed;
    started_ = read_clock_at_ = 0;
    return {};
  }

  /// Compiles the plan of `evolution` for `training`.
  static Error switch_to(Owner& training, const Evolution& evolution) {
    Result<Program> program = make_program(evolution.graph(), evolution.plan());
    return program ? training.switch_to(std::move(*program)) : program.error;
  }

 private:
  static constexpr double measuring_steps = 20;  ///< time of a measurement, in steps

  /// The members in checkpoints, beside Evolution's.
  template <class Self, class Elapsed, class Visit>
  static void fields(Self& self, Elapsed& elapsed, const Visit& visit) {
    visit("costs_known", self.costs_known_);
    visit("costs_estimated", self.estimated_);
    visit("probing_steps", self.probing_steps_);
    visit("idle_probing_steps", self.idle_probing_steps_);
    visit("probed_turn", self.turn_);
    visit("idle_probed_turn", self.idle_turn_);
    visit("measuring_seconds", self.measuring_);
    visit("elapsed_seconds", elapsed);
  }

  /// Shrinks an arena that was larger for a measurement to the plan's size.
  Error fit_arena(Owner& training) { return run_plan(training, evolution_); }

  /// Times norm and update before the first update: at the rate 0 nothing changes.
  void time_update(Owner& training, CostProfile& profile) {
    Array<double> seconds;
    for (int i = 0; i < 3; ++i) {
      const double start = clock_();
      const double norm = training.memory_.norm(training.context(), training.gradients());
      // The next step reports a failed store.
      if (training.run_optimizer({1, 0, clip_scale(norm, 1), training.context().key})) return;
      seconds.push_back(clock_() - start);
    }
    const double rest = median(seconds);
    if (rest > 0 && rest < 1e9) profile.rest = rest;
  }

  void probe_all(Owner& training, CostProfile& profile, AnyView input, AnyView targets) {
    GradientErrors probed;
    GradientProbe probe(training.context(), training.compiled_step().dispatch(), evolution_.graph(),
                        training.arena(), training.params_.lend(), training.gradients(), input,
                        targets, training.compiled_step().lent_loss());
    for (const ErrorClass& what : error_classes(evolution_.graph()))
      static_cast<void>(probe.probe(what, probed));  // estimates stay if a probe does not fit
    probed.write(evolution_.graph(), profile);
  }

  /// Makes the observations that are due.
  void look(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) {
    if (evolution_.wants_probe(training.updates()) && evolution_.outcome().error > 0)
      boundary.looked |= probe(training, input, targets);
    if (!clock_ || !watch_times_) return;
    // The clock of a device waits for it, so the clock is read only when the time is wanted, and not before the steps
    // since the last reading have taken the seconds that were missing.
    if (!(started_ > 0)) started_ = clock_();
    if (TrainingMemory<Context>::on_host && evolution_.wants_link(training.updates()))
      look_at_link(training, boundary);
    if (estimated_) scale_estimates(boundary);
    if (!evolution_.wants_profile() || evolution_.observed_seconds() < read_clock_at_) return;
    const double before = clock_();
    const double missing = missing_for(measuring_steps * evolution_.outcome().seconds, before);
    if (missing > 0) {
      if (!TrainingMemory<Context>::on_host)
        read_clock_at_ = evolution_.observed_seconds() + missing;
      return;
    }
    boundary.looked = true;
    Result<CostProfile> profile = measure_costs(training, input, targets, false);
    measuring_ += clock_() - before;
    // If the arena is too small for measuring, the plan stays.
    if (!profile) return;
    estimated_ = false;
    if (const Error why = evolution_.observe_profile(std::move(*profile)))
      boundary.update.failed = why;
  }

  /// Scales estimated costs to the time of a step, since plans weigh this time against the link. The ratios
  /// between instructions stay estimates.
  void scale_estimates(PlanBoundary& boundary) {
    const double times = evolution_.times_predicted();
    if (!(times > 0)) return;
    estimated_ = false;
    CostProfile profile = evolution_.profile();
    scale(profile, times);
    profile.rest *= times;
    if (const Error why = evolution_.observe_profile(std::move(profile)))
      boundary.update.failed = why;
  }

  /// How long after `now` so many `seconds` stay within the hundredth for measuring; 0 or less: they do now.
  double missing_for(double seconds, double now) const {
    return 100 * (measuring_ + seconds) - (elapsed_ + now - started_);
  }

  /// Measures the store between steps, when nothing lives in the arena.
  void look_at_link(Owner& training, PlanBoundary& boundary) {
    const LinkMeasurement how{.clock = clock_, .repeats = 3};
    const StoreRef store = training.store_;
    const Bytes memory = training.arena();
    const double start = clock_();
    const Graph& graph = evolution_.graph();
    const LinkCost& link = evolution_.request().link;
    const double seconds = seconds_to_measure(link, store, memory.size(), graph, how);
    if (!(missing_for(seconds, start) <= 0)) return;
    boundary.looked = true;
    // If measuring fails, or the arena is too small for a few transfers, the known link stays.
    if (auto found = measure_link(store, memory, graph, how); found) {
      found->begin_per_byte = link.begin_per_byte;  // does not depend on the link's speed
      evolution_.observe_link(*found);
    }
    measuring_ += clock_() - start;
    if (const Error why = training.bind(training.compiled_step())) boundary.update.failed = why;
  }

  /// Probes errors of codecs in use, in turn, and then errors of codecs not in use.
  /// Returns whether a step was taken.
  bool probe(Owner& training, AnyView input, AnyView targets) {
    const Graph& graph = evolution_.graph();
    Array<ErrorClass> in_use;
    evolution_.each_class_to_probe([&](int layer, const CodecInfo* codec, bool carried) {
      in_use.push_back({layer, codec, carried});
    });
    GradientErrors errors;
    const std::uint64_t most = training.updates() / 100, before = probing_steps_;
    {
      GradientProbe probe(training.context(), training.compiled_step().dispatch(), graph,
                          training.arena(), training.params_.lend(), training.gradients(), input,
                          targets, training.compiled_step().lent_loss());
      // A probe takes two steps at most: the codec's and, for the first class, the reference's.
      const auto probe_in_turn = [&](const Array<ErrorClass>& classes, std::uint64_t& turn,
                                     std::uint64_t& taken, std::uint64_t limit) {
        for (std::size_t i = 0; i < classes.size(); ++i) {
          if (taken + 2 > limit || probing_steps_ + 2 > most) return;
          const ErrorClass& what = classes[static_cast<std::size_t>(turn % classes.size())];
          ++turn;
          if (errors.entry(what).batches > 0) continue;
          const int ran = probe.steps();
          // Errors stay as before if a probe does not fit into the arena.
          static_cast<void>(probe.probe(what, errors));
          const auto took = static_cast<std::uint64_t>(probe.steps() - ran);
          if (&taken != &probing_steps_) taken += took;
          probing_steps_ += took;
        }
      };
      probe_in_turn(in_use, turn_, probing_steps_, most);
      probe_in_turn(error_classes(graph), idle_turn_, idle_probing_steps_, most / 2);
    }
    evolution_.observe_errors(errors);
    return probing_steps_ != before;
  }

 protected:
  Evolution evolution_;
  ClockRef clock_;
  bool evolving_ = true;
  bool watch_times_ = true;
  bool costs_known_ = false;  ///< measured here, or given as a profile
  bool estimated_ = false;    ///< costs could not be measured, for want of memory
  bool watched_ = false;      ///< statistics of the running step are read

 private:
  bool profile_at_start_ = false;
  std::uint64_t probing_steps_ = 0;         ///< taken so far
  std::uint64_t idle_probing_steps_ = 0;    ///< for codecs not in use alone
  std::uint64_t turn_ = 0, idle_turn_ = 0;  ///< which class is probed next
  double started_ = 0;                      ///< when this process began to look
  double elapsed_ = 0;                      ///< seconds of the processes before
  double measuring_ = 0;                    ///< seconds spent on measuring
  double read_clock_at_ = 0;                ///< of evolution_.observed_seconds()
};

}}}  // namespace adacc::v0_1::detail
