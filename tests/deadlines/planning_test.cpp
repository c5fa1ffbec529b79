// SPDX-License-Identifier: MIT
/// Planning ends by its deadline: within a fifth more, and 20 milliseconds, of the work that it does.
#include <doctest/doctest.h>

#include <adacc/evolve/evolution.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/train/freeze_to_fit.hpp>
#include <adacc/train/total.hpp>

#include <cstring>
#include <initializer_list>
#include <string>

#include "../plan/gpt_graphs.hpp"
#include "../plan/random_graph.hpp"
#include "work_clock.hpp"

namespace planning_test { namespace {

using namespace adacc;

/// A GPT in which no two blocks cost the same.
struct Case {
  explicit Case(int layers, std::size_t context = 64) : graph(gpt_graphs::make(layers, context)) {}

  Graph graph;
  CostProfile profile = gpt_graphs::costs(graph, 0.1);

  PlanRequest within(std::size_t percent, double deadline) const {
    PlanRequest request = gpt_graphs::at_percent(graph, percent);
    request.clock = work_clock::seconds;
    request.deadline_seconds = deadline;
    return request;
  }
};

/// Runs `work`, which has `deadline` seconds; what it returns.
template <class Work>
auto timed(double deadline, const Work& work) {
  const double start = work_clock::seconds();
  auto made = work();
  const double took = work_clock::seconds() - start;
  CHECK_MESSAGE(took <= 1.2 * deadline + 0.02, took, " s of ", deadline);
  return made;
}

bool says(const Error& why, const char* what) { return std::strstr(why.text(), what) != nullptr; }

TEST_CASE("plans of any budget, with and without a store, and the smallest") {
  int found = 0, refused = 0, cut_short = 0;
  for (const int layers : {2, 6, 24}) {
    const Case gpt(layers);
    for (const double rate : {0.0, 1e9})
      for (const bool least_error : {false, true})
        for (const std::size_t percent : {50U, 20U, 12U, 1U})
          for (const double deadline : {0.0, 0.005, 0.02, 0.1}) {
            INFO("layers ", layers, ", ", "rate ", rate, ", ", "percent ", percent, ", ",
                 "deadline ", deadline);
            PlanRequest request = gpt.within(percent, deadline);
            request.link.write_rate = request.link.read_rate = rate;
            request.least_error = least_error;
            const auto plan =
                timed(deadline, [&] { return make_plan(gpt.graph, gpt.profile, request); });
            if (plan) {
              ++found;
              cut_short += plan->timed_out ? 1 : 0;
              CHECK(plan->peak_bytes <= request.budget_bytes);
              CHECK(plan->peak_bytes == peak_bytes(gpt.graph, plan->plan));
              CHECK(plan->error <= request.tolerance);
              CHECK(plan->bound_seconds <= plan->seconds);
              CHECK(plan->solve_seconds > 0);
            } else {
              ++refused;
              CHECK_MESSAGE(says(plan.error, "the smallest known that can be met"),
                            std::string(plan.error.text()));
            }
          }
    for (const double deadline : {0.0, 0.02, 0.1}) {
      INFO("layers ", layers, ", ", "deadline ", deadline);
      const PlanRequest request = gpt.within(1, deadline);
      const auto smallest =
          timed(deadline, [&] { return smallest_peak(gpt.graph, gpt.profile, request); });
      REQUIRE(smallest);
      CHECK(*smallest < peak_bytes(gpt.graph, retain_all(gpt.graph)));
    }
  }
  MESSAGE(found, " plans, ", cut_short, " of them cut short, and ", refused, " refusals");
  CHECK(cut_short > 20);
  CHECK(refused > 10);
}

TEST_CASE("plans that recompute several times, and the smallest of them") {
  int nested = 0;
  for (const int layers : {6, 24, 60}) {
    Case gpt(layers);
    for (Node& node : gpt.graph.nodes) node.candidates.count = 0;
    for (const std::size_t percent : {20U, 14U, 10U, 6U, 1U})
      for (const double deadline : {0.0, 0.005, 0.02, 0.1, 1.0}) {
        INFO("layers ", layers, ", ", "percent ", percent, ", ", "deadline ", deadline);
        PlanRequest request = gpt.within(percent, deadline);
        request.tolerance = 0;
        request.most_runs = most_runs;
        const auto plan =
            timed(deadline, [&] { return make_plan(gpt.graph, gpt.profile, request); });
        if (plan) {
          nested += is_nested(plan->plan);
          CHECK(plan->peak_bytes <= request.budget_bytes);
        }
        const auto smallest =
            timed(deadline, [&] { return smallest_peak(gpt.graph, gpt.profile, request); });
        REQUIRE(smallest);
        CHECK(*smallest < peak_bytes(gpt.graph, retain_all(gpt.graph)));
      }
  }
  MESSAGE(nested, " plans");
  CHECK(nested > 5);
}

TEST_CASE("searches that take seconds are cut short in their middle") {
  const gpt_graphs::gpt::Config config{
      .layers = 6, .heads = 2, .channels = 64, .context = 64, .vocab = 128};
  Case gpt(1);
  gpt.graph = *gpt_graphs::gpt::graph<gpt_graphs::gpt::PlannedSet>(config, 4, 64, 4);
  gpt.profile = gpt_graphs::costs(gpt.graph, 0.1);
  for (const double deadline : {0.2, 0.4, 0.8}) {
    INFO("deadline ", deadline);
    for (const std::size_t percent : {12U, 1U}) {
      const PlanRequest request = gpt.within(percent, deadline);
      const auto plan = timed(deadline, [&] { return make_plan(gpt.graph, gpt.profile, request); });
      CHECK(says(plan.error, "the smallest known that can be met"));
    }
    const PlanRequest request = gpt.within(1, deadline);
    const auto smallest =
        timed(deadline, [&] { return smallest_peak(gpt.graph, gpt.profile, request); });
    REQUIRE(smallest);
    CHECK(*smallest < peak_bytes(gpt.graph, retain_all(gpt.graph)) / 4);
  }
  // A graph that is hardly cut anywhere: thousands of patterns of long segments.
  random_graph::Source random(11);
  const Graph graph = random_graph::draw(random, 120);
  const CostProfile profile = random_graph::draw_profile(random, graph, false);
  for (const double deadline : {0.0, 0.05, 0.2}) {
    INFO("deadline ", deadline);
    PlanRequest request;
    request.budget_bytes = peak_bytes(graph, retain_all(graph)) / 3;
    request.tolerance = 1e9;
    request.clock = work_clock::seconds;
    request.deadline_seconds = deadline;
    const auto plan = timed(deadline, [&] { return make_plan(graph, profile, request); });
    if (plan) CHECK(plan->peak_bytes <= request.budget_bytes);
    else CHECK(says(plan.error, "the smallest known that can be met"));
  }
}

/// A solver that goes on until it is told to stop.
LinearSolution never_done(const LinearProgram&, const LinearOptions& options) {
  while (!options.deadline.passed()) {}
  LinearSolution solution;
  solution.verdict = LinearSolution::Verdict::timed_out;
  return solution;
}

TEST_CASE("each way to search by itself") {
  const Case gpt(6);
  constexpr LinearSolver solver{"never", &never_done};
  for (const double deadline : {0.0, 0.02, 0.1}) {
    CAPTURE(deadline);
    for (const std::size_t percent : {50U, 12U}) {
      PlanRequest request = gpt.within(percent, deadline);
      request.gap = 0;
      for (const Planner planner :
           {static_cast<Planner>(plan_chain), static_cast<Planner>(plan_exhaustively)}) {
        const auto plan = timed(deadline, [&] { return planner(gpt.graph, gpt.profile, request); });
        if (plan) CHECK(plan->peak_bytes <= request.budget_bytes);
        else CHECK(says(plan.error, "the smallest known that can be met"));
      }
      for (const Solver how : {Solver::lp_solve, Solver::automatic}) {
        const Planner planner = plan_with(solver, how);
        const auto plan = timed(deadline, [&] { return planner(gpt.graph, gpt.profile, request); });
        if (how == Solver::lp_solve && plan) CHECK(says(plan->note, "ran out of time"));
      }
    }
  }
}

TEST_CASE("pipelines") {
  const gpt_graphs::gpt::Config config{
      .layers = 24, .heads = 2, .channels = 64, .context = 64, .vocab = 128, .tied_head = false};
  Case gpt(1);
  gpt.graph = *gpt_graphs::gpt::graph<gpt_graphs::gpt::PlannedSet>(config, 2, 64, 1);
  gpt.profile = gpt_graphs::costs(gpt.graph, 0.1);
  int planned = 0, late = 0;
  for (const Recomputation what : {Recomputation::planned, Recomputation::full})
    for (const std::size_t memory : {40 * MiB, 12 * MiB, 8 * MiB, 7 * MiB, 6 * MiB, MiB})
      for (const double deadline : {0.02, 0.1, 0.5}) {
        INFO("memory ", memory, ", deadline ", deadline);
        PipelineRequest request;
        for (int s = 0; s < 4; ++s) request.stages.push_back({memory});
        request.micro_batches = 8;
        request.recomputation = what;
        request.clock = work_clock::seconds;
        request.deadline_seconds = deadline;
        const auto plan =
            timed(deadline, [&] { return plan_pipeline(gpt.graph, gpt.profile, request); });
        if (!plan) {
          CHECK_MESSAGE(says(plan.error, "does not fit"), std::string(plan.error.text()));
          continue;
        }
        ++planned;
        late += plan->timed_out ? 1 : 0;
        for (const StageOutcome& stage : plan->stages) CHECK(stage.peak_bytes <= memory);
      }
  MESSAGE(planned, " pipelines, ", late, " of them cut short");
  CHECK(late > 3);
}

TEST_CASE("plans that evolve, as budgets, times and errors change") {
  const Case gpt(6);
  for (const double deadline : {0.02, 0.1}) {
    CAPTURE(deadline);
    const auto started = timed(deadline, [&] {
      return Evolution::start(gpt.graph, gpt.profile, gpt.within(40, deadline), make_plan);
    });
    REQUIRE_MESSAGE(started, std::string(started.error.text()));
    Evolution evolution = *started;
    std::uint64_t step = 0;
    for (const std::size_t percent : {20U, 12U, 1U, 60U}) {
      evolution.set_budget(gpt.within(percent, deadline).budget_bytes);
      const EvolutionUpdate update = timed(deadline, [&] { return evolution.advance(step); });
      if (update.failed) CHECK(says(update.failed, "the smallest known that can be met"));
      step += 1000;
    }
    // Codecs that are found to fail: others have to make room for what replaces them.
    for (int k = 0; k < gpt.graph.node_count(); ++k)
      if (const CodecInfo* codec = evolution.plan()[k].codec(); codec != nullptr)
        evolution.observe_error(k, codec, 1);
    timed(deadline, [&] { return evolution.advance(step); });
  }
}

TEST_CASE("totals, and what to freeze for one") {
  const gpt_graphs::gpt::Config config{
      .layers = 8, .heads = 2, .channels = 64, .context = 64, .vocab = 128};
  const auto make = [&](const TrainedSet& trained) {
    return gpt_graphs::gpt::graph<gpt_graphs::gpt::PlannedSet>(config, 2, 64, 1, 1, {{}, &trained});
  };
  const Case gpt(8);
  const CostProfile profile = estimated_profile(gpt.graph);
  const auto held = memory_beside_arena(gpt.graph, AdamW{});
  REQUIRE(held);
  const std::size_t groups = layer_groups(gpt.graph).size();
  for (const double deadline : {0.02, 0.1, 0.5}) {
    CAPTURE(deadline);
    const PlanRequest request = gpt.within(1, deadline);
    const auto left = timed(deadline, [&] {
      return arena_budget(held->total() + 64, *held, gpt.graph, profile, request);
    });
    CHECK(says(left.error, "the least known is"));
    for (const std::size_t percent : {100U, 60U, 5U}) {
      CAPTURE(percent);
      FreezeBudget budget;
      budget.total_bytes = held->total() * percent / 100;
      const auto outcome = timed(deadline, [&] {
        return freeze_to_fit(gpt.graph, make, std::vector<double>(groups, 1.0), budget, AdamW{},
                             request);
      });
      if (outcome) CHECK(outcome->least_after <= budget.total_bytes);
    }
  }
}

}}  // namespace planning_test
