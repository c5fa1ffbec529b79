#include <doctest/doctest.h>

#include <adacc/plan/make_plan.hpp>
#include <adacc/plan/pattern_planner.hpp>

#include "../../bench/plan_profile.hpp"
#include "../../examples/gpt.hpp"
#include "brute_force.hpp"
#include "random_graph.hpp"

#include <string>

using namespace adacc;

TEST_CASE("on random graphs the planner by patterns is within its gap of brute force") {
  int planned = 0, refused = 0, optimal = 0, close = 0, short_of = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    random_graph::Source random(seed);
    const Graph graph = random_graph::draw(random, 6);
    const CostProfile profile = random_graph::draw_profile(random, graph, random.one_in(2));
    brute_force::AllPlans all(graph, profile);
    if (all.size() == 0) continue;
    for (int b = 0; b < 3; ++b) {
      const std::size_t retain =
          make_layout(make_schedule(graph, plan_from_types(graph))).arena_bytes;
      PlanRequest request;
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : random.unit() * 0.5;
      request.budget_bytes = retain * (30 + random.below(75)) / 100 + 1;
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      const auto plan = plan_by_patterns(graph, profile, request);
      INFO("seed ", seed, " budget ", request.budget_bytes, " tolerance ", request.tolerance);
      if (best == nullptr) {
        CHECK_FALSE(plan);
        ++refused;
        continue;
      }
      if (!plan) {
        MESSAGE(std::string(plan.error.text()));
        ++short_of;
        continue;
      }
      ++planned;
      CHECK_FALSE(check(graph, plan->plan));
      CHECK(plan->peak_bytes <= request.budget_bytes);
      CHECK(plan->error <= request.tolerance * (1 + 1e-9));
      CHECK(plan->bound_seconds <= best->cost.seconds * (1 + 1e-9));
      CHECK(plan->seconds >= best->cost.seconds * (1 - 1e-9));
      optimal += plan->seconds <= best->cost.seconds * (1 + 1e-9);
      close += plan->seconds <= best->cost.seconds * 1.01;
    }
  }
  MESSAGE(planned, " planned, ", optimal, " optimal, ", close, " close, ", refused, " refused, ",
          short_of, " short");
}
