/// What an evolving plan waits for between two steps.
#pragma once

#include <adacc/cost/measure.hpp>
#include <adacc/cost/probe.hpp>
#include <adacc/train/evolving.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

/// Probes gradient errors now and then, and measures times anew where they drifted.
class Observer {
 public:
  Observer() = default;
  explicit Observer(std::uint64_t steps) : steps_(steps) {}  ///< of the whole training

  struct Seen {
    bool arena_used = false;  ///< the arena's contents are lost
    bool all_probed = false;  ///< for the first time: a profile is better kept now than before
  };

  /// Before the step on the batch (inputs, targets); looks with that batch, in the arena, and by
  /// the clock of `evolving`.
  template <class X, class Y>
  adacc::Result<Seen> observe(adacc::EvolvingTraining<>& evolving, adacc::View<X> inputs,
                              adacc::View<Y> targets) {
    using namespace adacc;
    Seen seen;
    Evolution& evolution = evolving.evolution();
    auto& t = evolving.training();
    if (evolution.wants_probe(t.updates) && evolution.outcome().error > 0) {
      seen.arena_used = true;
      seen.all_probed = probe(evolving, inputs, targets);
    }
    if (evolving.clock == nullptr) return seen;
    const double before = evolving.clock();
    if (!(started_ > 0)) started_ = before;
    // Measuring, too, takes no more than a hundredth of the time.
    const double takes = measuring_steps * evolution.outcome().seconds;
    if (!evolution.wants_profile() || measuring_ + takes > (before - started_) / 100) return seen;
    seen.arena_used = true;
    auto profile =
        measure(t.cpu(), t.compiled().dispatch(), evolution.graph(), t.arena(), t.params(),
                t.gradients(), inputs, targets, evolving.clock, MeasureOptions{});
    measuring_ += evolving.clock() - before;
    // An arena that is too small to measure in leaves the plan as it is.
    if (!profile) return seen;
    profile->rest = evolution.profile().rest;
    if (Error why = evolution.observe_profile(std::move(*profile))) return why;
    return seen;
  }

 private:
  /// Probes the errors that the plan rests on, and, the first time, those of all that it might
  /// have chosen as well; whether it did the latter. All probes of a run take no more than one step
  /// in a hundred; those of what is not in use no more than half of these.
  template <class X, class Y>
  bool probe(adacc::EvolvingTraining<>& evolving, adacc::View<X> inputs, adacc::View<Y> targets) {
    using namespace adacc;
    Evolution& evolution = evolving.evolution();
    auto& t = evolving.training();
    const Graph& graph = evolution.graph();
    const bool first = t.updates == evolution.options().first_probe;
    Array<ErrorClass> classes;
    evolution.each_class_to_probe([&](int layer, const CodecInfo* codec, bool carried) {
      classes.push_back({layer, codec, carried});
    });
    const std::size_t in_use = classes.size();
    if (first)
      for (const ErrorClass& what : error_classes(graph)) classes.push_back(what);
    GradientErrors errors;
    {
      GradientProbe probe(t.cpu(), t.compiled().dispatch(), graph, t.arena(), t.params(),
                          t.gradients(), inputs, targets);
      for (std::size_t i = 0; i < classes.size(); ++i) {
        // Two steps at most: the codec's and, where no other class had it, the reference's.
        const auto taken = probing_steps_ + static_cast<std::uint64_t>(probe.steps()) + 2;
        if (taken > steps_ / (i < in_use ? 100 : 200)) break;
        if (errors.entry(classes[i]).batches > 0) continue;
        // What does not fit into the arena stays as it was.
        static_cast<void>(probe.probe(classes[i], errors));
      }
      probing_steps_ += static_cast<std::uint64_t>(probe.steps());
    }
    evolution.observe_errors(errors);
    return first && !errors.entries().empty();
  }

  static constexpr double measuring_steps = 20;  ///< that measuring takes about as long as

  double started_ = 0, measuring_ = 0;  ///< in seconds: when, and how long all in all
  std::uint64_t steps_ = 0;
  std::uint64_t probing_steps_ = 0;  ///< taken so far
};
