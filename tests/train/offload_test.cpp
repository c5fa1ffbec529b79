// SPDX-License-Identifier: MIT
/// A training that lends its plan a store: nothing is lost, whatever the store does.
#include <adacc/train/make.hpp>

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/train/save.hpp>

#include <string>
#include <vector>

#include "../store/counting_store.hpp"
#include "../store/made_up_clock.hpp"
#include "offload_net.hpp"
#include "support.hpp"

namespace offload_training_test {

using namespace offload_net;
using sample::MadeUpClock;

namespace {

constexpr LinkCost fast{.write_rate = 1e13, .read_rate = 1e13};

Training<>::Options options(std::size_t percent, StoreRef store) {
  const auto graph = make_graph(net, shape);
  REQUIRE(graph);
  Training<>::Options how;
  how.budget_bytes = peak_bytes(*graph, retain_all(*graph)) * percent / 100;
  how.tolerance = 0;
  how.seed = 3;
  how.planning.store = store;
  how.planning.link = fast;
  return how;
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
  CHECK(outcome.written_bytes == training->compiled_step().store_bytes());
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

TEST_CASE("a plan made by hand is lent a store as well, and without one the training says so") {
  const auto graph = make_graph(net, shape);
  REQUIRE(graph);
  Plan plan = retain_all(*graph);
  for (std::size_t k = 0; k + 1 < graph->nodes.size(); ++k) plan.policies[k] = offload();
  const auto program = make_program(*graph, plan);
  REQUIRE_MESSAGE(program, program.error.text());
  REQUIRE(program->schedule.store_bytes > 0);
  auto retained = Training<>::make(net, shape, {.seed = 3});
  REQUIRE(retained);
  Hostile away;
  Cpu cpu;
  cpu.key.seed = 3;
  auto training = Training<>::make(net, *program, cpu, 0, {}, {}, away.store);
  REQUIRE_MESSAGE(training, training.error.text());
  train(*retained, 0, 3);
  train(*training, 0, 3);
  CHECK(same(*training, *retained));

  const auto alone = Training<>::make(net, *program, cpu);
  CHECK(std::string(alone.error.text()).find("store") != std::string::npos);
  const auto shared = Training<>::make(net, *program, cpu, 0, {}, {away.store}, away.store);
  CHECK(std::string(shared.error.text()).find("cannot share a store") != std::string::npos);
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
  CHECK(other->compiled_step().store_bytes() == training->compiled_step().store_bytes());
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
    Cursor<>* const cursor = &mine.cursor();
    REQUIRE_FALSE(mine.begin(batch.input(), batch.targets()));
    const std::size_t half = mine.compiled_step().instruction_count() / 2;
    REQUIRE(cursor->run(mine.context(), half));
    CHECK(away.store.begun() > 0);
  }  // the address sanitizer sees transfers into an arena that is gone
}

TEST_CASE("another program comes when nothing is under way") {
  Block<std::byte> memory = *Block<std::byte>::make(4 * MiB, "a store", huge_page);
  sample::CountingStore away(memory.view());
  auto training = Training<>::make(net, shape, options(45, away));
  auto retained = Training<>::make(net, shape, {.seed = 3});
  REQUIRE_MESSAGE(training, training.error.text());
  Cursor<>* const cursor = &training->cursor();
  const Batch batch(0);
  REQUIRE_FALSE(training->begin(batch.input(), batch.targets()));
  while (away.under_way() == 0) REQUIRE(cursor->run(training->context(), 1));
  const Program same_program = training->compiled_step().program();
  const Error refused = training->switch_to(same_program);
  CHECK(std::string(refused.text()).find("a step is under way") != std::string::npos);
  CHECK(away.under_way() > 0);
  training->compiled_step().abandon();
  CHECK(away.under_way() == 0);
  REQUIRE_FALSE(training->switch_to(same_program));
  train(*training, 0, 2);
  train(*retained, 0, 2);
  CHECK(same(*training, *retained));
}

TEST_CASE("what a store can lack") {
  Hostile away;
  auto how = options(45, away.store);
  how.planning.link = {};
  CHECK(std::string(Training<>::make(net, shape, how).error.text()).find("how fast it is") !=
        std::string::npos);
  // No room: plans do without, or none fits.
  Block<std::byte> little = *Block<std::byte>::make(4096, "a store", huge_page);
  MemoryStore small(little.view());
  how = options(80, small);
  const auto training = Training<>::make(net, shape, how);
  REQUIRE_MESSAGE(training, training.error.text());
  CHECK(training->compiled_step().store_bytes() <= 4096);
}

TEST_CASE("with a clock the store is measured") {
  struct Ticks {
    double now = 0;
    double operator()() { return now += 1e-4; }
  } ticks;
  Hostile away;
  auto how = options(45, away.store);
  how.planning.link = {};
  how.clock = ticks;
  const auto training = Training<>::make(net, shape, how);
  REQUIRE_MESSAGE(training, training.error.text());
  CHECK(training->evolution()->request().link.exists());
  CHECK(away.store.begun() > 0);
}

namespace {

constexpr double forward_seconds = 1e-3;

/// Takes its time on the test's clock; backward takes twice that.
struct Timed {
  static constexpr auto backward_reads = reads::input;
  MadeUpClock* clock = nullptr;
  double seconds = forward_seconds;

