// SPDX-License-Identifier: MIT
/// Plans of trainers written by hand: forwards that make several activations, values and stages' own
/// bytes in the arena.
#include <doctest/doctest.h>

#include <adacc/plan/chain/planner.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "../stash/random_trainer.hpp"
#include "../test_size.hpp"
#include "brute_force.hpp"

namespace stash_graphs_test {

using namespace adacc;

TEST_CASE("trainers drawn at random are planned by their segments as brute force does") {
  int planned = 0, optimal = 0, proven = 0, short_of = 0, gaps = 0, squeezed = 0;
  constexpr unsigned seeds = test_graphs * 2 / 3;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    random_trainer::Drawn drawn;
    random_trainer::draw(seed, drawn, 6);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed);
    const CostProfile profile = random_trainer::draw_profile(*graph, random);
    brute_force::AllPlans all(*graph, profile);
    for (int b = 0; b < 3; ++b) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = b == 0 ? 1e9 : all[random() % all.size()].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = peak_bytes(*graph, retain_all(*graph));
      request.budget_bytes = smallest + random() % (most + 65 - smallest);
      if (request.budget_bytes == 0) continue;  // nothing is read in backward
      const brute_force::Candidate* best = all.best(request.budget_bytes, request.tolerance);
      REQUIRE(best != nullptr);
      const auto plan = plan_chain(*graph, profile, request);
      if (!plan) {
        // Sums of whole buffers pass it, or plans of the fewest live bytes are laid out with gaps.
        if (request.budget_bytes >= smallest + alignment) {
          bool any = false;
          for (std::size_t i = 0; i < all.size() && !any; ++i)
            any = all[i].cost.live_bytes <= request.budget_bytes &&
                  all[i].cost.error <= request.tolerance &&
                  peak_bytes(*graph, all.plan_of(all[i].choices)) > request.budget_bytes;
          CHECK(any);
          ++gaps;
        }
        ++short_of;
        continue;
      }
      ++planned;
      brute_force::check_promises(*graph, request, *best, *plan);
      if (plan->seconds > plan->retain_seconds) ++squeezed;
      optimal += plan->seconds <= best->cost.seconds * (1 + 1e-9);
      proven += plan->gap <= 1e-9;
    }
  }
  if (seeds >= 400) {  // of fewer, shares say little; compilers draw in different orders
    CHECK(planned >= 800);
    CHECK(squeezed >= 200);
    CHECK(optimal * 100 >= planned * 97);
    CHECK(proven * 100 >= planned * 80);
  }
  CHECK(gaps * 500 <= planned);
  MESSAGE(planned, " planned, ", squeezed, " squeezed, ", optimal, " optimal, ", proven,
          " proven, ", short_of, " not found");
}

