// SPDX-License-Identifier: MIT
/// Cuts, plans and times of pipelines: against formulas, and against all cuts that there are.
#include <doctest/doctest.h>

#include <adacc/plan/pipeline/planner.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../test_size.hpp"
#include "brute_force.hpp"
#include "gpt_graphs.hpp"

namespace pipeline_test { namespace {

using namespace adacc;

Graph untied(int layers, std::size_t context = 64) {
  const gpt::Config config{layers, 2, context, context, 128, false};
  const auto graph = gpt::graph<gpt::PlannedSet>(config, 2, context, 1);
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

PipelineRequest request_of(int stages, int micro_batches, std::size_t memory) {
  PipelineRequest request;
  request.micro_batches = micro_batches;
  request.tolerance = 0;
  for (int s = 0; s < stages; ++s) request.stages.push_back({memory, 1, 1e9, 1e-6});
  return request;
}

bool says(const Error& error, const char* words) {
  return std::strstr(error.text(), words) != nullptr;
}

TEST_CASE("one forward, one backward: each stage's turns, and how many it has in flight") {
  for (const int stages : {1, 2, 3, 5})
    for (const int batches : {1, 2, 4, 9})
      for (int s = 0; s < stages; ++s) {
        CAPTURE(stages);
        CAPTURE(batches);
        CAPTURE(s);
        int begun = 0, ended = 0, most = 0;
        for (int i = 0; i < 2 * batches; ++i) {
          const PipelineTask turn = task_of(stages, s, batches, i);
          CHECK(turn.micro_batch == (turn.backward ? ended : begun));
          (turn.backward ? ended : begun) += 1;
          CHECK(ended <= begun);
          most = std::max(most, begun - ended);
        }
        CHECK(ended == batches);
        CHECK(most == in_flight(stages, s, batches));
      }
}

TEST_CASE("the time of a step is that of the formula if all stages are alike, and longer if not") {
  Array<StageTime> stages(4);
  for (StageTime& stage : stages) stage = {2, 5, 0, 0, 1};
  PipelineTime time = simulate_pipeline(stages, 8);
  CHECK(time.seconds == doctest::Approx((8 + 4 - 1) * 7.0 + 1));
  CHECK(time.bubble == doctest::Approx(3.0 / 11));
  for (StageTime& stage : stages) stage.activation = stage.gradient = 0.5;
  CHECK(simulate_pipeline(stages, 8).seconds > time.seconds);
  for (StageTime& stage : stages) stage.activation = stage.gradient = 0;
  stages[2].forward = 4;  // once it is busy, the others' turns are hidden behind its own
  CHECK(simulate_pipeline(stages, 8).seconds <= 8 * 9 + 3 * 7 + 1);
  CHECK(simulate_pipeline(stages, 8).seconds >= 8 * 9 + 2 * 7 + 1);
  CHECK(simulate_pipeline(stages, 1).seconds == doctest::Approx(3 * 7 + 9 + 1));
  // Two stages by hand: 0 does F0 F1 B0 B1, 1 does F0 B0 F1 B1, and each tensor takes 1.
  stages.resize(2);
  stages[0] = {1, 2, 1, 0, 0};
  stages[1] = {3, 4, 0, 1, 0};
  // Stage 1: F0 at 2 to 5, B0 to 9, F1 to 12, B1 to 16; its gradient is there at 17, and B1 of 0 ends at 19.
  CHECK(simulate_pipeline(stages, 2).seconds == doctest::Approx(19));
}

/// The shortest step of all cuts into stages, each stage planned as the planner does.
double best_of_all(const Graph& graph, const CostProfile& profile, const PipelineRequest& request) {
  detail::StagePlans plans(graph, profile, request);
  const std::size_t count = request.stages.size(), units = plans.units();
  std::vector<std::size_t> ends(count, 0);
  double best = 1e300;
  const auto visit = [&](const auto& self, std::size_t s, Array<StageTime> times) -> void {
    const std::size_t first = s == 0 ? 0 : ends[s - 1];
    for (std::size_t end = first + 1; end <= units; ++end) {
      if ((s + 1 == count) != (end == units)) continue;
      const auto number = plans.kind_of(first, end - first);
      REQUIRE_MESSAGE(number, number.error.text());
      detail::StageKind& kind = plans.kind(*number);
      const int flying =
          in_flight(static_cast<int>(count), static_cast<int>(s), request.micro_batches);
      const std::size_t in = s == 0 ? 0 : kind.graph.input.elems() * 4,
                        out = end == units ? 0 : kind.graph.output().elems() * 4;
      const std::size_t held =
          kind.graph.gradient_elems * 16 + boundary_bytes(in, out, flying, request.micro_batches);
      const StageMachine& machine = request.stages[s];
      if (held >= machine.memory_bytes) continue;
      const auto plan = plans.plan(kind, flying, machine.memory_bytes - held);
      REQUIRE_MESSAGE(plan, plan.error.text());
      if (*plan < 0) continue;
      const detail::StagePlan& found = kind.plans[static_cast<std::size_t>(*plan)];
      StageTime time{found.forward / machine.speed, found.backward / machine.speed, 0, 0, 0};
      if (out > 0)
        time.activation = machine.link_latency + static_cast<double>(out) / machine.link_rate;
      if (in > 0)
        time.gradient = request.stages[s - 1].link_latency +
                        static_cast<double>(in) / request.stages[s - 1].link_rate;
      Array<StageTime> more = times;
      more.push_back(time);
      ends[s] = end;
      if (end == units)
        best = std::min(best, simulate_pipeline(more, request.micro_batches).seconds);
      else self(self, s + 1, more);
    }
  };
  visit(visit, 0, {});
  return best;
}

TEST_CASE("cuts are as good as the best of all, on machines that are alike and that are not") {
  const Graph graph = untied(3);
  for (const double jitter : {0.0, 0.5}) {
    if (test_sanitized && jitter == 0) continue;
    const CostProfile profile = gpt_graphs::costs(graph, jitter);
    for (const int stages : {2, 3})
      for (const int variant : {0, 1, 2}) {
        if (test_sanitized && stages == 3 && variant == 0) continue;
        PipelineRequest request = request_of(stages, 6, 4 * MiB);
        if (variant == 1) request.stages[1].speed = 2.5;
        if (variant == 2) request.stages[0].memory_bytes = 1900 * KiB;
        const auto found = plan_pipeline(graph, profile, request);
        REQUIRE_MESSAGE(found, found.error.text());
        CAPTURE(jitter);
        CAPTURE(stages);
        CAPTURE(variant);
        const double best = best_of_all(graph, profile, request);
        CHECK(found->time.seconds >= best * (1 - 1e-6));
        CHECK(found->time.seconds <= best * 1.02);
        int first = 0;
        for (std::size_t s = 0; s < found->stages.size(); ++s) {
          const StageOutcome& stage = found->stages[s];
          CHECK(stage.first == first);
          first = stage.last + 1;
          CHECK(stage.peak_bytes <= request.stages[s].memory_bytes);
          const auto cut = stage_of(graph, stage.first, stage.last);
          REQUIRE(cut);
          CHECK_FALSE(examine(*cut, stage.plan));
        }
        CHECK(first == graph.node_count());
      }
  }
}

TEST_CASE("equal blocks are planned once, and never slower than uniform recomputation") {
  const Graph graph = untied(24);
  const CostProfile profile = gpt_graphs::costs(graph);
  PipelineRequest full = request_of(8, 16, 16 * MiB);
  full.recomputation = Recomputation::full;
  const auto uniform = plan_pipeline(graph, profile, full);
  REQUIRE_MESSAGE(uniform, uniform.error.text());
  // At the same peaks, stage by stage.
  PipelineRequest request = request_of(8, 16, 1);
  for (std::size_t s = 0; s < 8; ++s)
    request.stages[s].memory_bytes = uniform->stages[s].peak_bytes;
  const auto found = plan_pipeline(graph, profile, request);
  REQUIRE_MESSAGE(found, found.error.text());
  CHECK(found->time.seconds <= uniform->time.seconds);
  const double ratio = uniform->time.seconds / found->time.seconds;
  MESSAGE(ratio, " times the throughput of full recomputation at the same peaks; ", found->plans,
          " plans");
  CHECK(found->plans < 1500);
  for (std::size_t s = 0; s < 8; ++s)
    CHECK(found->stages[s].peak_bytes <= uniform->stages[s].peak_bytes);
  PipelineRequest selective = request_of(8, 16, 32 * MiB);
  selective.recomputation = Recomputation::selective;
  const auto kept = plan_pipeline(graph, profile, selective);
  REQUIRE_MESSAGE(kept, kept.error.text());
  for (int k = 0; k <= kept->stages[0].last; ++k)
    CHECK(kept->stages[0].plan[k].recomputes() ==
          (std::strcmp(graph.node(k).name, "causal_attention") == 0));
}

TEST_CASE("what steps in flight hold counts for each of them: plans are those of brute force") {
  const Graph network = untied(2);
  const std::size_t halves = test_sanitized ? 1 : 2;
  Graph graph = *stage_of(network, 0, cuts_of(network)[halves]);
  // Where there are codecs: what two products of each kind make.
  for (int k = 0; k < graph.node_count(); ++k)
    if (k != 2 && k != 3) graph.nodes[static_cast<std::size_t>(k)].candidates.count = 0;
  graph.fingerprint = fingerprint_of(graph);
  const CostProfile profile = profile_of_stage(network, gpt_graphs::costs(network, 0.3), graph);
  const brute_force::AllPlans all(graph, profile);
  for (const int steps : {2, 5}) {
    std::vector<std::size_t> arenas;
    for (std::size_t i = 0; i < all.size(); ++i)
      arenas.push_back(*arena_bytes(*place_schedule(graph, all.plan_of(all[i].choices)), steps));
    std::vector<std::size_t> sorted = arenas;
    std::sort(sorted.begin(), sorted.end());
    for (const double tolerance : {0.0, 1.0})
      for (std::size_t part = 0; part < 8; ++part) {
        PlanRequest request;
        request.budget_bytes = sorted[part * part * (sorted.size() - 1) / 64];
        request.in_flight = steps;
        request.tolerance = tolerance;
        CAPTURE(steps);
        CAPTURE(part);
        CAPTURE(tolerance);
        double best = 1e300;
        for (std::size_t i = 0; i < all.size(); ++i)
          if (arenas[i] <= request.budget_bytes && all[i].cost.error <= tolerance)
            best = std::min(best, all[i].cost.seconds);
        const auto found = make_plan(graph, profile, request);
        if (best > 1e200) {
          CHECK(says(found.error, "no plan fits into a budget of "));
          continue;
        }
        REQUIRE_MESSAGE(found, found.error.text());
        CHECK(found->peak_bytes <= request.budget_bytes);
        CHECK(found->peak_bytes == *arena_bytes(*place_schedule(graph, found->plan), steps));
        CHECK(found->seconds <= best * (1 + 1.001 * request.gap));
        CHECK(found->bound_seconds <= best * (1 + 1e-9));
      }
  }
  PlanRequest wrong;
  wrong.budget_bytes = MiB;
  wrong.in_flight = 0;
  CHECK(says(make_plan(graph, profile, wrong).error, "and 0 were asked for"));
  wrong.in_flight = 2;
  CHECK(says(make_plan(network, gpt_graphs::costs(network), wrong).error, "do not wait"));
  wrong.link = {1e9, 1e9};
  CHECK(says(make_plan(graph, profile, wrong).error, "share an arena"));
}

TEST_CASE("what no pipeline can be planned for is said in words") {
  const Graph graph = untied(3);
  const CostProfile profile = gpt_graphs::costs(graph);
  const auto why = [&](const PipelineRequest& request) {
    const auto found = plan_pipeline(graph, profile, request);
    INFO(found.error.text());
    return found.error;
  };
  CHECK(says(why(request_of(9, 4, 4 * MiB)), "into 8 stages at most, and 9 were asked for"));
  CHECK_FALSE(why(request_of(8, 4, 4 * MiB)));
  CHECK(says(why(request_of(0, 4, MiB)), "at least one stage"));
  CHECK(says(why(request_of(2, 0, MiB)), "at least one micro-batch"));
  PipelineRequest small = request_of(2, 4, 4 * MiB);
  small.stages[1].memory_bytes = 100 * KiB;
  const Error error = why(small);
  INFO(error.text());
  CHECK(says(error, "stage 1 of 2 does not fit"));
  CHECK(says(error, "and has 100.0 KiB"));
  CHECK(says(error, "limited by parameters, gradients and moments"));
  const auto number_before = [&](const char* words) {
    const char* at = std::strstr(error.text(), words);
    REQUIRE(at != nullptr);
    while (at[-1] >= '0' && at[-1] <= '9') --at;
    return std::strtoull(at, nullptr, 10);
  };
  CHECK(number_before(" bytes), ") == number_before(" for parameters, gradients and moments") +
                                          number_before(" to receive and send") +
                                          number_before(" for steps"));
  small = request_of(2, 4, 4 * MiB);
  small.stages[0].memory_bytes = 300 * KiB;
  const Error first = why(small);
  INFO(first.text());
  CHECK(says(first, "stage 0 of 2 does not fit: the least that it can have, nodes 0 to 0"));
  const Graph tied = gpt_graphs::make(3);
  const auto found = plan_pipeline(tied, gpt_graphs::costs(tied), request_of(2, 4, 4 * MiB));
  CHECK(says(found.error, "untie them"));
}

}}  // namespace pipeline_test
