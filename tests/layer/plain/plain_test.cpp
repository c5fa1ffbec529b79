// SPDX-License-Identifier: MIT
// Layers in plain loops: gradients, agreement with their fast twins, and no more asked of a context
// than a device has.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/plain/conv1d.hpp>
#include <adacc/layer/plain/layer_norm.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_over_time.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/relu.hpp>
#include <adacc/layer/plain/row_sums.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/testing/archetypes.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../layer_run.hpp"

namespace plain_test {

using namespace adacc;

namespace {

template <class F>
void check_gradients(const F& f, std::initializer_list<Shape> shapes) {
  for (const Shape shape : shapes) {
    const auto result = testing::gradient_check(f, shape);
    CHECK_MESSAGE(result.passed, result.text());
    CHECK(result.compared > 0);
  }
}

template <class Plain, class Fast>
void check_twin(const Plain& plain, const Fast& fast, Shape shape) {
  const auto a = layer_tests::run<float>(plain, shape, 0);
  const auto b = layer_tests::run<double>(fast, shape, 0);
  CHECK(layer_tests::distance(a.y, b.y) < 1e-5);
  CHECK(layer_tests::distance(a.dx, b.dx) < 1e-5);
  CHECK(layer_tests::distance(a.gradients, b.gradients) < 2e-5);
}

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

using Signal =
    Sequential<Layer<plain::Conv1d>, Layer<plain::Relu, Recompute>, Layer<plain::Conv1d, Retain>,
               Layer<plain::Tanh>, Layer<plain::MeanOverTime>, Layer<plain::LayerNorm>,
               Layer<plain::Linear>>;

template <class Loss>
Network<Signal, Loss> signal_network(std::size_t out) {
  return {Signal{{plain::Conv1d{.out = 6, .kernel = 5, .stride = 2}},
                 {},
                 {plain::Conv1d{.out = 8}},
                 {},
                 {},
                 {},
                 {plain::Linear{.out = out}}},
          Loss{}};
}

struct Ran {
  double loss = 0;
  std::vector<float> gradients;
};

/// One step of the signal network; uncut or in slices.
template <class Context, class Loss, class Y>
Ran run(const Network<Signal, Loss>& net, Context& context, const std::vector<Y>& targets,
        int parts) {
  const Shape shape(5, 21, 3);
  auto program = make_program(net, shape, {.parts = parts});
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<float, Context>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  const std::size_t elems = step->graph().parameter_elems;
  testing::GuardedBlock arena(step->arena_bytes()), params(elems * 4), gradients(elems * 4, 0);
  testing::GuardedBlock x(shape.elems() * 4), y(targets.size() * sizeof(Y));
  for (std::size_t i = 0; i < elems; ++i) params.as<float>()[i] = 0.1F * layer_tests::value(1, i);
  for (std::size_t i = 0; i < shape.elems(); ++i) x.as<float>()[i] = layer_tests::value(2, i);
  std::memcpy(y.data(), targets.data(), y.size());
  REQUIRE_FALSE(step->bind(arena.bytes(), View<const float>(params.as<float>(), Shape(elems)),
                           View<float>(gradients.as<float>(), Shape(elems))));
  auto cursor = Cursor<float, Context>::make(*step);
  REQUIRE_FALSE(cursor->begin(View<const float>(x.as<float>(), shape),
                              View<const Y>(y.as<Y>(), step->graph().loss.targets)));
  while (cursor->active()) REQUIRE(cursor->run(context, 1));
  CHECK(arena.intact());
  CHECK(gradients.intact());
  const float* g = gradients.as<float>();
  return {cursor->loss(), std::vector<float>(g, g + elems)};
}

}  // namespace

TEST_CASE("plain layers: gradients against finite differences") {
  const std::initializer_list<Shape> rows = {Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 5}};
  check_gradients(plain::Linear{.out = 1}, rows);
  check_gradients(plain::Linear{.out = 6}, rows);
  check_gradients(plain::Relu{}, rows);
  check_gradients(plain::Tanh{}, rows);
  check_gradients(plain::LayerNorm{}, {Shape{3, 7}, Shape{2, 3, 5}});
  check_gradients(plain::MeanOverTime{}, {Shape{1, 1, 1}, Shape{3, 4, 5}});
  check_gradients(plain::Conv1d{.out = 3, .kernel = 1}, {Shape{2, 5, 2}});
  check_gradients(plain::Conv1d{.out = 4, .kernel = 3, .stride = 2},
                  {Shape{2, 3, 2}, Shape{3, 8, 3}});
  check_gradients(plain::Conv1d{.out = 2, .kernel = 2, .stride = 3}, {Shape{2, 9, 1}});
}

