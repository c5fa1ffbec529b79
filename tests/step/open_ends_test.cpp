// SPDX-License-Identifier: MIT
/// A network cut in two: the first part ends without a loss, the second hands out the gradient of
/// its input, and together they compute the bits of the whole.
#include <doctest/doctest.h>

#include "step_run.hpp"

namespace open_ends_test { namespace {

using namespace adacc;
using step_run::Aligned;

/// One model behind another.
struct Both {
  using last_layer = random_model::Shift;
  random_model::Model first, second;

  template <class Visitor>
  void visit(Visitor& visitor) const {
    first.visit(visitor);
    second.visit(visitor);
  }
};

bool draws_noise(const random_model::Model& model) {
  for (const auto* items : {&model.before, &model.block, &model.after})
    for (const random_model::Item& item : *items)
      if (item.kind == random_model::Kind::noise) return true;
  return false;
}

/// A step in memory of its own, filled with a pattern and guarded at its end.
template <class Network>
struct Run {
  static constexpr std::size_t guard = 256;

  Run(const Network& network, Shape shape, const GraphOptions& options, const float* parameters,
      int fill)
      : pattern(fill), made(Step<>::make(network, *make_program(network, shape, options))),
        step(*made), elems(step.graph().parameter_elems), arena(step.arena_bytes() + guard),
        params(elems * 4), gradients(elems * 4) {
    std::memset(arena.data, pattern, arena.size);
    std::memset(gradients.data, 0, gradients.size);
    std::memcpy(params.data, parameters, elems * 4);
    const Error bound = step.bind({arena.data, Shape(step.arena_bytes())},
                                  {reinterpret_cast<float*>(params.data), Shape(elems)},
                                  {reinterpret_cast<float*>(gradients.data), Shape(elems)});
    REQUIRE_MESSAGE(!bound, bound.text());
  }

  /// The end of the last byte of the arena that changed.
  std::size_t used() const {
    std::size_t end = 0;
    for (std::size_t i = 0; i < arena.size; ++i)
      if (arena.data[i] != static_cast<std::byte>(pattern)) end = i + 1;
    return end;
  }

