// SPDX-License-Identifier: MIT
/// Plans of networks whose layers read both their inputs and their own outputs in backward: cuts that both
/// sides read.
#include <doctest/doctest.h>

#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/program/in_flight.hpp>

#include <algorithm>
#include <vector>

#include "../test_size.hpp"
#include "brute_force.hpp"
#include "chain_graph.hpp"
#include "pattern_path.hpp"
#include "random_graph.hpp"

namespace shared_cuts_test {

using namespace adacc;
using namespace pattern_path;
using random_graph::Source;

namespace {

/// A random graph most of whose layers read their own outputs.
Graph draw_graph(Source& random, int most_free) {
  Graph graph = random_graph::draw(random, most_free);
  for (int k = 0; k < graph.node_count(); ++k) {
    Node& node = graph.nodes[static_cast<std::size_t>(k)];
    if (node.adds.count > 0 || node.reads == Reads::none || random.one_in(4)) continue;
    bool added = false;
    for (int other = k + 1; other < graph.node_count(); ++other)
      added = added || graph.adds(other).contains(k);
    if (added) continue;
    node.reads = reads_input(node.reads) ? Reads::both : Reads::output;
    const int read[2] = {graph.input_of(k), k};
    const bool first = reads_input(node.reads) && read[0] != step_input;
    graph.set_backward_reads(k, {read + (first ? 0 : 1), first ? 2U : 1U});
  }
  return graph;
}

int shared_cuts(const Graph& graph) {
  int count = 0;
  for (const detail::Segment& segment : detail::cut(graph).segments) count += segment.shares_output;
  return count;
}

}  // namespace

TEST_CASE("patterns at shared cuts take to the byte what the schedule of the whole plan takes") {
  int plans = 0, shared = 0;
  for (unsigned seed = 0; seed < test_graphs * 4; ++seed) {
    CAPTURE(seed);
    Source random(seed);
    Graph graph = draw_graph(random, 4 + static_cast<int>(random.below(8)));
    if (seed % 4 == 1) random_graph::freeze(random, graph);
    if (seed % 4 >= 2) random_graph::fuse(random, graph);
    const ChainTables tables(graph, random_graph::draw_profile(random, graph, true), ChainTuning{});
    for (int i = 0; i < 12; ++i) {
      const Path path = draw_path(tables, random);
      if (path.empty()) continue;
      const Plan plan = plan_of(graph, tables, path);
      REQUIRE_FALSE(examine(graph, plan));
      const auto lives = static_cast<SignedBytes>(live_bytes(make_schedule(graph, plan)));
      CHECK(need_of(path) == lives);
      ++plans;
      for (const Pattern* pattern : path) shared += pattern->to == kept;
    }
  }
  MESSAGE(plans, " plans, ", shared, " shared cuts that are kept");
  CHECK(shared * 4 > plans);
}

TEST_CASE("random graphs with shared cuts: plans and bounds against brute force") {
  int planned = 0, refused = 0, optimal = 0, proven = 0, short_of = 0, cuts = 0;
  for (unsigned seed = 0; seed < test_graphs; ++seed) {
    Source random(seed);
    Graph graph = draw_graph(random, 7);
    if (seed % 4 == 1) random_graph::freeze(random, graph);
    if (seed % 4 >= 2) random_graph::fuse(random, graph);
    cuts += shared_cuts(graph);
    const CostProfile profile = random_graph::draw_profile(random, graph, random.one_in(2));
    brute_force::AllPlans all(graph, profile);
    if (all.size() == 0) continue;
    for (int b = 0; b < 3; ++b) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : random.unit() * 0.5;
      request.budget_bytes =
          peak_bytes(graph, plan_from_types(graph)) * (30 + random.below(75)) / 100 + 1;
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      const auto plan = plan_chain(graph, profile, request);
      INFO("seed ", seed, " budget ", request.budget_bytes, " tolerance ", request.tolerance);
      if (best == nullptr) {
        CHECK_FALSE(plan);
        ++refused;
        continue;
      }
      if (!plan) {
        ++short_of;
        continue;
      }
      ++planned;
      brute_force::check_promises(graph, request, *best, *plan);
      optimal += plan->seconds <= best->cost.seconds * (1 + 1e-9);
      proven += plan->gap <= 1e-9;
    }
  }
  MESSAGE(planned, " planned, ", optimal, " optimal, ", proven, " proven, ", refused, " refused, ",
          short_of, " not found, ", cuts, " shared cuts");
  CHECK(cuts > static_cast<int>(test_graphs));
  CHECK(planned * 2 >= static_cast<int>(test_graphs));
  CHECK(optimal * 100 >= planned * 95);  // the rest are laid out with gaps
  CHECK(short_of * 100 <= planned);
}

