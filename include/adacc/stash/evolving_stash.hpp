// SPDX-License-Identifier: MIT
/// A stash with a plan for the present budget, and for costs seen in the stash's own steps.
///
///     auto stash = EvolvingStash<>::make(model, profile, {.budget_bytes = …}, make_plan,
///                                        {.clock = steady_seconds});
///     stash->bind(arena);            // memory for the largest budget
///     …                              // steps, as with a Stash
///     stash->set_budget(bytes);      // between two of them
///     stash->boundary().update       // changes of the plan before the running step, with reasons
///
/// The calls of a step are those of a Stash (stash/stash.hpp), at their cost there; a clock, if given, is
/// read before and behind each encode, decode and recomputation.
///
/// The plan belongs to an Evolution, as in a Training. It changes at begin() or in set_budget(), never
/// inside of a step, so every step is one of a Stash under one plan: peaks are exact, and under lossless
/// plans bits are those of no stash. Three things are watched:
///
///   - statistics of codecs as they encode, every EvolutionOptions::check_every steps. Gradient errors
///     are scaled by them; a caller who probes again (probe_stash) passes errors to observe_errors();
///   - with a clock, the time of each kind of work. If one drifts, callables and codecs are measured
///     again, in the arena between two steps, for at most a hundredth of the time;
///   - with a clock and a store, the speed of the link.
///
/// On a device no clock is read, since the host would have to wait: there plans follow budgets and, in
/// memory lent for them, statistics of codecs (stash/evolving_stash.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../core/clock.hpp"
#include "../cost/gradient_errors.hpp"
#include "../evolve/evolution.hpp"
#include "../evolve/work_watch.hpp"
#include "measure.hpp"
#include "stash.hpp"

namespace adacc { inline namespace v0_1 {

struct EvolvingStashOptions {
  ClockRef clock = {};   ///< the clock of the profile's measurement; none: times are not watched
  bool evolving = true;  ///< false: only budgets change the plan
  EvolutionOptions evolution = {};
};

namespace detail {

/// Copies statistics of codecs to the host's memory; on a device, stash/evolving_stash.cuh does.
template <class Context>
struct WatchedCopy {
  template <class Use>
  static Error read(Context&, ConstBytes, const Use&) {
    static_assert(!context_traits<Context>::own_memory,
                  "adacc: a stash on a device that evolves is in stash/evolving_stash.cuh");
    return {};
  }
};

}  // namespace detail

template <class T = float, class Context = Cpu>
class EvolvingStash : private Stash<T, Context> {
  using Plain = Stash<T, Context>;
  static constexpr bool on_host = !context_traits<Context>::own_memory;

 public:
  EvolvingStash() = default;

  /// Plans for the activations of `model`. Fails as `planner` does. The model and its callables must outlive
  /// the stash.
  static Result<EvolvingStash> make(const StashModel<T, Context>& model, CostProfile profile,
                                    const PlanRequest& request, Planner planner,
                                    const EvolvingStashOptions& options = {}) {
    if (!on_host && options.clock)
      return Error::misuse(
          "a stash on a device that evolves reads no clock, since it would have to wait: lend "
          "none");
    Result<Graph> graph = model.graph();
    if (!graph) return graph.error;
    Result<Evolution> evolution =
        Evolution::start(static_cast<Graph&&>(*graph), static_cast<CostProfile&&>(profile), request,
                         planner, options.evolution);
    if (!evolution) return evolution.error;
    EvolvingStash stash;
    stash.model_ = &model;
    stash.evolution_ = static_cast<Evolution&&>(*evolution);
    stash.options_ = options;
    if (const Error why = stash.switch_to_plan()) return why;
    return static_cast<EvolvingStash&&>(stash);  // nvcc would copy it
  }

  using Plain::arena_bytes;
  using Plain::graph;
  using Plain::plan;
  using Plain::program;
  using Plain::store_bytes;
  using Plain::watch_bytes;

