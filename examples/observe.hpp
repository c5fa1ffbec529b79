/// What an evolving plan waits for between two steps.
#pragma once

#include <adacc/step/measure.hpp>
#include <adacc/step/probe.hpp>
#include <adacc/train/evolving.hpp>

#include <utility>

/// Before the step on the batch (inputs, targets): probes gradient errors now and then, and
/// measures times anew where they drifted (with the clock of `evolving`), both on that batch and
/// in the arena, whose contents are lost then: `arena_used` becomes true.
template <class X, class Y>
adacc::Error observe(adacc::EvolvingTraining<>& evolving, adacc::View<X> inputs,
                     adacc::View<Y> targets, bool& arena_used) {
  using namespace adacc;
  Evolution& evolution = evolving.evolution();
  auto& t = evolving.training();
  const auto& codecs = t.compiled().dispatch();
  if (evolution.wants_probe(t.updates) && evolution.outcome().error > 0) {
    GradientErrors errors;
    {
      GradientProbe probe(t.cpu(), codecs, evolution.graph(), t.arena(), t.params(), t.gradients(),
                          inputs, targets);
      evolution.each_class_to_probe([&](int layer, const CodecInfo* codec, bool carried) {
        // What does not fit into the arena stays as it was.
        static_cast<void>(probe.probe({layer, codec, carried}, errors));
      });
    }
    evolution.observe_errors(errors);
    arena_used = true;
  }
  if (!evolution.wants_profile() || evolving.clock == nullptr) return {};
  arena_used = true;
  auto profile = measure(t.cpu(), codecs, evolution.graph(), t.arena(), t.params(), t.gradients(),
                         inputs, targets, evolving.clock, MeasureOptions{});
  // An arena that is too small to measure in leaves the plan as it is.
  if (!profile) return {};
  profile->rest = evolution.profile().rest;
  return evolution.observe_profile(std::move(*profile));
}