  void forward(Cpu&, View<const float> x, View<float> y) const {
    const float* const from = x.data();
    float* const to = y.data();
    for (std::size_t i = 0, end = x.size(); i < end; ++i) to[i] = from[i] / (1 + from[i] * from[i]);
    clock->time += seconds;
  }
  void backward(Cpu&, View<const float> x, View<const float> dy, View<float> dx) const {
    const float *const from = x.data(), *const above = dy.data();
    float* const to = dx.data();
    for (std::size_t i = 0, end = x.size(); i < end; ++i) {
      const float square = from[i] * from[i], d = 1 + square;
      to[i] = above[i] * (1 - square) / (d * d);
    }
    clock->time += 2 * seconds;
  }
};
using TimedNet =
    Network<Sequential<Layer<Linear>, Repeat<Layer<Timed>>, Layer<Linear>>, MeanSquaredError>;
constexpr int timed_layers = 14;

/// What a SATA disk is to an NVMe one, in this net's small world.
constexpr double fast_rate = 1650e5, slow_rate = 350e5;

/// A training whose layers and whose link take time on a clock of the test's.
struct TimedRun {
  MadeUpClock clock;
  int layers;
  double layer_seconds;  ///< of a forward
  TimedNet net{{{Linear{.out = 64}}, {layers, {Timed{&clock, layer_seconds}}}, {Linear{.out = 1}}},
               {}};
  Hostile away;
  Training<> training;
  std::vector<double> seconds;         ///< of the steps so far
  std::vector<std::uint64_t> drifted;  ///< steps before which the link was found to be another
  std::vector<std::uint64_t> changed;  ///< and the plan changed

  explicit TimedRun(std::size_t percent, bool watch = true, double rate = fast_rate,
                    int count = timed_layers, double of_layer = forward_seconds)
      : layers(count), layer_seconds(of_layer) {
    const auto graph = make_graph(net, shape);
    REQUIRE(graph);
    Training<>::Options how = options(percent, away.store);
    how.budget_bytes = peak_bytes(*graph, retain_all(*graph)) * percent / 100;
    how.clock = clock;
    how.planning.link = {};
    how.planning.watch_times = watch;
    how.planning.profile = empty_profile(*graph);
    for (NodeCost& cost : how.planning.profile.nodes) cost = {1e-9, 1e-9, 0, 0};
    for (CodecCost& cost : how.planning.profile.codec_costs) cost = {1e-3, 1e-3, 1, 1};
    for (int k = 1; k <= layers; ++k)
      how.planning.profile.nodes[static_cast<std::size_t>(k)] = {layer_seconds, 2 * layer_seconds,
                                                                 0, 0};
    set_rate(rate);
    how.planning.evolution.measure_link_every = 400;
    auto made = Training<>::make(net, shape, how);
    REQUIRE_MESSAGE(made, std::string(made.error.text()));
    training = std::move(*made);
  }

  void set_rate(double rate) {
    away.store.speed = {clock, &MadeUpClock::pass, &clock, rate, 0.9 * rate, 1e-6};
  }
  const PlanOutcome& outcome() const { return training.evolution()->outcome(); }

