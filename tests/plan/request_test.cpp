// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/plan/exhaustive/planner.hpp>

#include <limits>
#include <string>

#include "random_graph.hpp"

namespace request_test {

using namespace adacc;
using random_graph::Source;

namespace {

/// Twelve equal layers, each reading its input; every activation may be halved.
Graph chain(int layers) {
  Graph graph;
  graph.input = Shape(16, 64);
  graph.loss.name = "loss";
  for (int k = 0; k < layers; ++k) {
    Node node;
    node.name = "layer";
    node.layer = k;
    node.input = node.output = graph.input;
    node.output_bytes = 4096;
    node.reads = Reads::input;
    const std::size_t begin = graph.candidates.size();
    if (k + 1 < layers) graph.candidates.push_back(&random_graph::codecs[0]);
    node.candidates = {begin, graph.candidates.size()};
    const int from = k - 1;
    graph.append(node, {&from, 1});
  }
  return graph;
}

CostProfile profile_of(const Graph& graph) {
  CostProfile profile = empty_profile(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const double factor = 1 + 0.01 * k;
    profile.nodes[static_cast<std::size_t>(k)] = {1e-3 * factor, 2e-3 * factor, 0, 0};
    if (!profile.codecs.empty()) profile.codec_cost(k, 0) = {1e-4 * factor, 1e-4, 1e-3, 4e-3};
  }
  return profile;
}

std::string why(const Result<PlanOutcome>& outcome) { return outcome.error.text(); }

double ticks = 0;
double tick() { return ticks += 1e-3; }

}  // namespace

TEST_CASE("requests and profiles that make no sense are refused with the reason") {
  const Graph graph = chain(4);
  const CostProfile profile = profile_of(graph);
  PlanRequest request;
  CHECK(why(plan_exhaustively(graph, profile, request)).find("the budget is 0 bytes") == 0);
  request.budget_bytes = 1 << 20;
  CHECK(why(plan_exhaustively(graph, profile, request)) == "");
  for (const double bad : {-1e-9, std::numeric_limits<double>::quiet_NaN()}) {
    PlanRequest broken = request;
    broken.tolerance = bad;
    CHECK(why(plan_exhaustively(graph, profile, broken)).find("the tolerance") == 0);
    broken = request;
    broken.gap = bad;
    CHECK(why(plan_exhaustively(graph, profile, broken)).find("the gap") == 0);
    broken = request;
    broken.clock = &tick;
    broken.deadline_seconds = bad;
    CHECK(why(plan_exhaustively(graph, profile, broken)).find("the deadline") == 0);
    CostProfile times = profile;
    times.nodes[2].forward = bad;
    CHECK(why(plan_exhaustively(graph, times, request)).find("node 2 (layer)") !=
          std::string::npos);
  }
  CHECK(why(plan_exhaustively(chain(5), profile, request)).find("the profile describes 4 nodes") ==
        0);
  CHECK(why(plan_exhaustively(Graph{}, empty_profile(Graph{}), request)) ==
        "the graph has no layers");

  request.budget_bytes = static_cast<std::size_t>(-1);
  const auto all = plan_exhaustively(graph, profile, request);
  REQUIRE(all);
  CHECK(all->seconds == doctest::Approx(all->retain_seconds));
  CHECK(all->peak_bytes == all->retain_peak_bytes);
}

TEST_CASE("codecs that types fix beyond the tolerance are an error that says so") {
  Graph graph = chain(4);
  graph.nodes[1].policy = compress(&random_graph::codecs[0]);
  PlanRequest request;
  request.budget_bytes = 1 << 20;
  request.tolerance = 1e-4;
  CHECK(why(plan_exhaustively(graph, profile_of(graph), request))
            .find("no plan is within the "
                  "tolerance") == 0);
}

TEST_CASE("a budget too small names the smallest, and the instruction that limits it") {
  const Graph graph = chain(6);
  PlanRequest request;
  request.budget_bytes = 5000;
  const std::string text = why(plan_exhaustively(graph, profile_of(graph), request));
  CHECK(text.find("no plan fits into a budget of 4.8 KiB (5000 bytes)") == 0);
  CHECK(text.find(", limited by loss_gradient of activation 5 (loss), instruction 8 of ") !=
        std::string::npos);

  // What it names can be met, and a byte less cannot.
  const SmallestPlan smallest = smallest_plan(graph, profile_of(graph), request.tolerance);
  CHECK(smallest.proven());
  const std::string bytes = std::to_string(smallest.arena_bytes);
  CHECK(text.find(bytes + " bytes), limited by") != std::string::npos);
  request.budget_bytes = smallest.arena_bytes;
  CHECK(plan_exhaustively(graph, profile_of(graph), request));
  --request.budget_bytes;
  CHECK(!plan_exhaustively(graph, profile_of(graph), request));
}

TEST_CASE("an outcome says why: reasons, what they save and cost, the price of a byte") {
  Graph graph = chain(6);
  graph.nodes[2].policy = recompute();
  const CostProfile profile = profile_of(graph);
  PlanRequest request;
  request.gap = 0;
  request.tolerance = 1;
  request.budget_bytes = 1 << 20;
  auto outcome = plan_exhaustively(graph, profile, request);
  REQUIRE(outcome);
  using Kind = PlanReason::Kind;
  CHECK(outcome->reasons[0].kind == Kind::affordable);
  CHECK(outcome->reasons[2].kind == Kind::fixed);
  CHECK(outcome->reasons[2].saved_bytes == 4096);
  CHECK(outcome->reasons[5].kind == Kind::unread);
  CHECK(outcome->seconds_per_byte == 0);

  request.budget_bytes = outcome->retain_peak_bytes - 2048;
  outcome = plan_exhaustively(graph, profile, request);
  REQUIRE(outcome);
  int priced = 0;
  for (int k = 0; k < 5; ++k) {
    const PlanReason& reason = outcome->reasons[static_cast<std::size_t>(k)];
    if (reason.kind != Kind::price) continue;
    ++priced;
    CHECK(outcome->plan[k].codec() != nullptr);
    CHECK(reason.saved_bytes == 2048);
    CHECK(reason.paid_seconds == doctest::Approx(2e-4 + 1e-6 * k));
    CHECK(outcome->seconds_per_byte == doctest::Approx(reason.paid_seconds / 2048));
  }
  CHECK(priced == 1);

  // The same budget without room for the codec's error: what is recomputed instead says so.
  request.tolerance = 0;
  outcome = plan_exhaustively(graph, profile, request);
  REQUIRE(outcome);
  CHECK(outcome->error == 0);
  priced = 0;
  for (int k = 0; k < 5; ++k)
    if (outcome->plan[k].recomputes() && k != 2) ++priced;
  CHECK(priced >= 1);
}

TEST_CASE("a search that a deadline or a limit ends returns its best plan and a sound gap") {
  Source random(3);
  Graph graph = random_graph::draw(random, 60);
  const CostProfile profile = random_graph::draw_profile(random, graph, false);
  PlanRequest request;
  request.gap = 0;
  request.tolerance = 1e9;
  const SmallestPlan smallest = smallest_plan(graph, profile, request.tolerance, 5000);
  const std::size_t retain = make_layout(make_schedule(graph, plan_from_types(graph))).arena_bytes;
  REQUIRE(smallest.arena_bytes < retain);
  double last_bound = 0, last_seconds = 1e9;
  for (const std::size_t most_nodes : {500U, 5000U, 50000U}) {
    request.budget_bytes = (smallest.arena_bytes + retain) / 2;
    const auto outcome = plan_exhaustively(graph, profile, request, most_nodes);
    REQUIRE_MESSAGE(outcome, why(outcome));
    CHECK(outcome->timed_out);
    CHECK(outcome->peak_bytes <= request.budget_bytes);
    CHECK(outcome->bound_seconds <= outcome->seconds);
    CHECK(outcome->seconds <= last_seconds);
    // More search neither finds a plan below a bound that was proven before …
    CHECK(outcome->seconds >= last_bound);
    last_bound = outcome->bound_seconds > last_bound ? outcome->bound_seconds : last_bound;
    last_seconds = outcome->seconds;
  }
  // … and a clock ends it as well.
  request.clock = &tick;
  request.deadline_seconds = 0.05;
  const auto outcome = plan_exhaustively(graph, profile, request);
  REQUIRE_MESSAGE(outcome, why(outcome));
  CHECK(outcome->timed_out);
  CHECK(outcome->solve_seconds > 0);
  CHECK(outcome->peak_bytes <= request.budget_bytes);
}

}  // namespace request_test
