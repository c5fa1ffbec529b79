// SPDX-License-Identifier: MIT
/// Plans with a store: budget, tolerance and traffic are kept, and the bound holds for every plan.
#include <doctest/doctest.h>

#include <adacc/plan/make_plan.hpp>

#include "../test_size.hpp"
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
  // A store that is of no use is not passed over in silence.
  const bool unused = found.written_bytes == 0 && found.retain_peak_bytes > request.budget_bytes;
  CHECK(static_cast<bool>(found.note) == unused);
}

TEST_CASE("random graphs: no plan that sends something away is faster than the bound") {
  int offloaded = 0, plans = 0, below = 0, looped = 0, in_parts = 0;
  constexpr int share = test_sanitized ? 5 : 1;
  for (unsigned seed = 0; seed < 220; seed += unsigned{share}) {
    CAPTURE(seed);
    random_graph::Source random(seed);
    Graph graph = random_graph::draw(random, 4, 512);
    const bool cut = seed >= 120;  // into parts, so that schedules have loops
    if (cut) random_graph::cut(random, graph, 2 << seed % 2);
    const CostProfile profile = random_graph::draw_profile(random, graph, random.one_in(2));
    PlanRequest request = gpt_graphs::at_percent(graph, 40 + random.below(55));
    request.tolerance = random.one_in(2) ? 0 : 0.5;
    request.link = link_for(graph, profile, 0.05 + 2 * random.unit());
    if (seed % 3 == 0) request.link.begin_per_byte = 0.4 / request.link.write_rate;
    if (error_of(graph, profile, plan_from_types(graph)) > request.tolerance) continue;
    const auto found = make_plan(graph, profile, request);
    const auto smallest = smallest_peak(graph, profile, request);
    REQUIRE(smallest);
    if (*smallest <= request.budget_bytes) CHECK(found);
    if (!found) continue;
    below += *smallest > request.budget_bytes;
    check_promises(graph, profile, request, *found);
    offloaded += found->written_bytes > 0;
    looped += cut && found->written_bytes > 0 &&
              !make_program(graph, found->plan)->schedule.loops.empty();
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
      for (const auto& mine : options) plan.policies.push_back(mine[random.below(mine.size())]);
      plan.room_bytes = request.budget_bytes / alignment * alignment;
      if (examine(graph, plan) || peak_bytes(graph, plan) > request.budget_bytes) continue;
      const PlanCost cost = evaluate(graph, profile, plan, request.link);
      if (cost.error > request.tolerance) continue;
      ++plans;
      in_parts += cut && cost.written_bytes > 0;
      CHECK(cost.seconds >= found->bound_seconds * (1 - 1e-9));
    }
  }
  MESSAGE(offloaded, " plans send something away, ", looped, " of them with loops; ", plans,
          " others compared, ", in_parts, " of them in parts and sending");
  CHECK(share * offloaded > 20);
  CHECK(share * looped > 5);
  CHECK(share * in_parts > 200);
  CHECK(below <= 1);  // of the smallest known
  CHECK(share * plans > 1000);
}

