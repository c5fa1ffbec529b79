// SPDX-License-Identifier: MIT
/// The plan of a training that evolves: what is measured, probed and watched between its steps.
///
/// Puts Training and Evolution together. Everything happens at the boundary before an update: if
/// observations or a new budget call for another plan, it is compiled, the arena exchanged, and the
/// step runs under it; parameters, moments and batches know nothing of it, and no step is lost.
///
/// What it costs. Reading the codecs' statistics takes less than a thousandth of a step. Probing
/// gradient errors takes steps of its own, at most one for each hundred that trained, those of codecs
/// not in use at most half of these; the number of steps alone decides, so a run that is repeated,
/// or stopped and resumed, probes the same. Measuring times anew, if they drifted by the clock,
/// takes at most a hundredth of the time. A store that the plan does not use is measured again every
/// thousand steps, by some twenty activations that are written and read, within the same hundredth.
///
/// Several ranks keep one plan by the same rules (ranks/data_parallel/ranked_plan.hpp): what they measure, and the change
/// to another plan, is then a matter of all of them.
///
/// On a device all of it is the same but for the link, which nobody times there: what codecs saw is copied to
/// the host after the update of a step that is watched, and gradients are sketched where they are.
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

  /// Whether costs are estimates that a measurement is to replace before a step runs.
  bool to_be_measured() const {
    return clock_ && !costs_known_ &&
           (profile_at_start_ ||
            evolution_.wanted_budget_bytes() < evolution_.outcome().retain_peak_bytes);
  }

  Error prepare(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    if (!to_be_measured()) return {};
    costs_known_ = true;  // once, whatever comes of it
    const double start = clock_();
    boundary.looked = true;
    Result<CostProfile> profile = measure_costs(training, input, targets, true);
    // An arena that is too small to measure in leaves the plan as it is estimated, until steps were timed.
    if (!profile) {
      estimated_ = true;
      return fit_arena(training);
    }
    const CostProfile& known = evolution_.profile();
    for (int k = 0; k < evolution_.graph().node_count(); ++k)
      for (std::size_t c = 0; c < profile->codecs.size(); ++c) {
        CodecCost& cost = profile->codec_cost(k, static_cast<int>(c));
        const CodecCost& was = known.codec_cost(k, known.column(profile->codecs[c]));
        cost.error = was.error;
        cost.carried_error = was.carried_error;
      }
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
      // If it cannot be read, the step that follows says why.
      static_cast<void>(training.read_watched());
      for (int k = 0; k < evolution_.graph().node_count(); ++k)
        if (evolution_.plan()[k].codec() != nullptr)
          evolution_.observe_statistics(k, training.compiled_step().statistics(k));
    } else if (evolving_ && watch_times_ && seconds > 0) {
      // If waiting is not timed, it is taken to be as long as planned.
      evolution_.observe_seconds(seconds, TrainingMemory<Context>::on_host
                                              ? transfers.stall_seconds()
                                              : evolution_.outcome().stall_seconds);
    }
    stop_watching(training);
  }

  std::string text() const override { return text_of(evolution_); }

  Error restore(Owner& training, Plan plan, const std::string& text) override {
    return become(text, std::move(plan), evolution_.wanted_request(),
                  [&](const Evolution& evolution) { return switch_to(training, evolution); });
  }

 protected:
  /// Measures and probes what is due, and has what follows from it run.
  Error decide(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) {
    if (const Error why = EvolvingPlan::prepare(training, boundary, input, targets)) return why;
    if (evolving_) look(training, boundary, input, targets);
    advance(training, boundary);
    return {};
  }

  /// Plans anew if what was observed, or another budget, asks for it.
  void advance(Owner& training, PlanBoundary& boundary) {
    const Error failed = boundary.update.failed;
    boundary.update =
        evolution_.advance(training.updates(), [&] { return run_plan(training, evolution_); });
    if (!boundary.update.failed) boundary.update.failed = failed;
  }

  /// From now on what the update tells is seen.
  void watch(Owner& training) {
    watched_ = evolving_ && evolution_.wants_statistics(training.updates());
    const bool timed = evolving_ && watch_times_ && TrainingMemory<Context>::on_host;
    training.compiled_step().time_transfers(timed ? clock_ : ClockRef{});
    // A program of the caller's, with codecs that no plan here would choose, may go unwatched.
    watched_ = watched_ && !training.compiled_step().watch(training.watched_.view());
  }
  void stop_watching(Owner& training) {
    watched_ = false;
    training.compiled_step().stop_watching();
  }

  /// What costs are by now; `at_start`: of the update, too, if there was none. Several ranks find them
  /// together.
  virtual Result<CostProfile> measure_costs(Owner& training, AnyView input, AnyView targets,
                                            bool at_start) {
    return measured(training, input, targets, at_start);
  }
  /// Trains on under the plan of `evolution`, or all is as it was. Several ranks do so together.
  virtual Error run_plan(Owner& training, const Evolution& evolution) {
    return switch_to(training, evolution);
  }

  /// Costs as they are here.
  Result<CostProfile> measured(Owner& training, AnyView input, AnyView targets, bool at_start) {
    Result<CostProfile> profile =
        measure(training.context(), training.compiled_step().dispatch(), evolution_.graph(),
                training.arena(), training.parameters(), training.gradients(), input, targets,
                clock_, {}, training.compiled_step().lent_loss());
    if (!profile) return profile;
    profile->rest = evolution_.profile().rest;
    if (at_start && training.updates() == 0 && !evolution_.graph().fuses_updates())
      time_update(training, *profile);
    return profile;
  }

  /// What a checkpoint keeps of it, if the plan is that of `evolution`.
  std::string text_of(const Evolution& evolution) const {
    const double elapsed = elapsed_ + (clock_ && started_ > 0 ? clock_() - started_ : 0);
    return evolution_text(evolution, [&](const auto& visit) { fields(*this, elapsed, visit); });
  }

  /// Becomes the one that left `text`, whose plan was `plan`, if that can be run: `run(evolution)`.
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
    started_ = 0;
    return {};
  }

  /// Compiles the plan of `evolution` for `training`.
  static Error switch_to(Owner& training, const Evolution& evolution) {
    Result<Program> program = make_program(evolution.graph(), evolution.plan());
    return program ? training.switch_to(std::move(*program)) : program.error;
  }

 private:
  static constexpr double measuring_steps = 20;  ///< that measuring takes about as long as

  /// What is remembered beside what Evolution remembers.
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

  /// An arena that was larger for a measurement becomes that of the plan.
  Error fit_arena(Owner& training) { return run_plan(training, evolution_); }

  /// Times norm and update, before the first: at the rate 0 they change nothing.
  void time_update(Owner& training, CostProfile& profile) {
    Array<double> seconds;
    for (int i = 0; i < 3; ++i) {
      const double start = clock_();
      const double norm = training.memory_.norm(training.context(), training.gradients());
      // A store that failed is what the step that follows says.
      if (training.run_optimizer({1, 0, clip_scale(norm, 1), training.context().key})) return;
      seconds.push_back(clock_() - start);
    }
    const double rest = median(seconds);
    if (rest > 0 && rest < 1e9) profile.rest = rest;
  }

  void probe_all(Owner& training, CostProfile& profile, AnyView input, AnyView targets) {
    GradientErrors probed;
    GradientProbe probe(training.context(), training.compiled_step().dispatch(), evolution_.graph(),
                        training.arena(), training.parameters(), training.gradients(), input,
                        targets, training.compiled_step().lent_loss());
    for (const ErrorClass& what : error_classes(evolution_.graph()))
      static_cast<void>(probe.probe(what, probed));  // what does not fit stays as it is estimated
    probed.write(evolution_.graph(), profile);
  }

  /// What observations are due.
  void look(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) {
    if (evolution_.wants_probe(training.updates()) && evolution_.outcome().error > 0)
      boundary.looked |= probe(training, input, targets);
    if (!clock_ || !watch_times_) return;
    const double before = clock_();
    if (!(started_ > 0)) started_ = before;
    if (TrainingMemory<Context>::on_host && evolution_.wants_link(training.updates()))
      look_at_link(training, boundary);
    if (estimated_) scale_estimates(boundary);
    const double takes = measuring_steps * evolution_.outcome().seconds;
    if (!evolution_.wants_profile() || !may_take(takes, before)) return;
    boundary.looked = true;
    Result<CostProfile> profile = measure_costs(training, input, targets, false);
    measuring_ += clock_() - before;
    // An arena that is too small to measure in leaves the plan as it is.
    if (!profile) return;
    estimated_ = false;
    if (const Error why = evolution_.observe_profile(std::move(*profile)))
      boundary.update.failed = why;
  }

  /// Costs that could not be measured are right in sum from here on: next to a link it matters how long a step
  /// takes. What instructions take beside one another stays an estimate.
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

  /// Whether so many seconds from `now` on stay within the hundredth.
  bool may_take(double seconds, double now) const {
    return measuring_ + seconds <= (elapsed_ + now - started_) / 100;
  }

  /// Measures the store between steps, when nothing lives in the arena.
  void look_at_link(Owner& training, PlanBoundary& boundary) {
    const LinkMeasurement how{.clock = clock_, .repeats = 3};
    const StoreRef store = training.store_;
    const Bytes memory = training.arena();
    const double start = clock_();
    const Graph& graph = evolution_.graph();
    const LinkCost& link = evolution_.request().link;
    if (!may_take(seconds_to_measure(link, store, memory.size(), graph, how), start)) return;
    boundary.looked = true;
    // One that fails, or an arena too small for a few transfers, leaves what is known of it.
    if (auto found = measure_link(store, memory, graph, how); found) {
      found->begin_per_byte = link.begin_per_byte;  // of each byte, however fast they go
      evolution_.observe_link(*found);
    }
    measuring_ += clock_() - start;
    if (const Error why = training.bind(training.compiled_step())) boundary.update.failed = why;
  }

  /// Probes the errors that the plan rests on, in turn, and then those of what it might have chosen.
  /// Whether it took a step.
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
                          training.arena(), training.parameters(), training.gradients(), input,
                          targets, training.compiled_step().lent_loss());
      // Each takes two steps at most: the codec's and, if no other class had it, the reference's.
      const auto probe_in_turn = [&](const Array<ErrorClass>& classes, std::uint64_t& turn,
                                     std::uint64_t& taken, std::uint64_t limit) {
        for (std::size_t i = 0; i < classes.size(); ++i) {
          if (taken + 2 > limit || probing_steps_ + 2 > most) return;
          const ErrorClass& what = classes[static_cast<std::size_t>(turn % classes.size())];
          ++turn;
          if (errors.entry(what).batches > 0) continue;
          const int ran = probe.steps();
          // What does not fit into the arena stays as it was.
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
  bool costs_known_ = false;  ///< measured here, or by whoever gave a profile
  bool estimated_ = false;    ///< they could not be measured, for want of memory
  bool watched_ = false;      ///< the step that runs is one whose statistics are read

 private:
  bool profile_at_start_ = false;
  std::uint64_t probing_steps_ = 0;         ///< taken so far
  std::uint64_t idle_probing_steps_ = 0;    ///< of these, for codecs not in use
  std::uint64_t turn_ = 0, idle_turn_ = 0;  ///< which class is probed next
  double started_ = 0;                      ///< when this process began to look
  double elapsed_ = 0;                      ///< seconds of those before it
  double measuring_ = 0;                    ///< seconds spent on it
};

}}}  // namespace adacc::v0_1::detail
