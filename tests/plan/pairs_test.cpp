// SPDX-License-Identifier: MIT
// Pairs of segments: what patterns say about bytes is what the schedule of their plan takes.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/make_plan.hpp>

#include "../test_size.hpp"
#include "pattern_path.hpp"
#include "random_graph.hpp"

#include <algorithm>
#include <vector>

namespace pairs_test {

using namespace adacc;
using namespace adacc::detail;
using namespace pattern_path;
using random_graph::Source;

namespace {

/// A small GPT whose halves of blocks may be pairs.
Graph gpt_graph(std::size_t batch) {
  gpt::Config config;
  config.layers = 2, config.heads = 2, config.channels = 256, config.context = 64,
  config.vocab = 32;
  GraphOptions options;
  options.parts = static_cast<int>(batch);
  auto graph = make_graph(gpt::make<gpt::PlannedSet>(config), Shape(batch, 64), options);
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

struct Seen {
  int plans = 0, pairs = 0, smaller = 0;
};

/// Random patterns for each segment of `graph`, `count` times.
void check(const Graph& graph, const CostProfile& profile, Source& random, int count, Seen& seen) {
  const ChainTables tables(graph, profile, ChainTuning{});
  for (int i = 0; i < count; ++i) {
    Path path = draw_path(tables, random);
    if (path.empty()) continue;
    const Plan plan = plan_of(graph, tables, path);
    // Each pair in one loop, or apart: the pattern beside it has the same choices.
    std::vector<std::size_t> halves;  // the left ones
    const Array<bool> pairs = LoopRules(graph).pairs(plan);
    for (std::size_t j = 0; j < pairs.size(); ++j)
      if (pairs[j]) halves.push_back(j);
    const auto as = [&](std::size_t j, State from, State to) {
      for (const Pattern& other : patterns_of(tables, j).all)
        if (other.first_choice == path[j]->first_choice && other.from == from && other.to == to)
          return &other;
      return path[j];
    };
    SignedBytes least = need_of(path);
    for (std::size_t bits = 0; bits < std::size_t{1} << halves.size(); ++bits) {
      Path other = path;
      for (std::size_t h = 0; h < halves.size(); ++h) {
        const State way = (bits >> h & 1) != 0 ? paired : replayed;
        const std::size_t j = halves[h];
        other[j] = as(j, path[j]->from, way);
        other[j + 1] = as(j + 1, way, path[j + 1]->to);
        REQUIRE(other[j]->to == way);
        REQUIRE(other[j + 1]->from == way);
      }
      least = std::min(least, need_of(other));
    }
    const auto lives = static_cast<SignedBytes>(live_bytes(make_schedule(graph, plan)));
    CHECK(lives == least);
    ++seen.plans;
    seen.pairs += !halves.empty();
    seen.smaller += lives < need_of(path);
  }
}

}  // namespace

TEST_CASE("patterns of pairs take to the byte what the schedule of the whole plan takes") {
  Seen gpt, drawn;
  for (const std::size_t batch : {std::size_t{2}, std::size_t{8}})
    for (const int variant : {0, 1, 2, 3}) {
      CAPTURE(variant);
      Graph graph = gpt_graph(batch);
      Source random(7 + static_cast<unsigned>(batch));
      if (variant >= 2) random_graph::freeze(random, graph);
      if (variant % 2 == 1) random_graph::fuse(random, graph);
      check(graph, estimated_profile(graph), random, static_cast<int>(test_graphs) * 2, gpt);
    }
  for (unsigned seed = 0; seed < test_graphs * 4; ++seed) {
    CAPTURE(seed);
    Source random(seed);
    Graph graph =
        random_graph::draw(random, 4 + static_cast<int>(random.below(8)), 8, seed % 2 == 0);
    random_graph::cut(random, graph, 4);
    if (seed % 4 == 1) random_graph::freeze(random, graph);
    if (seed % 4 >= 2) random_graph::fuse(random, graph);
    check(graph, random_graph::draw_profile(random, graph, true), random, 12, drawn);
  }
  MESSAGE(gpt.plans, " plans of GPTs, ", gpt.pairs, " with pairs; ", drawn.plans,
          " of random graphs, ", drawn.pairs, " with pairs; ", gpt.smaller + drawn.smaller,
          " smaller the other way");
  CHECK(gpt.pairs * 4 > gpt.plans);
  CHECK(drawn.pairs > 0);
}

TEST_CASE("lossless plans with pairs: what a search through all finds is found by patterns, too") {
  Graph graph = gpt_graph(4);
  for (Node& node : graph.nodes) node.candidates.count = 0;
  const CostProfile profile = estimated_profile(graph);
  PlanRequest request;
  request.budget_bytes = 1;
  request.gap = 0;
  request.tolerance = 0;
  const auto smallest = smallest_peak(graph, profile, request);
  REQUIRE_MESSAGE(smallest, smallest.error.text());
  int with_pairs = 0;
  for (const std::size_t percent : {100U, 103U, 106U, 110U, 120U, 140U}) {
    CAPTURE(percent);
    request.budget_bytes = *smallest * percent / 100;
    const auto best = plan_exhaustively(graph, profile, request);
    const auto found = plan_chain(graph, profile, request);
    REQUIRE_MESSAGE(best, best.error.text());
    REQUIRE_MESSAGE(found, found.error.text());
    CHECK(best->gap <= 1e-9);
    CHECK(found->seconds <= best->seconds * (1 + 1e-9));
    CHECK(found->bound_seconds <= best->seconds * (1 + 1e-9));
    CHECK(found->gap <= 0.01);
    for (const bool pair : LoopRules(graph).pairs(found->plan)) with_pairs += pair;
  }
  CHECK(with_pairs > 0);
  request.budget_bytes = *smallest - 1;
  CHECK_FALSE(plan_exhaustively(graph, profile, request));
}

}  // namespace pairs_test
