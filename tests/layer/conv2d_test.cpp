// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/conv2d.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <string>
#include <vector>

#include "layer_run.hpp"

namespace conv2d_test {

using namespace adacc;

namespace {

bool says(const Error& error, const char* text) {
  return std::string(error.text()).find(text) != std::string::npos;
}

struct Case {
  Conv2d conv;
  Shape in;
};

/// Every kind of window: small and large kernels, strides, margins, gaps, groups; pictures smaller
/// than a tile and larger.
const Case cases[] = {
    {{.out = 5, .kernel = 3, .padding = 1}, Shape(2, 5, 4, 3)},
    {{.out = 17, .kernel = 3, .padding = 1}, Shape(1, 7, 9, 16)},
    {{.out = 4, .kernel = 3, .stride = 2, .padding = 1}, Shape(2, 6, 7, 3)},
    {{.out = 4, .kernel = 3, .stride = 2, .padding = 1, .bias = false}, Shape(1, 5, 8, 2)},
    {{.out = 6, .kernel = 1}, Shape(2, 3, 4, 5)},
    {{.out = 6, .kernel = 1, .stride = 2}, Shape(2, 5, 4, 3)},
    {{.out = 4, .kernel = 1, .groups = 2}, Shape(2, 3, 3, 6)},
    {{.out = 3, .kernel = {1, 4}, .padding = {0, 2}}, Shape(1, 3, 5, 2)},
    {{.out = 3, .kernel = {5, 2}, .stride = {1, 3}, .padding = {2, 0}}, Shape(2, 4, 8, 1)},
    {{.out = 3, .kernel = 3, .padding = 2, .dilation = 2}, Shape(1, 6, 5, 4)},
    {{.out = 2, .kernel = 3, .stride = 2, .padding = 3, .dilation = 2}, Shape(1, 7, 6, 3)},
    {{.out = 2, .kernel = 2, .stride = 3, .dilation = 3}, Shape(1, 8, 7, 2)},
    {{.out = 6, .kernel = 3, .padding = 1, .groups = 3}, Shape(2, 4, 4, 6)},
    {{.out = 4, .kernel = 3, .stride = 2, .padding = 1, .groups = 2}, Shape(1, 5, 5, 2)},
    {{.out = 5, .kernel = 3, .padding = 1, .groups = 5}, Shape(2, 4, 5, 5)},
    {{.out = 9, .kernel = 3, .stride = 2, .padding = 1, .groups = 9}, Shape(1, 6, 5, 9)},
    {{.out = 2, .kernel = {2, 3}, .padding = 2, .dilation = {1, 2}, .groups = 2, .bias = false},
     Shape(2, 3, 4, 2)},
    {{.out = 3, .kernel = 5, .padding = 4}, Shape(1, 1, 1, 2)},               // mostly margin
    {{.out = 3, .kernel = 4}, Shape(2, 4, 4, 3)},                             // one window
    {{.out = 2, .kernel = 2, .stride = 5, .padding = 1}, Shape(1, 4, 9, 2)},  // pixels nobody reads
};

/// The definition, in double.
std::vector<double> by_definition(const Conv2d& conv, Shape in, const std::vector<double>& x,
                                  const std::vector<double>& weight) {
  const Shape out = conv.output_shape(in);
  const std::size_t from = in[3] / conv.groups, to = conv.out / conv.groups;
  std::vector<double> y(out.elems());
  for (std::size_t b = 0; b < out[0]; ++b)
    for (std::size_t i = 0; i < out[1]; ++i)
      for (std::size_t j = 0; j < out[2]; ++j)
        for (std::size_t o = 0; o < out[3]; ++o) {
          double sum = 0;
          for (std::size_t r = 0; r < conv.kernel.height; ++r)
            for (std::size_t s = 0; s < conv.kernel.width; ++s)
              for (std::size_t c = 0; c < from; ++c) {
                const std::size_t row = i * conv.stride.height + r * conv.dilation.height;
                const std::size_t col = j * conv.stride.width + s * conv.dilation.width;
                if (row < conv.padding.height || row - conv.padding.height >= in[1]) continue;
                if (col < conv.padding.width || col - conv.padding.width >= in[2]) continue;
                const std::size_t pixel =
                    (b * in[1] + row - conv.padding.height) * in[2] + col - conv.padding.width;
                sum += x[pixel * in[3] + o / to * from + c] *
                       weight[((o * conv.kernel.height + r) * conv.kernel.width + s) * from + c];
              }
          y[((b * out[1] + i) * out[2] + j) * out[3] + o] = sum;
        }
  return y;
}

}  // namespace

TEST_CASE("conv2d: is its definition") {
  for (Case c : cases) {
    CAPTURE(c.in.elems());
    c.conv.bias = false;
    std::vector<double> x(c.in.elems());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = layer_tests::value(8, i);
    std::vector<double> weight(c.conv.parameters(c.in)[0].shape.elems());
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = 1 + 0.25 * layer_tests::value(10, i);  // as layer_tests::run has it
    const auto ran = layer_tests::run<double>(c.conv, c.in, 0);
    CHECK(layer_tests::distance(ran.y, by_definition(c.conv, c.in, x, weight)) < 1e-12);
  }
}

TEST_CASE("conv2d: gradients against finite differences, parts, exact workspaces") {
  for (const Case& c : cases) {
    const auto result = testing::gradient_check(c.conv, c.in, {.max_elements = 40});
    CHECK_MESSAGE(result.passed, result.text(), " at ", c.in[1], " x ", c.in[2], " x ", c.in[3],
                  " to ", c.conv.out);
  }
}

TEST_CASE(
    "conv2d: float near double, equal bits on 0 to 3 threads, where products have many blocks") {
  const Case large[] = {
      {{.out = 70, .kernel = 3, .padding = 1}, Shape(2, 13, 11, 60)},
      {{.out = 40, .kernel = 3, .stride = 2, .padding = 1}, Shape(3, 17, 16, 48)},
      {{.out = 16, .kernel = 3, .padding = 1, .bias = false}, Shape(2, 20, 20, 3)},
      {{.out = 66, .kernel = 3, .padding = 1, .groups = 66}, Shape(2, 12, 12, 66)},
      {{.out = 64, .kernel = 1}, Shape(2, 12, 12, 96)},
  };
  for (const Case& c : large) {
    CAPTURE(c.conv.out);
    const auto serial = layer_tests::run<float>(c.conv, c.in, 0);
    const auto exact = layer_tests::run<double>(c.conv, c.in, 0);
    CHECK(layer_tests::distance(serial.y, exact.y) < 1e-4);
    CHECK(layer_tests::distance(serial.dx, exact.dx) < 1e-4);
    CHECK(layer_tests::distance(serial.gradients, exact.gradients) < 2e-4);
    for (int workers = 1; workers <= 3; ++workers)
      CHECK(serial == layer_tests::run<float>(c.conv, c.in, workers));
  }
}

TEST_CASE("conv2d: what it declares") {
  constexpr Conv2d conv{.out = 8, .kernel = {3, 5}, .stride = 2, .padding = 1, .groups = 2};
  static_assert(conv.output_shape(Shape(4, 9, 10, 6)) == Shape(4, 5, 4, 8));
  static_assert(conv.parameters(Shape(4, 9, 10, 6))[0].shape == Shape(8, 3, 5, 3));
  CHECK(conv.parameters(Shape(4, 9, 10, 6))[0].init.scale == doctest::Approx(1 / std::sqrt(45.0)));
  CHECK_FALSE(conv.parameters(Shape(4, 9, 10, 6))[1].decay);
  // No column buffer: 64 channels of 32 x 32 pictures would have one of 9 times the picture.
  static_assert(Conv2d{.out = 64, .padding = 1}
                    .needs(Shape(8, 32, 32, 64), {Dtype::f32, 1, Pass::backward})
                    .workspace < Shape(32, 32, 64).elems() * sizeof(float) * 9 / 2);
}

TEST_CASE("conv2d: bad sizes are refused in words") {
  const Shape in(2, 8, 8, 6);
  CHECK(says(Conv2d{}.needs(in, {}).error, "0 outputs"));
  CHECK(says(Conv2d{.out = 4, .kernel = 9}.needs(in, {}).error, "reaches over 9 x 9 pixels"));
  CHECK(says(Conv2d{.out = 4, .kernel = 5, .dilation = 3}.needs(in, {}).error, "13 x 13"));
  CHECK_FALSE(Conv2d{.out = 4, .kernel = 9, .padding = 1}.needs(in, {}).error);
  CHECK(says(Conv2d{.out = 4, .kernel = 0}.needs(in, {}).error, "at least 1"));
  CHECK(says(Conv2d{.out = 4, .stride = {1, 0}}.needs(in, {}).error, "at least 1"));
  CHECK(
      says(Conv2d{.out = 4, .groups = 4}.needs(in, {}).error, "4 groups do not divide 6 channels"));
  CHECK(says(Conv2d{.out = 4, .groups = 3}.needs(in, {}).error, "and 4 outputs"));
  CHECK(says(Conv2d{.out = 4, .groups = 0}.needs(in, {}).error, "0 groups"));
  CHECK(says(Conv2d{.out = 4}.needs(Shape(8, 8, 6), {}).error, "expected (batch, height, width"));
  CHECK(says(Conv2d{.out = 4, .padding = std::size_t{1} << 40}.needs(in, {}).error, "at most"));
  CHECK(says(Conv2d{.out = std::size_t{1} << 60}.needs(in, {}).error, "more bytes than fit"));
  CHECK(says(Conv2d{.out = 4, .init_stddev = -1}.needs(in, {}).error, "init_stddev"));
}

}  // namespace conv2d_test
