// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/plan/lp/lp_solve.hpp>

#include "../test_size.hpp"
#include "brute_force.hpp"
#include "gpt_graphs.hpp"
#include "random_graph.hpp"

#include <algorithm>
#include <string>

namespace lp_counts_test {

using namespace adacc;
using gpt_graphs::at_percent;

namespace {

bool same(const Plan& a, const Plan& b) {
  for (std::size_t k = 0; k < a.policies.size(); ++k)
    if (a.policies[k] != b.policies[k]) return false;
  return a.policies.size() == b.policies.size();
}

Result<PlanOutcome> plan_with_lp_solve(const Graph& graph, const CostProfile& profile,
                                       PlanRequest request) {
  request.prices.by = Solver::lp_solve;
  request.prices.linear = &lp_solve();
  return plan_chain(graph, profile, request);
}

}  // namespace

TEST_CASE("counts by lp_solve give GPTs plans as good as tuned prices do, with a sound bound") {
  for (const int layers : {3, 12, 32}) {
    const Graph graph = gpt_graphs::make(layers);
    for (const double jitter : {0.0, 0.1}) {
      if (layers == 32 && (jitter > 0 || test_sanitized)) continue;
      if (layers == 12 && jitter == 0 && test_sanitized) continue;
      const CostProfile profile = gpt_graphs::costs(graph, jitter);
      for (const std::size_t percent : {60U, 40U, 25U}) {
        for (const double tolerance : {1e-2, 2e-3}) {
          PlanRequest request = at_percent(graph, percent);
          request.tolerance = tolerance;
          INFO(layers, " layers, jitter ", jitter, ", ", percent, " %, tolerance ", tolerance);
          const auto tuned = plan_chain(graph, profile, request);
          const auto plan = plan_with_lp_solve(graph, profile, request);
          REQUIRE(static_cast<bool>(plan) == static_cast<bool>(tuned));
          if (!plan) {
            CHECK(layers == 3);
            CHECK(std::string(plan.error.text()) == tuned.error.text());
            continue;
          }
          CHECK_FALSE(plan->note);
          CHECK(std::string(plan->solver) == "lp_solve");
          CHECK_FALSE(examine(graph, plan->plan));
          CHECK(plan->peak_bytes <= request.budget_bytes);
          CHECK(plan->error <= request.tolerance);
          CHECK(plan->bound_seconds <= plan->seconds);
          CHECK(plan->bound_seconds <= tuned->seconds);
          CHECK(plan->seconds <= 1.005 * tuned->seconds);
          CHECK(plan->gap <= std::max(request.gap, tuned->gap + 1e-4));
          const auto again = plan_with_lp_solve(graph, profile, request);
          REQUIRE(again);
          CHECK(same(again->plan, plan->plan));
          CHECK(again->bound_seconds == plan->bound_seconds);
        }
      }
    }
  }
}

/// What a chain planner would plan from.
struct ChainOf {
  PlanRequest request;
  ChainTuning tuning;
  Proposals proposals;
  detail::ChainTables tables;

  ChainOf(const Graph& graph, const CostProfile& profile, const PlanRequest& asked)
      : request(asked), proposals(graph, profile, request), tables(graph, profile, tuning) {}

