// SPDX-License-Identifier: MIT
// What parts of a call have in common fills gaps of the arena: it takes nothing that anybody else uses, and
// no byte more than there was.
#include <doctest/doctest.h>

#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <random>

#include "../step/random_model.hpp"

namespace packed_test {

using namespace adacc;

namespace {

/// The first two buffers that live at the same time in the same place; -1: there are none.
int overlap(const Program& program) {
  const auto& buffers = program.schedule.buffers;
  const auto& offsets = program.layout.offsets;
  for (std::size_t a = 0; a < buffers.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const bool together = buffers[a].first >= 0 && buffers[b].first >= 0 &&
                            buffers[a].first <= buffers[b].last &&
                            buffers[b].first <= buffers[a].last;
      if (together && offsets[a] < offsets[b] + buffers[b].bytes &&
          offsets[b] < offsets[a] + buffers[a].bytes)
        return static_cast<int>(a);
    }
  return -1;
}

struct Count {
  int wanted = 0, given = 0;
};

/// Compares a program with the one that leaves gaps empty.
void check(const Graph& graph, const Plan& plan, Count& count) {
  const auto program = make_program(graph, plan);
  const auto plain = detail::compile(graph, plan, Mode::train);
  REQUIRE(program);
  REQUIRE(plain);
  CHECK(program->layout.arena_bytes == plain->layout.arena_bytes);
  CHECK(program->layout.live_bytes == plain->layout.live_bytes);
  REQUIRE(program->layout.offsets.size() == program->schedule.buffers.size());
  CHECK(overlap(*program) == -1);
  const std::size_t old = plain->schedule.buffers.size();
  for (std::size_t b = 0; b < program->schedule.buffers.size(); ++b) {
    const Buffer& buffer = program->schedule.buffers[b];
    if (b < old) {
      CHECK(program->layout.offsets[b] == plain->layout.offsets[b]);
      continue;
    }
    CHECK(buffer.kind == BufferKind::packed);
    CHECK(program->layout.offsets[b] % alignment == 0);
    CHECK(program->layout.offsets[b] + buffer.bytes <= program->layout.arena_bytes);
    ++count.given;
  }
  for (std::size_t i = 0; i < program->schedule.instructions.size(); ++i) {
    const Instruction& inst = program->schedule.instructions[i];
    const std::size_t bytes = packed_bytes(graph, inst);
    count.wanted += bytes > 0;
    if (inst.packed < 0) continue;
    const Buffer& buffer = program->schedule.buffer(inst.packed);
    CHECK(buffer.bytes == bytes);
    const int at = static_cast<int>(i);
    const Loop around = inst.loop < 0
                            ? Loop{at, at, inst.parts}
                            : program->schedule.loops[static_cast<std::size_t>(inst.loop)];
    CHECK(buffer.first == around.first);
    CHECK(buffer.last == around.last);
  }
}

}  // namespace

TEST_CASE("random plans: packed weights take only what is free") {
  const auto block = Residual{layer(random_model::Softsign{}), layer(Linear{.out = 24}),
                              layer(random_model::Softsign{}), layer(Linear{.out = 16})};
  const Network net{
      Sequential{layer(Linear{.out = 16}), repeat(4, Sequential{block}), layer(Linear{.out = 2})},
      MeanSquaredError{}};
  Count count;
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int parts = seed % 4 == 0 ? 1 : 2 + static_cast<int>(random() % 4);
    const auto graph = make_graph(net, Shape(64, 8), {.parts = parts});
    REQUIRE_MESSAGE(graph, graph.error.text());
    Plan plan = retain_all(*graph);
    for (Policy& policy : plan.policies)
      if (random() % 2 == 0) policy = recompute();
    Count mine;
    check(*graph, plan, mine);
    CHECK((mine.wanted > 0) == (parts > 1));
    count.wanted += mine.wanted;
    count.given += mine.given;
  }
  MESSAGE(count.given, " of ", count.wanted, " calls in parts keep their weight packed");
  CHECK(count.given > count.wanted / 4);
  CHECK(count.given < count.wanted);  // the arena is full at some instructions
}

TEST_CASE("holes of an arena: what is removed may be partly gone already") {
  detail::FreeList free(100);
  free.remove(10, 20);
  free.remove(25, 15);  // half of it is gone
  free.remove(70, 10);
  CHECK(free.take(35, 1) == detail::FreeList::none);  // 0-10, 40-70, 80-100
  CHECK(free.take(30, 1) == 40);
  CHECK(free.take(15, 16) == 80);
  CHECK(free.take(10, 1) == 0);
  CHECK(free.take(6, 1) == detail::FreeList::none);
  free.remove(0, 100);
  CHECK(free.take(1, 1) == detail::FreeList::none);
}

}  // namespace packed_test