TEST_CASE("several steps in flight: bounds at shared cuts hold against brute force") {
  int planned = 0, close = 0;
  for (unsigned seed = 0; seed < test_graphs / 4; ++seed) {
    Source random(seed);
    Graph graph = draw_graph(random, 6);
    graph.has_loss = false;
    graph.gives_input_gradient = true;
    const CostProfile profile = random_graph::draw_profile(random, graph, false);
    const brute_force::AllPlans all(graph, profile);
    const int steps = 2 + static_cast<int>(random.below(3));
    std::size_t most = 0, least = static_cast<std::size_t>(-1);
    std::vector<std::size_t> arenas;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto placed = place_schedule(graph, all.plan_of(all[i].choices));
      // What waits apart from what works, as planners count; some plans are smaller in an arena each.
      const InFlightBytes bytes = make_in_flight_layout(*placed)->bytes;
      arenas.push_back(static_cast<std::size_t>(steps) * bytes.held + bytes.working);
      most = std::max(most, arenas.back());
      least = std::min(least, arenas.back());
    }
    for (std::size_t part = 1; part < 4; ++part) {
      PlanRequest request;
      request.gap = 0;
      request.in_flight = steps;
      request.tolerance = 1e9;
      request.budget_bytes = least + (most - least) * part / 4;
      const auto plan = plan_chain(graph, profile, request);
      INFO("seed ", seed, " steps ", steps, " budget ", request.budget_bytes);
      if (!plan) continue;
      double best = 1e300;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (arenas[i] <= request.budget_bytes) best = std::min(best, all[i].cost.seconds);
      ++planned;
      CHECK(plan->peak_bytes <= request.budget_bytes);
      CHECK(plan->bound_seconds <= best * (1 + 1e-9));
      close += plan->seconds <= best * 1.01;
    }
  }
  MESSAGE(planned, " planned, ", close, " within 1 %");
  CHECK(planned * 3 > static_cast<int>(test_graphs));
  CHECK(close * 100 >= planned * 90);
}

TEST_CASE("chains whose layers read inputs and outputs are planned like plans by hand") {
  struct ByHand {
    int layers;
    std::size_t tensors;
  };
  for (const ByHand& hand : {ByHand{12, 7}, {24, 9}, {64, 16}, {256, 32}, {1000, 64}}) {
    CAPTURE(hand.layers);
    const Graph graph = chain_graph::make(hand.layers, Reads::both);
    const CostProfile profile = chain_graph::even_profile(graph);
    const std::size_t tensor = graph.node(0).output_bytes;
    PlanRequest request;
    request.budget_bytes = 1;
    request.tolerance = 0;
    const auto smallest = smallest_peak(graph, profile, request);
    REQUIRE_MESSAGE(smallest, smallest.error.text());
    MESSAGE(hand.layers, " layers: ", *smallest / tensor, " tensors of ",
            peak_bytes(graph, retain_all(graph)) / tensor);
    CHECK(*smallest <= hand.tensors * tensor);
    for (const std::size_t percent : {70U, 50U, 30U}) {
      CAPTURE(percent);
      request.budget_bytes = peak_bytes(graph, retain_all(graph)) * percent / 100;
      if (request.budget_bytes < *smallest) continue;
      int looks = 0;  // counted, not timed: the clock is asked once for every few segments
      const auto count = [&]() -> double { return ++looks, 0; };
      request.clock = count;
      const auto plan = plan_chain(graph, profile, request);
      request.clock = {};
      REQUIRE_MESSAGE(plan, plan.error.text());
      CHECK(looks < 300);
      CHECK(plan->gap <= 0.005);
    }
  }
}

}  // namespace shared_cuts_test