TEST_CASE("plain losses: gradients against finite differences") {
  std::vector<double> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = layer_tests::value(3, i);
  for (const Shape shape : {Shape{1, 1}, Shape{4, 6}, Shape{2, 3, 4}}) {
    auto result = testing::gradient_check_loss(plain::MeanSquaredError{}, shape,
                                               View<const double>(values.data(), shape));
    CHECK_MESSAGE(result.passed, result.text());
    if (shape.cols() < 2) continue;
    std::vector<std::int32_t> classes(shape.rows());
    for (std::size_t i = 0; i < classes.size(); ++i)
      classes[i] = static_cast<std::int32_t>(i * 5 % shape.cols());
    result = testing::gradient_check_loss(
        plain::SoftmaxCrossEntropy{}, shape,
        View<const std::int32_t>(classes.data(), detail::without_cols(shape)));
    CHECK_MESSAGE(result.passed, result.text());
  }
}

TEST_CASE("plain layers: four rows a turn, and each sum in the order of one at a time") {
  constexpr std::size_t count = 7;
  for (std::size_t rows = 1; rows < 11; ++rows) {
    std::vector<float> matrix(rows * count), x(count), first(rows), y(rows);
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = layer_tests::value(1, i);
    for (std::size_t i = 0; i < count; ++i) x[i] = layer_tests::value(2, i);
    for (std::size_t r = 0; r < rows; ++r) first[r] = layer_tests::value(3, r);
    std::vector<float> down = x, gradient = matrix;
    plain::sums::multiply(y.data(), first.data(), x.data(), matrix.data(), rows, count);
    plain::sums::add_rows(down.data(), first.data(), matrix.data(), rows, count);
    plain::sums::add_to_rows(gradient.data(), first.data(), x.data(), rows, count);

    std::vector<float> expected_down = x, expected_gradient = matrix, expected_y = first;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < count; ++i) {
        expected_y[r] += x[i] * matrix[r * count + i];
        expected_down[i] += first[r] * matrix[r * count + i];
        expected_gradient[r * count + i] += first[r] * x[i];
      }
    CAPTURE(rows);
    CHECK(y == expected_y);
    CHECK(down == expected_down);
    CHECK(gradient == expected_gradient);
  }
}

TEST_CASE("plain layers compute what their fast twins do") {
  for (const Shape shape : {Shape{1, 3}, Shape{17, 8}, Shape{3, 5, 33}}) {
    check_twin(plain::Linear{.out = 19}, Linear{.out = 19}, shape);
    check_twin(plain::Relu{}, Relu{}, shape);
    check_twin(plain::LayerNorm{}, LayerNorm{}, shape);
  }
  // A convolution whose kernel is the whole signal is a linear layer over all of it.
  const auto conv =
      layer_tests::run<float>(plain::Conv1d{.out = 7, .kernel = 6}, Shape(4, 6, 5), 0);
  const auto linear = layer_tests::run<double>(Linear{.out = 7}, Shape(4, 30), 0);
  CHECK(layer_tests::distance(conv.y, linear.y) < 1e-5);
  CHECK(layer_tests::distance(conv.dx, linear.dx) < 1e-5);
  CHECK(layer_tests::distance(conv.gradients, linear.gradients) < 1e-5);
}

