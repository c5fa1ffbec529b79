// SPDX-License-Identifier: MIT
/// Trainings in less memory than recomputing once takes.
#include <doctest/doctest.h>

#include <adacc/layer/dropout.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/model/repeat.hpp>
#include <adacc/model/sequential.hpp>
#include <adacc/train/make.hpp>

#include <cstring>
#include <vector>

namespace train_nested_test {

using namespace adacc;

namespace {

const Shape shape(16, 32);
/// Layers that read what they make, inputs, and random numbers.
const Network net{Sequential{repeat(32, Sequential{layer(Linear{.out = 32}), layer(Relu{}),
                                                   layer(Dropout{.rate = 0.1F})}),
                             layer(Linear{.out = 4})},
                  MeanSquaredError{}};

struct Trained {
  std::vector<float> parameters;
  bool nested = false;
};

/// Some steps within `percent` of what retaining takes; no parameters if that is refused.
Trained trained(std::size_t percent, int most_runs) {
  const auto graph = make_graph(net, shape);
  REQUIRE_MESSAGE(graph, graph.error.text());
  const std::size_t budget = peak_bytes(*graph, retain_all(*graph)) * percent / 100;
  TrainingOptions<Cpu, AdamW> options{.seed = 5};
  options.budget_bytes = budget;
  options.tolerance = 0;
  options.planning.evolving = false;
  options.planning.most_runs = most_runs;
  auto training = Training<>::make(net, shape, options);
  Trained out;
  if (!training) return out;
  out.nested = is_nested(training->plan());
  CHECK(training->compiled_step().arena_bytes() <= budget);
  std::vector<float> input(shape.elems()), targets(16 * 4);
  for (std::size_t i = 0; i < input.size(); ++i)
    input[i] = 0.01F * static_cast<float>(i % 97) - 0.4F;
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = 0.02F * static_cast<float>(i % 31);
  for (int i = 0; i < 3; ++i) {
    const auto outcome = training->step(View<const float>(input.data(), shape),
                                        View<const float>(targets.data(), Shape(16, 4)), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
  }
  const float* const parameters = training->parameters().full();
  out.parameters.assign(parameters, parameters + graph->parameter_elems);
  return out;
}

}  // namespace

TEST_CASE("a deep network trains in less than recomputing once takes, with the bits of retaining") {
  const Trained whole = trained(100, 1);
  CHECK_FALSE(whole.nested);
  CHECK(trained(11, 1).parameters.empty());
  const Trained nested = trained(11, most_runs);
  CHECK(nested.nested);
  REQUIRE(nested.parameters.size() == whole.parameters.size());
  CHECK(std::memcmp(nested.parameters.data(), whole.parameters.data(),
                    whole.parameters.size() * sizeof(float)) == 0);
}

}  // namespace train_nested_test
