// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "layer_run.hpp"

namespace norms_test {

using namespace adacc;

namespace {

const std::size_t all_cols[] = {1, 3, 7, 64, 100};
const std::size_t all_rows[] = {1, 2, 17, 33, 130};

/// Gradients, and on every size: float near double, equal bits on 0 to 3 threads.
template <class Norm>
void check_norm(const Norm& norm) {
  for (const std::size_t cols : all_cols) {
    for (const std::size_t rows : {1U, 5U, 18U}) {
      const auto result = testing::gradient_check(norm, Shape{rows, cols}, {.max_elements = 60});
      CHECK_MESSAGE(result.passed, result.text(), " at ", rows, " x ", cols);
    }
    for (const std::size_t rows : all_rows) {
      CAPTURE(rows);
      CAPTURE(cols);
      const auto serial = layer_tests::run<float>(norm, Shape{rows, cols}, 0);
      const auto exact = layer_tests::run<double>(norm, Shape{rows, cols}, 0);
      CHECK(layer_tests::distance(serial.y, exact.y) < 1e-5);
      CHECK(layer_tests::distance(serial.dx, exact.dx) < (cols < 7 ? 1e-3 : 2e-5));
      CHECK(layer_tests::distance(serial.gradients, exact.gradients) < 1e-4);
      for (int workers = 1; workers <= 3; ++workers)
        CHECK(serial == layer_tests::run<float>(norm, Shape{rows, cols}, workers));
    }
  }
  const Shape large{2, 130, 384};  // several tiles forward
  const auto serial = layer_tests::run<float>(norm, large, 0);
  for (int workers = 1; workers <= 3; ++workers)
    CHECK(serial == layer_tests::run<float>(norm, large, workers));
}

}  // namespace

TEST_CASE("layer norm: gradients, float against double, bits on any number of threads") {
  check_norm(LayerNorm{});
}

TEST_CASE("rms norm: gradients, float against double, bits on any number of threads") {
  check_norm(RmsNorm{});
}

TEST_CASE("layer norm: rows have mean 0 and variance 1 before weight and bias") {
  const std::size_t rows = 9, cols = 100;
  alignas(64) static double x[rows * cols], y[rows * cols], params[208];
  alignas(64) static double aux[2 * rows];
  for (std::size_t i = 0; i < rows * cols; ++i) x[i] = 5 + 3 * layer_tests::value(1, i);
  for (std::size_t i = 0; i < 104; ++i) params[i] = 1, params[104 + i] = 0;
  Parameter list[2];
  list[0].shape = list[1].shape = Shape(cols);
  list[1].offset = 104;
  Cpu cpu;
  LayerNorm{}.forward(
      cpu, ForwardCall<double>{.x = View<const double>(x, Shape{rows, cols}),
                               .y = View<double>(y, Shape{rows, cols}),
                               .params = Params<const double>(params, list, 2),
                               .aux = Bytes(reinterpret_cast<std::byte*>(aux), Shape(sizeof aux))});
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0, squares = 0, mean = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      sum += y[r * cols + c];
      squares += y[r * cols + c] * y[r * cols + c];
      mean += x[r * cols + c] / static_cast<double>(cols);
    }
    CHECK(std::fabs(sum / static_cast<double>(cols)) < 1e-12);
    CHECK(squares / static_cast<double>(cols) == doctest::Approx(1).epsilon(1e-5));
    CHECK(aux[r] == doctest::Approx(mean).epsilon(1e-12));
  }
}