  void run(int steps) {
    const Batch batch(0);
    for (int i = 0; i < steps; ++i) {
      const double start = clock.time;
      const auto done = training.step(batch.input(), batch.targets(), 0);
      REQUIRE_MESSAGE(done, done.error.text());
      seconds.push_back(clock.time - start);
      const EvolutionUpdate& update = training.boundary().update;
      CHECK_MESSAGE(!update.failed, update.failed.text());
      if (update.link_drifted) drifted.push_back(training.updates());
      if (update.changed) changed.push_back(training.updates());
      for (const PlanChange& change : update.changes)
        CHECK(change.reason == ChangeReason::link_drifted);
    }
  }
};

}  // namespace

TEST_CASE("a link that falls from 1650 to 350 MB/s is planned for again within two windows" *
          doctest::test_suite("long_run")) {
  // Twice as deep as the other runs: what is recomputed then fits into 30 % of what retaining takes.
  TimedRun run(30, true, fast_rate, 2 * timed_layers);
  run.run(150);
  CHECK(run.drifted.empty());  // steady: nothing to see
  CHECK(run.changed.empty());
  const PlanOutcome before = run.outcome();
  REQUIRE(before.written_bytes > 0);
  CHECK(run.seconds.back() == doctest::Approx(before.seconds).epsilon(0.01));

  run.set_rate(slow_rate);
  run.run(1);
  const double slowed = run.seconds.back();
  CHECK(slowed > 1.15 * before.retain_seconds);
  const std::uint64_t window = run.training.evolution()->options().change_interval;
  run.run(static_cast<int>(2 * window));
  REQUIRE(run.drifted.size() == 1);
  REQUIRE(run.changed.size() == 1);
  CHECK(run.changed[0] <= 151 + 2 * window);
  const PlanOutcome& after = run.outcome();
  MESSAGE("planned again after ", run.changed[0] - 151, " steps: ", 1e3 * slowed, " ms become ",
          1e3 * run.seconds.back(), ", writes ", before.written_bytes, " become ",
          after.written_bytes, ", stalls ", 1e3 * (slowed - before.seconds + before.stall_seconds),
          " become ", 1e3 * after.stall_seconds);
  CHECK(after.written_bytes < before.written_bytes);
  CHECK(after.peak_bytes <= run.training.evolution()->budget_bytes());
  CHECK(run.seconds.back() < 0.98 * slowed);
  CHECK(run.seconds.back() <= 1.10 * after.retain_seconds);
  CHECK(run.seconds.back() == doctest::Approx(after.seconds).epsilon(0.01));
  CHECK(run.training.evolution()->request().link.write_rate ==
        doctest::Approx(slow_rate).epsilon(0.01));

  // And back.
  run.set_rate(fast_rate);
  run.run(static_cast<int>(4 * window));
  CHECK(run.outcome().seconds == doctest::Approx(before.seconds).epsilon(0.02));
  CHECK(run.seconds.back() == doctest::Approx(before.seconds).epsilon(0.02));
  CHECK(run.changed.size() <= 4);
  const std::size_t changes = run.changed.size();
  run.run(300);  // and there it stays
  CHECK(run.changed.size() == changes);
}

TEST_CASE("a store that was too slow to be used is used once it has become fast" *
          doctest::test_suite("long_run")) {
  TimedRun run(60, true, 2e6);
  const PlanOutcome before = run.outcome();
  REQUIRE(before.written_bytes == 0);  // it recomputes
  REQUIRE(before.seconds > before.retain_seconds);
  run.set_rate(fast_rate);
  run.run(399);
  CHECK(run.drifted.empty());  // what is not used is not seen
  CHECK(run.seconds.back() == doctest::Approx(before.seconds).epsilon(0.01));
  // To measure it was expected to take longer than the hundredth of 400 steps.
  const std::uint64_t due = run.training.evolution()->options().measure_link_every;
  while (run.changed.empty() && run.training.updates() < 8 * due) run.run(static_cast<int>(due));
  REQUIRE(run.changed.size() == 1);
  CHECK(run.drifted == run.changed);
  CHECK((run.changed[0] - 1) % due == 0);
  CHECK(run.outcome().written_bytes > 0);
  CHECK(run.outcome().seconds < 0.98 * before.seconds);
  CHECK(run.seconds.back() == doctest::Approx(run.outcome().seconds).epsilon(0.01));
  CHECK(run.training.evolution()->request().link.write_rate ==
        doctest::Approx(fast_rate).epsilon(0.01));
  run.run(static_cast<int>(2 * due));
  CHECK(run.changed.size() == 1);
}

TEST_CASE("a run that is not to look at the clock keeps its plan" *
          doctest::test_suite("one_thread")) {
  TimedRun run(35, false);
  run.run(2);
  run.set_rate(slow_rate);
  run.run(100);
  CHECK(run.drifted.empty());
  CHECK(run.training.compiled_step().transfer_times().writes.empty());
}

TEST_CASE("a checkpoint knows the link as it was found to be, and what was seen since" *
          doctest::test_suite("one_thread")) {
  const train_test::Folder folder;
  TimedRun run(35), other(35), without(35);
  run.set_rate(slow_rate);
  run.run(25);
  REQUIRE(run.drifted.empty());
  REQUIRE_FALSE(run.training.save(folder / "seen"));
  run.run(15);
  REQUIRE(run.drifted.size() == 1);
  other.set_rate(slow_rate);
  REQUIRE(other.training.load(folder / "seen"));
  other.run(15);
  CHECK(other.drifted == run.drifted);  // half of the evidence was in the checkpoint
  CHECK(other.training.plan().policies.size() == run.training.plan().policies.size());
  CHECK(other.outcome().written_bytes == run.outcome().written_bytes);
  CHECK(other.training.compiled_step().store_bytes() == run.training.compiled_step().store_bytes());

  REQUIRE_FALSE(run.training.save(folder / "found"));
  without.set_rate(slow_rate);
  REQUIRE(without.training.load(folder / "found"));
  CHECK(without.training.evolution()->request().link.write_rate ==
        run.training.evolution()->request().link.write_rate);
  without.run(100);
  CHECK(without.drifted.empty());
}

}  // namespace offload_training_test
