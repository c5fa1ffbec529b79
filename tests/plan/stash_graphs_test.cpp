// SPDX-License-Identifier: MIT
/// Plans of trainers written by hand: forwards that make several activations, values and stages' own
/// bytes in the arena.
#include <doctest/doctest.h>

#include <adacc/plan/chain/planner.hpp>

#include <random>

#include "../stash/random_trainer.hpp"
#include "../test_size.hpp"
#include "brute_force.hpp"

namespace stash_graphs_test {

using namespace adacc;

TEST_CASE("trainers drawn at random are planned by their segments as brute force does") {
  int planned = 0, optimal = 0, proven = 0, short_of = 0, squeezed = 0;
  constexpr unsigned seeds = test_graphs * 2 / 3;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    random_trainer::Drawn drawn;
    random_trainer::draw(seed, drawn, 6);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed);
    const auto unit = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
    CostProfile profile = empty_profile(*graph);
    for (std::size_t k = 0; k < profile.nodes.size(); ++k)
      if (graph->nodes[k].made_by < 0) profile.nodes[k].forward = unit();
    for (CodecCost& cost : profile.codec_costs)
      cost = {unit() / 4, unit() / 4, unit() / 100, unit() / 30};
    profile.rest = 3;
    brute_force::AllPlans all(*graph, profile);
    for (int b = 0; b < 3; ++b) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : all[random() % all.size()].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = peak_bytes(*graph, retain_all(*graph));
      request.budget_bytes = smallest + random() % (most + 65 - smallest);
      if (request.budget_bytes == 0) continue;  // nothing is read in backward
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      REQUIRE(best != nullptr);
      const auto plan = plan_chain(*graph, profile, request);
      if (!plan) {
        CHECK(request.budget_bytes < smallest + alignment);  // sums of whole buffers pass it
        ++short_of;
        continue;
      }
      ++planned;
      brute_force::check_promises(*graph, request, *best, *plan);
      if (plan->seconds > plan->retain_seconds) ++squeezed;
      optimal += plan->seconds <= best->cost.seconds * (1 + 1e-9);
      proven += plan->gap <= 1e-9;
    }
  }
  if (seeds >= 400) {  // of fewer, shares say little; compilers draw in different orders
    CHECK(planned >= 800);
    CHECK(squeezed >= 200);
    CHECK(optimal * 100 >= planned * 97);
    CHECK(proven * 100 >= planned * 80);
  }
  MESSAGE(planned, " planned, ", squeezed, " squeezed, ", optimal, " optimal, ", proven,
          " proven, ", short_of, " not found");
}

TEST_CASE("deep trainers are planned in the time of a few layouts") {
  // Layers of a norm with its statistics, a product and an attention with its probabilities.
  constexpr int layers = 24;
  const auto f = [](const View<const float>*, const View<float>*) {};
  StashModel<> model;
  int h = model.add("h", Shape(64, 32), {0});
  for (int l = 0; l < layers; ++l) {
    const int norm = model.add("norm", Shape(64, 32), {l}),
              stat = model.add("stat", Shape(64), {l});
    model.recompute_together({norm, stat}, {h}, f);
    const int qkv = model.add("qkv", Shape(64, 96), {l});
    model.recompute_together({qkv}, {norm}, f);
    const int att = model.add("att", Shape(64, 64), {l}), y = model.add("y", Shape(64, 32), {l});
    model.recompute_together({att, y}, {qkv}, f);
    const int next = model.add("h", Shape(64, 32), {l + 1});
    model.recompute_together({next}, {h, y}, f);
    h = next;
  }
  for (int id = 0; id < model.activation_count(); ++id) model.hold(id);
  for (int l = 0; l < layers; ++l) model.stage_bytes(l, 64 * 96 * 4);
  const Result<Graph> graph = model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  CostProfile profile = empty_profile(*graph);
  for (std::size_t k = 0; k < profile.nodes.size(); ++k)
    if (graph->nodes[k].recomputable && graph->nodes[k].made_by < 0)
      profile.nodes[k].forward = static_cast<double>(graph->nodes[k].output_bytes);
  profile.rest = 4e6;
  const std::size_t most = peak_bytes(*graph, retain_all(*graph));
  for (const std::size_t percent : {70U, 50U, 30U}) {
    PlanRequest request;
    request.budget_bytes = most / 100 * percent;
    // Counted, not timed: the clock is asked once for every few segments of a search.
    int looks = 0;
    const auto count = [&]() -> double { return ++looks, 0; };
    request.clock = count;
    const auto plan = plan_chain(*graph, profile, request);
    REQUIRE_MESSAGE(plan, plan.error.text());
    CHECK(plan->gap <= request.gap);
    CHECK(looks < 200);
  }
}

}  // namespace stash_graphs_test