TEST_CASE("layer norm: a large offset does not cancel the variance") {
  // E[x^2] - mean^2 would have no correct digit left in float here.
  const std::size_t cols = 64;
  alignas(64) static float x[cols], y[cols], params[2 * cols], aux[2];
  for (std::size_t c = 0; c < cols; ++c) x[c] = 4096 + static_cast<float>(c % 2), params[c] = 1;
  Parameter list[2];
  list[0].shape = list[1].shape = Shape(cols);
  list[1].offset = cols;
  Cpu cpu;
  LayerNorm{}.forward(
      cpu, ForwardCall<float>{.x = View<const float>(x, Shape{1, cols}),
                              .y = View<float>(y, Shape{1, cols}),
                              .params = Params<const float>(params, list, 2),
                              .aux = Bytes(reinterpret_cast<std::byte*>(aux), Shape(sizeof aux))});
  for (std::size_t c = 0; c < cols; ++c)
    CHECK(y[c] == doctest::Approx(c % 2 == 0 ? -1 : 1).epsilon(1e-3));
}

TEST_CASE("norms: a NaN reaches its whole row, forward and backward, and no other") {
  const auto check = [](auto norm) {
    constexpr std::size_t rows = 3, cols = 20;
    alignas(64) float x[rows * cols], y[rows * cols], params[64] = {}, gradients[64] = {};
    alignas(64) float aux[2 * rows];
    alignas(64) std::byte workspace[4096];
    for (std::size_t i = 0; i < rows * cols; ++i) x[i] = layer_tests::value(1, i);
    x[cols + 4] = std::numeric_limits<float>::quiet_NaN();
    Parameter list[2];
    list[0].shape = list[1].shape = Shape(cols);
    list[1].offset = 32;
    Cpu cpu;
    const Shape shape{rows, cols};
    const Bytes memory(reinterpret_cast<std::byte*>(aux), Shape(sizeof aux));
    norm.forward(cpu, ForwardCall<float>{.x = View<const float>(x, shape),
                                         .y = View<float>(y, shape),
                                         .params = Params<const float>(params, list, 2),
                                         .aux = memory});
    for (std::size_t i = 0; i < rows * cols; ++i) CHECK(std::isnan(y[i]) == (i / cols == 1));
    norm.backward(cpu, BackwardCall<float>{.x = View<const float>(x, shape),
                                           .dy = View<const float>(x, shape),
                                           .dx = View<float>(y, shape),
                                           .params = Params<const float>(params, list, 2),
                                           .dparams = Params<float>(gradients, list, 2),
                                           .aux = ConstBytes(memory),
                                           .workspace = Bytes(workspace, Shape(sizeof workspace))});
    for (std::size_t i = 0; i < rows * cols; ++i) CHECK(std::isnan(y[i]) == (i / cols == 1));
    CHECK(std::isnan(gradients[0]));
  };
  check(LayerNorm{});
  check(RmsNorm{});
}

TEST_CASE("norms: workspace is bounded, and bad settings are refused in words") {
  constexpr std::size_t C = 384;
  static_assert(LayerNorm{}.needs(Shape{1000000, C}, {Dtype::f32, 64, Pass::backward}).workspace <=
                32 * 2 * C * 4);
  static_assert(LayerNorm{}.needs(Shape{4, 256, C}, {Dtype::f32}).aux == 2 * 4 * 1024);
  static_assert(RmsNorm{}.needs(Shape{4, 256, C}, {Dtype::f64}).aux == 8 * 1024);
  static_assert(!LayerNorm{}.needs(Shape{4, C}, {}).error);
  CHECK(std::string(LayerNorm{.epsilon = 0}.needs(Shape{4, C}, {}).error.text()).find("epsilon") !=
        std::string::npos);
  CHECK(RmsNorm{.epsilon = std::numeric_limits<float>::quiet_NaN()}.needs(Shape{4, C}, {}).error);
  CHECK(std::string(RmsNorm{}.needs(Shape{4, 0}, {}).error.text()).find("rms_norm") !=
        std::string::npos);
  CHECK(LayerNorm{}.needs(Shape(), {}).error);
  CHECK(LayerNorm{}.parameters(Shape{2, C})[0].decay == false);
  CHECK(LayerNorm{}.parameters(Shape{2, C})[0].init.scale == 1);
}

}  // namespace norms_test
