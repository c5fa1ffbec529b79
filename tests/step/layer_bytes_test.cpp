// SPDX-License-Identifier: MIT
/// The ready-made layers, alone and in chains, in every place: do they use just what they declare?
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/layer/conv2d.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/group_norm.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/pool2d.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/layer/silu.hpp>

#include <vector>

#include "../test_size.hpp"
#include "arena_use.hpp"
#include "in_turn.hpp"

namespace layer_bytes_test {

using namespace adacc;

namespace {

template <class Net>
void check_bytes(const Net& net, Shape shape, int workers, int parts) {
  CAPTURE(parts);
  CAPTURE(shape.rows());
  CAPTURE(shape.cols());
  CAPTURE(workers);
  InTurn executor{workers};
  Cpu cpu{ExecutorRef(executor)};
  auto program = make_program(net, shape, {.workers = workers, .parts = parts});
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  std::vector<float> x(shape.elems()), y(step->graph().loss.targets.elems(), 0.25F);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * unit_float(random_word({}, i)) - 1;
  check_arena_use(*step, cpu, View<const float>(x.data(), shape),
                  View<const float>(y.data(), step->graph().loss.targets));
}

template <class Policy, class Functor>
void alone_and_in_chains(Functor functor) {
  using L = Layer<Functor, Policy>;
  const Linear linear{.out = 48};
  for (const std::size_t rows : std::vector<std::size_t>{1, 7, 64, 130}) {
    for (const int workers : {1, 3}) {
      const int parts = workers;  // whole on one, cut into three on three
      check_bytes(Network{Sequential<L>(L{functor}), MeanSquaredError{}}, Shape(rows, 40), workers,
                  parts);
      check_bytes(Network{Sequential<L, L>(L{functor}, L{functor}), MeanSquaredError{}},
                  Shape(rows, 40), workers, parts);
      check_bytes(Network{Sequential<Layer<Linear, Policy>, L, Layer<Linear, Policy>>(
                              {linear}, {functor}, {linear}),
                          MeanSquaredError{}},
                  Shape(rows, 40), workers, parts);
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("layers use the bytes they declare, to the last", Policy, Retain, Recompute,
                   Compress<Int8Outlier>) {
  alone_and_in_chains<Policy>(Linear{.out = 40});
  alone_and_in_chains<Policy>(LayerNorm{});
  alone_and_in_chains<Policy>(RmsNorm{});
  alone_and_in_chains<Policy>(Gelu{});
  alone_and_in_chains<Policy>(Silu{});
  alone_and_in_chains<Policy>(Relu{});
  alone_and_in_chains<Policy>(Dropout{.rate = 0.25F});
}

TEST_CASE("products of many blocks use their workspace to the last byte" *
          doctest::test_suite("one_thread")) {
  for (const std::size_t out : std::vector<std::size_t>{3, 200, 900})
    for (const std::size_t in : std::vector<std::size_t>{5, 400, 1000})
      for (const int workers : {1, 2}) {
        if (workers == 1 && in == 1000) continue;  // the large ones on two threads alone
        if (test_sanitized && (out == 200 || in == 400)) continue;  // minutes under sanitizers
        const Network one{Sequential<Layer<Linear>>(Layer<Linear>{Linear{.out = out}}),
                          MeanSquaredError{}};
        check_bytes(one, Shape(37, in), workers, 1);
        const Network two{
            Sequential<Layer<Linear>, Layer<Linear>>({Linear{.out = in}}, {Linear{.out = out}}),
            MeanSquaredError{}};
        if (!test_sanitized || in != 1000) check_bytes(two, Shape(450, in), workers, 1);
        check_bytes(two, Shape(450, in), workers, 4);
      }
}

TEST_CASE("layers on pictures use the bytes they declare, to the last") {
  for (const Conv2d& conv : {Conv2d{.out = 20, .padding = 1}, Conv2d{.out = 20, .kernel = 1},
                             Conv2d{.out = 20, .stride = 2, .padding = 1, .groups = 4},
                             Conv2d{.out = 60, .padding = 1, .groups = 60}})
    for (const int workers : {1, 3}) {
      const std::size_t channels = conv.groups == 60 ? 60 : 52;
      const Network net{Sequential{layer(Conv2d{.out = channels, .kernel = 1}), layer(conv),
                                   layer(GroupNorm{.groups = 4, .relu = true}), layer(MaxPool2d{}),
                                   layer(MeanOverPicture{})},
                        MeanSquaredError{}};
      check_bytes(net, Shape(5, 9, 8, 7), workers, workers);
    }
}

}  // namespace layer_bytes_test
