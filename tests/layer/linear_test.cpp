// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/lora_linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/model/graph_builder.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "../test_size.hpp"
#include "layer_run.hpp"

namespace linear_test {

using namespace adacc;

namespace {

/// A static array of parameters for a hand-made call: weight (out, in), then bias (out).
struct Fixture {
  Parameter list[2];
  Fixture(std::size_t out, std::size_t in) {
    list[0].shape = Shape(out, in);
    list[1].shape = Shape(out);
    list[1].offset = align_up(out * in * sizeof(double)) / sizeof(double);
  }
};

bool contains(const Error& error, const char* text) {
  return std::string(error.text()).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("linear: y = x W^T + b with the weight stored (out, in)") {
  const Linear linear{.out = 2};
  const double x[] = {1, 2, 3, -1, 0, 4};                         // 2 x 3
  const double values[] = {1, 10, 100, 2, 0, -1, 0, 0, 0.5, -7};  // 2 x 3, then the bias
  double y[4] = {};
  const Fixture fixture(2, 3);
  REQUIRE(fixture.list[1].offset == 8);
  testing::GuardedBlock workspace(
      linear.needs(Shape(2, 3), {Dtype::f64, 1, Pass::forward}).workspace);
  Cpu ctx;
  linear.forward(ctx, ForwardCall<double>{.x = View<const double>(x, Shape(2, 3)),
                                          .y = View<double>(y, Shape(2, 2)),
                                          .params = Params<const double>(values, fixture.list, 2),
                                          .workspace = workspace.bytes()});
  CHECK(y[0] == 1 + 20 + 300 + 0.5);
  CHECK(y[1] == 2 - 3 - 7);
  CHECK(y[2] == -1 + 400 + 0.5);
  CHECK(y[3] == -2 - 4 - 7);
  CHECK(workspace.intact());
}

TEST_CASE("linear: gradients against finite differences, accumulation, exact workspaces") {
  for (const bool bias : {true, false})
    for (const std::size_t in : {1U, 3U, 50U})
      for (const std::size_t out : {1U, 7U, 65U})
        for (const Shape shape : {Shape(1, in), Shape(2, 9, in)}) {
          const auto result = testing::gradient_check(Linear{.out = out, .bias = bias}, shape,
                                                      {.max_elements = 60});
          CHECK_MESSAGE(result.passed, result.text(), " at in ", in, ", out ", out);
        }
}

TEST_CASE("linear: gradients where the products are cut into several blocks") {
  const auto result = testing::gradient_check(Linear{.out = 450}, Shape(40, 400),
                                              {.max_elements = test_sanitized ? 4 : 12});
  CHECK_MESSAGE(result.passed, result.text());
}

TEST_CASE("linear: float near double, equal bits on 0 to 3 threads") {
  for (const auto& [rows, in, out] : {std::tuple{1U, 1U, 1U},
                                      {3U, 17U, 5U},
                                      {70U, 100U, 67U},
                                      {130U, 390U, 33U},
                                      {200U, 70U, 800U}}) {
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    const Linear linear{.out = out};
    const Shape shape(rows, in);
    const auto serial = layer_tests::run<float>(linear, shape, 0);
    const auto exact = layer_tests::run<double>(linear, shape, 0);
    const double tolerance = 2e-6 * static_cast<double>(rows + in + out);
    CHECK(layer_tests::distance(serial.y, exact.y) < tolerance);
    CHECK(layer_tests::distance(serial.dx, exact.dx) < tolerance);
    CHECK(layer_tests::distance(serial.gradients, exact.gradients) < tolerance);
    for (int workers = 1; workers <= 3; ++workers)
      CHECK(serial == layer_tests::run<float>(linear, shape, workers));
  }
}

TEST_CASE("linear: an empty dx is skipped and leaves the parameters' gradients as they are") {
  const std::size_t rows = 5, in = 4, out = 3;
  const Linear linear{.out = out};
  const Fixture fixture(out, in);
  std::vector<double> x(rows * in), dy(rows * out), values(32, 0.5), dx(rows * in);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = layer_tests::value(1, i);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = layer_tests::value(2, i);
  std::vector<double> with(32, 1), without(32, 1);
  testing::GuardedBlock workspace(
      linear.needs(Shape(rows, in), {Dtype::f64, 1, Pass::backward}).workspace);
  Cpu ctx;
  const auto run = [&](View<double> to, std::vector<double>& gradients) {
    linear.backward(
        ctx, BackwardCall<double>{.x = View<const double>(x.data(), Shape(rows, in)),
                                  .dy = View<const double>(dy.data(), Shape(rows, out)),
                                  .dx = to,
                                  .params = Params<const double>(values.data(), fixture.list, 2),
                                  .dparams = Params<double>(gradients.data(), fixture.list, 2),
                                  .workspace = workspace.bytes()});
  };
  run(View<double>(dx.data(), Shape(rows, in)), with);
  run({}, without);
  CHECK(with == without);
  double column = 1;
  for (std::size_t r = 0; r < rows; ++r) column += dy[r * out];
  CHECK(with[16] == doctest::Approx(column));  // the bias accumulates onto what was there
}

TEST_CASE("linear: what it declares") {
  constexpr Linear linear{.out = 3, .init_stddev = 0.02F};
  static_assert(linear.output_shape(Shape(2, 5, 4)) == Shape(2, 5, 3));
  static_assert(!linear.needs(Shape(2, 4), {}).error);
  const auto specs = linear.parameters(Shape(2, 16));
  REQUIRE(specs.size() == 2);
  CHECK(std::strcmp(specs[0].name, "weight") == 0);
  CHECK(specs[0].shape == Shape(3, 16));
  CHECK(specs[0].decay);
  CHECK(specs[0].init.kind == Init::Kind::normal);
  CHECK(specs[0].init.scale == 0.02F);
  CHECK(std::strcmp(specs[1].name, "bias") == 0);
  CHECK(specs[1].shape == Shape(3));
  CHECK_FALSE(specs[1].decay);
  CHECK(specs[1].init.kind == Init::Kind::zeros);
  CHECK(Linear{.out = 3, .bias = false}.parameters(Shape(2, 16)).size() == 1);
  const auto uniform = Linear{.out = 3}.parameters(Shape(2, 16))[0].init;
  CHECK(uniform.kind == Init::Kind::uniform);
  CHECK(uniform.scale == doctest::Approx(0.25));
  CHECK(Linear{.out = 3}.parameters(Shape(2, 1))[0].init.scale == doctest::Approx(1));
}

TEST_CASE(
    "linear: behind a ReLU its input may be held in int8 that keeps positive numbers positive") {
  const auto candidates = []<class Reader>(const Reader& reader) {
    const Network<Sequential<Layer<Linear>, Layer<Relu, Compress<Tolerated>>, Layer<Reader>>,
                  MeanSquaredError>
        net{{{Linear{64}}, {}, {reader}}, {}};
    const auto graph = make_graph(net, Shape(64, 100));
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::string names;
    const CodecSpan span = graph->candidates_of(1);
    for (std::size_t i = 0; i < span.count; ++i) names += std::string(span[i]->name) + " ";
    CHECK(graph->node(1).policy.codec() == span[0]);
    // What no ReLU comes before has the codecs that it had.
    CHECK(graph->candidates_of(0).count == 0);
    return names;
  };
  CHECK(candidates(Linear{64}) == "int8_outlier_positive bf16 ");
  CHECK(candidates(LoraLinear{64}) == "int8_outlier_positive bf16 ");
  CHECK(candidates(LayerNorm{}) == "int8_outlier_positive bf16 ");
  CHECK(candidates(Gelu{}) == "int8_outlier_positive bf16 ");
}

TEST_CASE("linear: bad sizes are refused in words") {
  const std::size_t huge = static_cast<std::size_t>(-1) / 16;
  CHECK(contains(Linear{}.needs(Shape(2, 4), {}).error, "outputs is 0"));
  CHECK(contains(Linear{.out = 3}.needs(Shape(), {}).error, "no extents"));
  CHECK(contains(Linear{.out = 3}.needs(Shape(2, 0), {}).error, "no channels"));
  CHECK(contains(Linear{.out = 3}.needs(Shape(0, 4), {}).error, "extent of 0"));
  CHECK(contains(Linear{.out = 3}.needs(Shape(huge, 64), {}).error, "more elements than fit"));
  CHECK(contains(Linear{.out = huge}.needs(Shape(1, 4), {}).error, "a weight of"));
  CHECK(contains(Linear{.out = huge / 4}.needs(Shape(64, 1), {}).error, "an output of"));
  CHECK(contains(Linear{.out = 3, .init_stddev = -1}.needs(Shape(2, 4), {}).error, "init_stddev"));
}

}  // namespace linear_test
