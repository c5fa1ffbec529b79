// SPDX-License-Identifier: MIT
// A program in static storage is the program that make_program makes, and needs no heap.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../rough_codec.hpp"
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
constexpr auto make_whole = [] { return make_program(net, shape); };
constinit FixedProgram<decltype(make_whole)> fixed_whole;
constinit FixedMode<decltype(fixed_whole), Mode::infer> fixed_infer(fixed_whole);
static_assert(fixed_infer.instruction_count < fixed_whole.instruction_count);
static_assert(sizeof fixed_infer < sizeof fixed_whole / 2, "there is one graph");
// Of the same, with a codec that judges what it encodes.
using Judged = Network<
    Sequential<Layer<random_model::Shift>, Repeat<Block>,
               Layer<random_model::Softsign, Compress<rough::Picky>>, Layer<random_model::Bump>>,
    random_model::HalfSquare>;
constexpr Judged judged{{{}, {3, {}}, {}, {}}, {}};
constexpr auto make_judged = [] { return make_program(judged, shape); };
constinit FixedProgram<decltype(make_judged)> fixed_judged;
static_assert(std::is_same_v<decltype(fixed_judged)::Abilities,
                             StepAbilities<false, false, false, false, true>>);
using NoAbilities = StepAbilities<false, false, false, false>;
static_assert(std::is_same_v<decltype(fixed_whole)::Abilities, NoAbilities>);
static_assert(std::is_same_v<decltype(fixed)::Abilities, StepAbilities<false, false, true, false>>);
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

