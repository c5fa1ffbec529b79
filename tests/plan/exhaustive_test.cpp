// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/plan/exhaustive/planner.hpp>

#include <cstdlib>
#include <string>

#include "../test_size.hpp"
#include "brute_force.hpp"
#include "random_graph.hpp"

namespace exhaustive_test {

using namespace adacc;
using brute_force::AllPlans;
using random_graph::Source;

namespace {

std::size_t up_to(Source& random, std::size_t least, std::size_t most) {
  return least + random.below(most - least + 1);
}

/// The number of bytes that follows `words` in an error.
std::size_t bytes_behind(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) return 0;
  const std::string rest = text.substr(at + words.size(), text.find(',', at) - at - words.size());
  const std::size_t open = rest.find('(');
  return static_cast<std::size_t>(
      std::strtoull(rest.c_str() + (open == std::string::npos ? 0 : open + 1), nullptr, 10));
}

}  // namespace

TEST_CASE("the relaxation of a partial plan is a bound, and of a whole one the schedule's peak") {
  std::size_t with_loops = 0;
  for (unsigned seed = 0; seed < 4 * test_graphs; ++seed) {
    CAPTURE(seed);
    Source random(seed);
    Graph graph = random_graph::draw(random, 11);
    if (seed >= 2 * test_graphs) random_graph::cut(random, graph, 2 << seed % 2);
    if (seed >= 3 * test_graphs) random_graph::freeze(random, graph);
    if (2 * seed >= 7 * test_graphs) {
      if (seed % 2 == 0) graph.parts = 1;
      random_graph::fuse(random, graph);
    }
    const CostProfile profile = random_graph::draw_profile(random, graph, false);
    PartialPlan partial(graph, profile);
    for (int i = 0; i < 8; ++i) {
      // A random plan, decided from the last activation to the first.
      std::vector<PartialCost> bounds;
      std::vector<std::size_t> choices(graph.nodes.size());
      bool valid = true;
      partial.open_to(graph.node_count() - 1);
      bounds.push_back(partial.cost());
      for (int k = graph.node_count() - 1; valid && k >= 0; --k) {
        const std::size_t option = random.below(partial.option_count(k));
        valid = partial.allowed(option);
        if (!valid) break;
        partial.decide(option);
        choices[static_cast<std::size_t>(k)] = option;
        bounds.push_back(partial.cost());
      }
      if (!valid) continue;
      const Plan plan = partial.plan();
      CHECK(!examine(graph, plan));
      const PlanCost cost = evaluate(graph, profile, plan);
      partial.open_to(graph.node_count() - 1);
      const detail::StorageFrontier frontier(partial, cost.live_bytes, i % 2 == 0 ? 512 : 8);
      const Array<bool> needed = needed_in_backward(graph, plan);
      for (int k = graph.node_count() - 1; k >= 0; --k) {
        CHECK(needed[static_cast<std::size_t>(k)] == partial.needed(k));
        partial.decide(choices[static_cast<std::size_t>(k)]);
      }
      const bool loops = !make_schedule(graph, plan).loops.empty();
      with_loops += loops;
      CHECK(bounds.back().live_bytes <= cost.live_bytes);
      if (graph.parts == 1) CHECK(bounds.back().live_bytes == cost.live_bytes);
      CHECK(bounds.back().error == cost.error);
      CHECK(bounds.back().seconds == doctest::Approx(cost.seconds).epsilon(1e-12));
      for (std::size_t b = 0; b < bounds.size(); ++b) {
        const int open = graph.node_count() - static_cast<int>(b);
        std::size_t stored = 0;
        for (int k = 0; k < open; ++k)
          if (partial.read(k))
            stored += partial.option(k, choices[static_cast<std::size_t>(k)]).stored;
        CHECK(bounds[b].live_bytes <= cost.live_bytes);
        CHECK(bounds[b].window_bytes + stored <= cost.live_bytes);
        CHECK(frontier.least_bytes(open) <= stored);
        CHECK(bounds[b].error <= cost.error);
        const double seconds =
            bounds[b].seconds + frontier.seconds(open, cost.live_bytes - bounds[b].window_bytes);
        CHECK(seconds <= cost.seconds * (1 + 1e-12));
      }
    }
  }
  CHECK(with_loops > test_graphs);
}

TEST_CASE("the exhaustive planner finds what brute force finds, at every budget") {
  std::size_t plans = 0, searched = 0, refused = 0;
  double waste = 0, waste_of_loops = 0;
  for (unsigned seed = 0; seed < test_graphs * 2; ++seed) {
    CAPTURE(seed);
    Source random(seed);
    Graph graph = random_graph::draw(random, 1 + static_cast<int>(random.below(8)));
    if (seed >= test_graphs) random_graph::cut(random, graph, 4);
    if (seed * 2 >= test_graphs * 3) random_graph::freeze(random, graph);
    if (seed * 4 >= test_graphs * 7) random_graph::fuse(random, graph);
    const CostProfile profile = random_graph::draw_profile(random, graph, seed % 4 == 0);
    AllPlans all(graph, profile);
    plans += all.size();
    if (all.size() == 0) {
      PlanRequest request;
      request.budget_bytes = 1;
      CHECK(!plan_exhaustively(graph, profile, request));
      continue;
    }
    for (int i = 0; i < 6; ++i) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = i % 2 == 0 ? 1e9 : all[random.below(all.size())].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = all.most_live_bytes();
      request.budget_bytes = i == 0   ? most
                             : i == 1 ? smallest
                             : i == 2 ? smallest - 1
                                      : up_to(random, smallest, most);
      CAPTURE(request.budget_bytes);
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      const Result<PlanOutcome> outcome = plan_exhaustively(graph, profile, request);
      ++searched;
      REQUIRE(static_cast<bool>(outcome) == (best != nullptr));
      if (!outcome) {
        ++refused;
        CHECK(bytes_behind(outcome.error.text(), "that can be met is ") == smallest);
        CHECK(request.budget_bytes < smallest);
        continue;
      }
      CHECK(outcome->seconds == doctest::Approx(best->cost.seconds).epsilon(1e-12));
      CHECK(outcome->live_bytes == best->cost.live_bytes);
      CHECK(outcome->error == best->cost.error);
      CHECK(outcome->peak_bytes <= request.budget_bytes);
      CHECK(outcome->live_bytes <= align_up(request.budget_bytes));
      CHECK(outcome->error <= request.tolerance);
      CHECK(outcome->gap <= 1e-12);
      CHECK(!outcome->timed_out);
      CHECK(!examine(graph, outcome->plan));
      for (int k = 0; k < graph.node_count(); ++k)
        if (!graph.node(k).policy.planned()) CHECK(outcome->plan[k] == graph.node(k).policy);
      double& worst = graph.parts == 1 ? waste : waste_of_loops;
      worst = std::max(worst, static_cast<double>(outcome->peak_bytes) /
                                  static_cast<double>(outcome->live_bytes));
    }
  }
  CHECK(waste <= 1.05);
  CHECK(waste_of_loops <= 1.07);
  MESSAGE(searched << " searches over " << plans << " plans, " << refused
                   << " budgets refused; arena over live bytes at worst " << waste
                   << ", with loops " << waste_of_loops);
}

}  // namespace exhaustive_test
