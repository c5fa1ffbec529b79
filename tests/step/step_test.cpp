// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/block.hpp>

#include "step_run.hpp"

namespace step_test {

using namespace adacc;
using namespace step_run;

TEST_CASE("random networks: bytes used are the bytes predicted, bits are those of Retain") {
  int compared = 0;
  for (unsigned seed = 1000; seed < 1250; ++seed) {
    CAPTURE(seed);
    const bool lossy = seed % 3 == 0;
    auto network = random_model::draw(seed, lossy);
    const Shape shape = random_model::draw_shape(seed);
    const int workers = 1 + static_cast<int>(seed % 3), parts = 1 + static_cast<int>(seed / 3 % 4);
    const Outcome a = run_step(network, shape, workers, parts, 0x5A);
    const Outcome b = run_step(network, shape, workers, parts, 0xC3);
    CHECK(a.guard_intact);
    CHECK(b.guard_intact);
    // A byte may happen to be written with the pattern; two patterns settle it.
    CHECK(std::max(a.used, b.used) == predicted(network, shape, workers, parts));
    CHECK(same_bits(a, b));
    CHECK(same_bits(a, run_step(network, shape, workers % 3 + 1, parts, 0x5A)));
    if (lossy) continue;
    network.model.retain_everything = true;
    CHECK(same_bits(a, run_step(network, shape, workers, parts, 0x5A)));
    ++compared;
  }
  CHECK(compared > 150);
}

TEST_CASE("a program in another scalar type, or with an unknown codec, is refused") {
  const auto network = random_model::draw(3, false);
  CHECK_FALSE(Step<>::make(network, *make_program(network, Shape(4, 4), {.scalar = Dtype::f64})));
  using Net = Network<Sequential<Layer<random_model::Bump>, Layer<random_model::Bump>>,
                      random_model::HalfSquare>;
  const Net net{};
  auto graph = make_graph(net, Shape(4, 4));
  Plan plan = retain_all(*graph);
  plan.policies[0] = compress(&codec_info<random_model::Verbatim>);
  auto program = make_program(*graph, plan);
  REQUIRE(program);
  CHECK(std::string(Step<>::make(net, *program).error.text()).find("verbatim") !=
        std::string::npos);
  auto dispatch = make_dispatch<float, Cpu>(net);
  dispatch.add_codec<random_model::Verbatim>();
  CHECK(Step<>::make(dispatch, *program));
}

TEST_CASE("a step knows whether the random key matters to it") {
  using random_model::Bump;
  const Shape shape(64, 64);
  const auto draws = [&](const auto& net, const CodecInfo* codec) {
    auto graph = make_graph(net, shape);
    Plan plan = retain_all(*graph);
    if (codec != nullptr) plan.policies[0] = compress(codec);
    auto dispatch = make_dispatch<float, Cpu>(net);
    dispatch.template add_codec<Int8Outlier>();
    dispatch.template add_codec<Int8OutlierWith<Int8Options{.rounding = Rounding::stochastic}>>();
    auto step = Step<>::make(dispatch, *make_program(*graph, plan));
    REQUIRE_MESSAGE(step, std::string(step.error.text()));
    return step->draws_numbers();
  };
  const Network plain{Sequential<Layer<Bump>, Layer<Bump>>{}, random_model::HalfSquare{}};
  const Network noisy{Sequential<Layer<Bump>, Layer<random_model::Noise>>{},
                      random_model::HalfSquare{}};
  CHECK_FALSE(draws(plain, nullptr));
  CHECK_FALSE(draws(plain, &codec_info<Int8Outlier>));
  CHECK(draws(plain, &codec_info<Int8OutlierWith<Int8Options{.rounding = Rounding::stochastic}>>));
  CHECK(draws(noisy, nullptr));
}

TEST_CASE("a recorded step counts as one, and what its launch says is the step's error") {
  using random_model::Bump;
  const Network net{Sequential<Layer<Bump>, Layer<Bump>>{}, random_model::HalfSquare{}};
  const Shape shape(4, 4);
  auto step = Step<>::make(net, *make_program(net, shape));
  REQUIRE(step);
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  std::vector<float> x(16, 0.5F);
  const View<const float> input(x.data(), shape);
  REQUIRE_FALSE(step->bind(arena->view(), View<const float>{}));
  Cpu cpu;
  const auto first = step->run(cpu, input, input);
  REQUIRE(first);
  int launches = 0;
  const auto again = step->run_recorded(cpu, input, input, [&] {
    ++launches;
    return Error();
  });
  REQUIRE(again);
  CHECK(launches == 1);
  CHECK(step->begun() == 2);
  CHECK(step->ended() == 2);
  const auto failed =
      step->run_recorded(cpu, input, input, [] { return Error::say("no launch today"); });
  CHECK(std::string(failed.error.text()) == "no launch today");
  CHECK_FALSE(step->active());
  CHECK(step->run(cpu, input, input));
}

}  // namespace step_test
