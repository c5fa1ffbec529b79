// SPDX-License-Identifier: MIT
/// Clocks with and without state, and deadlines on them.
#include <doctest/doctest.h>
#include <adacc/core/clock.hpp>
#include <adacc/core/steady_clock.hpp>

namespace clock_test { namespace {

using namespace adacc;

/// A second later every time it is asked.
struct Ticks {
  double time = 0;
  double operator()() { return time += 1; }
};

double function() { return 7; }

static_assert(!ClockRef());
static_assert(!Deadline().passed());
static_assert(ClockRef([] { return 2.0; })() == 2);

TEST_CASE("a clock is a function, a lambda without state, or an object with state") {
  CHECK(ClockRef(function)() == 7);
  const double before = ClockRef(steady_seconds)();
  CHECK(before <= steady_seconds());
  Ticks ticks;
  const ClockRef clock = ticks;
  CHECK(clock);
  CHECK(clock() == 1);
  CHECK(clock() == 2);
  CHECK(ticks.time == 2);
  int asked = 0;
  const auto counting = [&asked] { return static_cast<double>(++asked); };
  CHECK(ClockRef(counting)() == 1);
  const ClockRef copy = clock;
  CHECK(copy() == 3);
}

TEST_CASE("a deadline passes when its clock has reached it") {
  Ticks ticks;
  const Deadline deadline(ticks, 4);  // set at 1
  CHECK_FALSE(deadline.passed());     // 2
  CHECK(deadline.left() == 2);        // 3
  CHECK(deadline.elapsed() == 3);     // 4
  CHECK(deadline.passed());           // 5
  CHECK(deadline.left() == 0);
  ticks.time = 0;
  const Deadline whole(ticks, 9);           // from 1 to 10
  const Deadline sooner = whole.part(0.5);  // at 2, with 7 left: 5.5
  CHECK_FALSE(sooner.passed());             // 4
  CHECK_FALSE(sooner.passed());             // 5
  CHECK(sooner.passed());                   // 6
  CHECK_FALSE(whole.passed());
}

TEST_CASE("without a clock there is no deadline") {
  const Deadline never(ClockRef(), 0);
  CHECK_FALSE(never.passed());
  CHECK(never.left() > 1e100);
  CHECK(never.elapsed() == 0);
  CHECK_FALSE(never.part(0).passed());
}

}}  // namespace clock_test
