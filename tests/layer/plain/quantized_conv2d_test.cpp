// SPDX-License-Identifier: MIT
// Convolutions in int8: integer arithmetic against real one, gradients against those of Conv2d, the layer
// contract, what codecs and policies leave of the bits, and what is no number.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/layer/plain/conv2d.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/pool2d.hpp>
#include <adacc/layer/plain/quantized_conv2d.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../layer_run.hpp"

namespace quantized_conv2d_test {

using namespace adacc;
using plain::Int8Grid, plain::QuantizedConv2d, plain::QuantizedTrainedConv2d;

namespace {

/// Weights of `out` channels of `size` each, one of which reaches 127 in every channel.
struct Table {
  std::vector<std::int8_t> weight;
  std::vector<float> scale;

  Table(std::size_t out, std::size_t size, std::uint32_t seed) : weight(out * size), scale(out) {
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] =
          static_cast<std::int8_t>(static_cast<int>(random_word({.seed = seed}, i) % 255) - 127);
    for (std::size_t o = 0; o < out; ++o) {
      weight[o * size + o % size] = o % 2 == 0 ? 127 : -127;
      scale[o] = 0.001F * static_cast<float>(o + 1);
    }
  }
  double real(std::size_t i) const {
    return static_cast<double>(scale[i / (weight.size() / scale.size())]) * weight[i];
  }
};

/// One call each of forward and backward in double, on parameters in one row.
struct Call {
  std::vector<double> y, dx, gradients;

