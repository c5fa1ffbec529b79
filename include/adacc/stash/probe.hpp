// SPDX-License-Identifier: MIT
/// The effect of codecs on the gradients of a trainer written by hand, measured with the trainer's own steps.
///
/// The trainer runs one step on one batch under plans that differ in one class of activations
/// (cost/probing_plans.hpp); sketches of the gradients tell how far they are apart. Activations registered
/// alike are one class. Errors are means over batches: to probe on several, call again with the same
/// GradientErrors.
#pragma once

#include <cstddef>

#include "../core/clock.hpp"
#include "../cost/gradient_errors.hpp"
#include "../cost/nearest_sources.hpp"
#include "stash.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A class of errors, and the plans to probe.
struct StashProbe {
  ErrorClass what;
  ProbingPlans pair;
};

/// All errors to be probed of `model` around `base`: codecs without a number from allow(), and errors carried
/// by recomputed activations. `turn` chooses copies if not all fit into `arena_bytes`.
template <class T, class Context>
constexpr Result<Array<StashProbe>> stash_probes(const StashModel<T, Context>& model,
                                                 const Graph& graph, const Plan& base,
                                                 std::size_t arena_bytes, int turn) {
  Array<StashProbe> probes;
  for (const ErrorClass& what : error_classes(graph)) {
    int id = 0;
    while (graph.node(id).layer != what.layer) ++id;
    if (!what.carried && model.error_of(id, what.codec) >= 0) continue;  // the caller knows
    const Result<ProbingPlans> pair = probing_plans_around(graph, base, what, arena_bytes, turn);
    if (!pair) return pair.error;
    probes.push_back({what, *pair});
  }
  return probes;
}

}  // namespace detail

/// How long probing may take, and a callback for progress.
struct StashProbing {
  ClockRef clock = {};
  double most_seconds = 0;  ///< at the limit probing ends: other errors stay estimates. 0: no limit
  void (*progress)(void* user, int probed, int of) = nullptr;  ///< at first with 0; null: nobody
  void* user = nullptr;
};

/// The arena for probe_stash() to probe all activations of a kind at once; 0 if there is nothing to
/// probe. In a smaller arena fewer are probed at a time; an error says if it is too small.
template <class T, class Context>
constexpr std::size_t stash_probing_bytes(const StashModel<T, Context>& model,
                                          const Plan& base = {}) {
  const Result<Graph> graph = model.graph();
  if (!graph) return 0;
  const auto probes =
      detail::stash_probes(model, *graph, base.policies.empty() ? retain_all(*graph) : base,
                           static_cast<std::size_t>(-1), 0);
  std::size_t most = 0;
  for (const detail::StashProbe& probe : *probes)
    if (probe.pair.arena_bytes > most) most = probe.pair.arena_bytes;
  return most;
}

/// Probes the gradient errors of all lossy codecs allowed in `model` without a number, and of recomputation
/// from their decoded activations; adds them to `errors`, and writes the means so far to `profile`, of the
/// same model.
///
///   - step(Stash<T, Context>&) runs one step, from begin() on, on a fixed batch and without an update. It
///     returns gradients, all or some, as a Result<Array<View<const Wide<T>>>>, each time in one order, valid
///     until the next call. On a device, the step waits for them and returns copies on the host.
///   - `arena` has stash_probing_bytes(model), or fewer.
///   - `base` is a lossless plan, for comparison; without one, everything is retained.
///   - `context` makes the sketches, on the host, under its key: another key, other projections.
///   - `how` limits the time.
template <class T, class Context, class TrainStep>
Error probe_stash(const StashModel<T, Context>& model, Context& context, Bytes arena,
                  const TrainStep& step, GradientErrors& errors, CostProfile& profile,
                  const Plan& base = {}, const StashProbing& how = {}) {
  if (how.most_seconds != 0 && (!how.clock || !(how.most_seconds > 0)))
    return Error::misuse("probing for a limited time needs a clock, and more than 0 seconds");
  const double began = how.clock ? how.clock() : 0;
  const Result<Graph> graph = model.graph();
  if (!graph) return graph.error;
  if (const Error why = examine(*graph, profile)) return Error::misuse(why.text());
  const Plan around = base.policies.empty() ? retain_all(*graph) : base;
  if (const Error why = examine(*graph, around)) return Error::misuse(why.text());
  for (const bool exact : exact_in_backward(*graph, around))
    if (!exact) return Error::misuse("the plan to probe around must lose nothing");
  const int turn = errors.entries().empty() ? 0 : errors.entries()[0].batches;
  const auto probes = detail::stash_probes(model, *graph, around, arena.size(), turn);
  if (!probes) return probes.error;

  const auto sketch = [&](const Plan& plan) -> Result<GradientSketch> {
    auto stash = Stash<T, Context>::make(model, plan);
    if (!stash) return stash.error;
    if (const Error why = stash->bind(arena)) return why;
    stash->judge_encodes(false);  // the codec's own error is wanted
    const Result<Array<View<const Wide<T>>>> gradients = step(*stash);
    if (!gradients) return gradients.error;
    if constexpr (context_traits<Context>::own_memory)
      for (const View<const Wide<T>>& part : *gradients)
        if (const Error why = Context::host_memory_fault("gradients of a probing step", part.data(),
                                                         part.size() * sizeof(Wide<T>)))
          return why;
    const GradientSketch found = sketch_of(context, *gradients, context.key);
    if (!(found.squared_norm > 0 && found.squared_norm <= 1e300))
      return Error::say("the gradient of the probed batch is zero, or not finite");
    return found;
  };
  KnownSketches known;
  const Result<GradientSketch> exact = known.of(around, true, sketch);
  if (!exact) return exact.error;
  const Result<GradientSketch> again = sketch(around);
  if (!again) return again.error;
  if (!(squared_distance(*exact, *again) <= 1e-9 * exact->squared_norm))
    return Error::misuse(
        "two steps under one plan gave different gradients: a step that probes starts from "
        "gradients of zero, on the same batch, and updates nothing");
  int probed = 0;
  const auto told = [&] {
    if (how.progress != nullptr) how.progress(how.user, probed, static_cast<int>(probes->size()));
  };
  told();
  for (const detail::StashProbe& probe : *probes) {
    // The next one takes about as long as those before it.
    const double passed = how.clock ? how.clock() - began : 0;
    if (how.most_seconds > 0 && passed * (probed + 2) > how.most_seconds * (probed + 1)) break;
    if (const Error why = known.probe(probe.what, probe.pair, errors, sketch)) return why;
    ++probed;
    told();
  }

  // Carried errors out of reach of probes follow from the probed ones.
  errors.write(*graph, profile);
  estimate_carried_errors(*graph, profile);
  errors.write(*graph, profile);
  return {};
}

}}  // namespace adacc::v0_1
