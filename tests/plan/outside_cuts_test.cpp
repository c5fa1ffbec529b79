// SPDX-License-Identifier: MIT
/// Plans of trainers written by hand across whose cuts several activations are read: recurrent layers with
/// states, encoders that all blocks of a decoder read, skips; and kernels that list what goes on in any order.
#include <doctest/doctest.h>

#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/model.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "../stash/random_trainer.hpp"
#include "../test_size.hpp"
#include "brute_force.hpp"
#include "pattern_path.hpp"

namespace outside_cuts_test {

using namespace adacc;
using namespace pattern_path;

namespace {

const auto many = [](const View<const float>*, const View<float>*) {};
const auto one = [](const View<const float>*, View<float>) {};

constexpr std::size_t tensor = 64 * 4;
const Shape shape(64);

Graph graph_of_model(const StashModel<>& model) {
  const Result<Graph> graph = model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

CostProfile profile_of(const Graph& graph) {
  CostProfile profile = empty_profile(graph);
  for (std::size_t k = 0; k < profile.nodes.size(); ++k)
    if (graph.nodes[k].recomputable && graph.nodes[k].made_by < 0) profile.nodes[k].forward = 1e-3;
  profile.rest = 2e-3 * static_cast<double>(graph.nodes.size());
  return profile;
}

/// Layers whose backward reads their input and their output.
int layer(StashModel<>& model, int x) {
  return model.kernel(
      {.reads = {x}, .writes = {{"y", shape}}, .backward_reads = {x, "y"}, .hold = true}, one);
}

Graph chain_graph(int layers) {
  StashModel<> model;
  int x = model.kernel({.writes = {{"x", shape}}, .backward_reads = {"x"}, .hold = true});
  for (int l = 0; l < layers; ++l) x = layer(model, x);
  return graph_of_model(model);
}

/// Layers that keep something of their own beside what goes on.
Graph ordered_graph(int layers, bool state_first) {
  StashModel<> model;
  int x = model.kernel({.writes = {{"x", shape}}, .backward_reads = {"x"}, .hold = true});
  for (int l = 0; l < layers; ++l) {
    if (state_first)
      x = model.kernel<3>({.reads = {x},
                           .writes = {{"y", shape}, {"a", Shape(64, 3)}, {"b", shape}},
                           .backward_reads = {x, "y", "a", "b"},
                           .hold = true},
                          many)[0];
    else
      x = model.kernel<3>({.reads = {x},
                           .writes = {{"a", Shape(64, 3)}, {"b", shape}, {"y", shape}},
                           .backward_reads = {x, "y", "a", "b"},
                           .hold = true},
                          many)[2];
  }
  return graph_of_model(model);
}

/// A cell reads its states of the step before and what the layer in front makes; its backward reads these
/// and all that it makes.
Graph lstm_graph(int layers, int steps) {
  StashModel<> model;
  const auto count = static_cast<std::size_t>(layers);
  std::vector<int> h(count), c(count);
  for (int q = 0; q < steps; ++q) {
    int y = model.kernel({.writes = {{"x", shape}}, .backward_reads = {"x"}, .hold = true});
    for (std::size_t p = 0; p < count; ++p) {
      std::array<int, 4> made{};
      if (q == 0)
        made = model.kernel<4>(
            {.reads = {y},
             .writes = {{"h", shape}, {"c", shape}, {"y", shape}, {"gates", Shape(64, 7)}},
             .backward_reads = {y, "h", "c", "y", "gates"},
             .hold = true},
            many);
      else
        made = model.kernel<4>(
            {.reads = {h[p], c[p], y},
             .writes = {{"h", shape}, {"c", shape}, {"y", shape}, {"gates", Shape(64, 7)}},
             .backward_reads = {h[p], c[p], y, "h", "c", "y", "gates"},
             .hold = true},
            many);
      h[p] = made[0], c[p] = made[1], y = made[2];
    }
  }
  return graph_of_model(model);
}

/// All layers of the second half read what the first half makes.
Graph decoder_graph(int layers) {
  StashModel<> model;
  int x = model.kernel({.writes = {{"x", shape}}, .backward_reads = {"x"}, .hold = true});
  for (int l = 0; l < layers / 2; ++l) x = layer(model, x);
  const int e = x;
  x = model.kernel({.writes = {{"d", shape}}, .backward_reads = {"d"}, .hold = true});
  for (int l = 0; l < layers / 2; ++l)
    x = model.kernel(
        {.reads = {e, x}, .writes = {{"d", shape}}, .backward_reads = {e, x, "d"}, .hold = true},
        one);
  return graph_of_model(model);
}

/// `depth` levels, each of `layers` layers on either side; those on the right read what the left ends with.
Graph skips_graph(int depth, int layers) {
  StashModel<> model;
  int x = model.kernel({.writes = {{"x", shape}}, .backward_reads = {"x"}, .hold = true});
  std::vector<int> skips;
  for (int d = 0; d < depth; ++d) {
    for (int l = 0; l < layers; ++l) x = layer(model, x);
    skips.push_back(x);
  }
  for (int l = 0; l < layers; ++l) x = layer(model, x);
  for (int d = depth; d-- > 0;) {
    const int skip = skips[static_cast<std::size_t>(d)];
    x = model.kernel({.reads = {skip, x},
                      .writes = {{"u", shape}},
                      .backward_reads = {skip, x, "u"},
                      .hold = true},
                     one);
    for (int l = 1; l < layers; ++l) x = layer(model, x);
  }
  return graph_of_model(model);
}

std::size_t smallest_of(const Graph& graph) {
  PlanRequest request;
  request.budget_bytes = 1;
  request.tolerance = 0;
  const auto smallest = smallest_peak(graph, profile_of(graph), request);
  REQUIRE_MESSAGE(smallest, smallest.error.text());
  return *smallest;
}

std::size_t retained(const Graph& graph) { return peak_bytes(graph, retain_all(graph)); }

PlanOutcome planned(const Graph& graph, std::size_t budget) {
  PlanRequest request;
  request.budget_bytes = budget;
  request.tolerance = 0;
  const auto plan = make_plan(graph, profile_of(graph), request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  CHECK(plan->peak_bytes <= budget);
  return *plan;
}

}  // namespace

TEST_CASE(
    "segments at cuts that several activations pass need what the whole schedule takes, or less") {
  int plans = 0, less = 0;
  random_graph::Source random(5);
  const auto look = [&](const Graph& graph, bool exact) {
    ChainTuning tuning;
    tuning.most_open = 6;
    const ChainTables tables(graph, profile_of(graph), tuning);
    REQUIRE(!tables.restricted.empty());
    for (int i = 0; i < static_cast<int>(test_graphs); ++i) {
      const Path path = draw_path(tables, random);
      if (path.empty()) continue;
      const Plan plan = plan_of(graph, tables, path);
      REQUIRE_FALSE(examine(graph, plan));
      const auto lives = static_cast<SignedBytes>(live_bytes(make_schedule(graph, plan)));
      if (exact) CHECK(need_of(path) == lives);
      else CHECK(need_of(path) <= lives);
      less += need_of(path) < lives;
      ++plans;
    }
  };
  for (const int layers : {1, 2, 3}) look(lstm_graph(layers, 5), true);
  look(decoder_graph(20), true);
  look(skips_graph(2, 4), true);
  MESSAGE(plans, " plans, ", less, " need less");
  CHECK(plans > 2 * static_cast<int>(test_graphs));
}

TEST_CASE("bounds hold against brute force where several activations pass a cut") {
  int planned_here = 0, close = 0, cut = 0;
  for (unsigned seed = 0; seed < test_graphs * 2; ++seed) {
    CAPTURE(seed);
    random_trainer::Drawn drawn;
    random_trainer::draw(seed, drawn, 6);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed);
    const CostProfile profile = random_trainer::draw_profile(*graph, random);
    ChainTuning tuning;
    tuning.most_open = 0;
    if (ChainTables(*graph, profile, tuning).restricted.empty()) continue;
    ++cut;
    brute_force::AllPlans all(*graph, profile);
    for (int b = 0; b < 3; ++b) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : all[random() % all.size()].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = peak_bytes(*graph, retain_all(*graph));
      request.budget_bytes = smallest + random() % (most + 65 - smallest);
      if (request.budget_bytes == 0) continue;
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      REQUIRE(best != nullptr);
      const auto plan = plan_chain(*graph, profile, request, tuning);
      if (!plan) continue;
      ++planned_here;
      brute_force::check_promises(*graph, request, *best, *plan);
      close += plan->seconds <= best->cost.seconds * 1.05;
    }
  }
  MESSAGE(cut, " graphs, ", planned_here, " planned, ", close, " within 5 %");
  CHECK(planned_here * 4 >= static_cast<int>(test_graphs));
}

TEST_CASE("the order in which kernels list their outputs changes no plan") {
  const Graph last = ordered_graph(48, false), first = ordered_graph(48, true);
  CHECK(smallest_of(first) == smallest_of(last));
  for (const std::size_t percent : {70U, 50U, 30U}) {
    CAPTURE(percent);
    const PlanOutcome a = planned(last, retained(last) * percent / 100);
    const PlanOutcome b = planned(first, retained(first) * percent / 100);
    CHECK(b.seconds <= a.seconds * (1 + 1e-9));
    CHECK(b.gap <= 0.005);
  }
}

TEST_CASE("trainers whose layers read inputs and outputs are planned like plans by hand") {
  struct ByHand {
    int layers;
    std::size_t tensors;
  };
  for (const ByHand& hand : {ByHand{12, 6}, {24, 9}, {64, 16}, {256, 32}}) {
    CAPTURE(hand.layers);
    const Graph graph = chain_graph(hand.layers);
    const std::size_t smallest = smallest_of(graph);
    MESSAGE(hand.layers, " layers: ", smallest / tensor, " of ", retained(graph) / tensor);
    CHECK(smallest <= hand.tensors * tensor);
    CHECK(planned(graph, retained(graph) / 2).gap <= 0.005);
  }
}

TEST_CASE("recurrent nets with states are planned within a third of what they keep") {
  for (const int layers : {1, 2, 3, 5}) {
    CAPTURE(layers);
    const Graph graph = lstm_graph(layers, 100);
    const std::size_t all = retained(graph), smallest = smallest_of(graph);
    MESSAGE(layers, " layers: ", smallest, " of ", all, ", ",
            100 * static_cast<double>(smallest) / static_cast<double>(all), " %");
    CHECK(smallest * 100 <= all * 34);
    const PlanOutcome half = planned(graph, all / 2);
    MESSAGE("half: ", half.seconds / half.retain_seconds, ", gap ", half.gap);
  }
}

TEST_CASE(
    "what all blocks of a decoder read, and skips, are kept, and the rest is planned as a chain") {
  for (const int layers : {32, 96}) {
    CAPTURE(layers);
    const Graph chain = chain_graph(layers), decoder = decoder_graph(layers);
    const std::size_t smallest = smallest_of(chain);
    MESSAGE("chain ", smallest / tensor, " ", smallest_of(decoder) / tensor);
    CHECK(smallest_of(decoder) <= smallest + 3 * tensor);
    for (const std::size_t percent : {60U, 30U}) {
      CAPTURE(percent);
      const std::size_t budget = retained(chain) * percent / 100;
      const PlanOutcome a = planned(chain, budget), b = planned(decoder, budget + 3 * tensor);
      MESSAGE("chain ", a.seconds, " ", b.seconds, " gap ", b.gap);
      CHECK(b.seconds - b.retain_seconds <= (a.seconds - a.retain_seconds) * 1.02 + 1e-3);
    }
  }
  for (const int depth : {2, 4}) {
    CAPTURE(depth);
    const Graph chain = chain_graph(2 * depth * 12 + 12), skips = skips_graph(depth, 12);
    const auto more = static_cast<std::size_t>(depth) * tensor;
    MESSAGE("chain ", smallest_of(chain) / tensor, " ", smallest_of(skips) / tensor);
    CHECK(smallest_of(skips) <= smallest_of(chain) + more + tensor);
    for (const std::size_t percent : {60U, 30U}) {
      CAPTURE(percent);
      const std::size_t budget = retained(chain) * percent / 100;
      const PlanOutcome a = planned(chain, budget), b = planned(skips, budget + more);
      MESSAGE("chain ", a.seconds, " ", b.seconds, " gap ", b.gap);
      CHECK(b.seconds - b.retain_seconds <= (a.seconds - a.retain_seconds) * 1.02 + 1e-3);
    }
  }
}

}  // namespace outside_cuts_test
