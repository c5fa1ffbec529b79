// SPDX-License-Identifier: MIT
/// Steps with a store in slices, which end where they would wait; and steps that end early, which leave
/// nothing under way.
#include <doctest/doctest.h>
#include <adacc/step/cursor.hpp>

#include <optional>
#include <utility>

#include "../store/counting_store.hpp"
#include "../store/made_up_clock.hpp"
#include "../test_size.hpp"
#include "offload_case.hpp"

namespace offload_slices_test { namespace {

using namespace offload_case;
using sample::CountingStore;
using sample::MadeUpClock;

constexpr unsigned cases = test_sanitized ? 6 : 24;

/// A case and a store for it, over a link that moves a byte in a tick.
struct SlowCase {
  Case one;
  Paged room;
  MadeUpClock clock;
  CountingStore store;

  explicit SlowCase(unsigned seed)
      : one(seed, 1), room(one.sent.schedule.store_bytes),
        store(Bytes(room.data, Shape(one.sent.schedule.store_bytes))) {
    store.hostile = true;
    store.speed = {clock, &MadeUpClock::pass, &clock, 1, 1, 10};
  }
  SlowCase(const SlowCase&) = delete;

  std::size_t transfers() const { return one.sent.schedule.transfers.size(); }
};

TEST_CASE("a slice ends where it would wait for the store, whose clock does not pass meanwhile") {
  const Backwards executor{1};
  int waited = 0;
  for (const bool until_deadline : {true, false})
    for (unsigned seed = 5000; seed < 5000 + cases; ++seed) {
      CAPTURE(seed);
      SlowCase slow(seed);
      Bound bound(slow.one.network, slow.one.sent, ExecutorRef(executor), 0x5A, slow.store);
      const Ran got = bound.run([&](Step<>& step, Cpu& cpu, View<const float> input,
                                    View<const float> targets) -> Result<double> {
        auto cursor = Cursor<>::make(step);
        if (!cursor) return cursor.error;
        if (const Error why = cursor->begin(input, targets)) return why;
        for (;;) {
          const double before = slow.clock.time;
          const auto slice = until_deadline
                                 ? cursor->run_until(
                                       cpu, [] { return std::int64_t{0}; }, std::int64_t{1})
                                 : cursor->run(cpu, 1000000);
          CHECK(slow.clock.time == before);
          if (!slice) return slice.error;
          if (slice->ended) return cursor->loss();
          // It stands still for nothing else.
          REQUIRE(slice->waiting);
          const Op op = step.program().schedule.instructions[cursor->instruction()].op;
          REQUIRE((op == Op::write_wait || op == Op::read_wait));
          ++waited;
          slow.clock.time += 1000;  // transfers go on between slices
        }
      });
      CHECK(same_bits(run(slow.one.network, slow.one.retained, 1, 0x5A, {}), got));
      CHECK(slow.store.begun() == 2 * slow.transfers());
      CHECK(slow.store.under_way() == 0);
    }
  CHECK(waited > static_cast<int>(cases));
}

/// Runs parts of a step that has begun until it is about to run instruction `last`.
void run_to(Step<>& step, Cpu& cpu, std::size_t last) {
  for (Position at; at.instruction < last;) at = step.execute(cpu, at);
}

/// Calls `end(slow, step, bound)` at many moments of a step of some cases, at all of which something is
/// under way.
template <class End>
int stop_anywhere(const End& end) {
  const Backwards executor{1};
  int stopped = 0;
  for (unsigned seed = 5000; seed < 5000 + cases / 6; ++seed) {
    CAPTURE(seed);
    SlowCase slow(seed);
    for (std::size_t last = 1; last < slow.one.sent.schedule.instructions.size(); last += 3) {
      CAPTURE(last);
      Bound bound(slow.one.network, slow.one.sent, ExecutorRef(executor), 0x5A, slow.store);
      std::optional<Step<>> step(std::move(bound.step()));
      REQUIRE_FALSE(step->begin(bound.input(), bound.targets()));
      run_to(*step, bound.cpu(), last);
      if (slow.store.under_way() == 0) continue;
      ++stopped;
      end(slow, step, bound);
      CHECK(slow.store.under_way() == 0);
    }
  }
  return stopped;
}

TEST_CASE("a step that ends early waits for its transfers") {
  SUBCASE("abandoned") {
    CHECK(stop_anywhere([](SlowCase& slow, std::optional<Step<>>& step, Bound& bound) {
            step->abandon();
            CHECK(slow.store.under_way() == 0);
            // And has nothing that stands in the way of the next one.
            CHECK(step->run(bound.cpu(), bound.input(), bound.targets()));
          }) > 20);
  }
  SUBCASE("destroyed") {
    CHECK(stop_anywhere([](SlowCase&, std::optional<Step<>>& step, Bound&) { step.reset(); }) > 20);
  }
  SUBCASE("another one moves in") {
    CHECK(stop_anywhere([](SlowCase&, std::optional<Step<>>& step, Bound&) { *step = Step<>(); }) >
          20);
  }
  SUBCASE("moved itself: its transfers go along") {
    CHECK(stop_anywhere([](SlowCase& slow, std::optional<Step<>>& step, Bound&) {
            const int before = slow.store.under_way();
            std::optional<Step<>> there(std::move(*step));
            step.reset();
            CHECK(slow.store.under_way() == before);
            CHECK(there->active());
            there.reset();
          }) > 20);
  }
}

}}  // namespace offload_slices_test
