// SPDX-License-Identifier: MIT
/// Searches that are proven to lead nowhere end, counted in the partial plans that they look at.
#include <doctest/doctest.h>

#include <adacc/plan/offload.hpp>
#include <adacc/plan/without_store.hpp>

#include "gpt_graphs.hpp"

namespace search_below_test { namespace {

using namespace adacc;

/// A GPT that is planned for by segments.
struct Case {
  explicit Case(int layers, std::size_t context = 64) : graph(gpt_graphs::make(layers, context)) {}

  Graph graph;
  CostProfile profile = gpt_graphs::costs(graph);

  /// What a search of plans below `seconds` finds, and how many partial plans it looks at.
  struct Searched {
    bool found = false;
    double seconds = 0, bound = 0;
    std::size_t extensions = 0;
  };
  Searched below(double seconds, const PlanRequest& request) const {
    detail::ArenaPlanner planner(graph, profile);
    Proposals proposals(graph, profile, request);
    planner.search_below(seconds, request, proposals);
    return {proposals.found(), proposals.found() ? proposals.best().cost.seconds : 0,
            proposals.bound_seconds(), planner.extensions()};
  }
};

TEST_CASE("a search for plans below what is proven ends at once, above it goes on") {
  const Case gpt(6);
  for (const std::size_t percent : {25U, 40U}) {
    CAPTURE(percent);
    PlanRequest request = gpt_graphs::at_percent(gpt.graph, percent);
    request.gap = 0;  // the search goes on until it has proven what it found
    const Case::Searched all = gpt.below(detail::infinite, request);
    REQUIRE(all.found);
    REQUIRE(all.extensions > 1000);
    // No prices are needed to see that nothing is faster than retaining.
    const double retain = evaluate(gpt.graph, gpt.profile, plan_from_types(gpt.graph)).seconds;
    const Case::Searched hopeless = gpt.below(retain, request);
    CHECK_FALSE(hopeless.found);
    CHECK(hopeless.extensions == 0);
    CHECK(hopeless.bound >= retain);
    // Between the first bound and what is best a search has to look, but not for long.
    const Case::Searched slower = gpt.below(all.seconds * (1 - 1e-3), request);
    CHECK_FALSE(slower.found);
    CHECK(slower.bound >= all.seconds * (1 - 1e-3));
    CHECK(slower.extensions < all.extensions / 2);
    // What may still be faster is found.
    const Case::Searched faster = gpt.below(all.seconds * (1 + 1e-3), request);
    CHECK(faster.found);
    CHECK(faster.seconds <= all.seconds * (1 + 1e-3));
    MESSAGE(percent, " %: ", all.extensions, " partial plans, below the best ", slower.extensions);
  }
}

TEST_CASE("trials of a planner with a fast store end where every plan is proven slower") {
  const Case gpt(4, 256);
  // So little that a search without a store takes long.
  PlanRequest request = gpt_graphs::at_percent(gpt.graph, 16);
  const std::size_t without = gpt.below(detail::infinite, request).extensions;
  const auto with = [&](double rate) {
    PlanRequest lent = request;
    lent.link.write_rate = lent.link.read_rate = rate;
    Proposals proposals(gpt.graph, gpt.profile, lent);
    detail::OffloadPlanner planner(gpt.graph, gpt.profile, lent, proposals);
    planner.search();
    return planner.extensions();
  };
  // Retaining all and sending it is as fast as a step can be: nothing else is worth a look.
  CHECK(with(1e15) == 0);
  const std::size_t fast = with(1e10), slow = with(1e8);
  MESSAGE("partial plans: ", without, " without a store, ", fast, " with a fast one, ", slow,
          " with a slow one");
  CHECK(10 * fast < without);
  CHECK(fast < slow);
}

TEST_CASE(
    "a budget below the smallest plan is not searched again as widely as that was looked for") {
  const Case gpt(4);
  detail::ArenaPlanner planner(gpt.graph, gpt.profile);
  std::size_t first = 0;
  for (const std::size_t percent : {13U, 12U, 11U, 10U}) {
    CAPTURE(percent);
    const PlanRequest request = gpt_graphs::at_percent(gpt.graph, percent);
    Proposals proposals(gpt.graph, gpt.profile, request);
    const std::size_t before = planner.extensions();
    planner.search(request, proposals);
    REQUIRE_FALSE(proposals.found());
    CHECK(proposals.smallest().arena_bytes > request.budget_bytes);
    const std::size_t looked = planner.extensions() - before;
    MESSAGE(percent, " %: ", looked, " partial plans");
    if (first == 0) first = looked;
    else CHECK(4 * looked < first);
  }
}

}}  // namespace search_below_test