TEST_CASE("what transfers take from computation makes a plan send less") {
  const Graph graph = gpt_graphs::make(6);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request = gpt_graphs::at_percent(graph, 30);
  request.tolerance = 0;
  request.link = link_for(graph, profile, 0.2);
  const auto free = make_plan(graph, profile, request);
  REQUIRE(free);
  // What the free plan sends would take three tenths of its step.
  request.link.begin_per_byte =
      0.3 * free->seconds / (2 * static_cast<double>(free->written_bytes));
  const auto dear = make_plan(graph, profile, request);
  REQUIRE(dear);
  check_promises(graph, profile, request, *dear);
  const double as_before = evaluate(graph, profile, free->plan, request.link).seconds;
  CHECK(dear->seconds <= as_before);
  CHECK(dear->written_bytes < free->written_bytes);
  CHECK(dear->bound_seconds > free->bound_seconds);
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

TEST_CASE("a store that is of no use: a note says why") {
  const Graph graph = gpt_graphs::make(6);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request = gpt_graphs::at_percent(graph, 50);
  request.tolerance = 0;
  const auto says = [&](const char* words) {
    const auto found = make_plan(graph, profile, request);
    REQUIRE_MESSAGE(found, found.error.text());
    check_promises(graph, profile, request, *found);
    MESSAGE(std::string(found->note.text()));
    return std::string(found->note.text()).find(words) != std::string::npos;
  };
  request.link = link_for(graph, profile, 0.2);
  CHECK(says(""));
  CHECK_FALSE(make_plan(graph, profile, request)->note);
  request.most_written_bytes = 64;  // less than any activation
  CHECK(says("at most the 64 bytes that a step may write"));
  request.most_written_bytes = 0;
  request.link = link_for(graph, profile, 1000);
  request.link.write_rate = 2.06e6;
  request.link.read_rate = 1e5;
  CHECK(says("which writes 2.1 and reads 0.1 MB/s: "));
  CHECK(says(" times as long as this one"));
  request.budget_bytes = peak_bytes(graph, plan_from_types(graph));
  CHECK_FALSE(make_plan(graph, profile, request)->note);  // nothing has to be sent
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

/// `plan` with all that it keeps of what was open in a store, and room for so many per cent of what
/// that could save.
Plan sent_with_room(const Graph& graph, Plan plan, std::size_t percent) {
  for (int k = 0; k < graph.node_count(); ++k)
    if (Policy& policy = plan.policies[static_cast<std::size_t>(k)];
        graph.node(k).policy.planned() && policy.keeps())
      policy = keep(Form{policy.codec(), Place::store});
  if (examine(graph, plan)) return {};
  const Schedule schedule = make_schedule(graph, plan);
  TransferPass pass(graph, plan, schedule);
  if (pass.empty()) return {};
  const std::size_t least = pass.smallest_limit(), most = live_bytes(schedule);
  plan.room_bytes = (least + (most - least) * percent / 100) / alignment * alignment;
  return plan;
}

/// How much larger than the room an arena is, over some plans.
struct Gaps {
  double worst = 0, sum = 0;
  int plans = 0;

  void add(const Graph& graph, const Plan& plan) {
    if (plan.policies.empty()) return;
    const auto program = make_program(graph, plan);
    REQUIRE_MESSAGE(program, program.error.text());
    CHECK(program->layout.live_bytes <= plan.room_bytes);
    const double ratio =
        static_cast<double>(program->peak_bytes()) / static_cast<double>(plan.room_bytes);
    worst = std::max(worst, ratio);
    sum += ratio;
    ++plans;
  }
};

TEST_CASE("what is sent leaves gaps of at most 5 % of the room") {
  Gaps random_graphs, gpts;
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    random_graph::Source random(seed);
    const Graph graph = random_graph::draw(random, 4 + static_cast<int>(seed % 20), 512);
    for (const std::size_t percent : {0U, 33U}) {
      Plan plan = plan_from_types(graph);
      for (int k = 0; k < graph.node_count(); ++k)
        if (const Array<Policy> mine = policies_of(graph, k); graph.node(k).policy.planned())
          plan.policies[static_cast<std::size_t>(k)] = mine[random.below(mine.size())];
      random_graphs.add(graph, sent_with_room(graph, plan, percent));
    }
  }
  for (const int layers : {1, 2, 3, 4, 6, 12, 24, 48})
    for (const std::size_t percent : {0U, 5U, 20U, 50U})
      for (const bool retains : {true, false}) {
        CAPTURE(layers);
        CAPTURE(percent);
        const Graph graph = gpt_graphs::make(layers, 256);
        random_graph::Source random(static_cast<unsigned>(layers * 100) +
                                    static_cast<unsigned>(percent));
        Plan plan = plan_from_types(graph);
        for (int k = 0; k < graph.node_count(); ++k)
          if (const Array<Policy> mine = policies_of(graph, k);
              graph.node(k).policy.planned() && !retains)
            plan.policies[static_cast<std::size_t>(k)] = mine[random.below(mine.size())];
        gpts.add(graph, sent_with_room(graph, plan, percent));
      }
  MESSAGE("arena over room: random graphs ", random_graphs.sum / random_graphs.plans, ", worst ",
          random_graphs.worst, "; GPTs ", gpts.sum / gpts.plans, ", worst ", gpts.worst);
  CHECK(random_graphs.plans > 200);
  CHECK(random_graphs.worst <= 1.06);
  CHECK(gpts.plans == 64);
  CHECK(gpts.worst <= 1.05);
}

TEST_CASE("a lower aim sends no less, and passes the limit nowhere") {
  int sent_more = 0;
  for (const int layers : {2, 4}) {
    const Graph graph = gpt_graphs::make(layers);
    for (const std::size_t percent : {0U, 30U}) {
      const Plan plan = sent_with_room(graph, plan_from_types(graph), percent);
      const Schedule schedule = make_schedule(graph, plan);
      TransferPass pass(graph, plan, schedule);
      std::size_t sent = 0;
      for (std::size_t sixteenths = 16; sixteenths >= 8; --sixteenths) {
        CAPTURE(sixteenths);
        Schedule out;
        REQUIRE(pass.run(plan.room_bytes, plan.room_bytes / 16 * sixteenths, out));
        CHECK(live_bytes(out) <= plan.room_bytes);
        CHECK(out.transfers.size() >= sent);
        sent_more += sent != 0 && out.transfers.size() > sent;
        sent = out.transfers.size();
      }
    }
  }
  CHECK(sent_more > 0);
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
