// SPDX-License-Identifier: MIT
// Layers on pictures beside convolutions: pooling, group norm, activations by mask, concatenation.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/layer/channels.hpp>
#include <adacc/layer/conv2d.hpp>
#include <adacc/layer/group_norm.hpp>
#include <adacc/layer/hard_swish.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/pool2d.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/relu6.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "layer_run.hpp"

namespace pictures_test {

using namespace adacc;

namespace {

bool says(const Error& error, const char* text) {
  return std::string(error.text()).find(text) != std::string::npos;
}

template <class F>
void check_layer(const F& f, std::initializer_list<Shape> shapes, Shape large,
                 bool skip_kinks = false) {
  for (const Shape shape : shapes) {
    const auto result =
        testing::gradient_check(f, shape, {.max_elements = 60, .skip_kinks = skip_kinks});
    CHECK_MESSAGE(result.passed, result.text());
    CHECK(result.compared > 0);
  }
  const auto serial = layer_tests::run<float>(f, large, 0);
  const auto exact = layer_tests::run<double>(f, large, 0);
  CHECK(layer_tests::distance(serial.y, exact.y) < 1e-5);
  CHECK(layer_tests::distance(serial.dx, exact.dx) < 1e-4);
  CHECK(layer_tests::distance(serial.gradients, exact.gradients) < 2e-4);
  for (int workers = 1; workers <= 3; ++workers)
    CHECK(serial == layer_tests::run<float>(f, large, workers));
}

/// Forward, then backward with a dy of ones, of a layer without parameters.
struct Ran {
  std::vector<float> y, dx;
};
template <class F>
Ran run_once(const F& f, Shape in, const std::vector<float>& x) {
  using Traits = layer_traits<F>;
  const Shape out = Traits::output_shape(f, in);
  testing::GuardedBlock given(in.elems() * 4), y(out.elems() * 4), dy(out.elems() * 4),
      dx(in.elems() * 4), aux(Traits::needs(f, in, {Dtype::f32}).aux);
  std::memcpy(given.data(), x.data(), given.size());
  for (std::size_t i = 0; i < out.elems(); ++i) dy.as<float>()[i] = 1;
  Cpu cpu;
  call_forward(f, cpu,
               ForwardCall<float>{.x = View<const float>(given.as<float>(), in),
                                  .y = View<float>(y.as<float>(), out),
                                  .aux = aux.bytes()});
  call_backward(f, cpu,
                BackwardCall<float>{.dy = View<const float>(dy.as<float>(), out),
                                    .dx = View<float>(dx.as<float>(), in),
                                    .aux = ConstBytes(aux.data(), Shape(aux.size()))});
  CHECK(aux.intact());
  const float* const first = y.as<float>();
  const float* const slope = dx.as<float>();
  return {{first, first + out.elems()}, {slope, slope + in.elems()}};
}

}  // namespace

TEST_CASE("pooling: gradients, float near double, bits on any number of threads, in parts") {
  check_layer(MaxPool2d{}, {Shape(2, 4, 6, 3), Shape(3, 5, 3, 1)}, Shape(3, 18, 20, 70));
  check_layer(MaxPool2d{.kernel = 3, .stride = 2, .padding = 1}, {Shape(2, 6, 5, 3)},
              Shape(2, 17, 16, 33));
  check_layer(MaxPool2d{.kernel = {1, 5}, .stride = {2, 1}, .padding = {0, 4}}, {Shape(2, 3, 6, 2)},
              Shape(2, 9, 9, 5));
  check_layer(MaxPool2d{.kernel = 17, .stride = 3}, {Shape(1, 18, 20, 2)}, Shape(2, 20, 20, 3));
  check_layer(MeanPool2d{}, {Shape(2, 4, 6, 3), Shape(3, 5, 3, 1)}, Shape(3, 18, 20, 70));
  check_layer(MeanPool2d{.kernel = 3, .stride = 2, .padding = 1}, {Shape(2, 6, 5, 3)},
              Shape(2, 17, 16, 33));
  check_layer(MeanOverPicture{}, {Shape(2, 3, 4, 5), Shape(1, 1, 1, 1)}, Shape(5, 9, 8, 70));
}

TEST_CASE("max pooling: the first of equal maxima gets the gradient; a NaN is the largest") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Ran ran = run_once(MaxPool2d{}, Shape(1, 2, 6, 1),
                           {1, 7, 2, 2, nan, 9,  //
                            7, 3, 2, 1, 5, 8});
  CHECK(ran.y[0] == 7);
  CHECK(ran.y[1] == 2);
  CHECK(std::isnan(ran.y[2]));
  CHECK(ran.dx == std::vector<float>{0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  const Ran margin = run_once(MaxPool2d{.kernel = 2, .padding = 1}, Shape(1, 2, 2, 1),
                              {-1, -2, -3, -4});  // a margin is not 0
  CHECK(margin.y == std::vector<float>{-1, -2, -3, -4});
}

TEST_CASE("pooling: what is kept for backward, and bad sizes in words") {
  const Shape in(2, 8, 8, 16);
  static_assert(MaxPool2d{}.needs(Shape(2, 8, 8, 16), {Dtype::f32}).aux == 2 * 4 * 4 * 16 / 4);
  static_assert(MaxPool2d{.kernel = 3}.needs(Shape(2, 9, 9, 16), {Dtype::f64}).aux ==
                2 * 3 * 3 * 16 / 2);
  CHECK(says(MaxPool2d{.kernel = 9}.needs(in, {}).error, "reaches over 9 x 9"));
  CHECK(says(MaxPool2d{.kernel = 2, .padding = 2}.needs(in, {}).error, "without a pixel"));
  CHECK(
      says(MeanPool2d{.kernel = 2, .padding = {0, 2}}.needs(in, {}).error, "less than the kernel"));
  CHECK(says(MaxPool2d{.kernel = 300}.needs(Shape(1, 300, 300, 1), {}).error, "more than 65536"));
  CHECK(says(MaxPool2d{}.needs(Shape(8, 8), {}).error, "expected (batch, height, width"));
  CHECK(says(MeanOverPicture{}.needs(Shape(2, 8, 16), {}).error, "expected (batch, height, width"));
}

TEST_CASE("group norm: gradients, float near double, bits on any number of threads, in parts") {
  for (const bool relu : {false, true})
    for (const std::size_t groups : {1U, 3U, 6U})
      check_layer(GroupNorm{.groups = groups, .relu = relu},
                  {Shape(2, 3, 2, 6), Shape(1, 2, 5, 12)}, Shape(3, 9, 11, 24));
  check_layer(GroupNorm{.groups = 5}, {Shape(2, 3, 3, 80)}, Shape(2, 7, 7, 160));
}

TEST_CASE(
    "group norm: gates of its ReLU are those of forward, whatever a codec makes of the input") {
  const Shape in(3, 5, 7, 20);  // the gates of a picture end within a byte
  const GroupNorm norm{.groups = 2, .relu = true};
  testing::GuardedBlock x(in.elems() * 4), lossy(in.elems() * 4), y(in.elems() * 4),
      values(40 * 4, 0), aux(norm.needs(in, {Dtype::f32}).aux);
  const auto numbers = [&](testing::GuardedBlock& block) {
    return View<float>(block.as<float>(), in);
  };
  for (std::size_t i = 0; i < in.elems(); ++i)
    x.as<float>()[i] = static_cast<float>(layer_tests::value(1, i));
  Parameter list[2];
  list[0].shape = list[1].shape = Shape(20);
  list[1].offset = 20;
  for (std::size_t c = 0; c < 20; ++c) values.as<float>()[c] = 1;
  const Params<const float> params(values.as<float>(), list, 2);
  Cpu cpu;
  testing::GuardedBlock blob(Int8Outlier::encoded_bytes(105, 20, Dtype::f32));
  const Shape matrix(105, 20);
  REQUIRE_FALSE(Int8Outlier::encode(cpu, View<const float>(x.as<float>(), matrix), blob.bytes()));
  REQUIRE_FALSE(Int8Outlier::decode(cpu, blob.bytes(), View<float>(lossy.as<float>(), matrix)));

  const auto forward = [&](testing::GuardedBlock& from, bool again) {
    testing::GuardedBlock workspace(norm.needs(in, {Dtype::f32, 1, Pass::forward}).workspace);
    norm.forward(cpu, ForwardCall<float>{.x = numbers(from),
                                         .y = numbers(y),
                                         .params = params,
                                         .aux = aux.bytes(),
                                         .workspace = workspace.bytes(),
                                         .again = again});
  };
  // The bias's gradient is the sum of dy where gates are open.
  const auto open = [&](testing::GuardedBlock& from, bool exact) {
    testing::GuardedBlock dy(in.elems() * 4), gradients(40 * 4, 0),
        workspace(norm.needs(in, {Dtype::f32, 1, Pass::backward}).workspace), dx(in.elems() * 4);
    for (std::size_t i = 0; i < in.elems(); ++i) dy.as<float>()[i] = static_cast<float>(i % 61 + 1);
    norm.backward(cpu, BackwardCall<float>{.x = numbers(from),
                                           .dy = numbers(dy),
                                           .dx = numbers(dx),
                                           .params = params,
                                           .dparams = Params<float>(gradients.as<float>(), list, 2),
                                           .aux = aux.bytes(),
                                           .workspace = workspace.bytes(),
                                           .exact_input = exact});
    return std::vector<float>(gradients.as<float>() + 20, gradients.as<float>() + 40);
  };
  forward(x, false);
  const std::vector<float> expected = open(x, true);
  CHECK(open(x, false) == expected);
  CHECK(open(lossy, true) != expected);
  CHECK(open(lossy, false) == expected);
  forward(lossy, true);  // a forward that runs again on what the codec left
  CHECK(open(lossy, false) == expected);
  CHECK(aux.intact());
}

TEST_CASE("group norm: every picture and group has mean 0 and variance 1 before weight and bias") {
  const Shape in(2, 4, 4, 6);
  testing::GuardedBlock x(in.elems() * 8), y(in.elems() * 8), values(16 * 8, 0);
  for (std::size_t i = 0; i < in.elems(); ++i) x.as<double>()[i] = 40 + layer_tests::value(1, i);
  Parameter list[2];
  list[0].shape = list[1].shape = Shape(6);
  list[1].offset = 8;
  for (std::size_t c = 0; c < 6; ++c) values.as<double>()[c] = 1;
  const GroupNorm norm{.groups = 2, .epsilon = 1e-12F};
  testing::GuardedBlock aux(norm.needs(in, {Dtype::f64}).aux),
      workspace(norm.needs(in, {Dtype::f64, 1, Pass::forward}).workspace);
  Cpu cpu;
  norm.forward(cpu,
               ForwardCall<double>{.x = View<const double>(x.as<double>(), in),
                                   .y = View<double>(y.as<double>(), in),
                                   .params = Params<const double>(values.as<double>(), list, 2),
                                   .aux = aux.bytes(),
                                   .workspace = workspace.bytes()});
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t g = 0; g < 2; ++g) {
      double sum = 0, squares = 0;
      for (std::size_t p = 0; p < 16; ++p)
        for (std::size_t c = 3 * g; c < 3 * g + 3; ++c) {
          const double v = y.as<double>()[(b * 16 + p) * 6 + c];
          sum += v;
          squares += v * v;
        }
      CHECK(sum / 48 == doctest::Approx(0).epsilon(1e-9));
      CHECK(squares / 48 == doctest::Approx(1));
    }
  CHECK(says(GroupNorm{.groups = 4}.needs(in, {}).error, "4 groups do not divide 6 channels"));
  CHECK(says(GroupNorm{.groups = 0}.needs(in, {}).error, "0 groups"));
  CHECK(says(GroupNorm{.groups = 2, .epsilon = 0}.needs(in, {}).error, "epsilon"));
  CHECK(
      says(GroupNorm{.groups = 2}.needs(Shape(4, 6), {}).error, "expected (batch, height, width"));
}

TEST_CASE("relu6, hard swish: gradients, bits on any number of threads, in parts") {
  for (const Shape shape : {Shape(1, 1), Shape(3, 7), Shape(5, 100)}) {
    const auto clipped = testing::gradient_check(Relu6{}, shape, {.input_scale = 4});
    CHECK_MESSAGE(clipped.passed, clipped.text());
    const auto swish = testing::gradient_check(HardSwish{}, shape, {.input_scale = 3});
    CHECK_MESSAGE(swish.passed, swish.text());
  }
  const Shape large{3, 50, 999};
  for (int workers = 1; workers <= 3; ++workers) {
    CHECK(layer_tests::run<float>(Relu6{}, large, 0) ==
          layer_tests::run<float>(Relu6{}, large, workers));
    CHECK(layer_tests::run<float>(HardSwish{}, large, 0) ==
          layer_tests::run<float>(HardSwish{}, large, workers));
    CHECK(layer_tests::run<float>(MaskedHardSwish{}, large, 0) ==
          layer_tests::run<float>(MaskedHardSwish{}, large, workers));
  }
  static_assert(Relu6{}.needs(Shape(3, 50, 999), {Dtype::f32}).aux == (3 * 50 * 999 + 7) / 8);
}

TEST_CASE("relu6, hard swish: values and slopes at and around the bends") {
  const std::vector<float> x = {-4, -3, -1.5F, 0, 1, 3, 5.5F, 6, 7};
  const Shape shape(x.size());
  const Ran clipped = run_once(Relu6{}, shape, x);
  CHECK(clipped.y == std::vector<float>{0, 0, 0, 0, 1, 3, 5.5F, 6, 6});
  CHECK(clipped.dx == std::vector<float>{0, 0, 0, 0, 1, 1, 1, 0, 0});
  const Ran masked = run_once(MaskedHardSwish{}, shape, x);
  CHECK(masked.y == std::vector<float>{0, 0, -0.375F, 0, 4 / 6.0F, 3, 5.5F, 6, 7});
  CHECK(masked.dx == std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(run_once(Relu6{}, Shape(1), {nan}).y[0]));
  CHECK(std::isnan(run_once(MaskedHardSwish{}, Shape(1), {nan}).y[0]));
}

TEST_CASE("channels: selected and placed") {
  check_layer(SelectChannels{.first = 1, .count = 3}, {Shape(2, 3, 5)}, Shape(130, 40));
  check_layer(PlaceChannels{.first = 2, .of = 9}, {Shape(2, 3, 5)}, Shape(130, 7));
  const Ran part =
      run_once(SelectChannels{.first = 1, .count = 2}, Shape(2, 3), {1, 2, 3, 4, 5, 6});
  CHECK(part.y == std::vector<float>{2, 3, 5, 6});
  const Ran placed = run_once(PlaceChannels{.first = 1, .of = 4}, Shape(2, 2), {1, 2, 3, 4});
  CHECK(placed.y == std::vector<float>{0, 1, 2, 0, 0, 3, 4, 0});
  CHECK(says(SelectChannels{.first = 4, .count = 2}.needs(Shape(2, 5), {}).error,
             "are not among the 5"));
  CHECK(says(SelectChannels{.first = 1}.needs(Shape(2, 5), {}).error, "0 channels"));
  CHECK(says(PlaceChannels{.first = 3, .of = 7}.needs(Shape(2, 5), {}).error, "do not fit into 7"));
}

TEST_CASE("concatenate: the output holds the input's channels and those made of them") {
  const Network net{Sequential{concatenate(3, 2, layer(Conv2d{.out = 4, .padding = 1}),
                                           layer(Relu{}), layer(Conv2d{.out = 2, .kernel = 1}))}};
  const Shape shape(2, 4, 4, 3);
  auto program = make_program(net, shape);
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  CHECK(step->graph().output() == Shape(2, 4, 4, 5));
  const std::size_t elems = step->graph().parameter_elems;
  testing::GuardedBlock arena(step->arena_bytes()), params(elems * 4), gradients(elems * 4, 0),
      x(shape.elems() * 4);
  for (std::size_t i = 0; i < elems; ++i) params.as<float>()[i] = layer_tests::value(1, i);
  for (std::size_t i = 0; i < shape.elems(); ++i) x.as<float>()[i] = layer_tests::value(2, i);
  REQUIRE_FALSE(step->bind(arena.bytes(), View<const float>(params.as<float>(), Shape(elems)),
                           View<float>(gradients.as<float>(), Shape(elems))));
  Cpu cpu;
  bool same = true, made = false;
  const auto ran = step->run(cpu, View<const float>(x.as<float>(), shape),
                             [&](View<const float> y, View<float> dy) -> double {
                               for (std::size_t pixel = 0; pixel < y.rows(); ++pixel) {
                                 for (std::size_t c = 0; c < 3; ++c)
                                   same = same && y.row(pixel)[c] == x.as<float>()[pixel * 3 + c];
                                 made = made || (y.row(pixel)[3] != 0 && y.row(pixel)[4] != 0);
                               }
                               for (float& element : dy) element = 1;
                               return 0;
                             });
  REQUIRE_MESSAGE(ran, ran.error.text());
  CHECK(same);
  CHECK(made);
  CHECK(arena.intact());
  const auto wrong = make_graph(
      Network{Sequential{concatenate(3, 2, layer(Conv2d{.out = 3, .kernel = 1}))}}, shape);
  CHECK(says(wrong.error, "do not fit into 5"));
}

}  // namespace pictures_test
