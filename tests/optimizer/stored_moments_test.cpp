// SPDX-License-Identifier: MIT
// State of an optimizer in a store has the bits of state in memory, whatever the store does and however
// little of the state is in memory at once; what fails is an error, and nothing goes on from it.
#include <adacc/optimizer/stored_moments.hpp>

#include <doctest/doctest.h>

#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/optimizer/stored_moments_time.hpp>
#include <adacc/step/cursor.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../store/made_up_clock.hpp"
#include "../store/on_disk.hpp"
#include "../train/support.hpp"

namespace stored_moments_test {

using namespace adacc;
using sample::MadeUpClock;
using train_test::Folder;
using train_test::state_of;
using Trained = Training<float, Cpu, AnyOptimizer>;
using Options = TrainingOptions<Cpu, AnyOptimizer>;

namespace {

constexpr std::size_t sequences = 2, time = 8, vocab = 2500;
constexpr gpt::Config config{2, 2, 32, time,
                             vocab};  // a table of three pieces, which is the head, too
const auto net = gpt::make(config);

struct Batch : train_test::TokenBatch {
  explicit Batch(std::size_t number) : TokenBatch(number, Shape(sequences, time), vocab) {}
};

Graph graph_of(Updates updates, const char* trained = nullptr) {
  TrainedSet set;
  gpt::Tuning tuning;
  const auto all = gpt::graph(config, sequences, time, 1);
  REQUIRE_MESSAGE(all, all.error.text());
  if (trained != nullptr) {
    set = *trained_by_name(*all, trained);
    tuning.trained = &set;
  }
  auto graph = gpt::graph(config, sequences, time, 1, 1, tuning);
  REQUIRE_MESSAGE(graph, graph.error.text());
  set_updates(*graph, updates);
  return *graph;
}

Result<Trained> try_to_make(const Graph& graph, const AnyOptimizer& optimizer,
                            const MomentStore& store = {}) {
  auto program = make_program(graph, retain_all(graph));
  REQUIRE_MESSAGE(program, program.error.text());
  Cpu cpu;
  cpu.key.seed = 3;
  return Trained::make(make_dispatch<float, Cpu>(net), *program, cpu, 0, optimizer, store);
}

Trained made(const Graph& graph, const AnyOptimizer& optimizer, const MomentStore& store = {}) {
  auto training = try_to_make(graph, optimizer, store);
  REQUIRE_MESSAGE(training, training.error.text());
  return std::move(*training);
}

TrainingOutcome step(Trained& training, std::size_t number) {
  const Batch batch(number);
  const auto outcome = training.step(batch.input(), batch.targets(), 1e-2);
  REQUIRE_MESSAGE(outcome, outcome.error.text());
  return *outcome;
}

bool same(Trained& a, Trained& b) {
  return a.updates() == b.updates() && state_of(a) == state_of(b) &&
         std::memcmp(a.params().data(), b.params().data(), a.params().size() * sizeof(float)) == 0;
}

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

/// The least window that an optimizer's state can pass through.
MomentWindow least_window(const Graph& graph, const AnyOptimizer& optimizer) {
  const auto table = UpdateTable::make(optimizer, graph.parameters, graph.scalar);
  REQUIRE(table);
  for (std::size_t bytes = 4096;; bytes += 4096)
    if (MomentTurns::make(optimizer, *table, graph, {bytes})) return {bytes};
}

/// A store that does everything as late as it may: with a link on a clock that stands still, or with none.
struct Late {
  Block<std::byte> memory = *Block<std::byte>::make(4 * MiB, "a store", huge_page);
  MemoryStore store{memory.view()};
  MadeUpClock clock;
  explicit Late(bool slow = false) {
    std::memset(memory.data(), 0x5A, memory.size());
    store.hostile = true;
    if (slow) store.speed = {clock, &MadeUpClock::pass, &clock, 1e6, 1e6, 1e-3};
  }
};

}  // namespace

TEST_CASE("turns cover the state, each in the window, layer by layer if updates are fused") {
  for (const AnyOptimizer& optimizer :
       {AnyOptimizer(AdamW{}), AnyOptimizer(AdamWWith<Bf16Moments, Int8Moments>{}),
        AnyOptimizer(Adafactor{})})
    for (const Updates updates : {Updates::separate, Updates::fused}) {
      const Graph graph = graph_of(updates);
      const auto table = UpdateTable::make(optimizer, graph.parameters, graph.scalar);
      REQUIRE(table);
      const MomentWindow window = least_window(graph, optimizer);
      const auto turns = MomentTurns::make(optimizer, *table, graph, window);
      REQUIRE(turns);
      CHECK(turns->window_bytes() <= window.bytes);
      CHECK(turns->turns().size() >= turns->slot_count());
      if (optimizer.elementwise) {
        CHECK(turns->slot_count() >= 3);
        CHECK(turns->turns().size() > turns->slot_count());
      }
      std::size_t block = 0, store = 0, piece = 0;
      for (const MomentTurns::Part& part : turns->parts()) {
        CHECK(part.in_block == block);
        CHECK(part.at + part.bytes <= turns->turns()[part.turn].bytes);
        block += part.bytes;
      }
      CHECK(block == table->bytes());
      for (const MomentTurns::Turn& turn : turns->turns()) {
        CHECK(turn.offset == store);
        CHECK(turn.first == piece);
        CHECK(turn.bytes <= turns->slot_bytes());
        store += turn.bytes;
        const auto group = [&](std::size_t p) { return turns->first_turn(turns->piece(p).owner); };
        for (piece = turn.first; piece < turn.last; ++piece) {
          CHECK(turns->piece(piece).begin % moment_lanes == 0);
          CHECK(group(piece) == group(turn.first));
        }
      }
      CHECK(store == turns->store_bytes());
      const std::size_t last = turns->turns().size();
      CHECK((turns->last_turn(0) == last && turns->first_turn(0) == 0) ==
            (updates == Updates::separate));
      // Whatever else there is of the embedding is updated last.
      if (updates == Updates::fused) CHECK(turns->last_turn(0) == last);
    }
}

TEST_CASE("state in a store has the bits of state in memory") {
  struct Case {
    AnyOptimizer optimizer;
    const char* trained = nullptr;
    bool slow = false;
  };
  const Case cases[] = {
      {AdamW{.weight_decay = 0.1F}},
      {AdamW{}, "*.bias,block.1,embedding", true},
      {AdamWWith<Bf16Moments, Int8Moments>{}, nullptr, true},
      {SgdWith<Int8Moments>{}},
      {LionWith<Bf16Moments>{.weight_decay = 0.1F}, nullptr, true},
      {Adafactor{.weight_decay = 0.1F}, nullptr, true},
  };
  const Folder folder;
  for (const Case& of : cases)
    for (const Updates updates : {Updates::separate, Updates::fused}) {
      CAPTURE(std::string(of.optimizer.name));
      const Graph graph = graph_of(updates, of.trained);
      const MomentWindow window = least_window(graph, of.optimizer);
      Late late(of.slow), again(!of.slow);
      Trained in_memory = made(graph, of.optimizer);
      Trained stored = made(graph, of.optimizer, {late.store, window});
      CHECK(stored.state<std::byte>(0).size() == 0);
      const TrainingMemoryUse use = stored.memory_use(), before = in_memory.memory_use();
      CHECK(use.moments <= window.bytes);
      CHECK(use.total() == before.total() - before.moments + use.moments);
      CHECK(use.stored >= before.moments);
      for (std::size_t i = 0; i < 2; ++i) {
        const TrainingOutcome a = step(in_memory, i), b = step(stored, i);
        CHECK(a.loss == b.loss);
        CHECK(a.grad_norm == b.grad_norm);
      }
      // Checkpoints are the same files, wherever the state is, and from either one goes on to either.
      REQUIRE_FALSE(in_memory.save(folder / "memory"));
      REQUIRE_FALSE(stored.save(folder / "store"));
      CHECK(train_test::read_file(folder / "memory") == train_test::read_file(folder / "store"));
      Trained resumed = made(graph, of.optimizer, {again.store, {}});
      REQUIRE(resumed.load(folder / "memory"));
      for (std::size_t i = 2; i < 5; ++i) {
        step(in_memory, i);
        step(stored, i);
        step(resumed, i);
      }
      CHECK(same(in_memory, stored));
      CHECK(same(in_memory, resumed));
    }
}

TEST_CASE("micro-batches, slices, steps that are abandoned, gradients that are not finite") {
  const Graph separate = graph_of(Updates::separate), fused = graph_of(Updates::fused);
  const MomentWindow window = least_window(fused, AdamW{});
  Late one(true), other(true);
  {
    Trained in_memory = made(separate, AdamW{}),
            stored = made(separate, AdamW{}, {one.store, window});
    for (std::size_t update = 0; update < 2; ++update)
      for (Trained* training : {&in_memory, &stored}) {
        for (std::size_t i = 0; i < 2; ++i) {
          const Batch batch(2 * update + i);
          REQUIRE(training->accumulate(batch.input(), batch.targets()));
        }
        REQUIRE(training->update(1e-2));
      }
    CHECK(same(in_memory, stored));
  }
  Trained in_memory = made(fused, AdamW{}), stored = made(fused, AdamW{}, {other.store, window});
  const auto sliced = [](Trained& training, std::size_t number, bool abandoned) {
    Cursor<>* const cursor = &training.cursor();
    const Batch batch(number);
    REQUIRE_FALSE(training.begin(batch.input(), batch.targets(), 1e-2));
    if (abandoned) {
      REQUIRE(cursor->run(training.context(), training.compiled_step().instruction_count() - 3));
      return training.compiled_step().abandon();
    }
    while (cursor->active()) REQUIRE(cursor->run(training.context(), 3));
    REQUIRE(training.update(1e-2));
  };
  for (std::size_t i = 0; i < 4; ++i)
    for (Trained* training : {&in_memory, &stored}) sliced(*training, i, i == 1);
  CHECK(in_memory.updates() == 4);
  for (Trained* training : {&in_memory, &stored})
    training->params()[7] = std::numeric_limits<float>::infinity();
  const Batch batch(5);
  for (Trained* training : {&in_memory, &stored}) {
    const auto outcome = training->step(batch.input(), batch.targets(), 1e-2);
    REQUIRE(outcome);
    CHECK_FALSE(outcome->finite);
  }
  for (Trained* training : {&in_memory, &stored}) training->params()[7] = 0.1F;
  step(in_memory, 6);
  step(stored, 6);
  CHECK(same(in_memory, stored));
}

TEST_CASE("a checkpoint in other forms, or of other parameters, is converted piece by piece") {
  const Folder folder;
  const Graph all = graph_of(Updates::separate),
              part = graph_of(Updates::fused, "embedding,block.1");
  Late late;
  Trained full = made(all, AdamW{});
  step(full, 0);
  REQUIRE_FALSE(full.save(folder / "full"));
  const AnyOptimizer int8(AdamWWith<Int8Moments>{}), bf16(AdamWWith<Bf16Moments>{});
  Trained in_memory = made(part, int8);
  Trained stored = made(part, int8, {late.store, least_window(part, int8)});
  for (Trained* training : {&in_memory, &stored})
    REQUIRE(training->load(folder / "full", Restore::numbers));
  CHECK(same(in_memory, stored));
  step(in_memory, 1);
  step(stored, 1);
  CHECK(same(in_memory, stored));
  // And back, of more parameters: those that were frozen begin anew.
  REQUIRE_FALSE(stored.save(folder / "int8"));
  Late there(true);
  Trained wide = made(all, bf16), away = made(all, bf16, {there.store, least_window(all, bf16)});
  for (Trained* training : {&wide, &away})
    REQUIRE(training->load(folder / "int8", Restore::numbers));
  step(wide, 2);
  step(away, 2);
  CHECK(same(wide, away));
}

TEST_CASE("a store that fails ends training, until a checkpoint brings the state anew") {
  const Folder folder;
  for (const Updates updates : {Updates::separate, Updates::fused})
    for (const bool at_once : {true, false}) {
      const Graph graph = graph_of(updates);
      Late late(!at_once);
      Trained stored = made(graph, AdamW{}, {late.store, least_window(graph, AdamW{})});
      Trained in_memory = made(graph, AdamW{});
      step(stored, 0);
      step(in_memory, 0);
      REQUIRE_FALSE(stored.save(folder / "good"));
      late.store.failure = Error::say("the disk is gone");
      late.store.fail_from = late.store.begun() + (at_once ? 0 : 5);
      const Batch batch(1);
      const auto failed = stored.step(batch.input(), batch.targets(), 1e-2);
      CHECK(says(failed.error, "the disk is gone"));
      CHECK(says(failed.error, "load()"));
      late.store.failure = {};
      // It works again, but what it holds is of no update.
      const std::uint64_t begun = late.store.begun(), steps = stored.compiled_step().begun();
      CHECK(says(stored.step(batch.input(), batch.targets(), 1e-2).error, "the disk is gone"));
      CHECK(says(stored.save(folder / "bad"), "the disk is gone"));
      std::vector<std::byte> state(stored.table().bytes());
      CHECK(says(stored.copy_state(Bytes(state.data(), Shape(state.size()))), "the disk is gone"));
      CHECK(late.store.begun() == begun);
      CHECK(stored.compiled_step().begun() == steps);
      CHECK(train_test::read_file(folder / "bad").empty());
      REQUIRE(stored.load(folder / "good"));
      for (std::size_t i = 1; i < 3; ++i) {
        step(stored, i);
        step(in_memory, i);
      }
      CHECK(same(stored, in_memory));
    }
  // The last write of an update is waited for later: by who asks for the state, at the latest.
  const Graph graph = graph_of(Updates::separate);
  const MomentWindow window = least_window(graph, AdamW{});
  Late late(true);
  Trained stored = made(graph, AdamW{}, {late.store, window});
  const auto turns = MomentTurns::make(AdamW{}, stored.table(), graph, window);
  REQUIRE(turns);
  late.store.failure = Error::say("no space left");
  late.store.fail_from = turns->turns().size() - 1;  // state that is zero is not read
  step(stored, 0);
  CHECK(says(stored.save(folder / "late"), "no space left"));
}

TEST_CASE("what cannot be had is said before anything runs") {
  const Graph graph = graph_of(Updates::separate);
  const auto refusal = [&](const AnyOptimizer& optimizer, const MomentStore& store) {
    return std::string(try_to_make(graph, optimizer, store).error.text());
  };
  Late late;
  Block<std::byte> little = *Block<std::byte>::make(64 * KiB, "a store", huge_page);
  MemoryStore small(little.view());
  CHECK(refusal(AdamW{}, {small, {}}).find("which has room for 64.0 KiB") != std::string::npos);
  const std::string window = refusal(AdamW{}, {late.store, {64 * KiB}});
  CHECK(window.find("it needs 768.0 KiB") != std::string::npos);
  CHECK(window.find("not cut") == std::string::npos);
  CHECK(refusal(Adafactor{}, {late.store, {4096}}).find("not cut into pieces") !=
        std::string::npos);
  struct Coarse : MemoryStore {
    using MemoryStore::MemoryStore;
    static std::size_t alignment() { return 8192; }
  } coarse(late.memory.view());
  CHECK(refusal(AdamW{}, {coarse, {}}).find("8192") != std::string::npos);
  Options both{.planning = {.store = late.store, .link = {.write_rate = 1e9, .read_rate = 1e9}}};
  both.moment_store.store = late.store;
  CHECK(says(Trained::make(net, Shape(sequences, time), both).error, "cannot share"));
}

TEST_CASE("a total that moments in memory pass is met with them in a store, exactly") {
  Late late;
  Options options{.seed = 3, .graph = {.updates = Updates::fused}, .planning = {.evolving = false}};
  options.moment_store = {late.store, least_window(graph_of(Updates::fused), AdamW{})};
  const Shape shape(sequences, time);
  const auto retain = Trained::make(net, shape, options);
  REQUIRE_MESSAGE(retain, retain.error.text());
  options.total_bytes = retain->memory_use().total();
  auto stored = Trained::make(net, shape, options);
  REQUIRE_MESSAGE(stored, stored.error.text());
  CHECK(stored->memory_use().total() == options.total_bytes);
  step(*stored, 0);
  options.moment_store = {};
  CHECK(says(Trained::make(net, shape, options).error, "the least known is"));
}

TEST_CASE("steps are predicted to take as long as they do") {
  for (const Updates updates : {Updates::separate, Updates::fused}) {
    const Graph graph = graph_of(updates);
    const MomentWindow window = least_window(graph, AdamW{});
    Late late(true);
    late.store.speed.write_rate = 2e8;
    late.store.speed.read_rate = 3e8;
    late.store.speed.latency = 1e-5;
    Trained stored = made(graph, AdamW{}, {late.store, window});
    const auto turns = MomentTurns::make(AdamW{}, stored.table(), graph, window);
    REQUIRE(turns);
    for (std::size_t i = 0; i < 3; ++i) step(stored, i);
    const double before = late.clock.time;
    step(stored, 3);
    // On this clock nothing takes time but the store.
    const LinkCost link{.write_rate = 2e8, .read_rate = 3e8, .latency = 1e-5};
    const Schedule& schedule = stored.compiled_step().program().schedule;
    const PlanCost cost =
        evaluate(graph, empty_profile(graph), stored.plan(), schedule, link, *turns);
    CHECK(cost.seconds == doctest::Approx(late.clock.time - before).epsilon(1e-9));
    CHECK(cost.stall_seconds == doctest::Approx(cost.seconds));
    const double bytes = static_cast<double>(turns->store_bytes());
    CHECK(cost.seconds > bytes / 2e8 + bytes / 3e8);
    // Behind a step that takes as long, what the window has room for comes at no time.
    CostProfile slow = empty_profile(graph);
    for (NodeCost& node : slow.nodes) node.forward = 1;
    const PlanCost hidden = evaluate(graph, slow, stored.plan(), schedule, link, *turns);
    CHECK(hidden.stall_seconds < cost.stall_seconds);
    CHECK(hidden.seconds == doctest::Approx(evaluate(graph, slow, stored.plan(), schedule).seconds +
                                            hidden.stall_seconds));
  }
}

TEST_CASE("a real file holds it as well") {
  const Graph graph = graph_of(Updates::fused);
  if (!sample::scratch_files_possible()) return;
  auto file = ScratchFile::make(".", 4 * MiB);
  REQUIRE_MESSAGE(file, file.error.text());
  Trained in_memory = made(graph, AdamW{}),
          stored = made(graph, AdamW{}, {*file, least_window(graph, AdamW{})});
  for (std::size_t i = 0; i < 3; ++i) {
    step(in_memory, i);
    step(stored, i);
  }
  CHECK(same(in_memory, stored));
}

}  // namespace stored_moments_test
