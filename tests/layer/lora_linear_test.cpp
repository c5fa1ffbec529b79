// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/layer/lora_linear.hpp>
#include <adacc/testing/gradient_check.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace lora_linear_test {

using namespace adacc;

TEST_CASE("lora_linear: gradients against finite differences, whatever of them is wanted") {
  for (const bool bias : {true, false})
    for (const std::size_t rank : {1U, 4U})
      for (const Shape shape : {Shape(1, 5), Shape(2, 9, 17)}) {
        const auto result =
            testing::gradient_check(LoraLinear{.out = 7, .bias = bias, .rank = rank, .alpha = 3},
                                    shape, {.max_elements = 60});
        CHECK_MESSAGE(result.passed, result.text(), " at ", shape.cols(), " inputs, rank ", rank);
      }
}

TEST_CASE("lora_linear: what it reads, and what of it is trained") {
  const LoraLinear lora{.out = 6, .rank = 2};
  const auto wanting = [](std::uint64_t parameters) { return Wanted{true, parameters}; };
  CHECK(lora.reads_when(wanting(0b1000)) == Reads::none);
  CHECK(lora.reads_when(wanting(0b1010)) == Reads::none);
  CHECK(lora.reads_when(wanting(0b0100)) == Reads::input);
  CHECK(lora.reads_when(wanting(0b0001)) == Reads::input);
  CHECK(LoraLinear{.out = 6, .bias = false}.reads_when(wanting(0b0010)) == Reads::input);
  const auto trained = [](const LoraLinear& layer) {
    std::string names;
    const auto specs = layer.parameters(Shape(3, 4));
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (!specs[i].frozen) names += std::string(specs[i].name) + " ";
    return names;
  };
  CHECK(trained(lora) == "lora_a lora_b ");
  CHECK(trained({.out = 6, .bias = false, .rank = 2, .train_a = false}) == "lora_b ");
}

TEST_CASE("lora_linear: merged, it is a linear layer") {
  const LoraLinear lora{.out = 6, .rank = 2, .alpha = 5};
  const auto specs = lora.parameters(Shape(3, 4));
  Parameter list[4];
  std::size_t at = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    static_cast<ParameterSpec&>(list[i]) = specs[i];
    list[i].offset = at;
    at += align_up(specs[i].shape.elems() * 8) / 8;
  }
  std::vector<double> values(at), x(12), y(18), merged(18);
  for (std::size_t i = 0; i < at; ++i) values[i] = unit_float(random_word({.seed = 1}, i)) - 0.5;
  for (std::size_t i = 0; i < 12; ++i) x[i] = unit_float(random_word({.seed = 2}, i)) - 0.5;
  const Params<const double> params(values.data(), list, 4);
  testing::GuardedBlock workspace(
      lora.needs(Shape(3, 4), {Dtype::f64, 1, Pass::forward}).workspace);
  testing::GuardedBlock h(lora.needs(Shape(3, 4), {Dtype::f64}).aux);
  Cpu cpu;
  lora.forward(cpu, ForwardCall<double>{.x = {x.data(), Shape(3, 4)},
                                        .y = {y.data(), Shape(3, 6)},
                                        .params = params,
                                        .aux = h.bytes(),
                                        .workspace = workspace.bytes()});
  lora.merge<double>(params, {values.data(), Shape(6, 4)});
  Linear{.out = 6}.forward(cpu, ForwardCall<double>{.x = {x.data(), Shape(3, 4)},
                                                    .y = {merged.data(), Shape(3, 6)},
                                                    .params = params,
                                                    .workspace = workspace.bytes()});
  for (std::size_t i = 0; i < 18; ++i) CHECK(merged[i] == doctest::Approx(y[i]).epsilon(1e-12));
}

TEST_CASE("lora_linear: bad options are said in words") {
  const auto says = [](const LoraLinear& layer, const char* what) {
    const Error why = layer.needs(Shape(3, 4), {}).error;
    CHECK_MESSAGE(std::string(why.text()).find(what) != std::string::npos, why.text());
  };
  says({.out = 6, .rank = 5}, "a rank of 5 between 4 inputs and 6 outputs; 1 to 4 are possible");
  says({.out = 2, .rank = 3}, "1 to 2");
  says({.out = 6, .rank = 0}, "1 to 4");
  says({.out = 0}, "outputs is 0");
  says({.out = 6, .rank = 2, .alpha = std::numeric_limits<float>::quiet_NaN()}, "alpha");
  says({.out = 6, .rank = 2, .alpha = std::numeric_limits<float>::infinity()}, "alpha");
  says({.out = 6, .rank = 2, .alpha = 0}, "alpha must be a finite number, and with 0");
}

}  // namespace lora_linear_test
