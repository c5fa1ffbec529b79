// SPDX-License-Identifier: MIT
// A FixedTraining has the bits of a Training, and refuses calls out of order.
#include <doctest/doctest.h>
#include <adacc/adacc.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/train/fixed_training.hpp>
#include <adacc/train/training.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

namespace fixed_training_test {

using namespace adacc;

namespace {

constexpr std::size_t rows = 6, width = 20, classes = 5;
constexpr Network net{Sequential{layer(Linear{.out = 24}), layer<Recompute>(Relu{}),
                                 layer(Dropout{.rate = 0.25F}), layer(Linear{.out = classes})},
                      SoftmaxCrossEntropy{}};
constexpr auto make = [] { return make_program(net, Shape(rows, width)); };

using Small = AdamWWith<Bf16Moments>;
constinit FixedTraining<decltype(make), Small> small;
decltype(small)::Memory small_memory;
constinit FixedTraining<decltype(make), Sgd> plain;
decltype(plain)::Memory plain_memory;
constinit FixedTraining<decltype(make), Small> unbound;

struct Batch {
  std::vector<float> x = std::vector<float>(rows * width);
  std::vector<std::int32_t> y = std::vector<std::int32_t>(rows);

  explicit Batch(std::uint32_t number) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(random_word({.seed = 3, .step = number}, i) % 1000) / 500 - 1;
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = static_cast<std::int32_t>(random_word({.seed = 4, .step = number}, i) % classes);
  }
  View<const float> input() const { return {x.data(), Shape(rows, width)}; }
  View<const std::int32_t> targets() const { return {y.data(), Shape(rows)}; }
};

/// Six steps, the third of two micro-batches, beside a Training's.
template <class Fixed, class Optimizer>
void compare(Fixed& fixed, typename Fixed::Memory& memory, const Optimizer& optimizer) {
  Cpu cpu;
  cpu.key.seed = 11;
  auto training = Training<float, Cpu, Optimizer>::make(net, *make(), cpu, 0, optimizer);
  REQUIRE_MESSAGE(training, training.error.text());
  REQUIRE_FALSE(fixed.set_up(net, memory));
  fixed.optimizer = optimizer;
  fixed.initialize(cpu, 11);
  for (std::uint32_t i = 0; i < 6; ++i) {
    Batch first(2 * i), second(2 * i + 1);
    if (i == 2) {
      for (std::size_t k = 0; k < 4; ++k) first.y[k] = ignored_target;
      const auto expected = training->accumulate(first.input(), first.targets());
      const auto loss = fixed.accumulate(cpu, first.input(), first.targets());
      REQUIRE(loss);
      CHECK(*loss == *expected);
    }
    const auto expected = training->step(second.input(), second.targets(), 1e-2);
    REQUIRE(expected);
    const auto loss = fixed.step(cpu, second.input(), second.targets(), 1e-2);
    REQUIRE_MESSAGE(loss, loss.error.text());
    if (i != 2) CHECK(*loss == expected->loss);
    REQUIRE_FALSE(training->read_parameters([&](View<const float> params) {
      CHECK(params.size() == fixed.params().size());
      CHECK(std::memcmp(params.data(), memory.params, sizeof memory.params) == 0);
      return Error();
    }));
  }
  CHECK(fixed.updates() == 6);
  Batch broken(97);
  broken.x[0] = std::nanf("");
  for (int i = 0; i < 2; ++i) {  // the second is a step of finite numbers, from gradients of zero
    const auto expected = training->step(broken.input(), broken.targets(), 1e-2);
    const auto loss = fixed.step(cpu, broken.input(), broken.targets(), 1e-2);
    REQUIRE(expected);
    REQUIRE(loss);
    CHECK(expected->finite == (i == 1));
    CHECK(std::isfinite(*loss) == (i == 1));
    CHECK(fixed.updates() == training->updates());
    CHECK(std::memcmp(training->params().data(), memory.params, sizeof memory.params) == 0);
    broken.x[0] = 1;
  }
  CHECK(fixed.updates() == 7);
  Batch ignored(98);
  for (std::int32_t& target : ignored.y) target = ignored_target;
  const std::vector<float> before(memory.params, memory.params + Fixed::parameter_elems);
  const auto loss = fixed.step(cpu, ignored.input(), ignored.targets(), 1e-2);
  REQUIRE(loss);
  CHECK(*loss == 0);
  CHECK(fixed.updates() == 7);
  CHECK(std::memcmp(before.data(), memory.params, sizeof memory.params) == 0);

  std::vector<float> out(rows * classes);
  const Batch batch(99);
  REQUIRE_FALSE(training->infer(batch.input(), View<float>(out.data(), Shape(rows, classes))));
  const auto scores = fixed.infer(cpu, batch.input());
  REQUIRE(scores);
  CHECK(std::memcmp(out.data(), scores->data(), out.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("a fixed training has the bits of a Training") {
  static_assert(decltype(small)::state_bytes == 2 * (2 * 480 + 64 + 2 * 120 + 16 + 64));
  compare(small, small_memory, Small{.weight_decay = 0.1F});
  compare(plain, plain_memory, Sgd{.momentum = 0.9F});
  static_assert(sizeof small < 8 * KiB, "the memory is not in the object");

  plain.restart();
  CHECK(plain.updates() == 0);
  for (const std::byte byte : plain_memory.state) CHECK(byte == std::byte{});
}

TEST_CASE("a fixed training refuses calls out of order") {
  Cpu cpu;
  const Batch batch(1);
  CHECK(std::string(unbound.step(cpu, batch.input(), batch.targets(), 1).error.text())
            .find("set_up() it first") != std::string::npos);
  CHECK_FALSE(unbound.infer(cpu, batch.input()));
  static decltype(unbound)::Memory memory;
  REQUIRE_FALSE(unbound.set_up(net, memory));
  CHECK(std::string(unbound.set_up(net, memory).text()).find("has been set up") !=
        std::string::npos);
  CHECK(std::string(unbound.update(cpu, 1).text()).find("after accumulate()") != std::string::npos);
  CHECK_FALSE(unbound.step(cpu, View<const float>(batch.x.data(), Shape(rows, width - 1)),
                           batch.targets(), 1));
  CHECK(unbound.updates() == 0);
}

TEST_CASE("a fixed training refuses a rate and options that would spoil parameters") {
  static constinit FixedTraining<decltype(make), AdamW> training;
  static decltype(training)::Memory memory;
  Cpu cpu;
  const Batch batch(1);
  REQUIRE_FALSE(training.set_up(net, memory));
  training.initialize(cpu, 3);
  const std::vector<float> before(memory.params, memory.params + training.parameter_elems);
  const auto step = [&](double rate) {
    return training.step(cpu, batch.input(), batch.targets(), rate).error;
  };
  CHECK(std::string(step(HUGE_VAL).text()).find("must be a finite number") != std::string::npos);
  training.optimizer.beta1 = 1;
  CHECK(std::string(step(1).text()).find("beta1 and beta2 must be") != std::string::npos);
  CHECK(training.updates() == 0);
  CHECK(std::memcmp(before.data(), memory.params, sizeof memory.params) == 0);
  for (const float gradient : memory.gradients) CHECK(gradient == 0);  // no sums are left behind
  training.optimizer = {};
  REQUIRE(training.accumulate(cpu, batch.input(), batch.targets()));
  CHECK(training.update(cpu, HUGE_VAL));
  CHECK_FALSE(training.update(cpu, 1e-3));
  CHECK(training.updates() == 1);
}

}  // namespace fixed_training_test
