// SPDX-License-Identifier: MIT
#include "adacc/optimizer/learning_rate.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "../train/support.hpp"

namespace learning_rate_test { namespace {

using namespace adacc;
using train_test::says;

TEST_CASE("without warm-up and decay the rate is constant") {
  const LearningRate rate{.lr = 3e-4};
  CHECK(rate.at(0) == 3e-4);
  CHECK(rate.at(1000000) == 3e-4);
  CHECK(!rate.validate());
}

TEST_CASE("the warm-up is linear and never zero") {
  const LearningRate rate{.lr = 1, .warmup_steps = 4};
  CHECK(rate.at(0) == 0.25);
  CHECK(rate.at(1) == 0.5);
  CHECK(rate.at(3) == 1);
  CHECK(rate.at(4) == 1);
  CHECK(rate.at(400) == 1);
}

TEST_CASE("the cosine goes from the rate to the smallest and stays there") {
  const LearningRate rate{.lr = 1, .min_lr = 0.2, .warmup_steps = 10, .total_steps = 30};
  CHECK(rate.at(9) == 1);
  CHECK(rate.at(10) == 1);
  CHECK(rate.at(15) == doctest::Approx(0.2 + 0.4 * (1 + std::sqrt(0.5))));
  CHECK(rate.at(20) == doctest::Approx(0.6));
  CHECK(rate.at(30) == 0.2);
  CHECK(rate.at(1000) == 0.2);
  CHECK(!rate.validate());
}

TEST_CASE("a smallest rate equal to the rate is no decay, and zero is one") {
  CHECK(LearningRate{.lr = 0.3, .min_lr = 0.3, .total_steps = 10}.at(7) == doctest::Approx(0.3));
  CHECK(LearningRate{.lr = 1, .min_lr = 0, .total_steps = 10}.at(5) == doctest::Approx(0.5));
}

TEST_CASE("numbers that make no schedule are refused") {
  CHECK(says(LearningRate{.lr = -1}.validate().text(), "learning rate"));
  CHECK(LearningRate{.lr = NAN}.validate());
  CHECK(LearningRate{.lr = INFINITY}.validate());
  CHECK(LearningRate{.lr = 1, .min_lr = NAN}.validate());
  CHECK(LearningRate{.lr = 1, .min_lr = 2, .total_steps = 10}.validate());
  CHECK(says(
      LearningRate{.lr = 1, .min_lr = 0, .warmup_steps = 10, .total_steps = 10}.validate().text(),
      "10 of 10"));
}

}}  // namespace learning_rate_test
