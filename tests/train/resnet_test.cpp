// SPDX-License-Identifier: MIT
// A residual network on made-up pictures: it learns, and plans without loss give it the same bits.
#include <adacc/train/make.hpp>

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/layer/resnet.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace resnet_test {

using namespace adacc;

namespace {

constexpr std::size_t batch = 12, side = 8;
const Shape pictures_shape(batch, side, side, 3);
const resnet::Config small{.blocks = 2, .channels = 8, .groups = 4, .classes = 3};

/// Stripes along x, along y, or along neither, in a random color, with noise.
struct Pictures {
  std::vector<float> x = std::vector<float>(pictures_shape.elems());
  std::vector<std::int32_t> kinds = std::vector<std::int32_t>(batch);

  explicit Pictures(std::uint32_t number) {
    const RandomKey key{.seed = 11, .step = number};
    for (std::size_t b = 0; b < batch; ++b) {
      kinds[b] = static_cast<std::int32_t>(random_word(key, 4 * b) % 3);
      const std::size_t phase = random_word(key, 4 * b + 1) % 4;
      for (std::size_t p = 0; p < side * side; ++p) {
        const std::size_t at = kinds[b] == 0   ? p % side
                               : kinds[b] == 1 ? p / side
                                               : p % side + p / side;
        const bool bright = (at + phase) % 4 < 2;
        for (std::size_t c = 0; c < 3; ++c) {
          const std::size_t e = (b * side * side + p) * 3 + c;
          const float color = unit_float(random_word(key, 1000 + 3 * b + c));
          x[e] = (bright ? color : -color) + 0.4F * (unit_float(random_word(key, 2000 + e)) - 0.5F);
        }
      }
    }
  }
  View<const float> input() const { return {x.data(), pictures_shape}; }
  View<const std::int32_t> targets() const { return {kinds.data(), Shape(batch)}; }
};

/// The losses of some steps under `plan`, and the parameters behind them.
struct Trained {
  std::vector<double> losses;
  std::vector<float> params;
  std::size_t peak = 0;
};
Trained train(const resnet::ResNet<>& net, Plan plan, int steps) {
  const Graph graph = *make_graph(net, pictures_shape);
  auto training = Training<>::make(net, *make_program(graph, std::move(plan)));
  REQUIRE_MESSAGE(training, training.error.text());
  Trained trained;
  trained.peak = training->compiled().arena_bytes();
  for (int i = 0; i < steps; ++i) {
    const Pictures pictures(static_cast<std::uint32_t>(i));
    const auto outcome = training->step(pictures.input(), pictures.targets(), 3e-3);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    trained.losses.push_back(outcome->loss);
  }
  const View<const float> params = training->params();
  trained.params.assign(params.data(), params.data() + params.size());
  return trained;
}

}  // namespace

TEST_CASE("resnet: 20 layers with weights, and shapes that halve") {
  const auto graph = make_graph(resnet::make(resnet::Config{}), Shape(2, 32, 32, 3));
  REQUIRE_MESSAGE(graph, graph.error.text());
  int weights = 0;
  for (const Parameter& parameter : graph->parameters) weights += parameter.shape.rank() > 1;
  CHECK(weights == 20);
  CHECK(graph->output() == Shape(2, 10));
  CHECK(make_graph(resnet::make(resnet::Config{.groups = 5}), Shape(2, 32, 32, 3)).error);
  CHECK(make_graph(resnet::make(resnet::Config{.blocks = 1}), Shape(2, 32, 32, 3)).error);
}

TEST_CASE("resnet: learns what stripes look like, with the same bits under plans without loss") {
  const auto net = resnet::make(small);
  const Graph graph = *make_graph(net, pictures_shape);
  const Trained retained = train(net, retain_all(graph), 40);
  double early = 0, late = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    early += retained.losses[i] / 5;
    late += retained.losses[35 + i] / 5;
  }
  CHECK(late < 0.5 * early);

  const auto check_same = [&](Plan plan, double most_of_peak) {
    const Trained other = train(net, std::move(plan), 6);
    CHECK(std::memcmp(other.losses.data(), retained.losses.data(), 6 * sizeof(double)) == 0);
    CHECK(static_cast<double>(other.peak) <= most_of_peak * static_cast<double>(retained.peak));
  };
  check_same(
      plan_from_types(*make_graph(resnet::make<resnet::NormsAgainSet>(small), pictures_shape)),
      0.95);
  CostProfile profile = estimated_profile(graph);
  estimate_errors(graph, profile);
  PlanRequest request;
  request.tolerance = 0;
  request.budget_bytes = retained.peak;
  const auto smallest = smallest_peak(graph, profile, request);
  REQUIRE_MESSAGE(smallest, smallest.error.text());
  CHECK(static_cast<double>(*smallest) < 0.7 * static_cast<double>(retained.peak));
  for (const std::size_t budget : {*smallest, (*smallest + retained.peak) / 2}) {
    request.budget_bytes = budget;
    const auto outcome = make_plan(graph, profile, request);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    CHECK(outcome->peak_bytes <= budget);
    check_same(outcome->plan, 0.9);
  }
}

}  // namespace resnet_test