  template <class F>
  Call(const F& f, Shape in, const std::vector<double>& x, const std::vector<double>& values,
       const std::vector<double>& dy) {
    Cpu cpu;
    std::vector<Parameter> list;
    std::size_t elems = 0;
    layer_traits<F>::parameters(f, in, [&](const ParameterSpec& spec) {
      Parameter parameter;
      static_cast<ParameterSpec&>(parameter) = spec;
      parameter.offset = elems;
      elems += spec.shape.elems();
      list.push_back(parameter);
    });
    REQUIRE(values.size() == elems);
    const Shape out = f.output_shape(in);
    y.resize(out.elems()), dx.resize(in.elems()), gradients.resize(elems);
    testing::GuardedBlock aux(layer_traits<F>::needs(f, in, {Dtype::f64}).aux);
    const auto scratch = [&](Pass pass) {
      return testing::GuardedBlock(layer_traits<F>::needs(f, in, {Dtype::f64, 1, pass}).workspace);
    };
    auto forward = scratch(Pass::forward), backward = scratch(Pass::backward);
    const Params<const double> params(values.data(), list.data(), list.size());
    f.forward(cpu, ForwardCall<double>{.x = View<const double>(x.data(), in),
                                       .y = View<double>(y.data(), out),
                                       .params = params,
                                       .aux = aux.bytes(),
                                       .workspace = forward.bytes()});
    f.backward(cpu, BackwardCall<double>{
                        .x = View<const double>(x.data(), in),
                        .y = View<const double>(y.data(), out),
                        .dy = View<const double>(dy.data(), out),
                        .dx = View<double>(dx.data(), in),
                        .params = params,
                        .dparams = Params<double>(gradients.data(), list.data(), list.size()),
                        .aux = ConstBytes(aux.data(), Shape(aux.size())),
                        .workspace = backward.bytes()});
  }
};

std::vector<double> on_grid(const Int8Grid& grid, std::size_t size, std::uint32_t seed) {
  std::vector<double> values(size);
  for (std::size_t i = 0; i < size; ++i)
    values[i] = grid.real<double>(static_cast<int>(random_word({.seed = seed}, i) % 256) - 128);
  return values;
}

/// Forward against real arithmetic on the same numbers, backward against Conv2d's of what is not clipped.
void check_against_real(const plain::Conv2d& real, Shape in, Int8Grid from, Int8Grid to) {
  const std::size_t size = real.kernel.area() * in.cols() / real.groups;
  const Table table(real.out, size, 5);
  const QuantizedConv2d constant{
      real.out,    table.weight.data(), table.scale.data(), from,          to,
      real.kernel, real.stride,         real.padding,       real.dilation, real.groups};
  const QuantizedTrainedConv2d trained{
      real.out, from, to, real.kernel, real.stride, real.padding, real.dilation, real.groups};
  REQUIRE_FALSE(constant.needs(in, {}).error);
  REQUIRE_FALSE(trained.needs(in, {}).error);
  const Shape out = real.output_shape(in);
  const std::vector<double> x = on_grid(from, in.elems(), 6);
  std::vector<double> bias(real.out), values, dy(out.elems());
  for (std::size_t o = 0; o < real.out; ++o) bias[o] = 0.3 * layer_tests::value(3, o);
  for (std::size_t i = 0; i < table.weight.size(); ++i) values.push_back(table.real(i));
  values.insert(values.end(), bias.begin(), bias.end());
  for (std::size_t e = 0; e < dy.size(); ++e) dy[e] = layer_tests::value(4, e);

  std::vector<double> passing = dy;
  const double low = to.real<double>(-128), high = to.real<double>(127), step = to.scale;
  const Call exact(real, in, x, values, dy), whole(constant, in, x, bias, dy),
      learned(trained, in, x, values, dy);
  std::size_t clipped = 0;
  double worst = 0;
  for (std::size_t e = 0; e < dy.size(); ++e) {
    const double y = exact.y[e] < low ? low : exact.y[e] > high ? high : exact.y[e];
    worst = std::fmax(worst, std::fabs(whole.y[e] - y) / step);
    if (exact.y[e] < low - step / 2 || exact.y[e] > high + step / 2) passing[e] = 0, ++clipped;
  }
  CHECK(worst < 0.502);  // half a step, and what 31 bits of a factor and a whole bias cost
  CHECK(clipped > 0);
  CHECK(clipped < dy.size());
  CHECK(learned.y == whole.y);
  const Call back(real, in, x, values, passing);
  CHECK(layer_tests::distance(whole.dx, back.dx) < 1e-6);
  CHECK(layer_tests::distance(learned.dx, back.dx) < 1e-6);
  CHECK(layer_tests::distance(learned.gradients, back.gradients) < 1e-6);
  CHECK(layer_tests::distance(
            whole.gradients,
            std::vector<double>(back.gradients.end() - static_cast<std::ptrdiff_t>(real.out),
                                back.gradients.end())) < 1e-12);
}

}  // namespace

TEST_CASE("a factor in fixed point multiplies as the real number does") {
  using detail::FixedPoint;
  for (const double factor : {1.0, 0.5, 0.75, 1.0 / 3, 1e-3, 3.7e-6, 127.0, 1e-9})
    for (const std::int32_t value : {0, 1, -1, 77, -12345, 1 << 28, -(1 << 28)}) {
      const double product = factor * value;
      CHECK(std::fabs(static_cast<double>(FixedPoint::of(factor).times(value)) - product) <=
            0.5 + std::fabs(product) * 5e-10);
    }
  CHECK(FixedPoint::of(0.5).times(3) == 2);  // halves go up
  CHECK(FixedPoint::of(0.5).times(-3) == -1);
  CHECK(FixedPoint::of(1e-30).times(1 << 30) == 0);
  CHECK(FixedPoint::of(0).times(1 << 30) == 0);
  CHECK(FixedPoint::of(std::numeric_limits<double>::quiet_NaN()).times(1) == 0);
  CHECK(FixedPoint::of(1e30).times(1) == (std::int64_t{1} << 30));
}

