// SPDX-License-Identifier: MIT
// A training counts what its codecs lost, and its plan leaves those that go on losing.
#include <doctest/doctest.h>

#include <adacc/train/make.hpp>

#include <vector>

#include "uneven_net.hpp"

namespace declining_training_test {

using namespace adacc;
using namespace uneven_net;

namespace {

struct Batch {
  std::vector<float> x, y;
  Batch() : x(shape.elems()), y(shape.elems()) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 2 * unit_float(random_word({.seed = 1}, i)) - 1;
      y[i] = unit_float(random_word({.seed = 2}, i)) / 8;
    }
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), shape}; }
};

}  // namespace

TEST_CASE("an update says how many activations were declined in its micro-batches") {
  uneven_from = 2;
  const Batch batch;
  for (const Updates updates : {Updates::separate, Updates::fused}) {
    CAPTURE(name_of(updates));
    auto training = Training<>::make(net<Compress<Rough>>, shape, {.graph = {.updates = updates}});
    REQUIRE_MESSAGE(training, training.error.text());
    const auto judged = training->compiled_step().program().declinables.size();
    CHECK(judged == 5);  // nothing in backward reads what layer 1 makes
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      const auto outcome = training->step(batch.input(), batch.targets(), 1e-4);
      REQUIRE(outcome);
      // From the step on in which rows get uneven, that which layer 2 makes and the three behind it.
      CHECK(outcome->declined.total() == (i < 2 ? 0 : 4));
      CHECK(outcome->declined == training->compiled_step().declined_counts());
    }
    if (updates == Updates::fused) continue;
    for (int i = 0; i < 3; ++i) REQUIRE(training->accumulate(batch.input(), batch.targets()));
    const auto outcome = training->update(1e-4);
    REQUIRE(outcome);
    CHECK(outcome->declined.total() == 12);
    // In slices, too; and what is given up is not counted.
    Cursor<>* const cursor = &training->cursor();
    REQUIRE_FALSE(training->begin(batch.input(), batch.targets()));
    while (!cursor->run(training->context(), 3)->ended) {}
    const auto sliced = training->update(1e-4);
    REQUIRE(sliced);
    CHECK(sliced->declined.total() == 4);
  }
}

TEST_CASE("a codec that goes on losing rows is left within two checks") {
  uneven_from = 40;
  const Batch batch;
  const Graph graph = *make_graph(net<>, shape);
  auto training = Training<>::make(
      net<>, shape,
      {.budget_bytes = make_program(graph, retain_all(graph))->peak_bytes() * 7 / 10,
       .planning = {.profile = profile(graph)}});
  REQUIRE_MESSAGE(training, training.error.text());
  const int before = roughly_kept(training->plan());
  REQUIRE(before > 2);
  std::uint64_t left = 0;
  std::vector<bool> lost(graph.nodes.size());
  for (std::uint64_t at = 0; at < 100; ++at) {
    CAPTURE(at);
    const auto outcome = training->step(batch.input(), batch.targets(), 1e-4);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    CHECK(training->peak_bytes() <= training->evolution()->budget_bytes());
    const EvolutionUpdate& update = training->boundary().update;
    CHECK_MESSAGE(!update.failed, update.failed.text());
    for (const PlanChange& change : update.changes) {
      left = at;
      const bool failed = change.reason == ChangeReason::codec_failed;
      CHECK(failed == lost[static_cast<std::size_t>(change.activation)]);
      if (failed) CHECK(change.from.codec() == &codec_info<Rough>);
    }
    CHECK((outcome->declined.total() > 0) == (at >= 40 && left == 0));
    for (int k = 0; k < graph.node_count(); ++k)
      lost[static_cast<std::size_t>(k)] =
          training->compiled_step().declined(k).kept != KeptAs::as_planned;
  }
  CHECK(left == 51);  // steps 40 and 50 are looked at
}

}  // namespace declining_training_test
