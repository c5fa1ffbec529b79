// SPDX-License-Identifier: MIT
/// A network that tests of pipelines cut, its plans, and what it is trained on.
#pragma once

#include <doctest/doctest.h>

#include <adacc/core/any_view.hpp>
#include <adacc/core/random.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/pipeline/planner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipeline_network {

using namespace adacc;

inline constexpr std::size_t batch = 2, time_steps = 16, vocab = 40;
inline constexpr int micro_batches = 8, steps = 2;

/// A GPT with a head of its own, and dropout in its blocks.
inline auto make_network(int layers) {
  const std::size_t c = 16;
  const Residual attention{layer<Planned>(LayerNorm{}), layer<Planned>(Linear{.out = 3 * c}),
                           layer<Planned>(CausalAttention{.heads = 2}),
                           layer<Planned>(Dropout{.rate = 0.2F}), layer<Planned>(Linear{.out = c})};
  const Residual mlp{layer<Planned>(LayerNorm{}), layer<Planned>(Linear{.out = 4 * c}),
                     layer<Planned>(Gelu{}), layer<Planned>(Linear{.out = c})};
  Embedding embedding;
  embedding.vocab = vocab, embedding.context = time_steps, embedding.channels = c;
  embedding.tied = nullptr;
  CrossEntropyHead head;
  head.vocab = vocab;
  head.tied = nullptr;
  return Network{Sequential{layer<Planned>(embedding), repeat(layers, Sequential{attention, mlp}),
                            layer<Planned>(LayerNorm{})},
                 head};
}

inline std::vector<std::int32_t> tokens_of(int step, int b) {
  std::vector<std::int32_t> tokens(batch * time_steps);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(
        random_word({.seed = 9, .step = static_cast<std::uint32_t>(step * 100 + b)}, i) % vocab);
  return tokens;
}

/// All micro-batches of a step; targets are the inputs.
struct Data {
  explicit Data(int step) {
    for (int b = 0; b < micro_batches; ++b) all.push_back(tokens_of(step, b));
  }
  AnyView operator()(int b) const {
    return View<const std::int32_t>(all[static_cast<std::size_t>(b)].data(),
                                    Shape(batch, time_steps));
  }
  std::vector<std::vector<std::int32_t>> all;
};

/// For so many stages; `share`: of the memory that retaining everything needs beyond parameters.
inline PipelineOutcome plan_of(const Graph& graph, int stages, double share) {
  const CostProfile profile = estimated_profile(graph);
  PipelineRequest request;
  request.micro_batches = micro_batches;
  request.tolerance = 0;
  for (int s = 0; s < stages; ++s) request.stages.push_back({std::size_t{1} << 30});
  const auto roomy = plan_pipeline(graph, profile, request);
  REQUIRE_MESSAGE(roomy, roomy.error.text());
  std::size_t most = 0;
  for (const StageOutcome& stage : roomy->stages)
    most = std::max(most, stage.peak_bytes - stage.state_bytes);
  for (StageMachine& machine : request.stages) {
    const std::size_t state = roomy->stages[0].state_bytes;
    machine.memory_bytes =
        state + state / 8 + static_cast<std::size_t>(share * static_cast<double>(most));
  }
  auto plan = plan_pipeline(graph, profile, request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  for (std::size_t s = 0; s < plan->stages.size(); ++s)
    CHECK(plan->stages[s].peak_bytes <= request.stages[s].memory_bytes);
  return *plan;
}

}  // namespace pipeline_network
