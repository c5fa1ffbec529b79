/// What a GPT's step costs on this machine: measured before training starts.
#pragma once

#include <adacc/cost/measure.hpp>
#include <adacc/cost/probe.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gpt_costs.hpp"

namespace gpt {

struct Costs {
  adacc::CostProfile profile;
  std::string source;     ///< in words
  bool measured = false;  ///< and so worth keeping
};

enum class Errors : std::uint8_t { assumed, probed };

/// Measures `graph`, a GPT's, in a training of its own, which is thrown away: parameters as at the
/// start, an arena of `arena_bytes`, the batch (input, targets). Gradient errors are those of the
/// reference model, or probed, which takes about as many steps as there are kinds of them: too much
/// for a run that forgets them.
template <class X, class Y>
adacc::Result<Costs> measured_costs(const adacc::Graph& graph,
                                    const adacc::Dispatch<float, adacc::Cpu>& dispatch,
                                    const adacc::Cpu& cpu, std::size_t arena_bytes,
                                    adacc::View<X> input, adacc::View<Y> targets, double (*now)(),
                                    Errors errors = Errors::assumed) {
  using namespace adacc;
  Costs costs;
  const double start = now();
  // Any plan that fits will do; this is the smallest that recomputation alone can make.
  Result<Program> program = make_program(graph, smallest_checkpointed(graph, Kept::coarse));
  if (!program) return program.error;
  if (program->peak_bytes() > arena_bytes || least_measuring_bytes(graph) > arena_bytes) {
    costs.profile = estimated_costs(graph);
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
  assume_errors(graph, costs.profile);
  if (errors == Errors::probed) {
    GradientErrors probed;
    GradientProbe probe(training->cpu(), dispatch, graph, training->arena(), training->params(),
                        training->gradients(), input, targets);
    for (const ErrorClass& what : error_classes(graph))
      static_cast<void>(probe.probe(what, probed));  // what does not fit into the arena is assumed
    probed.write(graph, costs.profile);
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
                errors == Errors::probed ? ", gradient errors probed" : "");
  costs.source = text;
  return costs;
}

}  // namespace gpt
