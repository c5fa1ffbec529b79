// SPDX-License-Identifier: MIT
/// A store that fails in the middle of a training step: nothing is updated from what was lost, and the
/// same training goes on once the cause is gone.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/step/cursor.hpp>
#include <adacc/train/make.hpp>

#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "../store/on_disk.hpp"
#include "../test_size.hpp"
#include "offload_net.hpp"
#include "support.hpp"

namespace offload_failure_test {

using namespace offload_net;
using train_test::state_of;

namespace {

/// Everything, or nothing, is sent away: as far as that gets.
Training<> made(Updates updates, StoreRef store, const MomentStore& moments = {}) {
  auto graph = make_graph(net, shape);
  REQUIRE(graph);
  set_updates(*graph, updates);
  Plan plan = retain_all(*graph);
  if (store)
    for (std::size_t k = 0; k + 1 < graph->nodes.size(); ++k) plan.policies[k] = offload();
  Cpu cpu;
  cpu.key.seed = 3;
  auto training = Training<>::make(net, *make_program(*graph, plan), cpu, 0, {}, moments, store);
  REQUIRE_MESSAGE(training, training.error.text());
  return std::move(*training);
}

/// All that an update changes.
struct State {
  std::vector<float> params;
  std::vector<std::byte> moments;
  std::uint64_t updates = 0;

