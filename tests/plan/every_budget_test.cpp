// SPDX-License-Identifier: MIT
// A budget is a promise: at every one, from the smallest that can be met to all that retain needs,
// the planned step uses exactly the bytes that its plan names, and no more than the budget.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/plan/make_plan.hpp>

#include "../step/arena_use.hpp"
#include "../step/in_turn.hpp"
#include "../step/small_gpt.hpp"
#include "../test_size.hpp"

namespace every_budget_test {

using namespace adacc;
using small_gpt::Run;

namespace {

constexpr int budgets = test_sanitized ? 8 : 20;
constexpr int workers = 2;

struct Planned {
  Graph graph;
  CostProfile profile;
  PlanRequest request;

  Planned(const gpt::Config& config, double tolerance, int parts) {
    auto made = gpt::graph<gpt::PlannedSet>(config, Run::batch, Run::time, workers, parts);
    REQUIRE_MESSAGE(made, made.error.text());
    graph = std::move(*made);
    profile = estimated_profile(graph);
    request.tolerance = tolerance;
    request.budget_bytes = peak_bytes(graph, retain_all(graph));
  }
  Result<PlanOutcome> at(std::size_t budget_bytes) {
    request.budget_bytes = budget_bytes;
    return make_plan(graph, profile, request);
  }
};

bool loses_nothing(const Plan& plan) {
  for (const Policy& policy : plan.policies)
    if (policy.codec() != nullptr && !policy.codec()->lossless) return false;
  return true;
}

/// How many of the budgets had a plan that loses nothing; in `smallest` the smallest budget.
int run_all(double tolerance, int parts, std::size_t& smallest) {
  Run run(3, 32);
  Planned planned(run.config, tolerance, parts);
  const std::size_t most = planned.request.budget_bytes;
  const auto least = smallest_peak(planned.graph, planned.profile, planned.request);
  REQUIRE_MESSAGE(least, least.error.text());
  REQUIRE(*least < most);
  smallest = *least;

  const Run::Ran retained = run.run(planned.graph, retain_all(planned.graph));
  InTurn executor{workers};
  int exact = 0;
  std::size_t last_peak = 0;
  for (std::size_t i = 0; i < budgets; ++i) {
    const std::size_t budget = *least + (most - *least) * i / (budgets - 1);
    CAPTURE(budget);
    const auto outcome = planned.at(budget);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    CHECK(outcome->peak_bytes <= budget);
    last_peak = outcome->peak_bytes;

    auto program = make_program(planned.graph, outcome->plan);
    REQUIRE_MESSAGE(program, program.error.text());
    auto step = Step<>::make(run.dispatch(), *program);
    REQUIRE_MESSAGE(step, step.error.text());
    CHECK(step->arena_bytes() == outcome->peak_bytes);
    Cpu cpu{ExecutorRef(executor)};
    check_arena_use(*step, cpu, run.view(), run.view());  // to the last byte, and none behind it

    const Run::Ran ran = run.run(planned.graph, outcome->plan);
    const bool lossless = loses_nothing(outcome->plan);
    exact += lossless ? 1 : 0;
    CHECK((outcome->error == 0) == lossless);
    CHECK(small_gpt::same(ran.gradient, retained.gradient) == lossless);
    if (lossless) CHECK(std::memcmp(&ran.loss, &retained.loss, sizeof ran.loss) == 0);
  }
  CHECK(last_peak == most);  // the last had all that retain needs
  return exact;
}

}  // namespace

TEST_CASE("executed peak == predicted peak <= budget at every budget, lossless ones to the bit") {
  std::size_t smallest[2][2] = {};
  for (const int parts : {1, static_cast<int>(Run::batch)}) {
    CAPTURE(parts);
    CHECK(run_all(0, parts, smallest[parts > 1][0]) == budgets);
    const int exact = run_all(1e-2, parts, smallest[parts > 1][1]);
    CHECK(exact > 0);
    CHECK(exact < budgets);
  }
  for (const int lossy : {0, 1})  // loops over two sequences: far below the floor without them
    CHECK(static_cast<double>(smallest[1][lossy]) <= 0.8 * static_cast<double>(smallest[0][lossy]));
}

}  // namespace every_budget_test