TEST_CASE("plain losses agree with the fast ones, extremes included") {
  Cpu cpu;
  const float logits[] = {1, 2, 3, 0.5F, -1000, 1000, 0, 0, -88, -89, -90, -1};
  const std::int32_t classes[] = {2, 1, 3};
  const View<const float> x(logits, Shape(3, 4));
  const View<const std::int32_t> targets(classes, Shape(3));
  float a[12], b[12];
  std::byte workspace[64];
  const double plain_loss = plain::SoftmaxCrossEntropy{}.forward_backward(
      cpu,
      LossCall<float, std::int32_t>{.x = x, .targets = targets, .dx = View<float>(a, Shape(3, 4))});
  Cpu::Loss fast_loss;
  fast_loss.clear();
  SoftmaxCrossEntropy{}.forward_backward(
      cpu,
      LossCall<float, std::int32_t>{.x = x,
                                    .targets = targets,
                                    .dx = View<float>(b, Shape(3, 4)),
                                    .workspace = Bytes(workspace, Shape(64))},
      fast_loss);
  CHECK(plain_loss == doctest::Approx(fast_loss.value()).epsilon(1e-6));
  for (int i = 0; i < 12; ++i)
    CHECK(static_cast<double>(a[i]) == doctest::Approx(static_cast<double>(b[i])).epsilon(1e-5));
  for (const std::int32_t wrong : {-1, 4}) {
    const std::int32_t bad[] = {0, wrong, 1};
    CHECK(std::isnan(plain::SoftmaxCrossEntropy{}.forward(
        cpu, LossCall<float, std::int32_t>{.x = x,
                                           .targets = View<const std::int32_t>(bad, Shape(3))})));
  }
}

TEST_CASE("a NaN stays visible through plain layers") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Cpu cpu;
  const float x[] = {-1, nan, 2}, dy[] = {1, 1, 1};
  float y[3], dx[3];
  const Shape shape(3);
  plain::Relu{}.forward(cpu, View<const float>(x, shape), View<float>(y, shape));
  plain::Relu{}.backward(cpu, View<const float>(y, shape), View<const float>(dy, shape),
                         View<float>(dx, shape));
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(dx[1]));
  CHECK((y[0] == 0 && y[2] == 2 && dx[0] == 0 && dx[2] == 1));
}

TEST_CASE("plain layers say what input they need") {
  const auto why = [](const auto& net, Shape shape) { return make_graph(net, shape).error; };
  const auto net = signal_network<plain::MeanSquaredError>(4);
  CHECK(says(why(net, Shape(5, 21)), "expected (batch, time, channels)"));
  CHECK(says(why(net, Shape(5, 4, 3)), "fewer samples than the kernel's 5"));
  CHECK(says(why(signal_network<plain::MeanSquaredError>(0), Shape(5, 21, 3)),
             "the number of outputs is 0"));
  CHECK_FALSE(why(net, Shape(5, 21, 3)));
}

TEST_CASE("plain layers run in a context that has only what the runner needs, and in parts") {
  const auto net = signal_network<plain::SoftmaxCrossEntropy>(4);
  const std::vector<std::int32_t> classes = {0, 3, 1, 2, 3};
  testing::ContextArchetype device;
  testing::DeviceArchetype far;  // with memory of its own
  Cpu cpu;
  const Ran bare = run(net, device, classes, 1), whole = run(net, cpu, classes, 1),
            away = run(net, far, classes, 1);
  CHECK(bare.loss == whole.loss);
  CHECK(bare.gradients == whole.gradients);
  CHECK(away.loss == whole.loss);
  CHECK(away.gradients == whole.gradients);
  const Ran cut = run(net, cpu, classes, 5);
  CHECK(cut.loss == doctest::Approx(whole.loss).epsilon(1e-6));
  CHECK(layer_tests::distance(cut.gradients, std::vector<double>(whole.gradients.begin(),
                                                                 whole.gradients.end())) < 1e-6);
  const auto regression = signal_network<plain::MeanSquaredError>(2);
  const std::vector<float> values(10, 0.5F);
  CHECK(run(regression, cpu, values, 3).loss ==
        doctest::Approx(run(regression, cpu, values, 1).loss).epsilon(1e-6));
  auto program = make_program(net, Shape(5, 21, 3), {.parts = 2});
  CHECK(
      says(Step<float, testing::ContextArchetype>::make(net, *program).error, "runs layers whole"));
}

}  // namespace plain_test
