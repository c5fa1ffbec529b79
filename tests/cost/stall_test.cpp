// SPDX-License-Identifier: MIT
/// Where a step waits for its store, and how long: predicted, and measured on a clock of the test's.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/cost/measure_link.hpp>

#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "../store/made_up_clock.hpp"

namespace stall_test { namespace {

using namespace adacc;
using sample::MadeUpClock;

using Hidden = Layer<plain::Linear, Offload<>>;
using Net = Network<Sequential<Repeat<Hidden>, Layer<plain::Linear>>, plain::MeanSquaredError>;
constexpr int layers = 8;
const Shape shape(64, 256);
const Net net{{{layers, {plain::Linear{.out = 256}}}, {plain::Linear{.out = 1}}}, {}};

/// A step that sends half of what it can, on a store with the given speed, whose layers take the
/// time on the store's clock that `profile` says.
struct Timed {
  MadeUpClock clock;
  Graph graph = *make_graph(net, shape);
  CostProfile profile = empty_profile(graph);
  Program program;
  Block<std::byte> arena, room;
  Block<float> params, gradients;
  MemoryStore store;
  Step<> step;

  explicit Timed(double rate, double latency = 0) {
    for (NodeCost& cost : profile.nodes) cost.forward = 1e-3, cost.backward = 2e-3;
    profile.loss = 1e-3;
    Plan plan = plan_from_types(graph);
    const std::size_t least = make_program(graph, plan)->layout.live_bytes;
    plan.room_bytes = (least + live_bytes(make_schedule(graph, plan))) / 2 / 64 * 64;
    program = *make_program(graph, plan);
    arena = *Block<std::byte>::make(program.peak_bytes(), "arena", huge_page);
    room = *Block<std::byte>::make(4 * MiB, "store", huge_page);
    params = *Block<float>::make(graph.parameter_elems, "parameters");
    gradients = *Block<float>::make(graph.parameter_elems, "gradients");
    store = MemoryStore(room.view());
    store.speed = {clock, &MadeUpClock::pass, &clock, rate, 2 * rate, latency};
    store.hostile = true;
    step = *Step<>::make(net, program);
  }

  Error bind() {
    if (Error why =
            step.bind({arena.data(), Shape(arena.size())}, params.view(), gradients.view(), store))
      return why;
    step.time_transfers(clock);
    return {};
  }

  /// One step; how long it took.
  double run() {
    Cpu cpu;
    const std::vector<float> x(shape.elems(), 0.5F), y(64, 1.0F);
    REQUIRE_FALSE(
        step.begin(View<const float>(x.data(), shape), View<const float>(y.data(), Shape(64, 1))));
    const double start = clock.time;
    for (Position at; at.instruction < step.instruction_count();) {
      const Instruction& inst = program.schedule.instructions[at.instruction];
      at = step.execute(cpu, at);
      clock.time += seconds_of(profile, program.plan, inst) / inst.parts;
    }
    REQUIRE_FALSE(step.error());
    return clock.time - start;
  }

  /// Predicted stalls in seconds, by instruction.
  std::vector<double> predicted(const LinkCost& link, PlanCost* cost = nullptr) const {
    std::vector<double> stalls(program.schedule.instructions.size());
    const PlanCost whole =
        evaluate(graph, profile, program.plan, program.schedule, link, [&](const LaneTime& time) {
          if (time.kind == LaneTime::Kind::stall) stalls[time.instruction] += time.seconds();
        });
    if (cost != nullptr) *cost = whole;
    return stalls;
  }

  /// Measured ones.
  std::vector<double> measured() const {
    std::vector<double> stalls(program.schedule.instructions.size());
    const TransferTimes& times = step.transfer_times();
    for (std::size_t i = 0; i < stalls.size(); ++i) {
      const Instruction& inst = program.schedule.instructions[i];
      if (inst.op == Op::write_wait)
        stalls[i] = times.writes[static_cast<std::size_t>(inst.transfer)].stall_seconds();
      if (inst.op == Op::read_wait)
        stalls[i] = times.reads[static_cast<std::size_t>(inst.transfer)].stall_seconds();
    }
    return stalls;
  }
};

double sum(const std::vector<double>& values) {
  double all = 0;
  for (const double value : values) all += value;
  return all;
}

TEST_CASE("stalls are where they were predicted, and as long, at any speed") {
  int stalled = 0, smooth = 0;
  for (const double rate : {4e6, 1.65e7, 5e7, 1.65e8, 1e10}) {
    CAPTURE(rate);
    Timed one(rate, 1e-5);
    REQUIRE(one.program.schedule.transfers.size() > 2);
    // The link as it is measured, not as the test knows it.
    auto memory = *Block<std::byte>::make(1 << 20, "memory", huge_page);
    const auto link =
        measure_link(one.store, memory.view(), 8 * KiB, 64 * KiB, {.clock = one.clock});
    REQUIRE_MESSAGE(link, link.error.text());
    REQUIRE_FALSE(one.bind());
    PlanCost cost;
    const std::vector<double> predicted = one.predicted(*link, &cost);
    CHECK(one.run() == doctest::Approx(cost.seconds - one.profile.rest).epsilon(0.01));
    const std::vector<double> measured = one.measured();
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(measured[i] - predicted[i]) <= std::max(0.01 * predicted[i], 1e-6));
      (predicted[i] > 0 ? stalled : smooth) +=
          one.program.schedule.instructions[i].op == Op::read_wait;
    }
    CHECK(sum(predicted) == doctest::Approx(cost.stall_seconds));
  }
  CHECK(stalled > 0);
  CHECK(smooth > 0);
}

TEST_CASE("lanes have no gap in computation, and no overlap on the link") {
  const Timed one(1e7);
  const LinkCost link{1e7, 2e7, 1e-4, 1e-4, 0};
  double now = 0, free = 0;
  std::vector<int> transfers;
  const PlanCost cost =
      evaluate(one.graph, one.profile, one.program.plan, one.program.schedule, link,
               [&](const LaneTime& time) {
                 REQUIRE(time.to > time.from);
                 if (time.kind != LaneTime::Kind::transfer) {
                   CHECK(time.from == now);
                   now = time.to;
                   return;
                 }
                 CHECK(time.from >= free);
                 free = time.to;
                 transfers.push_back(one.program.schedule.instructions[time.instruction].transfer);
               });
  CHECK(now == cost.seconds - one.profile.rest);
  CHECK(transfers.size() == 2 * one.program.schedule.transfers.size());
}

TEST_CASE("what is not timed takes no clock, and what is timed allocates before the step") {
  Timed one(1e7);
  REQUIRE_FALSE(one.bind());
  one.step.time_transfers({});
  one.run();
  CHECK(one.step.transfer_times().writes.empty());
  one.step.time_transfers(one.clock);
  for (const TransferTime& time : one.step.transfer_times().reads) CHECK_FALSE(time.known);
  one.run();
  for (const TransferTime& time : one.step.transfer_times().reads) CHECK(time.known);
}

}}  // namespace stall_test
