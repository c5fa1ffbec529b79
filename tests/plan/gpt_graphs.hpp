// SPDX-License-Identifier: MIT
/// GPTs that leave every choice to the planner, with what their steps cost.
#pragma once

#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/request.hpp>
#include <support/shake.hpp>

namespace gpt_graphs {

namespace gpt = adacc::gpt;

inline adacc::Graph make(int layers, std::size_t context = 64) {
  const gpt::Config config{
      .layers = layers, .heads = 2, .channels = context, .context = context, .vocab = 128};
  const auto graph = gpt::graph<gpt::PlannedSet>(config, 2, context, 1);
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

/// Costs on a machine of one thread; with `jitter`, no two blocks cost the same.
inline adacc::CostProfile costs(const adacc::Graph& graph, double jitter = 0) {
  adacc::CostProfile profile = adacc::estimated_profile(graph);
  support::shake(profile, jitter);
  return profile;
}

/// A budget of so many per cent of what retaining everything needs.
inline adacc::PlanRequest at_percent(const adacc::Graph& graph, std::size_t percent) {
  adacc::PlanRequest request;
  request.budget_bytes = adacc::peak_bytes(graph, adacc::retain_all(graph)) * percent / 100;
  return request;
}

}  // namespace gpt_graphs
