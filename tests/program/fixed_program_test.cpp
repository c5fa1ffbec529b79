// SPDX-License-Identifier: MIT
// A program in static storage is the program that make_program makes, and needs no heap.
#include <doctest/doctest.h>

#include <string>

#include "../step/step_run.hpp"

namespace fixed_program_test {

using namespace adacc;
using namespace step_run;

namespace {

using Block = Residual<Layer<random_model::Bump, Recompute>, Layer<random_model::Shift>>;
using Net = Network<Sequential<Layer<random_model::Shift>, Repeat<Block>,
                               Layer<random_model::Bump, Compress<random_model::Verbatim>>,
                               Layer<random_model::Softsign>>,
                    random_model::HalfSquare>;
constexpr Net net{{{}, {3, {}}, {}, {}}, {}};
constexpr Shape shape(12, 16);
constexpr auto make = [] { return make_program(net, shape, {.parts = 3}); };
constinit FixedProgram<decltype(make)> fixed;
static_assert(fixed.layer_count == 5);
static_assert(fixed.peak_bytes == make()->peak_bytes());

bool same(const Instruction& a, const Instruction& b) {
  return a.op == b.op && a.again == b.again && a.node == b.node && a.parts == b.parts &&
         a.x == b.x && a.y == b.y && a.dx == b.dx && a.dy == b.dy && a.aux == b.aux &&
         a.workspace == b.workspace && a.blob == b.blob;
}

}  // namespace

TEST_CASE("a fixed program is the program") {
  const Program a = fixed.program();
  const auto made = make();
  REQUIRE(made);
  const Program& b = *made;
  CHECK(a.peak_bytes() == b.peak_bytes());
  CHECK(a.layout.live_bytes == b.layout.live_bytes);
  CHECK(a.mode == b.mode);
  CHECK(a.plan.version == b.plan.version);
  CHECK(a.schedule.output == b.schedule.output);
  CHECK(a.graph.parts == 3);
  CHECK(a.graph.input == b.graph.input);
  CHECK(a.graph.parameter_elems == b.graph.parameter_elems);
  CHECK(a.graph.loss.targets == b.graph.loss.targets);
  REQUIRE(a.schedule.instructions.size() == b.schedule.instructions.size());
  for (std::size_t i = 0; i < a.schedule.instructions.size(); ++i)
    CHECK(same(a.schedule.instructions[i], b.schedule.instructions[i]));
  REQUIRE(a.layout.offsets.size() == b.layout.offsets.size());
  for (std::size_t i = 0; i < a.layout.offsets.size(); ++i) {
    CHECK(a.layout.offsets[i] == b.layout.offsets[i]);
    CHECK(a.schedule.buffers[i].bytes == b.schedule.buffers[i].bytes);
  }
  REQUIRE(a.graph.nodes.size() == b.graph.nodes.size());
  for (std::size_t i = 0; i < a.graph.nodes.size(); ++i) {
    CHECK(std::string(a.graph.nodes[i].name) == b.graph.nodes[i].name);
    CHECK(a.graph.nodes[i].output == b.graph.nodes[i].output);
    CHECK(a.plan.policies[i] == b.plan.policies[i]);
    CHECK(a.exact[i] == b.exact[i]);
  }
  REQUIRE(a.graph.parameters.size() == b.graph.parameters.size());
  for (std::size_t i = 0; i < a.graph.parameters.size(); ++i)
    CHECK(a.graph.parameters[i].offset == b.graph.parameters[i].offset);
}

TEST_CASE("a step over a fixed program and a fixed table has the bits of any other") {
  FixedDispatch<float, Cpu, fixed.layer_count> table;
  auto lent = Step<>::make(table.make(net), fixed.program());
  REQUIRE_MESSAGE(lent, lent.error.text());
  auto own = Step<>::make(net, *make());
  REQUIRE(own);
  double losses[2] = {};
  std::vector<float> gradients[2];
  for (int k = 0; k < 2; ++k) {
    Step<>& step = k == 0 ? *lent : *own;
    const std::size_t elems = fixed.parameter_elems;
    Aligned arena(fixed.peak_bytes), params(elems * 4), grads(elems * 4), x(shape.elems() * 4);
    const auto floats = [](Aligned& block) { return reinterpret_cast<float*>(block.data); };
    std::memset(grads.data, 0, grads.size);
    for (std::size_t i = 0; i < elems; ++i) floats(params)[i] = 0.01F * static_cast<float>(i % 7);
    for (std::size_t i = 0; i < shape.elems(); ++i)
      floats(x)[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    REQUIRE_FALSE(step.bind({arena.data, Shape(fixed.peak_bytes)}, {floats(params), Shape(elems)},
                            {floats(grads), Shape(elems)}));
    Cpu cpu;
    const View<const float> input(floats(x), shape);
    const auto loss = step.run(cpu, input, input);
    REQUIRE(loss);
    losses[k] = *loss;
    gradients[k].assign(floats(grads), floats(grads) + elems);
  }
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0] > 0);
  CHECK(gradients[0] == gradients[1]);
}

}  // namespace fixed_program_test
