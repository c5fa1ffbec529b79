// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/train/make.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "growing_net.hpp"

namespace evolving_test {

using namespace adacc;
using namespace growing_net;

namespace {

struct Rig {
  Training<> training;
  std::vector<float> x, y;
  Result<Training<>::Outcome> step() {
    return training.step(View<const float>(x.data(), shape), View<const float>(y.data(), shape),
                         1e-4);
  }
};

Rig rig(std::size_t budget, double tolerance, std::size_t arena_bytes = 0) {
  const auto graph = make_graph(net, shape);
  REQUIRE_MESSAGE(graph, graph.error.text());
  auto made =
      Training<>::make(net, shape,
                       {.budget_bytes = budget,
                        .tolerance = tolerance,
                        .planning = {.profile = profile(*graph), .planner = &plan_exhaustively},
                        .arena_bytes = arena_bytes});
  REQUIRE_MESSAGE(made, made.error.text());
  Rig rig{std::move(*made), std::vector<float>(shape.elems()), std::vector<float>(shape.elems())};
  for (std::size_t i = 0; i < rig.x.size(); ++i) {
    rig.x[i] = 2 * unit_float(random_word({.seed = 1}, i)) - 1;
    rig.y[i] = unit_float(random_word({.seed = 2}, i)) / 8;
  }
  return rig;
}

const CodecInfo* codec(const Rig& rig, int activation) {
  return rig.training.plan()[activation].codec();
}

}  // namespace

TEST_CASE("growing channel outliers drive their tensor, and it alone, off the codec that fails" *
          doctest::test_suite("long_run")) {
  injected_from = 40;
  int alone = 0;
  for (const std::size_t percent : {60U, 74U, 92U}) {
    CAPTURE(percent);
    Rig r = rig(retain_bytes() * percent / 100, 1e-2);
    REQUIRE(codec(r, victim) == &codec_info<RowInt8>);
    const Evolution& evolution = *r.training.evolution();
    std::uint64_t passed = 0, left = 0;
    for (std::uint64_t at = 0; at < 130; ++at) {
      const auto outcome = r.step();
      REQUIRE_MESSAGE(outcome, outcome.error.text());
      REQUIRE(outcome->finite);
      CHECK(r.training.updates() == at + 1);
      CHECK(r.training.arena().size() == evolution.outcome().peak_bytes);
      CHECK(evolution.outcome().peak_bytes <= evolution.budget_bytes());
      const EvolutionUpdate& update = r.training.boundary().update;
      CHECK_MESSAGE(!update.failed, update.failed.text());
      if (passed == 0 && evolution.observed_error() > 2 * evolution.planned_error()) passed = at;
      if (!update.changed) continue;
      REQUIRE(left == 0);  // once and for all
      left = at;
      alone += update.changes.size() == 1 ? 1 : 0;
      bool victim_left = false;
      for (const PlanChange& change : update.changes) {
        CHECK(change.step == at);
        victim_left = victim_left || change.activation == victim;
        CHECK(change.reason ==
              (change.activation == victim ? ChangeReason::codec_failed : ChangeReason::made_room));
        if (change.activation == victim) continue;
        Plan undone = evolution.plan();
        undone.policies[static_cast<std::size_t>(change.activation)] = change.from;
        CHECK(make_layout(make_schedule(evolution.graph(), undone)).arena_bytes >
              evolution.budget_bytes());
      }
      CHECK(victim_left);
    }
    CHECK(passed >= injected_from);
    CHECK(left > passed);
    CHECK(left <= passed + 11);  // the check 10 steps later is the second, the boundary follows
  }
  CHECK(alone > 0);
}

TEST_CASE("without outliers nothing changes over 200 steps" * doctest::test_suite("long_run")) {
  injected_from = 1000000;
  Rig r = rig(retain_bytes() * 60 / 100, 1e-2);
  for (int i = 0; i < 200; ++i) {
    REQUIRE(r.step());
    CHECK_FALSE(r.training.boundary().update.changed);
  }
}

TEST_CASE("a budget cut by half is honoured at the next step, a raise is used, no step is lost") {
  injected_from = 1000000;
  const std::size_t whole = retain_bytes();
  Rig r = rig(whole, 0), plain = rig(whole, 0);  // lossless: the bits must not notice
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    if (i == 10) REQUIRE_FALSE(r.training.set_budget(whole * 6 / 10));
    if (i == 20) REQUIRE_FALSE(r.training.set_budget(whole));
    if (i == 25) REQUIRE_FALSE(r.training.set_budget(100));
    const auto outcome = r.step(), expected = plain.step();
    REQUIRE(outcome);
    REQUIRE(expected);
    CHECK(outcome->loss == expected->loss);
    CHECK(outcome->grad_norm == expected->grad_norm);
    const std::size_t bytes = r.training.arena().size();
    CHECK(bytes == r.training.evolution()->outcome().peak_bytes);
    CHECK(r.training.boundary().update.changed == (i == 10 || i == 20));
    CHECK(bytes <= (i >= 10 && i < 20 ? whole * 6 / 10 : whole));
    if (i >= 20) CHECK(bytes == plain.training.arena().size());
    const bool refused = static_cast<bool>(r.training.boundary().update.failed);
    CHECK(refused == (i == 25));
    if (refused)
      CHECK(std::string(r.training.boundary().update.failed.text()).find("that can be met is") !=
            std::string::npos);
  }
  const auto a = r.training.params(), b = plain.training.params();
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);

  // With codecs, half of it will do.
  Rig lossy = rig(whole, 1e-2);
  REQUIRE(lossy.step());
  REQUIRE_FALSE(lossy.training.set_budget(whole / 2));
  REQUIRE(lossy.step());
  CHECK(lossy.training.boundary().update.changed);
  CHECK(lossy.training.arena().size() <= whole / 2);
}

TEST_CASE("an arena that others borrow stays as large as they need it") {
  injected_from = 1000000;
  const std::size_t whole = retain_bytes();
  Rig r = rig(whole, 1e-2, 2 * whole);
  REQUIRE(r.step());
  REQUIRE_FALSE(r.training.set_budget(whole / 2));
  REQUIRE(r.step());
  CHECK(r.training.arena().size() == 2 * whole);
}

TEST_CASE("a step that was watched knows what every codec saw") {
  injected_from = 0;
  Rig r = rig(retain_bytes() * 60 / 100, 1e-2);
  for (int i = 0; i < 5; ++i) REQUIRE(r.step());
  const Step<>& step = r.training.compiled_step();
  for (int k = 0; k < step.graph().node_count(); ++k) {
    const CodecStatistics& seen = step.statistics(k);
    const bool reported =
        codec(r, k) == &codec_info<RowInt8> && step.graph().node(k).read_in_backward;
    CHECK(seen.elements == (reported ? shape.elems() : 0));
    if (reported) CHECK(seen.samples > 0);
  }
}

TEST_CASE("training goes on after a program that does not belong to it was refused") {
  injected_from = 1000000;
  Rig r = rig(retain_bytes(), 0);
  REQUIRE(r.step());
  const Network<Layer<Dense>, random_model::HalfSquare> small{};
  const auto other = make_program(small, shape);
  REQUIRE(other);
  CHECK(r.training.switch_to(*other));
  CHECK(r.step());
}

}  // namespace evolving_test