  /// The calls of a step.
  using Plain::backward_workspace;
  using Plain::carried;
  using Plain::carried_bytes;
  using Plain::declined;
  using Plain::declined_counts;
  using Plain::end;
  using Plain::enter;
  using Plain::get;
  using Plain::get_bytes;
  using Plain::in_step;
  using Plain::leave;
  using Plain::place;
  using Plain::place_bytes;
  using Plain::put;
  using Plain::put_bytes;
  using Plain::stop_forward;
  using Plain::take;
  using Plain::take_bytes;
  using Plain::workspace;

  void poison_dead(bool poison) {
    poisons_ = poison;
    Plain::poison_dead(poison);
  }

  /// Lends memory for all plans to come, as Stash::bind() does for one: less memory than the budget
  /// becomes the budget. If the request has a link, plans may send activations to `store`. On a device,
  /// codecs leave statistics in `watched`, watch_bytes() of device memory; without it, there are none.
  Error bind(Bytes arena, StoreRef store = {}, Bytes watched = {}) {
    if (evolution_.request().link.exists()) {
      if (!store)
        return Error::misuse("plans may send activations to a store: bind() must lend one");
      if (reinterpret_cast<std::uintptr_t>(arena.data()) % transfer_alignment != 0)
        return Error::misuse("the arena must start ", transfer_alignment,
                             "-byte aligned: plans may send activations to a store");
    }
    if (watched.size() != 0 && watched.size() < watch_bytes())
      return Error::misuse("what codecs saw takes ", watch_bytes(), " bytes, and ", watched.size(),
                           " were lent");
    if (const Error why = Plain::bind(arena, store)) return why;
    arena_ = arena;
    store_ = store;
    watch_memory_ = watched;
    if (arena.size() < budget_bytes()) evolution_.limit_budget(arena.size());
    return {};
  }

  std::size_t budget_bytes() const { return evolution_.budget_bytes(); }

  /// Plans for another budget, in the bound memory: the plan takes arena_bytes() of it. Between two
  /// steps. An error (a budget too small for any plan: the text names the smallest; more than the
  /// bound memory) leaves plan and budget unchanged.
  Error set_budget(std::size_t bytes) {
    if (in_step())
      return Error::misuse(
          "set_budget() inside of a step: the budget changes between steps, the last of which "
          "leave(0), or end(), ends");
    if (arena_.data() != nullptr && bytes > arena_.size())
      return Error::say("a budget of ", shown(bytes),
                        " was asked for, and the arena that is bound has ", shown(arena_.size()));
    observe(nullptr);
    evolution_.set_budget(bytes);
    boundary_ = {};
    advance();
    reported_ = false;
    return boundary_.update.failed;
  }

  /// Seconds for each planning from now on.
  void set_deadline(double seconds) { evolution_.set_deadline(seconds); }
  void set_most_runs(int runs) { evolution_.set_most_runs(runs); }

  /// Newly probed gradient errors: they count from the next begin() on.
  void observe_errors(const GradientErrors& errors) { evolution_.observe_errors(errors); }

  /// Changes of the plan in the last begin(), and in set_budget() before it.
  const PlanBoundary& boundary() const { return boundary_; }
  const PlanOutcome& outcome() const { return evolution_.outcome(); }
  const Evolution& evolution() const { return evolution_; }

  /// Begins a step, as Stash::begin(), under another plan if one is due.
  Error begin(Context& context) {
    static_cast<void>(end());
    if (reported_) boundary_ = {};
    reported_ = true;
    if (options_.evolving && arena_.data() != nullptr) {
      observe(&context);
      measure(context);
      advance();
      if (evolution_.wants_statistics(steps_) && (on_host || watch_memory_.size() != 0)) {
        // Activations not encoded are read, too: zeros cannot be mistaken for statistics.
        if (!on_host) detail::fill_bytes(context, watch_memory_, 0);
        watching_ = !Plain::watch(watch_memory_);
      }
    }
    if (const Error why = Plain::begin(context)) return why;
    ++steps_;
    ran_ = true;
    return {};
  }