namespace {

/// Gradients that stages of a deep trainer carry.
struct DeepCarry {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Layers of a norm with its statistics, a product and an attention with its probabilities.
Graph deep_graph(const std::vector<DeepCarry>& carried) {
  constexpr int layers = 24;
  const auto f = [](const View<const float>*, const View<float>*) {};
  StashModel<> model;
  int h = model.add("h", Shape(64, 32), {0});
  for (int l = 0; l < layers; ++l) {
    const int norm = model.add("norm", Shape(64, 32), {l}),
              stat = model.add("stat", Shape(64), {l});
    model.recompute_together({norm, stat}, {h}, f);
    const int qkv = model.add("qkv", Shape(64, 96), {l});
    model.recompute_together({qkv}, {norm}, f);
    const int att = model.add("att", Shape(64, 64), {l}), y = model.add("y", Shape(64, 32), {l});
    model.recompute_together({att, y}, {qkv}, f);
    const int next = model.add("h", Shape(64, 32), {l + 1});
    model.recompute_together({next}, {h, y}, f);
    h = next;
  }
  for (int id = 0; id < model.activation_count(); ++id) model.hold(id);
  for (int l = 0; l < layers; ++l) model.stage_bytes(l, 64 * 96 * 4);
  for (const DeepCarry& one : carried) model.carry("d", StashBytes{one.bytes}, one.first, one.last);
  const Result<Graph> graph = model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

CostProfile deep_profile(const Graph& graph) {
  CostProfile profile = empty_profile(graph);
  for (std::size_t k = 0; k < profile.nodes.size(); ++k)
    if (graph.nodes[k].recomputable && graph.nodes[k].made_by < 0)
      profile.nodes[k].forward = static_cast<double>(graph.nodes[k].output_bytes);
  profile.rest = 4e6;
  return profile;
}

}  // namespace

TEST_CASE("deep trainers are planned in the time of a few layouts") {
  constexpr std::size_t row = 64 * 32 * 4;
  // Nothing; a row that all stages carry; that and more, here and there.
  for (const std::vector<DeepCarry>& carried :
       {std::vector<DeepCarry>{}, {{row, 24, 0}}, {{row, 24, 0}, {7 * row, 20, 11}, {9, 11, 3}}}) {
    const Graph graph = deep_graph(carried);
    const CostProfile profile = deep_profile(graph);
    const std::size_t most = peak_bytes(graph, retain_all(graph));
    for (const std::size_t percent : {70U, 50U, 30U}) {
      CAPTURE(carried.size());
      CAPTURE(percent);
      PlanRequest request;
      request.budget_bytes = most / 100 * percent;
      // Counted, not timed: the clock is asked once for every few segments of a search.
      int looks = 0;
      const auto count = [&]() -> double { return ++looks, 0; };
      request.clock = count;
      const auto plan = plan_chain(graph, profile, request);
      REQUIRE_MESSAGE(plan, plan.error.text());
      CHECK(plan->peak_bytes <= request.budget_bytes);
      CHECK(plan->gap <= request.gap);
      CHECK(looks < 200);
    }
  }
}

TEST_CASE(
    "the needs of segments are what a whole trainer's schedule takes, with what stages carry") {
  constexpr std::size_t row = 64 * 32 * 4;
  std::mt19937 random(11);
  int replays = 0;
  for (const std::vector<DeepCarry>& carried : {std::vector<DeepCarry>{},
                                                {{row, 24, 0}},
                                                {{5 * row, 20, 11}},
                                                {{3 * row, 24, 24}, {9, 11, 0}}}) {
    CAPTURE(carried.size());
    const Graph graph = deep_graph(carried);
    const CostProfile profile = deep_profile(graph);
    const detail::Segments segments(graph, profile, graph.nodes.size());
    REQUIRE(segments.all.size() > 20);
    std::vector<detail::Patterns> forms;
    for (std::size_t f = 0; f < segments.structures.size(); ++f) {
      std::size_t j = 0;
      while (segments.all[j].structure != static_cast<int>(f)) ++j;
      forms.push_back(
          detail::PatternLister(graph, profile, segments.all[j], segments.structures[f], 1U << 20)
              .list());
    }
    for (int trial = 0; trial < 60; ++trial) {
      // A pattern for each segment, which takes what the one before gives (patterns.hpp).
      Plan plan = plan_from_types(graph);
      detail::State given = detail::at_hand;
      detail::SignedBytes stored = 0, held = 0, peak = 0, most = 0;
      for (const detail::Segment& segment : segments.all) {
        const detail::Patterns& form = forms[static_cast<std::size_t>(segment.structure)];
        const detail::Pattern* chosen = nullptr;
        while (chosen == nullptr || chosen->from != given || chosen->to == detail::paired)
          chosen = &form.all[random() % form.all.size()];
        const detail::PatternBytes& bytes = chosen->bytes;
        most = std::max(most, stored + bytes.need);
        detail::SignedBytes next_peak = stored + bytes.peak_on_stored;
        if (given == detail::replayed) {
          ++replays;
          most = std::max({most, held + bytes.need_on_held, peak + bytes.need_on_peak});
          next_peak = std::max({next_peak, held + bytes.peak_on_held, peak + bytes.peak_on_peak});
        }
        held = (bytes.keeps_replay ? held : stored) + bytes.held;
        peak = next_peak;
        stored += bytes.stored;
        given = chosen->to;
        for (std::size_t k = 0; k < form.nodes(); ++k)
          if (!form.is_outgoing(k) || given == detail::replayed)
            plan.policies[static_cast<std::size_t>(segment.original(static_cast<int>(k)))] =
                form.options[k][form.choice(*chosen, k).option];
      }
      REQUIRE_FALSE(examine(graph, plan));
      CHECK(static_cast<std::size_t>(most) == live_bytes(make_schedule(graph, plan)));
    }
  }
  CHECK(replays > 1000);
}

}  // namespace stash_graphs_test