TEST_CASE("a grid takes what is nearest, and keeps to its ends") {
  constexpr Int8Grid grid{0.5F, -128};
  static_assert(grid.quantize(0.0F) == -128 && grid.quantize(127.5F) == 127);
  CHECK(grid.quantize(-7.0F) == -128);
  CHECK(grid.quantize(1e30F) == 127);
  CHECK(grid.quantize(std::numeric_limits<float>::infinity()) == 127);
  for (int q = -128; q <= 127; ++q)
    for (const double off : {-0.49, 0.0, 0.49}) CHECK(grid.quantize((q + 128 + off) * 0.5) == q);
}

TEST_CASE("convolutions in int8 compute what real ones do, and clip") {
  check_against_real({.out = 5, .padding = 1}, Shape(2, 5, 4, 3), {0.01F, -128}, {0.02F, -128});
  check_against_real(
      {.out = 6, .kernel = {2, 3}, .stride = 2, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2},
      Shape(2, 5, 6, 4), {0.02F, 3}, {0.02F, -20});
  check_against_real({.out = 4, .padding = 1, .groups = 4}, Shape(1, 4, 3, 4), {0.03F, -128},
                     {0.008F, 0});
}

TEST_CASE("convolutions in int8 keep the layer contract") {
  const Table table(6, 9 * 2, 1);
  const Int8Grid from{0.02F, 0}, to{0.05F, -128};
  // Differences of steps say nothing: gradients are compared with Conv2d's.
  const testing::GradientCheckOptions options{.max_elements = 0};
  const auto constant = testing::gradient_check(QuantizedConv2d{.out = 6,
                                                                .weight = table.weight.data(),
                                                                .weight_scale = table.scale.data(),
                                                                .from = from,
                                                                .to = to,
                                                                .padding = 1,
                                                                .groups = 2},
                                                Shape(5, 4, 3, 4), options);
  CHECK_MESSAGE(constant.passed, constant.text());
  const auto trained =
      testing::gradient_check(QuantizedTrainedConv2d{.out = 6, .from = from, .to = to, .stride = 2},
                              Shape(5, 6, 5, 3), options);
  CHECK_MESSAGE(trained.passed, trained.text());
}

namespace {

constexpr Int8Grid pixel{1.0F / 255, -128}, hidden{0.02F, -128};

/// The loss and all gradients of a step; `kept` is the policy of what the second convolution reads.
std::vector<float> step_of(const Table& table, Policy kept, int parts = 1) {
  using Net = Network<
      Sequential<Layer<QuantizedConv2d>, Layer<plain::MaxPool2d>, Layer<QuantizedTrainedConv2d>,
                 Layer<plain::MeanOverPicture>, Layer<plain::Linear>>,
      plain::SoftmaxCrossEntropy>;
  const Net net{{{QuantizedConv2d{.out = 6,
                                  .weight = table.weight.data(),
                                  .weight_scale = table.scale.data(),
                                  .from = pixel,
                                  .to = hidden,
                                  .padding = 1}},
                 {},
                 {QuantizedTrainedConv2d{.out = 5, .from = hidden, .to = hidden, .padding = 1}},
                 {},
                 {plain::Linear{.out = 3}}},
                {}};
  const Shape shape(4, 8, 10, 3);
  auto graph = make_graph(net, shape, {.parts = parts});
  REQUIRE_MESSAGE(graph, graph.error.text());
  Plan plan = retain_all(*graph);
  plan.policies[0] = plan.policies[1] = kept;
  auto program = make_program(std::move(*graph), std::move(plan));
  REQUIRE_MESSAGE(program, program.error.text());
  auto dispatch = make_dispatch<float, Cpu>(net);
  dispatch.add_codec<Int8Outlier>();
  auto step = Step<>::make(dispatch, *program);
  Cpu context;
  REQUIRE_MESSAGE(step, step.error.text());
  const std::size_t elems = step->graph().parameter_elems;
  testing::GuardedBlock arena(step->arena_bytes()), params(elems * 4, 0), gradients(elems * 4, 0),
      x(shape.elems() * 4);
  for (std::size_t i = 0; i < elems; ++i) params.as<float>()[i] = 0.1F * layer_tests::value(1, i);
  for (std::size_t i = 0; i < shape.elems(); ++i)
    x.as<float>()[i] = unit_float(random_word({.seed = 9}, i));
  alignas(64) const std::int32_t classes[] = {0, 2, 1, 2};
  REQUIRE_FALSE(step->bind(arena.bytes(), View<const float>(params.as<float>(), Shape(elems)),
                           View<float>(gradients.as<float>(), Shape(elems))));
  const auto loss = step->run(context, View<const float>(x.as<float>(), shape),
                              View<const std::int32_t>(classes, Shape(4)));
  REQUIRE_MESSAGE(loss, loss.error.text());
  CHECK(arena.intact());
  const float* const first = gradients.as<float>();
  std::vector<float> all(first, first + elems);
  all.push_back(static_cast<float>(*loss));
  return all;
}

}  // namespace

