// SPDX-License-Identifier: MIT
/// What is concluded from transfers about the link, whatever they waited for.
#include <doctest/doctest.h>

#include <adacc/evolve/link_watch.hpp>

#include <random>

namespace link_watch_test { namespace {

using namespace adacc;

/// Sends `count` activations of random sizes and fetches them back, the last first. The order says
/// where they are waited for: right behind the next one's begin, or as late as can be.
Schedule make(std::mt19937& random, int count) {
  Schedule schedule;
  const auto add = [&](Op op, int t) {
    Instruction inst{op};
    inst.transfer = t;
    schedule.instructions.push_back(inst);
  };
  for (int t = 0; t < count; ++t) {
    schedule.transfers.push_back({t, 0, 4096 * (1 + random() % 16)});
    schedule.instructions.push_back(Instruction{Op::forward});
    add(Op::write_begin, t);
    if (t > 0) add(Op::write_wait, t - 1);
  }
  schedule.instructions.push_back(Instruction{Op::loss_gradient});
  add(Op::write_wait, count - 1);
  for (int t = count; t-- > 0;) {
    add(Op::read_begin, t);
    schedule.instructions.push_back(Instruction{Op::backward});
    if (t + 1 < count) add(Op::read_wait, t + 1);
  }
  add(Op::read_wait, 0);
  return schedule;
}

/// How its transfers go over `link` if an instruction takes `seconds`.
TransferTimes play(const Schedule& schedule, const LinkCost& link, double seconds) {
  TransferTimes times{Array<TransferTime>(schedule.transfers.size()),
                      Array<TransferTime>(schedule.transfers.size())};
  double now = 0, free = 0;
  Array<double> end(schedule.transfers.size());
  for (const Instruction& inst : schedule.instructions) {
    if (!is_transfer(inst.op)) {
      now += seconds;
      continue;
    }
    const auto t = static_cast<std::size_t>(inst.transfer);
    const bool write = inst.op == Op::write_begin || inst.op == Op::write_wait;
    TransferTime& time = (write ? times.writes : times.reads)[t];
    if (inst.op == Op::write_begin || inst.op == Op::read_begin) {
      const std::size_t bytes = schedule.transfers[t].bytes;
      time.begun = now;
      free = end[t] = (now > free ? now : free) +
                      (write ? link.write_seconds(bytes) : link.read_seconds(bytes));
      continue;
    }
    time.asked = now;
    time.stalled = end[t] > now;
    time.ended = now = time.stalled ? end[t] : now;
    time.known = true;
  }
  return times;
}

constexpr LinkCost planned{1e8, 2e8, 1e-5, 0, 0};

LinkCost times_slower(double writes, double reads) {
  LinkCost link = planned;
  link.write_rate /= writes;
  link.read_rate /= reads;
  return link;
}

/// Checks until it drifted, at most `most`.
int checks_until_drifted(LinkWatch& watch, const Schedule& schedule, const LinkCost& link,
                         double seconds, int most) {
  const EvolutionOptions options;
  for (int i = 1; i <= most * options.timed_steps; ++i) {
    watch.observe(schedule, play(schedule, link, seconds), planned, options);
    if (watch.drifted()) return i / options.timed_steps;
  }
  return most + 1;
}

TEST_CASE("a link that stalls is known to the bit of its stalls, each direction by itself") {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    CAPTURE(i);
    const Schedule schedule = make(random, 3 + i % 12);
    const double writes = 1.3 + 0.1 * i, reads = i % 2 == 0 ? 1 : 8.0 / (1 + i % 7);
    LinkWatch watch;
    const LinkCost link = times_slower(writes, reads);
    CHECK(checks_until_drifted(watch, schedule, link, 1e-9, 4) == 2);
    CHECK(watch.found(planned).write_rate == doctest::Approx(link.write_rate));
    CHECK(watch.found(planned).read_rate == doctest::Approx(link.read_rate));
    CHECK(watch.found(planned).latency == planned.latency);
  }
}

TEST_CASE("where some waits stall and others do not, the link is known as well") {
  std::mt19937 random(2);
  int stalls = 0, others = 0;
  for (int i = 0; i < 50; ++i) {
    CAPTURE(i);
    const Schedule schedule = make(random, 12);
    const LinkCost link = times_slower(4, 4);
    const TransferTimes times = play(schedule, link, 1.6e-3);
    int stalled = 0;
    for (const TransferTime& time : times.writes) stalled += time.stalled;
    stalls += stalled;
    others += 12 - stalled;
    if (stalled == 0) continue;
    LinkWatch watch;
    CHECK(checks_until_drifted(watch, schedule, link, 1.6e-3, 4) == 2);
    CHECK(watch.found(planned).write_rate == doctest::Approx(link.write_rate));
  }
  CHECK(stalls > 20);
  CHECK(others > 20);
}

TEST_CASE("a link that nobody waits for is never slower, and faster no further than was seen") {
  std::mt19937 random(3);
  const Schedule schedule = make(random, 8);
  {
    LinkWatch watch;
    CHECK(checks_until_drifted(watch, schedule, planned, 1, 8) == 9);
  }
  {  // far slower than planned, and still in time
    LinkWatch watch;
    CHECK(checks_until_drifted(watch, schedule, times_slower(3, 3), 1, 8) == 9);
  }
  // It would have stalled at the planned speed, and does not.
  const double tight = planned.write_seconds(4096 * 2);
  LinkWatch watch;
  const LinkCost link = times_slower(1e-3, 1e-3);
  CHECK(checks_until_drifted(watch, schedule, link, tight, 8) == 2);
  const LinkCost found = watch.found(planned);
  CHECK(found.write_rate > 1.25 * planned.write_rate);
  CHECK(found.write_rate <= link.write_rate);
  const LinkCost as_found{found.write_rate, found.read_rate, found.latency, 0, 0};
  for (const TransferTime& time : play(schedule, as_found, tight).writes)
    CHECK(time.stall_seconds() < 1e-9);
}

TEST_CASE("a steady link that wavers is no drift; a step or two are none either") {
  std::mt19937 random(4);
  const EvolutionOptions options;
  const Schedule schedule = make(random, 10);
  std::uniform_real_distribution<double> any(0.75, 1.3);
  LinkWatch watch;
  for (int i = 0; i < 2000; ++i) {
    const double now = i % 16 == 3 ? 20 : any(random);
    watch.observe(schedule, play(schedule, times_slower(now, now), 1e-9), planned, options);
    REQUIRE_FALSE(watch.drifted());
  }
}

TEST_CASE("what was not timed, failed or was not sent says nothing") {
  std::mt19937 random(5);
  const EvolutionOptions options;
  const Schedule schedule = make(random, 4);
  LinkWatch watch;
  for (int i = 0; i < 100; ++i) {
    watch.observe(schedule, {}, planned, options);
    watch.observe({}, {}, planned, options);
    TransferTimes times = play(schedule, times_slower(9, 9), 1e-9);
    for (TransferTime& time : times.writes) time.known = false;
    watch.observe(schedule, times, planned, options);
  }
  CHECK_FALSE(watch.drifted());
}

}}  // namespace link_watch_test
