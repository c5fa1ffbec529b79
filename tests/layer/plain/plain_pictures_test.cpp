// SPDX-License-Identifier: MIT
// Plain layers on pictures: gradients, agreement with their fast twins, and a step in a context that has
// only what a device has.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/layer/conv2d.hpp>
#include <adacc/layer/plain/conv2d.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/pool2d.hpp>
#include <adacc/layer/plain/relu.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/layer/pool2d.hpp>
#include <adacc/testing/archetypes.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <string>
#include <vector>

#include "../layer_run.hpp"

namespace plain_pictures_test {

using namespace adacc;

namespace {

template <class Plain, class Fast>
void check_picture_twin(const Plain& plain, const Fast& fast, Shape shape) {
  const auto result = testing::gradient_check(plain, shape, {.max_elements = 40});
  CHECK_MESSAGE(result.passed, result.text());
  const auto a = layer_tests::run<double>(plain, shape, 0);
  const auto b = layer_tests::run<double>(fast, shape, 0);
  CHECK(layer_tests::distance(a.y, b.y) < 1e-12);
  CHECK(layer_tests::distance(a.dx, b.dx) < 1e-12);
  CHECK(layer_tests::distance(a.gradients, b.gradients) < 1e-12);
}

bool has_words(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("plain layers on pictures compute what their fast twins do") {
  check_picture_twin(plain::Conv2d{.out = 4, .padding = 1}, Conv2d{.out = 4, .padding = 1},
                     Shape(2, 4, 5, 3));
  check_picture_twin(plain::Conv2d{.out = 6,
                                   .kernel = {2, 3},
                                   .stride = 2,
                                   .padding = {1, 2},
                                   .dilation = {1, 2},
                                   .groups = 2},
                     Conv2d{.out = 6,
                            .kernel = {2, 3},
                            .stride = 2,
                            .padding = {1, 2},
                            .dilation = {1, 2},
                            .groups = 2},
                     Shape(2, 5, 6, 4));
  check_picture_twin(plain::Conv2d{.out = 5, .padding = 1, .groups = 5},
                     Conv2d{.out = 5, .padding = 1, .groups = 5}, Shape(2, 4, 3, 5));
  check_picture_twin(plain::MaxPool2d{}, MaxPool2d{}, Shape(2, 5, 4, 3));
  check_picture_twin(plain::MaxPool2d{.kernel = {3, 1}}, MaxPool2d{.kernel = {3, 1}},
                     Shape(1, 7, 4, 2));
  check_picture_twin(plain::MeanOverPicture{}, MeanOverPicture{}, Shape(3, 4, 2, 5));
}

TEST_CASE(
    "a plain network on pictures: a peak at compile time, a step without the host's threads") {
  using Net = Network<Sequential<Layer<plain::Conv2d>, Layer<plain::Relu>, Layer<plain::MaxPool2d>,
                                 Layer<plain::Conv2d>, Layer<plain::Relu>,
                                 Layer<plain::MeanOverPicture>, Layer<plain::Linear>>,
                      plain::SoftmaxCrossEntropy>;
  constexpr auto make = [] {
    return Net{{{plain::Conv2d{.out = 6, .padding = 1}},
                {},
                {},
                {plain::Conv2d{.out = 6, .padding = 1, .groups = 6}},
                {},
                {},
                {plain::Linear{.out = 3}}},
               {}};
  };
  constexpr Net net = make();
  const Shape shape(4, 6, 8, 2);
  const auto losses_and_gradients = [&](auto& context) {
    auto program = make_program(net, shape);
    REQUIRE_MESSAGE(program, program.error.text());
    using Context = std::remove_reference_t<decltype(context)>;
    auto step = Step<float, Context>::make(net, *program);
    REQUIRE_MESSAGE(step, step.error.text());
    const std::size_t elems = step->graph().parameter_elems;
    testing::GuardedBlock arena(step->arena_bytes()), params(elems * 4), gradients(elems * 4, 0),
        x(shape.elems() * 4);
    for (std::size_t i = 0; i < elems; ++i) params.as<float>()[i] = 0.2F * layer_tests::value(1, i);
    for (std::size_t i = 0; i < shape.elems(); ++i) x.as<float>()[i] = layer_tests::value(2, i);
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
  };
  testing::ContextArchetype device;
  Cpu cpu;
  CHECK(losses_and_gradients(device) == losses_and_gradients(cpu));
  CHECK(has_words(make_graph(net, Shape(4, 1, 8, 2)).error, "reaches over 2 x 2 pixels"));
  CHECK(
      has_words(plain::MaxPool2d{.kernel = 17}.needs(Shape(1, 20, 20, 1), {}).error, "256 pixels"));
  CHECK(has_words(plain::Conv2d{.out = 4, .groups = 3}.needs(shape, {}).error,
                  "3 groups do not divide"));
}

}  // namespace plain_pictures_test
