// SPDX-License-Identifier: MIT
/// Forward passes alone: in memory of their own, in a training's, and what they leave alone.
#include <doctest/doctest.h>

#include <adacc/layer/dropout.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/inference.hpp>
#include <adacc/train/make.hpp>

#include <cstring>
#include <vector>

#include "support.hpp"

namespace inference_test { namespace {

using namespace adacc;

using Net = Network<
    Sequential<Layer<plain::Linear>, Layer<plain::Tanh>, Layer<Dropout>, Layer<plain::Linear>>,
    plain::MeanSquaredError>;
const Net net{{{plain::Linear{.out = 12}}, {}, {{.rate = 0.5F}}, {plain::Linear{.out = 3}}}, {}};
const Shape shape(8, 5), output_shape(8, 3), few(2, 5);

bool says(const Error& error, const char* what) { return train_test::says(error.text(), what); }

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 2 * unit_float(random_word({.seed = seed}, i)) - 1;
  return x;
}

TEST_CASE("a pass of another shape, with memory of its own, has the bits of the training's") {
  auto training = Training<>::make(net, shape, {.seed = 3});
  REQUIRE(training);
  const auto x = numbers(shape.elems(), 1), y = numbers(output_shape.elems(), 2);
  std::vector<float> all(output_shape.elems());
  REQUIRE_FALSE(
      training->infer(View<const float>(x.data(), shape), View<float>(all.data(), output_shape)));

  auto player = Inference<>::make(net, few);
  REQUIRE(player);
  Cpu cpu;
  CHECK(
      says(training->infer(View<const float>(x.data(), shape), View<float>(nullptr, output_shape)),
           "output has no address"));
  CHECK(says(player->infer(cpu, View<const float>(x.data(), few)).error, "bind()"));
  REQUIRE_FALSE(player->take_memory());
  REQUIRE_FALSE(player->copy_parameters(training->params()));
  cpu.key = {.seed = 9, .step = 4};
  cpu.key.activation = 77;
  for (std::size_t first = 0; first < 8; first += 2) {
    const auto rows = player->infer(cpu, View<const float>(x.data() + first * 5, few));
    REQUIRE(rows);
    CHECK(std::memcmp(rows->data(), all.data() + first * 3, 6 * sizeof(float)) == 0);
  }
  // The context is as it was.
  CHECK(cpu.key.seed == 9);
  CHECK(cpu.key.step == 4);
  CHECK(cpu.key.activation == 77);

  // In the arena of the training, which is larger than it needs.
  auto guest = Inference<>::make(net, few);
  REQUIRE(guest);
  REQUIRE_FALSE(guest->bind(training->arena(), training->parameters()));
  const auto rows = guest->infer(cpu, View<const float>(x.data(), few));
  REQUIRE(rows);
  CHECK(std::memcmp(rows->data(), all.data(), 6 * sizeof(float)) == 0);
  // It changes what is trained when that has changed, and the copy does not.
  REQUIRE(training->step(View<const float>(x.data(), shape),
                         View<const float>(y.data(), output_shape), 1e-2));
  REQUIRE_FALSE(guest->bind(training->arena(), training->parameters()));
  const auto changed = guest->infer(cpu, View<const float>(x.data(), few));
  CHECK(std::memcmp(changed->data(), all.data(), 6 * sizeof(float)) != 0);
  const auto kept = player->infer(cpu, View<const float>(x.data(), few));
  CHECK(std::memcmp(kept->data(), all.data(), 6 * sizeof(float)) == 0);
}

TEST_CASE("what a pass was not made for is refused in words") {
  auto pass = Inference<>::make(net, few);
  REQUIRE(pass);
  REQUIRE_FALSE(pass->take_memory());
  Cpu cpu;
  const auto x = numbers(shape.elems(), 1);
  const View<const float> input(x.data(), few);
  CHECK(says(pass->evaluate(cpu, input, input).error, "Mode::evaluate"));
  CHECK(says(pass->infer(cpu, View<const float>(x.data(), shape)).error, "takes an input of"));
  CHECK(says(pass->copy_parameters(View<const float>(x.data(), Shape(3))), "and got 3"));
  auto judge =
      Inference<>::make(make_dispatch<float, Cpu>(net), *make_graph(net, few), Mode::evaluate);
  REQUIRE(judge);
  REQUIRE_FALSE(judge->take_memory());
  CHECK(says(judge->infer(cpu, input).error, "Mode::infer"));
  CHECK(judge->evaluate(cpu, input, View<const float>(x.data(), Shape(2, 3))));
}

TEST_CASE("parameters in bf16 are read as numbers, and become the nearest ones that are written") {
  auto training =
      Training<>::make(net, shape, {.seed = 3, .graph = {.parameters = ParameterForm::bf16}});
  REQUIRE_MESSAGE(training, training.error.text());
  std::vector<float> before;
  const auto keep = [&](View<const float> all) {
    before.assign(all.begin(), all.end());
    return Error();
  };
  REQUIRE_FALSE(training->read_parameters(keep));
  REQUIRE(before.size() == training->params_in_bf16().size());
  for (std::size_t i = 0; i < before.size(); ++i)
    CHECK(before[i] == to_float(training->params_in_bf16()[i]));
  REQUIRE_FALSE(training->write_parameters([&](View<float> all) {
    CHECK(std::memcmp(all.data(), before.data(), before.size() * sizeof(float)) == 0);
    all[0] = 1 + 1.0F / 1024;  // bf16 has 8 bits
    return Error();
  }));
  CHECK(to_float(training->params_in_bf16()[0]) == 1);
  CHECK(to_float(training->params_in_bf16()[1]) == before[1]);
  // What fails halfway has written nothing.
  CHECK(training->write_parameters([&](View<float> all) {
    all[0] = 5;
    return Error::say("no");
  }));
  CHECK(to_float(training->params_in_bf16()[0]) == 1);
}

TEST_CASE("forward-only training that is given up between two passes is where it was") {
  auto training = ForwardOnly<>::make(net, shape, {.directions = 2, .seed = 3});
  REQUIRE(training);
  const auto x = numbers(shape.elems(), 1), y = numbers(output_shape.elems(), 2);
  const View<const float> input(x.data(), shape), targets(y.data(), output_shape);
  const std::vector<float> before(training->params().begin(), training->params().end());
  std::int64_t ticks = 0;
  const auto now = [&] { return ++ticks; };
  for (const int slices : {1, 3, 6}) {
    CAPTURE(slices);
    REQUIRE_FALSE(training->begin(input, targets));
    for (int i = 0; i < slices; ++i) REQUIRE(training->slice(now, ticks + 4));
    CHECK(says(training->save("/nowhere"), "under way"));
    CHECK(says(training->begin(input, targets), "under way"));
    training->abandon();
    CHECK(says(training->update(1e-2).error, "no slopes"));
    for (std::size_t i = 0; i < before.size(); ++i)
      CHECK(training->params()[i] == doctest::Approx(before[i]).epsilon(1e-5));
  }
  CHECK(training->step(input, targets, 1e-2));
  CHECK(says(training->slice(now, ticks + 4).error, "begin()"));
  // A budget is the arena's, which one forward pass takes and no plan makes smaller.
  CHECK_FALSE(training->set_budget(training->peak_bytes()));
  CHECK(says(training->set_budget(training->peak_bytes() - 1), "takes"));
}

}}  // namespace inference_test
