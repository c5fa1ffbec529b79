// SPDX-License-Identifier: MIT
/// Steps that send activations to a store: whatever is sent, the bits are those of retaining, and
/// the arena is not exceeded by a byte.
#include <doctest/doctest.h>
#include <adacc/store/memory_store.hpp>

#include "../test_size.hpp"
#include "step_run.hpp"

namespace offload_test { namespace {

using namespace adacc;
using step_run::Backwards;

/// Memory that starts where transfers can.
struct Paged {
  explicit Paged(std::size_t bytes)
      : size((bytes / transfer_alignment + 2) * transfer_alignment),
        data(static_cast<std::byte*>(std::aligned_alloc(transfer_alignment, size))) {}
  ~Paged() { std::free(data); }
  Paged(const Paged&) = delete;
  Paged& operator=(const Paged&) = delete;
  std::size_t size;
  std::byte* data;
};

/// Any mixture of policies that lose nothing.
Plan draw_plan(std::mt19937& random, const Graph& graph) {
  Plan plan = retain_all(graph);
  for (Policy& policy : plan.policies) {
    const Policy choices[] = {retain(), offload(),
                              keep({&codec_info<random_model::Verbatim>, Place::store}),
                              compress(&codec_info<random_model::Verbatim>), recompute()};
    policy = choices[random() % 5];
  }
  return plan;
}

struct Ran {
  Result<double> loss;
  std::vector<float> gradients;
  std::size_t used = 0;
  bool guard_intact = true;
};

/// A step with memory of its own, that may run more than once.
class Bound {
 public:
  Bound(const random_model::Network& network, const Program& program, ExecutorRef executor,
        int pattern, StoreRef store)
      : cpu_{executor}, pattern_(static_cast<std::byte>(pattern)),
        arena_(program.peak_bytes() + guard), params_(program.graph.parameter_elems * 4),
        gradients_(params_.size), input_(program.graph.input.elems()),
        targets_(program.graph.loss.targets.elems(), 0.3F) {
    cpu_.key.seed = 7;
    auto dispatch = make_dispatch<float, Cpu>(network);
    dispatch.add_codec<random_model::Verbatim>();
    auto step = Step<>::make(dispatch, program);
    REQUIRE_MESSAGE(step, step.error.text());
    step_ = std::move(*step);
    std::memset(arena_.data, pattern, arena_.size);
    const std::size_t elems = step_.graph().parameter_elems;
    auto* p = reinterpret_cast<float*>(params_.data);
    for (std::size_t i = 0; i < elems; ++i) p[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
    for (std::size_t i = 0; i < input_.size(); ++i)
      input_[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const Error bound =
        step_.bind({arena_.data, Shape(step_.arena_bytes())}, {p, Shape(elems)},
                   {reinterpret_cast<float*>(gradients_.data), Shape(elems)}, store);
    REQUIRE_MESSAGE(!bound, bound.text());
  }

  Step<>& step() { return step_; }
  Cpu& cpu() { return cpu_; }
  View<const float> input() const { return {input_.data(), step_.graph().input}; }
  View<const float> targets() const { return {targets_.data(), step_.graph().loss.targets}; }

  /// `drive(step, cpu, input, targets)` runs a step, from gradients that are zero.
  template <class Drive>
  Ran run(const Drive& drive) {
    std::memset(gradients_.data, 0, gradients_.size);
    Ran ran;
    ran.loss = drive(step_, cpu_, input(), targets());
    const auto* g = reinterpret_cast<const float*>(gradients_.data);
    ran.gradients.assign(g, g + step_.graph().parameter_elems);
    const std::size_t bytes = step_.arena_bytes();
    for (std::size_t i = 0; i < bytes + guard; ++i) {
      if (arena_.data[i] == pattern_) continue;
      if (i < bytes) ran.used = i + 1;
      else ran.guard_intact = false;
    }
    return ran;
  }
  Ran run() { return run(step_run::whole); }

 private:
  static constexpr std::size_t guard = 4096;
  Cpu cpu_;
  std::byte pattern_;
  Paged arena_;
  step_run::Aligned params_, gradients_;
  std::vector<float> input_, targets_;
  Step<> step_;  ///< goes before its memory
};

Ran run(const random_model::Network& network, const Program& program, int workers, int pattern,
        StoreRef store) {
  const Backwards executor{workers};
  return Bound(network, program, ExecutorRef(executor), pattern, store).run();
}

bool same_bits(const Ran& a, const Ran& b) {
  return a.loss && b.loss && std::memcmp(&*a.loss, &*b.loss, sizeof(double)) == 0 &&
         a.gradients.size() == b.gradients.size() &&
         (a.gradients.empty() || std::memcmp(a.gradients.data(), b.gradients.data(),
                                             a.gradients.size() * sizeof(float)) == 0);
}

/// One random network under one random plan with room for as much as `share` of what it could send.
struct Case {
  random_model::Network network;
  Program retained, sent;

  Case(unsigned seed, int workers) : network(random_model::draw(seed, false)) {
    std::mt19937 random(seed);
    const Shape shape(2 + seed % 7, 8 * (1 + seed % 60));
    const auto graph =
        make_graph(network, shape, {.workers = workers, .parts = 1 + static_cast<int>(seed % 3)});
    REQUIRE(graph);
    retained = *make_program(*graph, retain_all(*graph));
    Plan plan = draw_plan(random, *graph);
    const std::size_t least = make_program(*graph, plan)->layout.live_bytes;
    const std::size_t most = live_bytes(make_schedule(*graph, plan));
    if (most > least && random() % 3 != 0)
      plan.room_bytes = (least + random() % (most - least)) / 64 * 64 + 64;
    auto made = make_program(*graph, plan);
    if (!made) {  // a room between two that can be kept may itself be too small
      plan.room_bytes = 0;
      made = make_program(*graph, plan);
    }
    sent = *made;
    if (plan.room_bytes != 0) CHECK(sent.layout.live_bytes <= plan.room_bytes);
  }
};

TEST_CASE("1000 random plans with random transfers: no bit differs, no byte over") {
  unsigned with_transfers = 0, with_loops = 0;
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
    CHECK(a.guard_intact);
    CHECK(b.guard_intact);
    CHECK(std::max(a.used, b.used) <= one.sent.peak_bytes());
    const std::size_t count = one.sent.schedule.transfers.size();
    CHECK(store.begun() == 4 * count);
    transfers += count;
    with_transfers += count > 0;
    with_loops += count > 0 && !one.sent.schedule.loops.empty();
    for (const Instruction& run : one.sent.schedule.instructions)
      if (is_transfer(run.op)) CHECK(run.loop == -1);
    waste += static_cast<double>(one.sent.layout.arena_bytes) /
             static_cast<double>(one.sent.layout.live_bytes);
  }
  MESSAGE(with_transfers, " plans sent ", transfers, " activations; arena over live bytes ",
          waste / test_networks);
  CHECK(with_transfers > test_networks / 2);
  CHECK(waste < 1.05 * test_networks);
  CHECK(with_loops > test_networks / 20);
}

constexpr int often = 20;

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

TEST_CASE("a missing wait is noticed") {
  for (const Op op : {Op::write_wait, Op::read_wait})
    CHECK(noticed([&](Schedule& schedule) {
            for (Instruction& run : schedule.instructions)
              if (run.op == op) {
                run.op = Op::hand_over;  // which does nothing
                return true;
              }
            return false;
          }) == often);
}

TEST_CASE("what a store can be wrong in") {
  const Case one(5003, 1);
  REQUIRE(one.sent.schedule.store_bytes > 0);
  auto dispatch = make_dispatch<float, Cpu>(one.network);
  dispatch.add_codec<random_model::Verbatim>();
  auto step = Step<>::make(dispatch, one.sent);
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

TEST_CASE(
    "a transfer that fails ends the step as an error value; the next step is as good as new") {
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
