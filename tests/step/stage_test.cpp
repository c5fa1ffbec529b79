// SPDX-License-Identifier: MIT
/// Stages in a row compute the bits of the network that they were cut from, inside their peaks.
#include <doctest/doctest.h>

#include <adacc/model/stage.hpp>
#include <adacc/models/gpt.hpp>

#include <memory>

#include "../test_size.hpp"
#include "step_run.hpp"

namespace stage_test { namespace {

using namespace adacc;
using random_model::Network;
using step_run::Aligned;

/// The nodes behind the ends of the stages that `graph` is cut into: about every other cut, or all.
std::vector<int> draw_ends(const Graph& graph, unsigned seed) {
  std::vector<int> ends;
  for (const int cut : cuts_of(graph))
    if (seed % 3 == 0 || (static_cast<unsigned>(cut) + seed) % 2 == 0) ends.push_back(cut);
  ends.push_back(graph.node_count() - 1);
  return ends;
}

/// A stage of a network in guarded memory of its own, under that network's policies.
struct Stage {
  static constexpr std::size_t guard = 256;

  Stage(const Network& network, const Graph& graph, const Plan& plan, int first, int last,
        const float* parameters, int fill)
      : pattern(fill) {
    auto cut = stage_of(graph, first, last);
    REQUIRE_MESSAGE(cut, cut.error.text());
    Plan mine;
    for (int k = first; k <= last; ++k) mine.policies.push_back(plan[k]);
    auto program = make_program(*cut, mine);
    REQUIRE_MESSAGE(program, program.error.text());
    auto made = Step<>::make(network, *program);
    REQUIRE_MESSAGE(made, made.error.text());
    step = std::move(*made);
    arena = std::make_unique<Aligned>(step.arena_bytes() + guard);
    params = std::make_unique<Aligned>(cut->parameter_elems * 4 + 1);
    gradients = std::make_unique<Aligned>(cut->gradient_elems * 4 + 1);
    std::memset(arena->data, pattern, arena->size);
    std::memset(gradients->data, 0, gradients->size);
    each_stage_parameter(graph, *cut, [&](std::size_t own, std::size_t whole, std::size_t elems) {
      std::memcpy(params->data + own * 4, parameters + whole, elems * 4);
    });
    const Error bound =
        step.bind({arena->data, Shape(step.arena_bytes())},
                  {reinterpret_cast<float*>(params->data), Shape(cut->parameter_elems)},
                  {reinterpret_cast<float*>(gradients->data), Shape(cut->gradient_elems)});
    REQUIRE_MESSAGE(!bound, bound.text());
  }

  std::size_t used() const {
    std::size_t end = 0;
    for (std::size_t i = 0; i < arena->size; ++i)
      if (arena->data[i] != static_cast<std::byte>(pattern)) end = i + 1;
    return end;
  }