  int pattern;
  Result<Step<>> made;
  Step<>& step;
  std::size_t elems;
  Aligned arena, params, gradients;
};

TEST_CASE("two parts of a network compute the bits of the whole, inside their peaks") {
  int compared = 0, input_sums = 0;
  for (unsigned seed = 0; compared < 120; ++seed) {
    CAPTURE(seed);
    Both both{random_model::draw(seed, false).model, random_model::draw(seed + 1000, false).model};
    if (draws_noise(both.second)) continue;  // drawn by activation, whose numbers start again
    const Network first{both.first};
    const Network second{both.second, random_model::HalfSquare{}};
    const Network whole{both, random_model::HalfSquare{}};
    const Shape shape = random_model::draw_shape(seed);
    const int parts = 1 + static_cast<int>(seed % 3);
    const GraphOptions options{.parts = parts};
    std::vector<float> parameters(4096), input(shape.elems()), targets;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const View<const float> x(input.data(), shape);

    Cpu cpu;
    Run all(whole, shape, options, parameters.data(), 0x5A);
    targets.assign(all.step.graph().loss.targets.elems(), 0.3F);
    const View<const float> y(targets.data(), all.step.graph().loss.targets);
    const auto expected = all.step.run(cpu, x, y);
    REQUIRE(expected);

    std::size_t used[2] = {};
    for (const int pattern : {0x5A, 0xC3}) {
      Run left(first, shape, options, parameters.data(), pattern);
      Run right(second, left.step.graph().output(), {.parts = parts, .input_gradient = true},
                parameters.data() + left.elems, pattern);
      for (const Instruction& inst : right.step.program().schedule.instructions)
        input_sums +=
            inst.op == Op::add_gradient && inst.dx == right.step.program().schedule.input_gradient;
      const auto loss =
          left.step.run(cpu, x, [&](View<const float> met, View<float> gradient) -> double {
            const auto ran = right.step.run(cpu, met, y);
            REQUIRE_MESSAGE(ran, ran.error.text());
            const View<const float> back = right.step.input_gradient();
            REQUIRE(back.shape() == gradient.shape());
            std::memcpy(gradient.data(), back.data(), back.size() * sizeof(float));
            return *ran;
          });
      REQUIRE_MESSAGE(loss, loss.error.text());
      CHECK(std::memcmp(&*loss, &*expected, sizeof(double)) == 0);
      REQUIRE(left.elems + right.elems == all.elems);
      CHECK(std::memcmp(left.gradients.data, all.gradients.data, left.elems * 4) == 0);
      CHECK(std::memcmp(right.gradients.data, all.gradients.data + left.elems * 4,
                        right.elems * 4) == 0);
      used[0] = std::max(used[0], left.used());
      used[1] = std::max(used[1], right.used());
      if (pattern == 0x5A) continue;
      CHECK(used[0] == left.step.arena_bytes());
      CHECK(used[1] == right.step.arena_bytes());
      ++compared;
    }
  }
  MESSAGE(compared, " networks cut in two, ", input_sums / 2, " sums of their inputs' gradients");
  CHECK(input_sums > 20);
}

TEST_CASE("what a step without a loss can be asked, and what not") {
  const Network net{Sequential<Layer<random_model::Bump>, Layer<random_model::Shift>>{}};
  const float parameters[64] = {};
  Run run(net, Shape(2, 4), {}, parameters, 0);
  Cpu cpu;
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const View<const float> input(x, Shape(2, 4));
  const auto says = [](const Error& error, const char* words) {
    return std::strstr(error.text(), words) != nullptr;
  };
  CHECK(says(run.step.run(cpu, input, input).error, "the network has no loss: give run()"));
  CHECK(run.step.hand_over() + 1 < run.step.instruction_count());
  // By hand: forward, then the gradient, then backward.
  REQUIRE_FALSE(run.step.begin(input));
  Position at;
  while (at.instruction <= run.step.hand_over()) at = run.step.execute(cpu, at);
  CHECK(run.step.output()[0] == 0.5F);
  cpu.fill(run.step.output_gradient(), 1.0F);
  while (at.instruction < run.step.instruction_count()) at = run.step.execute(cpu, at);
  CHECK_FALSE(run.step.active());
  const auto* gradients = reinterpret_cast<const float*>(run.gradients.data);
  CHECK(gradients[0] == 2);  // of Shift's bias: one for each row

  const Network with_loss{net.model, random_model::HalfSquare{}};
  Run other(with_loss, Shape(2, 4), {}, parameters, 0);
  const auto meet = [](View<const float>, View<float>) -> double { return 0; };
  CHECK(says(other.step.run(cpu, input, meet).error, "this one takes targets"));
  CHECK(other.step.hand_over() == other.step.instruction_count());
  CHECK(says(Step<>::make(net, *make_program(with_loss, Shape(2, 4))).error,
             "ends with a loss, and the network has none"));

  auto infer = Step<>::make(net, *make_program(net, Shape(2, 4), {}, Mode::infer));
  REQUIRE(infer);
  REQUIRE_FALSE(infer->bind({run.arena.data, Shape(infer->arena_bytes())},
                            {reinterpret_cast<float*>(run.params.data), Shape(run.elems)}));
  CHECK(infer->run(cpu, input, input));
  CHECK(infer->output()[0] == 0.5F);
}

struct Table {
  using input_type = std::int32_t;
  static constexpr auto backward_reads = reads::none;
  static constexpr Shape output_shape(Shape in) { return in.append(4); }
  void forward(Cpu&, View<const std::int32_t>, View<float>) const {}
  void backward(Cpu&, View<const float>, View<float>) const {}
};

TEST_CASE("tokens have no gradient to hand out") {
  const Network net{Sequential<Layer<Table>>{}};
  const auto graph = make_graph(net, Shape(2, 3), {.input_gradient = true});
  CHECK(std::strstr(graph.error.text(), "so the step's input has no gradient") != nullptr);
}

}}  // namespace open_ends_test
