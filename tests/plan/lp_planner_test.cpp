#include <doctest/doctest.h>

#include <adacc/plan/lp/tensor_planner.hpp>

#include <string>

#include "brute_force.hpp"
#include "random_graph.hpp"
#include "test_size.hpp"

namespace lp_planner_test {

using namespace adacc;
using brute_force::AllPlans;
using random_graph::Source;

TEST_CASE("lp_solve's plan is within 0.5 % of brute force's, never over budget, its bound sound") {
  std::size_t solved = 0, fell_back = 0;
  double worst = 0;
  for (unsigned seed = 0; seed < test_graphs; ++seed) {
    CAPTURE(seed);
    Source random(seed);
    const Graph graph = random_graph::draw(random, 1 + static_cast<int>(random.below(8)));
    const CostProfile profile = random_graph::draw_profile(random, graph, seed % 4 == 0);
    AllPlans all(graph, profile);
    if (all.size() == 0) continue;
    for (int i = 0; i < 3; ++i) {
      PlanRequest request;
      request.tolerance = i % 2 == 0 ? 1e9 : all[random.below(all.size())].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = all.most_live_bytes();
      request.budget_bytes = seed % 8 == 0 && i == 0 ? smallest - 1
                             : seed % 8 == 1 && i == 0
                                 ? smallest
                                 : smallest + random.below(most - smallest + 1);
      CAPTURE(request.budget_bytes);
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      const Result<PlanOutcome> outcome = plan_with_lp_solve(graph, profile, request);
      REQUIRE(static_cast<bool>(outcome) == (best != nullptr));
      if (!outcome) continue;
      ++solved;
      if (std::string(outcome->solver) != "lp_solve") ++fell_back;
      CAPTURE(std::string(outcome->note.text()));
      brute_force::check_promises(graph, request, *best, *outcome);
      CHECK(outcome->seconds <= best->cost.seconds * 1.005);
      CHECK(outcome->gap <= 0.005);
      worst = std::max(worst, outcome->seconds / best->cost.seconds - 1);
    }
  }
  MESSAGE(solved << " plans, " << fell_back << " of them by the exact planner; worst "
                 << 100 * worst << " % over the best");
  CHECK(fell_back * 50 <= solved);
}

}  // namespace lp_planner_test
