// SPDX-License-Identifier: MIT
// A residual network on made-up pictures: it learns, and plans without loss give it the same bits.
#include <adacc/train/make.hpp>

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/models/resnet.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "../test_size.hpp"

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
template <class Net>
Trained train(const Net& net, Plan plan, int steps) {
  const Graph graph = *make_graph(net, pictures_shape);
  auto training = Training<>::make(net, *make_program(graph, std::move(plan)));
  REQUIRE_MESSAGE(training, training.error.text());
  Trained trained;
  trained.peak = training->compiled_step().arena_bytes();
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

/// Of the loss along a random direction of all parameters: what backward says, and a difference.
template <class Net>
void check_slope(const Net& net) {
  auto training = Training<double>::make(net, Shape(3, side, side, 3), {});
  REQUIRE_MESSAGE(training, training.error.text());
  std::vector<double> x(3 * side * side * 3), direction(training->gradients().size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = 2 * static_cast<double>(unit_float(random_word({}, i))) - 1;
  const std::int32_t kinds[] = {0, 2, 1};
  const auto loss = [&] {
    const auto found = training->accumulate(View<const double>(x.data(), Shape(3, side, side, 3)),
                                            View<const std::int32_t>(kinds, Shape(3)));
    REQUIRE_MESSAGE(found, found.error.text());
    return *found;
  };
  loss();
  const std::vector<double> gradients(training->gradients().begin(), training->gradients().end());
  const View<double> params = training->params();
  const std::vector<double> before(params.begin(), params.end());
  for (std::uint32_t number = 0; number < 4; ++number) {
    double slope = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] =
          static_cast<double>(unit_float(random_word({.seed = 5, .step = number}, i))) - 0.5;
      slope += direction[i] * gradients[i];
    }
    const auto at = [&](double step) {
      for (std::size_t i = 0; i < before.size(); ++i) params[i] = before[i] + step * direction[i];
      return loss();
    };
    constexpr double step = 1e-6;
    CHECK(slope == doctest::Approx((at(step) - at(-step)) / (2 * step)).epsilon(1e-4));
  }
}

/// Trained under plans without loss, `net` has the bits that it has if all is retained.
template <class Net, class NormsAgain>
void check_plans(const Net& net, const NormsAgain& norms_again, const Trained& retained) {
  const Graph graph = *make_graph(net, pictures_shape);
  const auto check_same = [&](Plan plan, double most_of_peak) {
    const Trained other = train(net, std::move(plan), 6);
    CHECK(std::memcmp(other.losses.data(), retained.losses.data(), 6 * sizeof(double)) == 0);
    CHECK(static_cast<double>(other.peak) <= most_of_peak * static_cast<double>(retained.peak));
  };
  check_same(plan_from_types(*make_graph(norms_again, pictures_shape)), 0.95);
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

}  // namespace

TEST_CASE("resnet: 20 layers with weights beside the shortcuts', and shapes that halve") {
  const auto check_shapes = [](const Result<Graph>& graph) {
    REQUIRE_MESSAGE(graph, graph.error.text());
    int weights = 0, shortcuts = 0;
    for (const Parameter& parameter : graph->parameters) {
      const bool pixel = parameter.shape.rank() == 4 && parameter.shape[1] == 1;
      (pixel ? shortcuts : weights) += parameter.shape.rank() > 1;
    }
    CHECK(weights == 20);
    CHECK(shortcuts == 2);
    CHECK(graph->output() == Shape(2, 10));
  };
  check_shapes(make_graph(resnet::make(resnet::Config{}), Shape(2, 32, 32, 3)));
  check_shapes(make_graph(resnet::make_preactivated(resnet::Config{}), Shape(2, 32, 32, 3)));
  CHECK(make_graph(resnet::make(resnet::Config{.groups = 5}), Shape(2, 32, 32, 3)).error);
  CHECK(make_graph(resnet::make(resnet::Config{.blocks = 1}), Shape(2, 32, 32, 3)).error);
}

TEST_CASE("resnet: gradients are those of differences, through shortcuts, too") {
  check_slope(resnet::make(small));
  check_slope(resnet::make_preactivated(small));
}

TEST_CASE("resnet: with norms in front, half of the peak is enough to make norms alone again") {
  const auto net = resnet::make_preactivated(resnet::Config{});
  const Graph graph = *make_graph(net, Shape(32, 32, 32, 3));
  const auto typed =
      make_graph(resnet::make_preactivated<resnet::NormsAgainSet>(resnet::Config{}), graph.input);
  const Plan plan = plan_from_types(*typed);
  CHECK(2 * peak_bytes(graph, plan) <= peak_bytes(graph, retain_all(graph)));
}

TEST_CASE("resnet: learns what stripes look like, with the same bits under plans without loss") {
  const auto net = resnet::make(small);
  const Graph graph = *make_graph(net, pictures_shape);
  const Trained retained = train(net, retain_all(graph), test_sanitized ? 6 : 40);
  if (!test_sanitized) {
    double early = 0, late = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      early += retained.losses[i] / 5;
      late += retained.losses[35 + i] / 5;
    }
    CHECK(late < 0.5 * early);
  }

  check_plans(net, resnet::make<resnet::NormsAgainSet>(small), retained);
  const auto other = resnet::make_preactivated(small);
  check_plans(other, resnet::make_preactivated<resnet::NormsAgainSet>(small),
              train(other, retain_all(*make_graph(other, pictures_shape)), 6));
}

}  // namespace resnet_test