  const detail::Chain& chain() const { return tables.chain; }
  double budget() const { return static_cast<double>(align_up(request.budget_bytes)); }
};

TEST_CASE("rows for all late segments raise the bound where few blocks leave little room") {
  const Graph graph = gpt_graphs::make(6, 128);
  const CostProfile profile = gpt_graphs::costs(graph);
  for (const std::size_t percent : {19U, 20U, 21U}) {
    ChainOf of(graph, profile, at_percent(graph, percent));
    const detail::Chain& chain = of.chain();
    const double one_row =
        detail::PriceTuner(chain, of.budget(), of.request.tolerance, of.tuning).run().bound;
    Error why;
    const detail::TunedPrices priced = detail::count_prices(
        chain, of.budget(), of.request.tolerance, lp_solve(), {}, of.tuning, why);
    CHECK_MESSAGE(!why, why.text());
    CHECK(priced.bound > one_row + 5e-4 * chain.base_seconds);
  }
}

/// lp_solve, whose calls are counted and whose prices are scaled: at a tenth they still prove a bound, a
/// worse one. It tells nothing of integers.
int asked = 0;
double scale = 1;
LinearSolution scaled_lp_solve(const LinearProgram& program, const LinearOptions& options) {
  ++asked;
  for (const LinearProgram::Column& column : program.columns)
    if (column.integer) return {};
  LinearSolution solution = lp_solve().solve(program, options);
  for (double& dual : solution.duals) dual *= scale;
  return solution;
}
constexpr LinearSolver scaled{"scaled", scaled_lp_solve};

TEST_CASE("if the search leaves a gap, a lent solver is asked: the better bound of both counts") {
  const Graph graph = gpt_graphs::make(6, 128);
  const CostProfile profile = gpt_graphs::costs(graph);
  ChainTuning little;  // so that gaps are left
  little.effort_count = 1;
  little.most_extensions = 1000;
  int raised = 0;
  for (const std::size_t percent : {19U, 20U, 21U, 24U, 50U}) {
    INFO(percent, " %");
    PlanRequest request = at_percent(graph, percent);
    request.gap = 1e-6;
    asked = 0;
    request.prices.linear = &scaled;
    request.prices.by = Solver::search;
    const auto search = plan_chain(graph, profile, request, little);
    CHECK(asked == 0);
    request.prices.by = Solver::automatic;
    scale = 1;
    const auto both = plan_chain(graph, profile, request, little);
    CHECK(asked > 0);
    scale = 0.1;
    const auto worse = plan_chain(graph, profile, request, little);
    REQUIRE((search && both && worse));
    CHECK(std::string(search->bound_by) == "chain");
    CHECK(both->bound_seconds >= search->bound_seconds);
    CHECK(both->seconds <= search->seconds);
    CHECK((std::string(both->bound_by) == "scaled") ==
          (both->bound_seconds > search->bound_seconds));
    raised += both->bound_seconds > search->bound_seconds;
    CHECK(worse->bound_seconds == search->bound_seconds);
    CHECK(std::string(worse->bound_by) == "chain");
    CHECK(worse->seconds == search->seconds);
  }
  CHECK(raised > 0);

  // Of a single block there are few enough plans to ask for one in integers, unless the search is to do
  // alone.
  const Graph block = gpt_graphs::make(1);
  PlanRequest request = at_percent(block, 60);
  request.gap = 0;
  request.prices.linear = &scaled;
  for (const Solver solver : {Solver::search, Solver::automatic}) {
    request.prices.by = solver;
    asked = 0;
    CHECK(plan_chain(block, gpt_graphs::costs(block), request, little));
    CHECK((asked > 0) == (solver == Solver::automatic));
  }
}

TEST_CASE("integers close the gap of a single block") {
  const Graph graph = gpt_graphs::make(1);
  const CostProfile profile = gpt_graphs::costs(graph);
  int closed = 0, planned = 0;
  for (std::size_t percent = 95; percent >= 50; percent -= 5) {
    PlanRequest request = at_percent(graph, percent);
    request.gap = 0;
    const auto plan = plan_with_lp_solve(graph, profile, request);
    if (!plan) continue;
    INFO(percent, " %, gap ", plan->gap);
    ++planned;
    CHECK(plan->bound_seconds <= plan->seconds);
    closed += plan->gap < 1e-7;
  }
  MESSAGE(closed, " of ", planned, " proven best");
  CHECK(closed > 0);
}

TEST_CASE("on random graphs the bound of counts by lp_solve never passes the optimum") {
  int planned = 0, solved = 0, close = 0, raised = 0;
  for (unsigned seed = 0; seed < test_graphs + test_graphs / 4; ++seed) {
    random_graph::Source random(seed);
    const bool branches = seed >= test_graphs;  // figures are of the others, whose arcs are simpler
    const Graph graph = random_graph::draw(random, 6, 8, branches);
    const CostProfile profile = random_graph::draw_profile(random, graph, random.one_in(2));
    brute_force::AllPlans all(graph, profile);
    if (all.size() == 0) continue;
    for (int b = 0; b < 3; ++b) {
      PlanRequest request = at_percent(graph, 30 + random.below(75));
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : random.unit() * 0.5;
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      const auto plan = plan_with_lp_solve(graph, profile, request);
      INFO("seed ", seed, " budget ", request.budget_bytes, " tolerance ", request.tolerance);
      if (!plan) continue;
      REQUIRE(best != nullptr);
      brute_force::check_promises(graph, request, *best, *plan);
      if (branches) continue;
      ++planned;
      solved += std::string(plan->solver) == "lp_solve" ||
                plan->seconds <= plan->retain_seconds;  // nothing to solve
      if (plan->note) MESSAGE(std::string(plan->note.text()));
      close += plan->seconds <= best->cost.seconds * 1.01;
      const auto tuned = plan_chain(graph, profile, request);
      REQUIRE(tuned);
      raised += plan->bound_seconds > tuned->bound_seconds * (1 + 1e-9);
    }
  }
  MESSAGE(planned, " planned, ", solved, " with lp_solve, ", close, " within 1 %, ", raised,
          " with a better bound than that of tuned prices");
  CHECK(planned * 6 >= static_cast<int>(test_graphs));
  CHECK(solved * 100 >= planned * 98);
  CHECK(close * 100 >= planned * 94);
}

TEST_CASE("counts over equal segments, relaxed or whole, never cost more than the optimum") {
  int programs = 0, tight = 0;
  for (unsigned seed = 0; seed < test_graphs / 4; ++seed) {
    random_graph::Source random(seed);
    Graph graph = random_graph::draw(random, 4);
    graph.candidates.clear();
    for (int c = 0; c < 2; ++c) graph.candidates.push_back(&random_graph::codecs[c]);
    Node node = graph.node(1);
    node.input = node.output = graph.input;
    node.output_bytes = node.output.elems() * bytes_of(graph.scalar);
    node.policy = Policy{};
    node.reads = random.one_in(2) ? Reads::input : Reads::none;
    node.candidates = {0, 1 + random.below(2)};
    graph = random_graph::chain_of(graph, graph.nodes.size() < 6 ? graph.nodes.size() : 6,
                                   [&](Node& copy) {
                                     node.adds = {};
                                     copy = node;
                                     copy.read_in_backward = false;
                                   });
    CostProfile profile = random_graph::draw_profile(random, graph, false);
    const std::size_t codecs = profile.codecs.size();
    for (std::size_t k = 1; k < graph.nodes.size(); ++k) {
      profile.nodes[k] = profile.nodes[0];
      for (std::size_t c = 0; c < codecs; ++c)
        profile.codec_costs[k * codecs + c] = profile.codec_costs[c];
    }
    brute_force::AllPlans all(graph, profile);
    PlanRequest request = at_percent(graph, 40 + random.below(60));
    request.tolerance = random.one_in(2) ? 1e9 : random.unit() * 0.01;
    const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
    if (best == nullptr) continue;
    ChainOf of(graph, profile, request);
    const detail::Chain& chain = of.chain();
    const double optimum = best->cost.seconds - chain.base_seconds;
    INFO("seed ", seed);
    detail::CountProgram counts(chain, of.budget(), request.tolerance, of.tuning);
    REQUIRE(counts.holds_all_plans());
    counts.add_all();
    const auto whole = solve_with_lp_solve(counts.program(true));
    REQUIRE(whole);
    Error why;
    const double bound =
        detail::count_prices(chain, of.budget(), request.tolerance, lp_solve(), {}, of.tuning, why)
            .bound;
    CHECK_MESSAGE(!why, why.text());
    const double rounding = 1e-7 * best->cost.seconds;
    CHECK(bound <= optimum + rounding);
    CHECK(whole.objective <= optimum + rounding);
    CHECK(whole.objective >= bound - rounding);
    ++programs;
    tight += whole.objective >= optimum - rounding;
  }
  MESSAGE(tight, " of ", programs, " programs in integers reach the optimum");
  CHECK(programs * 20 >= static_cast<int>(test_graphs));
  CHECK(tight * 10 > programs);
}

TEST_CASE("where not all patterns are listed, the bound still never passes the optimum") {
  int planned = 0, incomplete = 0;
  for (unsigned seed = 0; seed < test_graphs / 20 + 8; ++seed) {
    random_graph::Source random(seed);
    Graph graph = random_graph::draw(random, 9);
    graph.candidates.clear();
    for (int c = 0; c < 3; ++c) graph.candidates.push_back(&random_graph::codecs[c]);
    graph = random_graph::chain_of(graph, 9, [&](Node& node) {
      node.input = node.output = graph.input;
      node.output_bytes = node.output.elems() * bytes_of(graph.scalar);
      node.policy = Policy{};
      node.reads = Reads::input;
      node.candidates = {0, 3};
    });
    graph.add(0);  // one segment behind the first activation
    const CostProfile profile = random_graph::draw_profile(random, graph, false);
    PlanRequest request = at_percent(graph, 60 + random.below(40));
    request.gap = 0;
    request.tolerance = random.one_in(2) ? 1e9 : random.unit() * 0.02;
    const auto exact = plan_exhaustively(graph, profile, request);
    const auto plan = plan_with_lp_solve(graph, profile, request);
    if (!exact || exact->timed_out || !plan) continue;
    INFO("seed ", seed);
    ++planned;
    ChainOf of(graph, profile, request);
    for (const detail::ArcSet& arcs : of.chain().arcs) incomplete += !arcs.complete;
    CHECK(plan->bound_seconds <= exact->seconds * (1 + 1e-9));
    CHECK(plan->seconds >= exact->seconds * (1 - 1e-9));
  }
  MESSAGE(incomplete, " segments with more patterns than are listed in ", planned, " plans");
  CHECK(incomplete > 0);
}

TEST_CASE("where time is up, tuned prices take over and the note says so") {
  const Graph graph = gpt_graphs::make(6);
  const CostProfile profile = gpt_graphs::costs(graph, 0.1);
  PlanRequest request = at_percent(graph, 50);
  request.deadline_seconds = 0;
  static double clock;
  clock = 0;
  request.clock = [] { return clock += 1; };
  const auto plan = plan_with_lp_solve(graph, profile, request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  CHECK(std::string(plan->note.text()).find("ran out of time") != std::string::npos);
  CHECK(std::string(plan->solver) == "chain");
  CHECK(plan->peak_bytes <= request.budget_bytes);
  CHECK(plan->bound_seconds <= plan->seconds);
}

TEST_CASE("a budget that nothing fits, and graphs by hand, are answered as by the other planners") {
  const Graph graph = gpt_graphs::make(3);
  const CostProfile profile = gpt_graphs::costs(graph);
  PlanRequest request;
  request.budget_bytes = 4096;
  const auto refused = plan_with_lp_solve(graph, profile, request);
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error.text()) == plan_chain(graph, profile, request).error.text());
  request.budget_bytes = 0;
  CHECK_FALSE(plan_with_lp_solve(graph, profile, request));

  random_graph::Source random(7);
  Graph by_hand = random_graph::draw(random, 4);
  by_hand = random_graph::chain_of(by_hand, by_hand.nodes.size(), [](Node& node) {
    node.value_outside = node.gradient_outside = true;
  });
  const CostProfile few = random_graph::draw_profile(random, by_hand, false);
  request.budget_bytes = 1 << 24;
  request.tolerance = 1e9;
  request.gap = 0;
  const auto exact = plan_exhaustively(by_hand, few, request);
  const auto plan = plan_with_lp_solve(by_hand, few, request);
  REQUIRE_MESSAGE(exact, exact.error.text());
  REQUIRE(plan);
  CHECK(plan->seconds == doctest::Approx(exact->seconds));
}

}  // namespace lp_counts_test