 private:
  /// Passes observations of the last step on. Without its context, those of a device are lost.
  void observe(Context* context) {
    if (!ran_) return;
    ran_ = false;
    if (watching_) {
      bool read = on_host;
      if (!on_host && context != nullptr)
        // If the copy fails, the next step says why.
        read = !detail::WatchedCopy<Context>::read(
            *context, watch_memory_, [&](ConstBytes copy) { Plain::read_watched(copy); });
      for (int k = 0; read && k < graph().node_count(); ++k)
        if (plan()[k].codec() != nullptr) evolution_.observe_statistics(k, Plain::statistics(k));
      Plain::stop_watching();
      watching_ = false;
    }
    if (!options_.clock) return;
    evolution_.observe_transfers(program().schedule, Plain::transfer_times());
    work_.observe(program(), evolution_.profile(), Plain::work_seconds(), evolution_.options());
  }

  /// Measures times anew if they drifted, unless too much time went into measuring.
  void measure([[maybe_unused]] Context& context) {
    if (!options_.clock) return;
    const double now = options_.clock();
    if (steps_ == 0) started_ = now;
    if (!work_.drifted() || measuring_ + measuring_takes() > (now - started_) / 100) return;
    work_ = {};
    if constexpr (on_host) {
      const std::size_t needed = stash_measure_bytes(graph());
      if (arena_.size() < needed) {
        boundary_.update.failed =
            Error::say("times have drifted, and measuring them anew takes ", shown(needed),
                       " of the arena, which has ", shown(arena_.size()));
        return;
      }
      boundary_.looked = true;
      Result<CostProfile> profile =
          measure_stash(*model_, context, arena_, {.clock = options_.clock, .repeats = repeats});
      measuring_ += options_.clock() - now;
      if (profile) profile->rest = evolution_.profile().rest;
      const Error why = profile ? evolution_.observe_profile(static_cast<CostProfile&&>(*profile))
                                : profile.error;
      if (why) boundary_.update.failed = why;
    }
  }

  /// About how many seconds measuring takes.
  double measuring_takes() const {
    double once = 0;
    const CostProfile& profile = evolution_.profile();
    for (int k = 0; k < graph().node_count(); ++k) {
      if (graph().node(k).copy > 0) continue;
      once += profile.node(k).forward;
      for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
        const CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
        once += cost.encode + cost.decode;
      }
    }
    return (repeats + 1) * once;
  }

  /// Plans anew if due, and has the stash follow.
  void advance() {
    // Added: set_budget() may have changed the plan already.
    boundary_.update.add(evolution_.advance(steps_, [&] { return switch_to_plan(); }));
  }

  /// The stash becomes one of the evolution's plan, in the bound memory.
  Error switch_to_plan() {
    Result<Plain> next = Plain::make(*model_, evolution_.plan());
    if (!next) return next.error;
    next->poison_dead(poisons_);
    next->time_transfers(options_.clock);
    next->time_work(options_.clock);
    if (arena_.data() != nullptr) {
      static_cast<void>(end());  // nothing is under way to the store lent to both
      if (const Error why = next->bind(arena_, store_)) {
        static_cast<void>(Plain::bind(arena_, store_));
        return why;
      }
    }
    static_cast<Plain&>(*this) = static_cast<Plain&&>(*next);
    return {};
  }

  static constexpr int repeats = 7;  ///< in a measurement

  const StashModel<T, Context>* model_ = nullptr;
  EvolvingStashOptions options_;
  Evolution evolution_;
  WorkWatch work_;
  PlanBoundary boundary_;
  bool reported_ = true;  ///< boundary() is about steps before the next one
  Bytes arena_, watch_memory_;
  StoreRef store_;
  std::uint64_t steps_ = 0;  ///< begun so far
  bool ran_ = false;         ///< the last step was not looked at yet
  bool watching_ = false;    ///< codecs of the step leave statistics
  bool poisons_ = ADACC_POISONS;
  double started_ = 0;    ///< when the first began
  double measuring_ = 0;  ///< seconds of measuring since then
};

}}  // namespace adacc::v0_1