  int pattern;
  Step<> step;
  std::unique_ptr<Aligned> arena, params, gradients;
};

/// Runs stage `s` and, in its middle, those behind it. Returns the loss.
double run_from(std::vector<Stage>& stages, std::size_t s, Cpu& cpu, AnyView x, AnyView y) {
  if (s + 1 == stages.size()) {
    const auto ran = stages[s].step.run(cpu, x, y);
    REQUIRE_MESSAGE(ran, ran.error.text());
    return *ran;
  }
  const auto ran =
      stages[s].step.run(cpu, x, [&](View<const float> met, View<float> gradient) -> double {
        const double loss = run_from(stages, s + 1, cpu, met, y);
        const View<const float> back = stages[s + 1].step.input_gradient();
        REQUIRE(back.shape() == gradient.shape());
        std::memcpy(gradient.data(), back.data(), back.size() * sizeof(float));
        return loss;
      });
  REQUIRE_MESSAGE(ran, ran.error.text());
  return *ran;
}

TEST_CASE("stages in a row compute the bits of the network that they were cut from") {
  int cuts = 0, noisy = 0;
  const unsigned cases = test_networks / 6;
  for (unsigned seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    const Network network = random_model::draw(seed, false);
    const Shape shape = random_model::draw_shape(seed);
    const auto graph = make_graph(network, shape, {.parts = 1 + static_cast<int>(seed % 3)});
    REQUIRE_MESSAGE(graph, graph.error.text());
    const Plan plan = plan_from_types(*graph);
    std::vector<float> parameters(graph->parameter_elems), input(shape.elems());
    std::vector<float> targets(graph->loss.targets.elems(), 0.3F);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const View<const float> x(input.data(), shape), y(targets.data(), graph->loss.targets);
    Cpu cpu;
    cpu.key.seed = 11;
    std::vector<Stage> whole;
    whole.emplace_back(network, *graph, plan, 0, graph->node_count() - 1, parameters.data(), 0);
    const double expected = run_from(whole, 0, cpu, x, y);

    std::vector<std::size_t> used;
    for (const int pattern : {0x5A, 0xC3}) {
      std::vector<Stage> stages;
      int first = 0;
      for (const int end : draw_ends(*graph, seed)) {
        stages.emplace_back(network, *graph, plan, first, end, parameters.data(), pattern);
        first = end + 1;
      }
      used.resize(stages.size());
      const double loss = run_from(stages, 0, cpu, x, y);
      CHECK(std::memcmp(&loss, &expected, sizeof loss) == 0);
      for (std::size_t s = 0; s < stages.size(); ++s) {
        const Stage& stage = stages[s];
        each_stage_parameter(
            *graph, stage.step.graph(), [&](std::size_t own, std::size_t all, std::size_t elems) {
              CHECK(std::memcmp(stage.gradients->data + own * 4, whole[0].gradients->data + all * 4,
                                elems * 4) == 0);
            });
        used[s] = std::max(used[s], stage.used());
        if (pattern == 0xC3) CHECK(used[s] == stage.step.arena_bytes());
      }
      if (pattern == 0x5A) continue;
      cuts += static_cast<int>(stages.size()) - 1;
      for (int k = 0; stages.size() > 1 && k < graph->node_count(); ++k)
        noisy += std::strcmp(graph->node(k).name, "noise") == 0 && k > 0;
    }
  }
  MESSAGE(cuts, " cuts");
  CHECK(cuts > static_cast<int>(cases));
  CHECK(noisy > 0);
}

TEST_CASE("where a network cannot be cut, the error says so") {
  gpt::Config config{2, 2, 16, 24, 40};
  const auto says = [](const Error& error, const char* words) {
    return std::strstr(error.text(), words) != nullptr;
  };
  auto graph = gpt::graph(config, 1, 24, 1);
  REQUIRE(graph);
  const int last = graph->node_count() - 1;
  const auto tied = stage_of(*graph, 0, cuts_of(*graph)[1]);
  INFO(tied.error.text());
  CHECK(says(tied.error, "the parameter 'wte' of embedding is also that of"));
  CHECK(stage_of(*graph, 0, last));
  config.tied_head = false;
  graph = gpt::graph(config, 1, 24, 1);
  const auto cuts = cuts_of(*graph);
  CHECK(cuts.size() == 5);  // behind the embedding and each residual sum
  CHECK(stage_of(*graph, 0, cuts[1]));
  CHECK(stage_of(*graph, cuts[1] + 1, last));
  const auto inside = stage_of(*graph, 0, 2);
  INFO(inside.error.text());
  CHECK(says(inside.error, "cannot be cut behind node 2 (linear)"));
  CHECK(says(inside.error, "nearby are cuts behind node 0 and node 4"));
  CHECK(says(stage_of(*graph, 3, last + 1).error, "nodes are 0 to"));

  // What nobody asks a gradient of needs no backward: there is nothing to be handed back there.
  TrainedSet head;
  for (std::size_t i = 0; i < graph->parameters.size(); ++i)
    head.push_back(i + 3 > graph->parameters.size());
  const auto frozen = gpt::graph(config, 1, 24, 1, 1, {.trained = &head});
  REQUIRE_MESSAGE(frozen, frozen.error.text());
  CHECK(cuts_of(*frozen).empty());
}

}}  // namespace stage_test
