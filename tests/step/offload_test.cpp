// SPDX-License-Identifier: MIT
/// Steps that send activations to a store: whatever is sent, the bits are those of retaining, and
/// the arena is not exceeded by a byte.
#include <doctest/doctest.h>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/store/memory_store.hpp>

#include "../test_size.hpp"
#include "offload_case.hpp"

namespace offload_test { namespace {

using namespace offload_case;

TEST_CASE("1000 random plans with random transfers: no bit differs, no byte over") {
  unsigned with_transfers = 0, with_loops = 0, on_threads = 0;
  std::size_t transfers = 0;
  double waste = 0;
  for (unsigned seed = 5000; seed < 5000 + test_networks; ++seed) {
    CAPTURE(seed);
    const int workers = 1 + static_cast<int>(seed % 16);
    const Case one(seed, workers);
    Paged room(one.sent.schedule.store_bytes);
    MemoryStore store(Bytes(room.data, Shape(one.sent.schedule.store_bytes)));
    store.hostile = true;
    const Ran expected = run(one.network, one.retained, workers, 0x5A, {});
    const Ran a = run(one.network, one.sent, workers, 0x5A, store);
    const Ran b = run(one.network, one.sent, workers, 0xC3, store);
    CHECK(same_bits(expected, a));
    CHECK(same_bits(expected, b));
    if (seed % 21 ==
        0) {  // which has all numbers of workers by turns: on as many threads, for once
      EigenPool pool(workers);
      const Ran threaded = Bound(one.network, one.sent, ExecutorRef(pool), 0x5A, store).run();
      CHECK(same_bits(expected, threaded));
      CHECK(threaded.guard_intact);
      CHECK(threaded.used <= one.sent.peak_bytes());
      on_threads |= 1U << static_cast<unsigned>(workers);
    }
    CHECK(a.guard_intact);
    CHECK(b.guard_intact);
    CHECK(std::max(a.used, b.used) <= one.sent.peak_bytes());
    const std::size_t count = one.sent.schedule.transfers.size();
    CHECK(store.begun() == (seed % 21 == 0 ? 6 : 4) * count);
    transfers += count;
    with_transfers += count > 0;
    with_loops += count > 0 && !one.sent.schedule.loops.empty();
    for (const Instruction& inst : one.sent.schedule.instructions)
      if (is_transfer(inst.op)) CHECK(inst.loop == -1);
    waste += static_cast<double>(one.sent.layout.arena_bytes) /
             static_cast<double>(one.sent.layout.live_bytes);
  }
  MESSAGE(with_transfers, " plans sent ", transfers, " activations; arena over live bytes ",
          waste / test_networks);
  CHECK(with_transfers > test_networks / 2);
  CHECK(waste < 1.05 * test_networks);
  CHECK(with_loops > test_networks / 20);
  if (!test_sanitized) CHECK(on_threads == 0x1FFFE);  // 1 to 16
}

constexpr int often = test_sanitized ? 5 : 20;

/// How often, and not more often than that, a run of `mutated` is noticed: other bits, or an error.
template <class Mutate>
int noticed(const Mutate& mutate) {
  int count = 0;
  for (unsigned seed = 5000; seed < 5100 && count < often; ++seed) {
    Case one(seed, 1);
    if (!mutate(one.sent.schedule)) continue;
    Paged room(one.sent.schedule.store_bytes);
    MemoryStore store(Bytes(room.data, Shape(one.sent.schedule.store_bytes)));
    store.hostile = true;
    count += !same_bits(run(one.network, one.retained, 1, 0x5A, {}),
                        run(one.network, one.sent, 1, 0x5A, store));
  }
  return count;
}

TEST_CASE("a missing wait is noticed" * doctest::test_suite("one_thread")) {
  for (const Op op : {Op::write_wait, Op::read_wait})
    CHECK(noticed([&](Schedule& schedule) {
            for (Instruction& inst : schedule.instructions)
              if (inst.op == op) {
                inst.op = Op::hand_over;  // which does nothing
                return true;
              }
            return false;
          }) == often);
}

TEST_CASE("what a store can be wrong in") {
  const Case one(5003, 1);
  REQUIRE(one.sent.schedule.store_bytes > 0);
  auto step = Step<>::make(dispatch_of(one.network), one.sent);
  REQUIRE(step);
  Paged arena(step->arena_bytes()), room(step->store_bytes());
  const std::size_t elems = step->graph().parameter_elems;
  step_run::Aligned params(elems * 4), gradients(elems * 4);
  MemoryStore store(Bytes(room.data, Shape(step->store_bytes())));
  const auto bind = [&](std::byte* memory, StoreRef lent) {
    return std::string(step->bind({memory, Shape(step->arena_bytes())},
                                  {reinterpret_cast<float*>(params.data), Shape(elems)},
                                  {reinterpret_cast<float*>(gradients.data), Shape(elems)}, lent)
                           .text());
  };
  CHECK(bind(arena.data, {}).find("bind() must lend one with room for") != std::string::npos);
  CHECK(bind(arena.data + 64, store).find("must start 4096-byte aligned") != std::string::npos);
  MemoryStore small(Bytes(room.data, Shape(step->store_bytes() - 1)));
  CHECK(bind(arena.data, small).find("which has room for") != std::string::npos);
  struct Coarse : MemoryStore {
    using MemoryStore::MemoryStore;
    std::size_t alignment() const { return 8192; }
  } coarse(Bytes(room.data, Shape(step->store_bytes())));
  CHECK(bind(arena.data, coarse).find("aligned to 8192 bytes") != std::string::npos);
  CHECK(bind(arena.data, store) == "");
}

TEST_CASE("a transfer that fails ends the step as an error value; the next step is as good as new" *
          doctest::test_suite("one_thread")) {
  const Backwards executor{1};
  for (unsigned seed = 5000; seed < (test_sanitized ? 5010 : 5030); ++seed) {
    const Case one(seed, 1);
    const std::size_t count = one.sent.schedule.transfers.size();
    if (count == 0) continue;
    Paged room(one.sent.schedule.store_bytes);
    MemoryStore store(Bytes(room.data, Shape(one.sent.schedule.store_bytes)));
    store.failure = Error::say("the link broke");
    const Ran expected = run(one.network, one.retained, 1, 0x5A, {});
    // The same step all along.
    Bound sent(one.network, one.sent, ExecutorRef(executor), 0x5A, store);
    for (std::uint64_t fail_from = 0; fail_from < 2 * count; ++fail_from) {
      CAPTURE(seed);
      CAPTURE(fail_from);
      store.failure = Error::say("the link broke");
      store.fail_from = store.begun() + fail_from;
      store.fail_to = fail_from % 2 == 0 ? store.fail_from + 1 : ~std::uint64_t{0};
      const Ran failed = sent.run();
      REQUIRE_FALSE(failed.loss);
      CHECK(std::string(failed.loss.error.text()) == "the link broke");
      CHECK(std::string(sent.step().error().text()) == "the link broke");
      store.failure = {};
      const Ran next = sent.run();
      CHECK(same_bits(expected, next));
      CHECK(next.guard_intact);
      CHECK_FALSE(sent.step().error());
    }
  }
}

/// Three layers, repeated, under one policy, written in types.
template <class Kept>
struct Typed {
  using Block = Sequential<Layer<random_model::Bump, Kept>, Layer<random_model::Shift, Kept>,
                           Layer<random_model::Softsign, Kept>>;
  Network<Sequential<Repeat<Block>, Layer<random_model::Shift>>, random_model::HalfSquare> net{
      {{16, {{}, {}, {}}}, {}}, {}};
  Program program = *make_program(net, Shape(16, 192), {.workers = 2, .parts = 2});
};

TEST_CASE("what is encoded and sent has the bits of what is encoded and kept") {
  const Backwards executor{2};
  const Typed<Compress<Int8Outlier>> kept;
  const Typed<Offload<Compress<Int8Outlier>>> sent;
  const Typed<Retain> retained;
  REQUIRE(sent.program.schedule.transfers.size() >= 6);
  for (const Transfer& transfer : sent.program.schedule.transfers)
    CHECK(transfer.bytes < 16 * 192 * sizeof(float) / 2);  // blobs travel
  CHECK(sent.program.peak_bytes() < kept.program.peak_bytes());
  Paged room(sent.program.schedule.store_bytes);
  MemoryStore store(Bytes(room.data, Shape(sent.program.schedule.store_bytes)));
  store.hostile = true;
  const auto ran = [&](const auto& typed, StoreRef lent) {
    return Bound(make_dispatch<float, Cpu>(typed.net), typed.program, ExecutorRef(executor), 0x5A,
                 lent)
        .run();
  };
  const Ran expected = ran(kept, {}), got = ran(sent, store);
  CHECK(same_bits(expected, got));
  CHECK(got.guard_intact);
  CHECK(got.used <= sent.program.peak_bytes());
  CHECK_FALSE(same_bits(expected, ran(retained, {})));  // there is something to be seen
}

TEST_CASE("a room that is too small is refused, with what it takes") {
  const Case one(5003, 1);
  const Graph& graph = one.sent.graph;
  Plan plan = one.sent.plan;
  plan.room_bytes = 64;
  const auto refused = make_program(graph, plan);
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error.text())
            .find("to stay within 64 bytes of live bytes, and needs at "
                  "least") != std::string::npos);
}

}}  // namespace offload_test