  explicit State(Training<>& of)
      : params(of.params().begin(), of.params().end()), moments(state_of(of)),
        updates(of.updates()) {}
  friend bool operator==(const State& a, const State& b) {
    return a.updates == b.updates && a.moments == b.moments && a.params.size() == b.params.size() &&
           std::memcmp(a.params.data(), b.params.data(), a.params.size() * sizeof(float)) == 0;
  }
};

Result<TrainingOutcome> step(Training<>& training, std::uint32_t number) {
  const Batch batch(number);
  return training.step(batch.input(), batch.targets(), 1e-2);
}

void train(Training<>& training, std::uint32_t number) {
  const auto done = step(training, number);
  REQUIRE_MESSAGE(done, done.error.text());
  REQUIRE(done->finite);
}

/// The same step in slices.
Result<TrainingOutcome> in_slices(Training<>& training, std::uint32_t number) {
  const Batch batch(number);
  Cursor<>* const cursor = &training.cursor();
  const bool fused = training.compiled_step().graph().fuses_updates();
  const Error begun = fused ? training.begin(batch.input(), batch.targets(), 1e-2)
                            : training.begin(batch.input(), batch.targets());
  REQUIRE_FALSE(begun);
  while (cursor->active()) static_cast<void>(cursor->run(training.context(), 3));
  return training.update(1e-2);
}

/// As many parameters as an error says are updated, in the middle of a step that is then abandoned.
void update_some(Training<>& training, std::uint32_t number, std::size_t some) {
  const Batch batch(number);
  Cursor<>* const cursor = &training.cursor();
  REQUIRE_FALSE(training.begin(batch.input(), batch.targets(), 1e-2));
  const Graph& graph = training.compiled_step().graph();
  for (std::size_t updated = 0; updated < some;) {
    const Instruction& inst =
        training.compiled_step().program().schedule.instructions[cursor->instruction()];
    if (inst.op == Op::update)
      updated +=
          CompleteGradients<float>(graph, static_cast<std::size_t>(inst.gradient), nullptr, nullptr)
              .size();
    REQUIRE(cursor->run(training.context(), 1));
    REQUIRE(updated <= some);
  }
  training.compiled_step().abandon();
}

/// How many parameters the error says were updated before it.
std::size_t updated_before(const std::string& error) {
  const std::string begin = "after updates of ";
  return error.rfind(begin, 0) == 0 ? std::stoul(error.substr(begin.size())) : 0;
}

/// Steps whose transfers fail one after the other, each in a step of its own, `alone` or with all that
/// follow. `retained` is the same training without a store. How many steps had updated something.
template <class Step>
int fail_each_transfer(Training<>& training, Training<>& retained, MemoryStore& store, bool alone,
                       const Step& run) {
  const std::size_t transfers = 2 * training.compiled_step().program().schedule.transfers.size();
  REQUIRE(transfers > 10);
  int partly = 0;
  std::uint32_t number = 0;
  train(training, number);
  train(retained, number);
  // A few under sanitizers; the last one is among them.
  for (std::uint64_t t = 1; t <= transfers; t += test_sanitized ? 5 : 1) {
    CAPTURE(t);
    const State before(training);
    REQUIRE(before == State(retained));
    store.failure = Error::say("the link broke");
    store.fail_from = store.begun() + transfers - t;
    store.fail_to = alone ? store.fail_from + 1 : ~std::uint64_t{0};
    const auto failed = run(training, ++number);
    store.failure = {};
    REQUIRE_FALSE(failed);
    const std::string error = failed.error.text();
    CHECK(error.find("the link broke") != std::string::npos);
    if (const std::size_t some = updated_before(error); some == 0) {
      CHECK(before == State(training));
    } else {
      ++partly;
      CHECK(error.find(" of 14 parameters") != std::string::npos);
      CHECK(training.updates() == before.updates + 1);
      update_some(retained, number, some);
      REQUIRE_FALSE(retained.prepare({}, {}));  // which accounts for it
      CHECK(State(training) == State(retained));
    }
    train(training, number);
    train(retained, number);
  }
  CHECK(State(training) == State(retained));
  return partly;
}

}  // namespace

// What a failed read leaves is garbage, of a hostile store, or finite numbers of something else.

TEST_CASE(
    "any transfer of a step may fail: nothing is updated, and the next step has retain's bits") {
  for (const bool alone : {true, false})
    for (const bool hostile : {true, false}) {
      CAPTURE(alone);
      CAPTURE(hostile);
      Hostile away;
      away.store.hostile = hostile;
      Training<> training = made(Updates::separate, away.store);
      Training<> retained = made(Updates::separate, {});
      CHECK(fail_each_transfer(training, retained, away.store, alone, hostile ? in_slices : step) ==
            0);
    }
}

TEST_CASE("fused updates: what was updated before stays, is said, and nothing else is updated") {
  for (const bool alone : {true, false})
    for (const bool hostile : {true, false})
      for (const bool moments_away : {true, false}) {
        CAPTURE(alone);
        CAPTURE(hostile);
        CAPTURE(moments_away);
        Hostile away, moments;
        away.store.hostile = hostile;
        Training<> training = made(Updates::fused, away.store,
                                   moments_away ? MomentStore{moments.store} : MomentStore{});
        Training<> retained = made(Updates::fused, {});
        const int partly =
            fail_each_transfer(training, retained, away.store, alone, hostile ? in_slices : step);
        CHECK(partly > 0);  // reads that fail behind some updates
      }
}

TEST_CASE("a disk that is full in the middle of a step") {
  if (!sample::scratch_files_possible()) return;
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit most{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &most) == 0);
  for (const FileEngine engine : {FileEngine::automatic, FileEngine::thread})
    for (const Updates updates : {Updates::separate, Updates::fused}) {
      auto file = ScratchFile::make(".", 4 << 20, engine);
      REQUIRE_MESSAGE(file, file.error.text());
      CAPTURE(std::string(file->engine()));
      Training<> training = made(updates, *file);
      Training<> retained = made(updates, {});
      train(training, 0);
      train(retained, 0);
      const State before(training);
      // No file may grow, or be written, beyond half of what the step sends.
      const rlimit less{training.compiled_step().store_bytes() / 2, most.rlim_max};
      std::optional<Result<TrainingOutcome>> failed;
      const bool limited = ::setrlimit(RLIMIT_FSIZE, &less) == 0;
      if (limited) failed.emplace(step(training, 1));
      REQUIRE(::setrlimit(RLIMIT_FSIZE, &most) == 0);
      REQUIRE(limited);
      CHECK(std::string(failed->error.text()).find("File too large") != std::string::npos);
      CHECK(State(training) == before);  // writes are in forward: it comes before all updates
      for (std::uint32_t i = 1; i < 3; ++i) {
        train(training, i);
        train(retained, i);
      }
      CHECK(State(training) == State(retained));
    }
  ::signal(SIGXFSZ, handler);
}

}  // namespace offload_failure_test
