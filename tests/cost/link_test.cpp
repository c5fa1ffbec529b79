// SPDX-License-Identifier: MIT
/// Two lanes: predicted by simulation, and executed against a store on a clock of the test's.
#include <doctest/doctest.h>
#include <adacc/core/block.hpp>
#include <adacc/cost/link.hpp>
#include <adacc/cost/measure_drag.hpp>
#include <adacc/cost/measure_link.hpp>
#include <adacc/store/memory_store.hpp>

#include <string>

#include "../store/made_up_clock.hpp"

namespace link_test { namespace {

using namespace adacc;
using sample::MadeUpClock;

Instruction transfer(Op op, int number) {
  Instruction inst{op};
  inst.transfer = number;
  inst.blob = 0;
  return inst;
}

TEST_CASE("lanes meet at waits") {
  Schedule schedule;
  schedule.transfers.push_back({0, 0, 1000});
  schedule.transfers.push_back({1, 1000, 2000});
  for (const Instruction& inst :
       {Instruction{Op::forward}, transfer(Op::write_begin, 0), Instruction{Op::forward},
        transfer(Op::write_begin, 1), transfer(Op::write_wait, 0), Instruction{Op::loss_gradient},
        transfer(Op::write_wait, 1), transfer(Op::read_begin, 1), Instruction{Op::backward},
        transfer(Op::read_wait, 1), Instruction{Op::backward}})
    schedule.instructions.push_back(inst);
  const LinkCost link{1000, 2000, 0.5, 0.1, 0};
  Array<double> stalls(schedule.instructions.size());
  const StepTime time = simulate(
      schedule, link, [](const Instruction&) { return 1.0; },
      [&](const LaneTime& lane) {
        if (lane.kind == LaneTime::Kind::stall) stalls[lane.instruction] = lane.seconds();
      });
  // forward 1; begin 1.1, link 1.1 to 2.6; forward 2.1; begin 2.2, link 2.6 to 5.1; wait until 2.6;
  // loss 3.6; wait until 5.1; begin 5.2, link 5.2 to 6.7; backward 6.2; wait until 6.7; 7.7.
  CHECK(time.seconds == doctest::Approx(7.7));
  CHECK(stalls[4] == doctest::Approx(0.4));
  CHECK(stalls[6] == doctest::Approx(1.5));
  CHECK(stalls[9] == doctest::Approx(0.5));
  CHECK(time.write_stall_seconds == doctest::Approx(1.9));
  CHECK(time.read_stall_seconds == doctest::Approx(0.5));
  CHECK(time.link_seconds == doctest::Approx(1.5 + 2.5 + 1.5));
  CHECK(time.written_bytes == 3000);
  CHECK(time.read_bytes == 2000);
}

TEST_CASE("a link is measured as it is") {
  auto room = *Block<std::byte>::make(1 << 20, "store");
  auto memory = *Block<std::byte>::make(1 << 20, "memory");
  MemoryStore store(Bytes(room.data(), Shape(room.size())));
  MadeUpClock clock;
  store.speed = {clock, &MadeUpClock::pass, &clock, 4e6, 8e6, 2e-3};
  const auto link = measure_link(store, memory.view(), 4096, 128 * KiB, {.clock = clock});
  REQUIRE_MESSAGE(link, link.error.text());
  CHECK(link->write_rate == doctest::Approx(4e6));
  CHECK(link->read_rate == doctest::Approx(8e6));
  CHECK(link->latency == doctest::Approx(2e-3));
  CHECK(link->begin == 0);
}

/// Tiles take a millisecond of the test's clock, and half of one more while the store is busy.
struct Slowed {
  MadeUpClock& clock;
  const MemoryStore& store;
  bool busy = true;
  int workers() const { return 2; }
  template <class Tile>
  void parallel(std::size_t tiles, const Tile&) const {
    for (std::size_t i = 0; i < tiles; ++i)
      clock.time += !busy || store.begun() == 0 || store.done(3) ? 1e-3 : 1.5e-3;
  }
};

TEST_CASE("what transfers take from computation is measured") {
  auto room = *Block<std::byte>::make(1 << 20, "store");
  auto memory = *Block<std::byte>::make(1 << 20, "memory");
  MemoryStore store(Bytes(room.data(), Shape(room.size())));
  MadeUpClock clock;
  constexpr std::size_t bytes = 64 * KiB;
  for (const double seconds : {4e-3, 12e-3, 1.0}) {  // of each transfer, all four: 16 ms and more
    CAPTURE(seconds);
    store.speed = {clock, &MadeUpClock::pass, &clock, bytes / seconds, bytes / seconds, 0};
    REQUIRE(!store.prepare(4, memory.view()));
    const LinkCost link{.write_rate = bytes / seconds, .read_rate = bytes / seconds};
    Slowed context{clock, store};
    const auto drag = measure_drag(context, store, memory.view(), bytes, link, {.clock = clock});
    REQUIRE_MESSAGE(drag, drag.error.text());
    // A third of the time for which they travel.
    CHECK(*drag * bytes / seconds == doctest::Approx(1.0 / 3).epsilon(0.05));
    context.busy = false;
    CHECK(*measure_drag(context, store, memory.view(), bytes, link, {.clock = clock}) == 0);
  }
  Cpu cpu;  // takes none of the clock's time
  store.speed.write_rate = store.speed.read_rate = 1e6;
  const LinkCost link{.write_rate = 1e6, .read_rate = 1e6};
  CHECK(*measure_drag(cpu, store, memory.view(), bytes, link, {.clock = clock}) == 0);
  CHECK(measure_drag(cpu, store, memory.view(), bytes, {}, {.clock = clock}).error);
  store.failure = Error::say("the link broke");
  Slowed context{clock, store};
  CHECK(std::string(measure_drag(context, store, memory.view(), bytes, link, {.clock = clock})
                        .error.text()) == "the link broke");
}

TEST_CASE("what cannot be measured") {
  auto room = *Block<std::byte>::make(1 << 16, "store");
  auto memory = *Block<std::byte>::make(1 << 16, "memory");
  MemoryStore store(Bytes(room.data(), Shape(room.size())));
  MadeUpClock clock;
  const auto why = [&](std::size_t small, std::size_t large, const LinkMeasurement& how) {
    return std::string(measure_link(store, memory.view(), small, large, how).error.text());
  };
  CHECK(why(4096, 8192, {}).find("takes a clock") != std::string::npos);
  CHECK(why(8192, 8192, {.clock = clock}).find("the smaller first") != std::string::npos);
  CHECK(why(4096, 64 * KiB, {.clock = clock}).find("takes memory and a store of 256.0 KiB") !=
        std::string::npos);
  CHECK(why(4096, 8192, {.clock = clock}).find("stood still") != std::string::npos);
  store.failure = Error::say("the link broke");
  CHECK(why(4096, 8192, {.clock = clock}) == "the link broke");
}

}}  // namespace link_test
