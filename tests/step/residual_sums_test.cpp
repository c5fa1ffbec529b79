// SPDX-License-Identifier: MIT
#include "step_run.hpp"

namespace residual_sums_test {

using namespace adacc;
using namespace step_run;

namespace {

/// A layer that forms residual sums beside its own work, as a twin may.
struct Adding {
  LayerDispatch<float, Cpu> layer;

  static void add(View<const float> from, View<float> to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  }
  static void forward(const void* self, Cpu& cpu, const ForwardCall<float>& call) {
    const auto& layer = static_cast<const Adding*>(self)->layer;
    layer.forward(layer.functor, cpu, call);
    add(call.added, call.y);
  }
  static void backward(const void* self, Cpu& cpu, const BackwardCall<float>& call) {
    const auto& layer = static_cast<const Adding*>(self)->layer;
    layer.backward(layer.functor, cpu, call);
    add(call.added, call.dx);
  }
};

/// The program with all sums formed by layers.
Program with_sums(const Program& program) {
  Graph graph = program.graph;
  for (Node& node : graph.nodes) node.adds_residual = node.adds_gradient = true;
  auto made = make_program(graph, program.plan);
  REQUIRE_MESSAGE(made, made.error.text());
  return *made;
}

struct Small {
  template <class T>
  void forward(Cpu&, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / 2;
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    forward(cpu, dy, dx);
  }
  static constexpr auto backward_reads = reads::none;
};
/// The same with a twin that forms sums.
struct Twinned : Small {};

}  // namespace

}  // namespace residual_sums_test

template <>
struct adacc::kernel<residual_sums_test::Twinned, adacc::Cpu> {
  static constexpr bool adds_residual = true, adds_gradient = true;
  template <class T>
  static void forward(const residual_sums_test::Twinned& f, Cpu& cpu, const ForwardCall<T>& call) {
    f.forward(cpu, call.x, call.y);
    residual_sums_test::Adding::add(call.added, call.y);
  }
  template <class T>
  static void backward(const residual_sums_test::Twinned& f, Cpu& cpu,
                       const BackwardCall<T>& call) {
    f.backward(cpu, call.dy, call.dx);
    residual_sums_test::Adding::add(call.added, call.dx);
  }
};

namespace residual_sums_test {

TEST_CASE("layers that form residual sums give the step's bits under any plan") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const auto network = random_model::draw(seed, true);
    const auto program = make_program(network, random_model::draw_shape(seed), {.workers = 2});
    REQUIRE_MESSAGE(program, program.error.text());
    auto dispatch = make_dispatch<float, Cpu>(network);
    const Program sums = with_sums(*program);
    if (sums.schedule.instructions.size() < program->schedule.instructions.size())
      CHECK(std::string(Step<>::make(network, sums).error.text()).find("adds residual sums") !=
            std::string::npos);
    Array<Adding> adding(dispatch.layers.size());
    for (std::size_t i = 0; i < adding.size(); ++i) {
      adding[i].layer = dispatch.layers[i];
      dispatch.layers[i] = {&adding[i], &Adding::forward, &Adding::backward, nullptr, true, true};
    }
    const Outcome expected = run_program(network, *program, 2, 0x5A, whole);
    const Outcome outcome = run_made(
        Step<>::make(static_cast<Dispatch<float, Cpu>&&>(dispatch), sums), sums, 2, 0x5A, whole);
    CHECK(same_bits(outcome, expected));
    CHECK(outcome.used <= sums.peak_bytes());
    CHECK(outcome.guard_intact);
  }
}

template <class F>
using Chain = Network<Sequential<Residual<Layer<F>, Residual<Layer<F>, Layer<F>>>,
                                 Residual<Layer<F, Recompute>, Layer<F>>>,
                      random_model::HalfSquare>;

TEST_CASE("a twin says that it forms residual sums") {
  const Shape shape(3, 5);
  const auto plain = make_program(Chain<Small>{}, shape, {.input_gradient = true}),
             twins = make_program(Chain<Twinned>{}, shape, {.input_gradient = true}),
             parts = make_program(Chain<Twinned>{}, shape, {.parts = 3, .input_gradient = true});
  REQUIRE(plain);
  REQUIRE(twins);
  REQUIRE(parts);
  // The sums behind the second and the third layer, of which one ends two Residuals, and three of gradients.
  const auto sums = [](const Program& program, bool fused) {
    std::size_t count = 0;
    for (const Instruction& inst : program.schedule.instructions)
      count += (fused ? inst.adds : inst.op == Op::add || inst.op == Op::add_gradient) ? 1 : 0;
    return count;
  };
  CHECK(sums(*plain, false) == 6);
  CHECK(sums(*twins, true) == 5);
  CHECK(sums(*twins, false) == 1);
  CHECK(sums(*parts, true) == 0);  // layers in parts leave sums to the step
  CHECK(same_bits(run_program(Chain<Small>{}, *plain, 1, 0, whole),
                  run_program(Chain<Twinned>{}, *twins, 1, 0, whole)));
}

}  // namespace residual_sums_test
