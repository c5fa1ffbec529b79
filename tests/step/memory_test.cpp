// SPDX-License-Identifier: MIT
// What a caller lends a step, and what is wrong with it: each is an error that says what is needed.
#include <doctest/doctest.h>

#include "step_run.hpp"

namespace memory_test {

using namespace adacc;
using namespace step_run;

namespace {

bool says(const Error& error, const char* words) {
  const bool found = std::string(error.text()).find(words) != std::string::npos;
  if (!found) MESSAGE(error.text());
  return found;
}

/// A step of a small network and memory for it, in which everything can be placed by hand.
struct Lent {
  random_model::Network net = random_model::draw(3, false);
  Step<> step;
  Aligned memory{1 << 16};
  std::size_t elems = 0, arena_bytes = 0;

  Lent() {
    auto program = make_program(net, Shape(4, 4));
    REQUIRE(program);
    auto made = Step<>::make(net, *program);
    REQUIRE(made);
    step = std::move(*made);
    elems = step.graph().parameter_elems;
    arena_bytes = step.arena_bytes();
    REQUIRE(elems > 0);
  }
  Bytes arena(std::size_t at = 0) { return {memory.data + at, Shape(arena_bytes)}; }
  View<float> floats(std::size_t at) {
    return {reinterpret_cast<float*>(memory.data + at), Shape(elems)};
  }
  /// Offsets that keep everything apart.
  std::size_t params_at() const { return align_up(arena_bytes); }
  std::size_t gradients_at() const { return params_at() + align_up(elems * 4); }
  View<const float> input(std::size_t at) {
    return {reinterpret_cast<const float*>(memory.data + at), Shape(4, 4)};
  }
  View<const float> targets(std::size_t at) {
    return {reinterpret_cast<const float*>(memory.data + at), step.graph().loss.targets};
  }
};

}  // namespace

TEST_CASE("spans that are too small") {
  Lent lent;
  const auto params = lent.floats(lent.params_at()), gradients = lent.floats(lent.gradients_at());
  const Bytes small(lent.memory.data, Shape(lent.arena_bytes - 1));
  CHECK(says(lent.step.bind(small, params, gradients), "needs an arena of"));
  CHECK(says(lent.step.bind(lent.arena(), View<const float>(params.data(), Shape(lent.elems - 1)),
                            gradients),
             "parameter elements"));
  CHECK(says(lent.step.bind(lent.arena(), params), "gradient elements"));
  CHECK(says(lent.step.begin(lent.input(0), lent.targets(0)), "bind() must"));
  CHECK(says(lent.step.bind(Bytes(nullptr, Shape(lent.arena_bytes)), params, gradients),
             "have no address"));
  CHECK_FALSE(lent.step.bind(lent.arena(), params, gradients));
}

TEST_CASE("spans that are misaligned") {
  Lent lent;
  const std::size_t p = lent.params_at(), g = lent.gradients_at();
  CHECK(says(lent.step.bind(lent.arena(4), lent.floats(p + 64), lent.floats(g + 64)),
             "the bytes of the arena must start 64-byte aligned, and they start 4 bytes behind"));
  CHECK(says(lent.step.bind(lent.arena(), lent.floats(p + 16), lent.floats(g + 64)),
             "the parameters must start 64-byte aligned"));
  CHECK(says(lent.step.bind(lent.arena(), lent.floats(p), lent.floats(g + 32)),
             "the gradients must start 64-byte aligned"));
  REQUIRE_FALSE(lent.step.bind(lent.arena(), lent.floats(p), lent.floats(g)));
  const std::size_t free = g + 4096;
  CHECK(says(lent.step.begin(lent.input(free + 2), lent.targets(free + 512)),
             "the elements of the input must start 4-byte aligned"));
  CHECK(says(lent.step.begin(lent.input(free), lent.targets(free + 513)),
             "the targets must start 4-byte aligned"));
}

TEST_CASE("spans that overlap") {
  Lent lent;
  const std::size_t p = lent.params_at(), g = lent.gradients_at();
  CHECK(says(lent.step.bind(lent.arena(), lent.floats(p - 64), lent.floats(g)),
             "the bytes of the arena"));
  CHECK(says(lent.step.bind(lent.arena(), lent.floats(p), lent.floats(p)),
             "; each needs memory of its own"));
  CHECK(says(lent.step.bind(lent.arena(64), lent.floats(g), lent.floats(0)), "overlap by"));
  // Touching is not overlapping.
  REQUIRE_FALSE(lent.step.bind(lent.arena(), lent.floats(p), lent.floats(g)));

  const std::size_t free = g + 4096;
  CHECK(says(lent.step.begin(lent.input(0), lent.targets(free)), "the elements of the input"));
  CHECK(says(lent.step.begin(lent.input(free), lent.targets(0)), "the targets"));
  CHECK(says(lent.step.begin(lent.input(g), lent.targets(free)), "the gradients"));
  CHECK(says(lent.step.begin(View<const float>(nullptr, Shape(4, 4)), lent.targets(free)),
             "have no address"));
  std::memset(lent.memory.data, 0, lent.memory.size);
  CHECK_FALSE(lent.step.begin(lent.input(free), lent.targets(free)));  // both are only read
}

TEST_CASE("inputs of another shape or type") {
  Lent lent;
  const std::size_t g = lent.gradients_at(), free = g + 4096;
  REQUIRE_FALSE(lent.step.bind(lent.arena(), lent.floats(lent.params_at()), lent.floats(g)));
  CHECK(says(
      lent.step.begin(View<const float>(lent.input(free).data(), Shape(2, 8)), lent.targets(free)),
      "the step takes an input of f32 (4, 4), and got f32 (2, 8)"));
  const std::int32_t tokens[16] = {};
  CHECK(says(lent.step.begin(View<const std::int32_t>(tokens, Shape(4, 4)), lent.targets(free)),
             "and got i32"));
  CHECK(says(lent.step.begin(lent.input(free),
                             View<const std::int32_t>(tokens, lent.step.graph().loss.targets)),
             "the loss takes targets of f32"));
}

TEST_CASE("a plan, or a program, of another graph") {
  using random_model::Bump, random_model::Shift, random_model::Softsign, random_model::Widen;
  using Loss = random_model::HalfSquare;
  const Network<Sequential<Layer<Shift>, Layer<Bump>>, Loss> net{};
  const auto graph = make_graph(net, Shape(4, 4));
  REQUIRE(graph);
  const Network<Sequential<Layer<Shift>, Layer<Bump>, Layer<Bump>>, Loss> longer{};
  const auto other = make_graph(longer, Shape(4, 4));
  REQUIRE(other);
  CHECK(says(make_program(*graph, retain_all(*other)).error,
             "the plan has 3 policies, and the graph has 2 activations"));
  CHECK(says(Step<>::make(net, *make_program(*other, retain_all(*other))).error,
             "made for another network"));
  // As many layers, but others.
  const Network<Sequential<Layer<Shift>, Layer<Softsign>>, Loss> alike{};
  CHECK(says(Step<>::make(alike, *make_program(net, Shape(4, 4))).error,
             "as layer 1 it has a layer bump"));
  const Network<Sequential<Layer<Shift>, Layer<Widen>>, Loss> wider{};
  CHECK(says(Step<>::make(net, *make_program(wider, Shape(4, 4))).error, "(4, 4) to (4, 8)"));
  CHECK(Step<>::make(net, *make_program(net, Shape(7, 3))));
}

}  // namespace memory_test