namespace {

struct Bits {
  double loss = 0;
  std::vector<float> gradients;
};

float* floats(Aligned& block) { return reinterpret_cast<float*>(block.data); }

void fill(Aligned& params, Aligned& x) {
  for (std::size_t i = 0; i < fixed.parameter_elems; ++i)
    floats(params)[i] = 0.01F * static_cast<float>(i % 7);
  for (std::size_t i = 0; i < shape.elems(); ++i)
    floats(x)[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
}

struct Whole {
  template <class AnyStep>
  Result<double> operator()(AnyStep& step, Cpu& cpu, View<const float> input) const {
    return step.run(cpu, input, input);
  }
};
/// In slices of two parts each.
struct Slices {
  template <class Abilities>
  Result<double> operator()(Step<float, Cpu, Abilities>& step, Cpu& cpu,
                            View<const float> input) const {
    auto cursor = Cursor<float, Cpu, Abilities>::make(step);
    REQUIRE_MESSAGE(cursor, cursor.error.text());
    REQUIRE_FALSE(cursor->begin(input, input));
    while (cursor->active()) REQUIRE(cursor->run(cpu, 2));
    return cursor->loss();
  }
};

/// One step of `made`, which runs the fixed program or one like it.
template <class AnyStep, class Run = Whole>
Bits bits_of(Result<AnyStep> made, const Run& run = {}) {
  REQUIRE_MESSAGE(made, made.error.text());
  const std::size_t elems = fixed.parameter_elems, bytes = made->arena_bytes();
  Aligned arena(bytes), params(elems * 4), grads(elems * 4), x(shape.elems() * 4);
  std::memset(grads.data, 0, grads.size);
  fill(params, x);
  REQUIRE_FALSE(made->bind({arena.data, Shape(bytes)}, {floats(params), Shape(elems)},
                           {floats(grads), Shape(elems)}));
  Cpu cpu;
  const View<const float> input(floats(x), shape);
  const auto loss = run(*made, cpu, input);
  REQUIRE(loss);
  CHECK(*loss > 0);
  return {*loss, {floats(grads), floats(grads) + elems}};
}

template <class AnyStep, class Run = Whole, class Fixed>
Bits bits_of_fixed(Fixed& program) {
  FixedDispatch<float, Cpu, Fixed::layer_count> table;
  return bits_of(AnyStep::make(table.make(net), program.program()), Run());
}

void check_same(const Bits& a, const Bits& b) {
  CHECK(a.loss == b.loss);
  CHECK(a.gradients == b.gradients);
}

}  // namespace

TEST_CASE("a step over a fixed program and a fixed table has the bits of any other") {
  const Bits own = bits_of(Step<>::make(net, *make()));
  check_same(own, bits_of_fixed<Step<>>(fixed));
  check_same(own, bits_of_fixed<Step<float, Cpu, decltype(fixed)::Abilities>>(fixed));
  const Bits whole = bits_of(Step<>::make(net, *make_whole()));
  check_same(whole, bits_of_fixed<Step<>>(fixed_whole));
  check_same(whole, bits_of_fixed<Step<float, Cpu, NoAbilities>>(fixed_whole));
}

TEST_CASE("a cursor slices a step whose abilities are trimmed") {
  const Bits own = bits_of(Step<>::make(net, *make()));
  check_same(own, bits_of_fixed<Step<float, Cpu, decltype(fixed)::Abilities>, Slices>(fixed));
  const Bits whole = bits_of(Step<>::make(net, *make_whole()));
  check_same(whole, bits_of_fixed<Step<float, Cpu, NoAbilities>, Slices>(fixed_whole));
}

TEST_CASE("what a fixed program declines is noted in its own memory") {
  Program program = fixed_judged.program();
  REQUIRE(program.declinables.size() == 1);
  const Declinable* const noted = program.declinables.data();
  FixedDispatch<float, Cpu, decltype(fixed_judged)::layer_count> table;
  using Judging = Step<float, Cpu, decltype(fixed_judged)::Abilities>;
  const Bits own = bits_of(Step<>::make(judged, *make_judged()));
  check_same(own, bits_of(Judging::make(table.make(judged), static_cast<Program&&>(program))));
  CHECK(noted->now.errors.over > 0);
  CHECK(noted->now.kept != KeptAs::as_planned);
}

TEST_CASE("a fixed program in another mode shares the graph, and infers as any other") {
  const auto made = make_program(net, shape, {}, Mode::infer);
  REQUIRE(made);
  CHECK(fixed_infer.peak_bytes == made->peak_bytes());
  const Program train = fixed_whole.program(), infer = fixed_infer.program();
  CHECK(infer.mode == Mode::infer);
  CHECK(infer.graph.nodes.data() == train.graph.nodes.data());
  CHECK(infer.graph.parameters.data() == train.graph.parameters.data());
  CHECK(infer.graph.nodes.size() == made->graph.nodes.size());
  CHECK(infer.graph.ids.size() == made->graph.ids.size());
  CHECK(infer.graph.parameter_elems == made->graph.parameter_elems);
  REQUIRE(infer.schedule.instructions.size() == made->schedule.instructions.size());
  for (std::size_t i = 0; i < infer.schedule.instructions.size(); ++i)
    CHECK(same(infer.schedule.instructions[i], made->schedule.instructions[i]));

  const auto inferred = [](Result<Step<>> step) {
    REQUIRE_MESSAGE(step, step.error.text());
    Aligned arena(step->arena_bytes()), params(fixed.parameter_elems * 4), x(shape.elems() * 4);
    fill(params, x);
    REQUIRE_FALSE(step->bind({arena.data, Shape(step->arena_bytes())},
                             View<const float>(floats(params), Shape(fixed.parameter_elems))));
    Cpu cpu;
    REQUIRE(step->run(cpu, View<const float>(floats(x), shape), {}));
    const View<const float> out = step->output();
    CHECK(out.size() > 0);
    return std::vector<float>(out.data(), out.data() + out.size());
  };
  FixedDispatch<float, Cpu, decltype(fixed_infer)::layer_count> table;
  CHECK(inferred(Step<>::make(net, *made)) ==
        inferred(Step<>::make(table.make(net), fixed_infer.program())));
  check_same(bits_of(Step<>::make(net, *make_whole())), bits_of_fixed<Step<>>(fixed_whole));
}

TEST_CASE("a step refuses a program that it has no code for, in words") {
  const auto refused = [](const Result<Program>& program) {
    REQUIRE_MESSAGE(program, program.error.text());
    CHECK(Step<>::make(net, *program));
    const auto made = Step<float, Cpu, NoAbilities>::make(net, *program);
    CHECK_FALSE(made);
    return std::string(made.error.text());
  };
  CHECK(refused(make()) ==
        "the program runs layers in parts, and this Step has no code for that (its Abilities)");
  CHECK(refused(make_program(net, shape, {.updates = Updates::announced}))
            .find("says when gradients are complete") != std::string::npos);
  Graph graph = *make_graph(net, shape);
  Plan plan = plan_from_types(graph);
  plan.policies[0] = offload();
  CHECK(refused(make_program(graph, plan)).find("sends activations to a store") !=
        std::string::npos);
  for (const ParameterForm form : {ParameterForm::bf16, ParameterForm::with_copies}) {
    set_parameters(graph, form);
    CHECK(refused(make_program(graph, plan_from_types(graph)))
              .find("takes parameters in bfloat16, with copies") != std::string::npos);
  }
}

}  // namespace fixed_program_test