TEST_CASE("codes of 8 bits and bfloat16 lose nothing of what lies on a grid") {
  const Table table(6, 27, 2);
  const std::vector<float> kept = step_of(table, retain());
  std::size_t zeros = 0;
  for (const float value : kept) zeros += value == 0;
  CHECK(zeros < kept.size() / 2);
  CHECK(step_of(table, Compress<Bf16>::value) == kept);
  CHECK(step_of(table, Compress<Int8Outlier>::value) == kept);
  CHECK(step_of(table, recompute()) == kept);
  const std::vector<float> cut = step_of(table, retain(), 4);
  CHECK(layer_tests::distance(cut, kept) < 1e-5);
  CHECK(step_of(table, recompute(), 4) == cut);
}

TEST_CASE("what is no number shows behind a convolution in int8") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Shape in(2, 3, 3, 1);
  const QuantizedTrainedConv2d f{.out = 2, .from = {0.1F, 0}, .to = {0.1F, 0}};
  const std::vector<double> dy(4, 1.0);
  const auto shows = [&](std::size_t wrong_x, std::size_t wrong_value) {
    std::vector<double> x(in.elems(), 1), values(20, 0.5);
    if (wrong_x < x.size()) x[wrong_x] = nan;
    if (wrong_value < values.size()) values[wrong_value] = nan;
    const Call call(f, in, x, values, dy);
    std::string text;
    for (const double y : call.y) text += std::isnan(y) ? 'x' : '.';
    return text;
  };
  constexpr std::size_t none = 99;
  CHECK(shows(none, none) == "....");
  CHECK(shows(12, none) == "..xx");  // of the second picture
  CHECK(shows(none, 3) == "x.x.");   // a weight of channel 0
  CHECK(shows(none, 19) == ".x.x");  // the bias of channel 1
}

TEST_CASE("what a convolution in int8 cannot be is said in words") {
  const Table table(4, 9, 3);
  const auto said = [](const Error& why) { return std::string(why.text()); };
  QuantizedConv2d f{.out = 4};
  CHECK(said(f.needs(Shape(1, 4, 4, 1), {}).error).find("there are no weights") !=
        std::string::npos);
  f.weight = table.weight.data(), f.weight_scale = table.scale.data();
  CHECK_FALSE(f.needs(Shape(1, 4, 4, 1), {}).error);
  CHECK(said(f.needs(Shape(1, 2, 4, 1), {}).error).find("the kernel reaches over") !=
        std::string::npos);
  CHECK(said(f.needs(Shape(1, 4, 4, 4000), {}).error).find("36000 products; at most 32768") !=
        std::string::npos);
  f.to.zero = 128;
  CHECK(said(f.needs(Shape(1, 4, 4, 1), {}).error).find("the output's grid has zero at 128") !=
        std::string::npos);
  f.to.zero = 0, f.from.scale = 0;
  CHECK(said(f.needs(Shape(1, 4, 4, 1), {}).error).find("the input's grid") != std::string::npos);
}

}  // namespace quantized_conv2d_test
