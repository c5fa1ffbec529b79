// SPDX-License-Identifier: MIT
/// The store in memory: contract, made-up time, hostility and failures.
#include <doctest/doctest.h>
#include <adacc/core/block.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/testing/store_check.hpp>

#include <cstring>
#include <string>

#include "made_up_clock.hpp"

namespace memory_store_test { namespace {

using namespace adacc;
using sample::MadeUpClock;
using Direction = StoreTransfer::Direction;

struct Rig {
  Block<std::byte> room = *Block<std::byte>::make(1 << 16, "store");
  Block<std::byte> memory = *Block<std::byte>::make(1 << 12, "memory");
  MemoryStore store{Bytes(room.data(), Shape(room.size()))};
  MadeUpClock clock;

  StoreTransfer transfer(Direction direction, std::size_t bytes, std::size_t offset = 0) {
    return {direction, offset, Bytes(memory.data(), Shape(bytes))};
  }
  void take_time(double write_rate, double read_rate, double latency) {
    store.speed = {clock, &MadeUpClock::pass, &clock, write_rate, read_rate, latency};
  }
};

TEST_CASE("a store in memory keeps the contract, with and without time, hostile or not") {
  for (const bool timed : {false, true})
    for (const bool hostile : {false, true}) {
      Rig rig;
      if (timed) rig.take_time(1e6, 2e6, 1e-3);
      rig.store.hostile = hostile;
      const Error why = testing::check_store(rig.store);
      CHECK_MESSAGE(!why, why.text());
    }
}

TEST_CASE("transfers take their time one after the other") {
  Rig rig;
  rig.take_time(1000, 500, 0.25);
  REQUIRE_FALSE(rig.store.prepare(2, {}));
  rig.store.begin(0, rig.transfer(Direction::write, 1024));
  rig.store.begin(1, rig.transfer(Direction::read, 1024));
  CHECK_FALSE(rig.store.done(0));
  REQUIRE_FALSE(rig.store.wait(0));
  CHECK(rig.clock.time == doctest::Approx(0.25 + 1.024));
  CHECK(rig.store.done(0));
  CHECK_FALSE(rig.store.done(1));
  rig.clock.time = 100;
  CHECK(rig.store.done(1));
  REQUIRE_FALSE(rig.store.wait(1));
  CHECK(rig.clock.time == 100);
}

TEST_CASE("a hostile store punishes who does not wait") {
  Rig rig;
  rig.store.hostile = true;
  REQUIRE_FALSE(rig.store.prepare(1, {}));
  std::memset(rig.memory.data(), 7, 64);
  rig.store.begin(0, rig.transfer(Direction::write, 64));
  std::memset(rig.memory.data(), 8, 64);  // too early
  REQUIRE_FALSE(rig.store.wait(0));
  CHECK(rig.room[0] == std::byte{8});
  rig.store.begin(0, rig.transfer(Direction::read, 64));
  CHECK(rig.memory[63] == std::byte{0xFF});  // not there yet
  REQUIRE_FALSE(rig.store.wait(0));
  CHECK(rig.memory[63] == std::byte{8});
}

TEST_CASE("failures on request") {
  Rig rig;
  REQUIRE_FALSE(rig.store.prepare(1, {}));
  rig.store.failure = Error::say("the link broke");
  rig.store.fail_from = 1;
  rig.store.begin(0, rig.transfer(Direction::write, 64));
  CHECK_FALSE(rig.store.wait(0));
  rig.store.begin(0, rig.transfer(Direction::write, 64));
  CHECK(std::string(rig.store.wait(0).text()) == "the link broke");
  rig.store.failure = {};
  rig.store.begin(0, rig.transfer(Direction::write, 64));
  CHECK_FALSE(rig.store.wait(0));
  CHECK(rig.store.begun() == 3);
}

TEST_CASE("the checker sees a store that loses a write, or reads before it wrote") {
  struct Forgetful : MemoryStore {
    using MemoryStore::MemoryStore;
    void begin(int ticket, const StoreTransfer& what) {
      StoreTransfer less = what;
      if (what.memory.size() > 64)
        less.memory = Bytes(what.memory.data(), Shape(what.memory.size() - 64));
      MemoryStore::begin(ticket, less);
    }
  };
  Rig rig;
  Forgetful forgetful(Bytes(rig.room.data(), Shape(rig.room.size())));
  CHECK(std::string(testing::check_store(forgetful).text()).find("read back from offset") !=
        std::string::npos);
  MemoryStore small(Bytes(rig.room.data(), Shape(128)));
  CHECK(std::string(testing::check_store(small).text()).find("has room for 128 bytes") !=
        std::string::npos);
}

}}  // namespace memory_store_test
