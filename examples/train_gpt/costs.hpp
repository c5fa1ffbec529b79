/// The costs that auto plans with: read from --profile, or measured before training starts.
#pragma once

#include <adacc/step/measure.hpp>
#include <adacc/step/probe.hpp>
#include <adacc/train/profile_text.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "../gpt_costs.hpp"
#include "options.hpp"

struct Costs {
  adacc::CostProfile profile;
  std::string source;     ///< in words
  bool measured = false;  ///< and so worth keeping
};

/// Measures `graph` in a training of its own, which is thrown away: parameters as at the start, an
/// arena of `arena_bytes`, the batch (input, targets). Gradient errors are those of the reference
/// model, or probed where --profile keeps them: that takes about as many steps as there are kinds
/// of them, which is too much for a run that forgets them.
template <class X, class Y>
adacc::Result<Costs> measured_costs(const Options& options, const adacc::Graph& graph,
                                    const adacc::Dispatch<float, adacc::Cpu>& dispatch,
                                    const adacc::Cpu& cpu, std::size_t arena_bytes,
                                    adacc::View<X> input, adacc::View<Y> targets, double (*now)()) {
  using namespace adacc;
  Costs costs;
  const double start = now();
  // Any plan that fits will do; this is the smallest that recomputation alone can make.
  Result<Program> program = make_program(graph, smallest_checkpointed(graph, Kept::coarse));
  if (!program) return program.error;
  if (program->peak_bytes() > arena_bytes || least_measuring_bytes(graph) > arena_bytes) {
    costs.profile = gpt::estimated_costs(graph, options.network, options.seq, gpt::Machine{});
    costs.source = "estimated, because measuring needs " +
                   std::to_string(least_measuring_bytes(graph) / MiB + 1) + " MiB";
    return costs;
  }
  auto training = Training<>::make(dispatch, std::move(*program), cpu, arena_bytes);
  if (!training) return training.error;
  auto profile = measure(training->cpu(), dispatch, graph, training->arena(), training->params(),
                         training->gradients(), input, targets, now, MeasureOptions{});
  if (!profile) return profile.error;
  costs.profile = std::move(*profile);
  gpt::assume_errors(graph, options.network.layers, costs.profile);
  const bool probes = !options.profile.empty();
  if (probes) {
    GradientErrors errors;
    GradientProbe probe(training->cpu(), dispatch, graph, training->arena(), training->params(),
                        training->gradients(), input, targets);
    for (const ErrorClass& what : error_classes(graph))
      static_cast<void>(probe.probe(what, errors));  // what does not fit into the arena is assumed
    errors.write(graph, costs.profile);
  }
  std::vector<double> rest;
  for (int i = 0; i < 5; ++i) {  // the update, under gradients that are zero
    const double before = now();
    const double norm = gradient_norm(training->cpu(), training->gradients());
    training->optimizer.step(training->cpu(), training->params(), training->gradients(),
                             training->m(), training->v(), graph.parameters, ++training->updates,
                             1e-4, clip_scale(norm, 1));
    rest.push_back(now() - before);
  }
  std::sort(rest.begin(), rest.end());
  costs.measured = true;
  costs.profile.rest = rest[rest.size() / 2];
  char text[64];
  std::snprintf(text, sizeof text, "measured in %.1f s%s", now() - start,
                probes ? ", gradient errors probed" : "");
  costs.source = text;
  return costs;
}

inline adacc::ProfileSource profile_source(const Options& options) {
  return {adacc::machine_name(), gpt::describe(options.network), options.threads};
}

/// The costs in --profile, where they are of this machine and model; otherwise what is measured,
/// which is then written there.
template <class X, class Y>
adacc::Result<Costs> train_gpt_costs(const Options& options, const adacc::Graph& graph,
                                     const adacc::Dispatch<float, adacc::Cpu>& dispatch,
                                     const adacc::Cpu& cpu, std::size_t arena_bytes,
                                     adacc::View<X> input, adacc::View<Y> targets,
                                     double (*now)()) {
  using namespace adacc;
  const ProfileSource source = profile_source(options);
  std::string refused;
  if (!options.profile.empty()) {
    auto loaded = load_profile(options.profile, graph, source);
    if (loaded) return Costs{std::move(*loaded), "read from " + one_line(options.profile)};
    refused = loaded.error.text();
  }
  auto costs = measured_costs(options, graph, dispatch, cpu, arena_bytes, input, targets, now);
  if (!costs || options.profile.empty() || !costs->measured) return costs;
  if (::access(options.profile.c_str(), F_OK) == 0) costs->source += "; " + refused;
  if (Error why = save_profile(options.profile, graph, costs->profile, source)) return why;
  costs->source += "; written to " + one_line(options.profile);
  return costs;
}
