// SPDX-License-Identifier: MIT
/// A training that lends its plan a store: nothing is lost, whatever the store does.
#include <adacc/train/make.hpp>

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/train/save.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

namespace offload_training_test {

using namespace adacc;

namespace {

using Hidden = Sequential<Layer<Linear>, Layer<Gelu>>;
using Net = Network<Sequential<Repeat<Hidden>, Layer<Linear>>, MeanSquaredError>;
const Shape shape(256, 64);
const Net net{{{6, {{Linear{.out = 64}}, {}}}, {Linear{.out = 1}}}, {}};

struct Batch {
  std::vector<float> x = std::vector<float>(shape.elems()), y = std::vector<float>(256);
  explicit Batch(std::uint32_t number) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = 2 * unit_float(random_word({.seed = 5, .step = number}, i)) - 1;
    for (std::size_t r = 0; r < y.size(); ++r) y[r] = x[64 * r] * x[64 * r + 1];
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), Shape(256, 1)}; }
};

/// A store that does everything as late as it may, with room for all.
struct Hostile {
  Block<std::byte> memory = *Block<std::byte>::make(4 * MiB, "a store", huge_page);
  MemoryStore store{memory.view()};
  Hostile() { store.hostile = true; }
};

constexpr LinkCost fast{.write_rate = 1e13, .read_rate = 1e13};

Training<>::Options options(std::size_t percent, StoreRef store) {
  const auto graph = make_graph(net, shape);
  REQUIRE(graph);
  Training<>::Options how;
  how.budget_bytes = peak_bytes(*graph, retain_all(*graph)) * percent / 100;
  how.tolerance = 0;
  how.seed = 3;
  how.store = store;
  how.link = fast;
  return how;
}

bool same(Training<>& a, Training<>& b) {
  const View<float> x = a.params(), y = b.params();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

void train(Training<>& training, std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t i = from; i < to; ++i) {
    const Batch batch(i);
    const auto done = training.step(batch.input(), batch.targets(), 1e-2);
    REQUIRE_MESSAGE(done, done.error.text());
    REQUIRE(done->finite);
  }
}

}  // namespace

TEST_CASE("the bits of retaining in a fraction of its memory, and a budget that changes") {
  auto retained = Training<>::make(net, shape, {.seed = 3});
  REQUIRE(retained);
  Hostile away;
  auto training = Training<>::make(net, shape, options(50, away.store));
  REQUIRE_MESSAGE(training, training.error.text());
  const PlanOutcome& outcome = training->evolution()->outcome();
  CHECK(std::string(outcome.solver) == "offload");
  CHECK(outcome.written_bytes == training->compiled().store_bytes());
  CHECK(outcome.written_bytes > 0);
  CHECK(training->peak_bytes() <= retained->peak_bytes() / 2);
  CHECK(reinterpret_cast<std::uintptr_t>(training->arena().data()) % huge_page == 0);
  train(*retained, 0, 6);
  train(*training, 0, 3);
  REQUIRE_FALSE(training->set_budget(retained->peak_bytes() * 40 / 100));
  train(*training, 3, 4);
  CHECK(std::string(training->boundary().update.failed.text()) == "");
  train(*training, 4, 6);
  CHECK(training->peak_bytes() <= retained->peak_bytes() * 40 / 100);
  CHECK(same(*training, *retained));
}

TEST_CASE("a checkpoint goes on where it was") {
  Hostile away, there;
  auto training = Training<>::make(net, shape, options(45, away.store));
  auto other = Training<>::make(net, shape, options(45, there.store));
  REQUIRE(training);
  REQUIRE(other);
  const train_test::Folder folder;
  train(*training, 0, 3);
  REQUIRE_FALSE(training->save(folder / "run"));
  train(*training, 3, 6);
  const auto loaded = other->load(folder / "run");
  REQUIRE_MESSAGE(loaded, loaded.error.text());
  CHECK(other->compiled().store_bytes() == training->compiled().store_bytes());
  train(*other, 3, 6);
  CHECK(same(*training, *other));
}

TEST_CASE("a training that ends in the middle of a step leaves nothing under way") {
  Hostile away;
  auto training = Training<>::make(net, shape, options(45, away.store));
  REQUIRE(training);
  const Batch batch(0);
  {
    const Training<> moved = std::move(*training);
    Training<>& mine = const_cast<Training<>&>(moved);
    auto cursor = Cursor<float>::make(mine.compiled());
    REQUIRE(cursor);
    REQUIRE_FALSE(mine.begin(*cursor, batch.input(), batch.targets()));
    const std::size_t half = mine.compiled().instruction_count() / 2;
    REQUIRE(cursor->run(mine.context(), half));
    CHECK(away.store.begun() > 0);
  }  // the address sanitizer sees transfers into an arena that is gone
}

TEST_CASE("what a store can lack") {
  Hostile away;
  auto how = options(45, away.store);
  how.link = {};
  CHECK(std::string(Training<>::make(net, shape, how).error.text()).find("how fast it is") !=
        std::string::npos);
  // No room: plans do without, or none fits.
  Block<std::byte> little = *Block<std::byte>::make(4096, "a store", huge_page);
  MemoryStore small(little.view());
  how = options(80, small);
  const auto training = Training<>::make(net, shape, how);
  REQUIRE_MESSAGE(training, training.error.text());
  CHECK(training->compiled().store_bytes() <= 4096);
}

TEST_CASE("with a clock the store is measured") {
  struct Ticks {
    double now = 0;
    double operator()() { return now += 1e-4; }
  } ticks;
  Hostile away;
  auto how = options(45, away.store);
  how.link = {};
  how.clock = ticks;
  const auto training = Training<>::make(net, shape, how);
  REQUIRE_MESSAGE(training, training.error.text());
  CHECK(training->evolution()->request().link.exists());
  CHECK(away.store.begun() > 0);
}

}  // namespace offload_training_test
