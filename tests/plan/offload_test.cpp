// SPDX-License-Identifier: MIT
/// Plans with a store: budget, tolerance and traffic are kept, and the bound holds for every plan.
#include <doctest/doctest.h>

#include <adacc/plan/make_plan.hpp>

#include "gpt_graphs.hpp"
#include "random_graph.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace offload_plan_test { namespace {

using namespace adacc;

/// A link on which all that retaining keeps takes `share` of a step, in both directions together.
LinkCost link_for(const Graph& graph, const CostProfile& profile, double share) {
  const Plan retain = plan_from_types(graph);
  const double bytes = static_cast<double>(peak_bytes(graph, retain));
  LinkCost link;
  link.write_rate = link.read_rate = 2 * bytes / (share * evaluate(graph, profile, retain).seconds);
  return link;
}

/// What holds for every plan that is returned.
void check_promises(const Graph& graph, const CostProfile& profile, const PlanRequest& request,
                    const PlanOutcome& found) {
  const auto program = make_program(graph, found.plan);
  REQUIRE_MESSAGE(program, program.error.text());
  CHECK(program->peak_bytes() == found.peak_bytes);
  CHECK(found.peak_bytes <= request.budget_bytes);
  CHECK(found.error <= request.tolerance);
  const PlanCost cost = evaluate(graph, profile, found.plan, program->schedule, request.link);
  CHECK(cost.seconds == found.seconds);
  CHECK(cost.written_bytes == found.written_bytes);
  CHECK(cost.stall_seconds == found.stall_seconds);
  std::size_t sent = 0;
  for (const Transfer& transfer : program->schedule.transfers) sent += transfer.bytes;
  CHECK(sent == found.written_bytes);
  if (request.most_written_bytes != 0) CHECK(sent <= request.most_written_bytes);
  CHECK(found.bound_seconds <= found.seconds);
}

TEST_CASE("random graphs: no plan that sends something away is faster than the bound") {
  int offloaded = 0, plans = 0, below = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    random_graph::Source random(seed);
    const Graph graph = random_graph::draw(random, 4, 512);
    const CostProfile profile = random_graph::draw_profile(random, graph, random.one_in(2));
    PlanRequest request = gpt_graphs::at_percent(graph, 40 + random.below(55));
    request.tolerance = random.one_in(2) ? 0 : 0.5;
    request.link = link_for(graph, profile, 0.05 + 2 * random.unit());
    if (error_of(graph, profile, plan_from_types(graph)) > request.tolerance) continue;
    const auto found = make_plan(graph, profile, request);
    const auto smallest = smallest_peak(graph, profile, request);
    REQUIRE(smallest);
    if (*smallest <= request.budget_bytes) CHECK(found);
    if (!found) continue;
    below += *smallest > request.budget_bytes;
    check_promises(graph, profile, request, *found);
    offloaded += found->written_bytes > 0;
    // All choices, each with what it keeps here or there.
    std::vector<Array<Policy>> options;
    for (int k = 0; k < graph.node_count(); ++k) {
      Array<Policy> mine = policies_of(graph, k);
      if (graph.node(k).policy.planned())
        for (const Policy& policy : policies_of(graph, k))
          if (policy.keeps()) mine.push_back(keep(Form{policy.codec(), Place::store}));
      options.push_back(mine);
    }
    for (int draw = 0; draw < 300; ++draw) {
      Plan plan;
      for (const auto& mine : options)
        plan.policies.push_back(mine[random.below(mine.size())]);
      plan.room_bytes = request.budget_bytes / alignment * alignment;
      if (check(graph, plan) || peak_bytes(graph, plan) > request.budget_bytes) continue;
      const PlanCost cost = evaluate(graph, profile, plan, request.link);
      if (cost.error > request.tolerance) continue;
      ++plans;
      CHECK(cost.seconds >= found->bound_seconds * (1 - 1e-9));
    }
  }
  MESSAGE(offloaded, " plans send something away; ", plans, " others compared");
  CHECK(offloaded > 20);
  CHECK(below <= 1);  // of the smallest known
  CHECK(plans > 1000);
}

TEST_CASE("a GPT without loss: less memory than recomputing takes, and faster, by a fast link") {
  const Graph graph = gpt_graphs::make(6);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request = gpt_graphs::at_percent(graph, 30);
  request.tolerance = 0;
  const auto without = make_plan(graph, profile, request);
  const auto floor = smallest_peak(graph, profile, request);
  REQUIRE(without);
  REQUIRE(floor);
  double before = 0;
  for (const double share : {0.2, 1.0, 4.0, 1000.0}) {
    CAPTURE(share);
    request.link = link_for(graph, profile, share);
    const auto found = make_plan(graph, profile, request);
    REQUIRE(found);
    check_promises(graph, profile, request, *found);
    CHECK(found->seconds <= without->seconds);
    CHECK(found->seconds >= before);  // a slower link helps less
    before = found->seconds;
  }
  CHECK(before <= without->seconds);
  request.link = link_for(graph, profile, 0.2);
  const auto fast = make_plan(graph, profile, request);
  CHECK(fast->seconds < 0.98 * without->seconds);
  CHECK(std::string(fast->solver) == "offload");
  CHECK(fast->gap < 0.05);
  const auto lower = smallest_peak(graph, profile, request);
  REQUIRE(lower);
  CHECK(*lower < *floor);
  request.budget_bytes = *lower;
  const auto tight = make_plan(graph, profile, request);
  REQUIRE_MESSAGE(tight, tight.error.text());
  check_promises(graph, profile, request, *tight);
  --request.budget_bytes;
  CHECK_FALSE(make_plan(graph, profile, request));
}

TEST_CASE("what a step may write to the store is kept") {
  const Graph graph = gpt_graphs::make(4);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request = gpt_graphs::at_percent(graph, 35);
  request.tolerance = 0;
  request.link = link_for(graph, profile, 0.2);
  const auto free = make_plan(graph, profile, request);
  REQUIRE(free);
  REQUIRE(free->written_bytes > 0);
  request.most_written_bytes = free->written_bytes / 2;
  const auto limited = make_plan(graph, profile, request);
  REQUIRE(limited);
  check_promises(graph, profile, request, *limited);
  CHECK(limited->seconds >= free->seconds);
}

TEST_CASE("links that make no sense are refused in words") {
  const Graph graph = gpt_graphs::make(1);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request = gpt_graphs::at_percent(graph, 50);
  request.link.write_rate = 1e9;
  CHECK(std::string(make_plan(graph, profile, request).error.text()).find("one for reading") !=
        std::string::npos);
  request.link.read_rate = -1;
  CHECK(std::string(make_plan(graph, profile, request).error.text()).find("must be 0 or more") !=
        std::string::npos);
}

}}  // namespace offload_plan_test
