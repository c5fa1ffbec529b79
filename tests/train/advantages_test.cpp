// SPDX-License-Identifier: MIT
// Advantages against their definition, a sum over all that followed in an episode.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <adacc/core/random.hpp>
#include "adacc/train/advantages.hpp"

namespace advantages_test { namespace {

using namespace adacc;

constexpr std::size_t decisions = 12, environments = 3;
constexpr Shape shape(decisions, environments), values_shape(decisions + 1, environments);

struct Rollout {
  std::vector<double> rewards, values, advantages;
  std::vector<Ending> endings;

  Rollout()
      : rewards(shape.elems()), values(values_shape.elems()), advantages(shape.elems(), 99),
        endings(shape.elems(), Ending::none) {
    for (std::size_t i = 0; i < rewards.size(); ++i)
      rewards[i] = static_cast<double>(unit_float(random_word({.seed = 1}, i)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(unit_float(random_word({.seed = 2}, i)));
    endings[at(4, 1)] = Ending::over;
    endings[at(5, 2)] = Ending::skipped;
    endings[at(11, 2)] = Ending::over;
  }
  static std::size_t at(std::size_t t, std::size_t e) { return t * environments + e; }

  Error run(const AdvantageOptions& options, Shape of_values = values_shape) {
    return generalized_advantages<double>(options, {rewards.data(), shape},
                                          {values.data(), of_values}, {endings.data(), shape},
                                          {advantages.data(), shape});
  }

  /// Equation 16, forward in time.
  double sum(const AdvantageOptions& options, std::size_t t, std::size_t e) const {
    double sum = 0, weight = 1;
    for (std::size_t k = t; k < decisions && endings[at(k, e)] != Ending::skipped; ++k) {
      const bool over = endings[at(k, e)] == Ending::over;
      const double next = over ? 0 : values[at(k + 1, e)];
      sum += weight * (rewards[at(k, e)] + options.discount * next - values[at(k, e)]);
      if (over) break;
      weight *= options.discount * options.trace;
    }
    return sum;
  }
};

TEST_CASE("an advantage is the discounted sum of surprises in its episode") {
  for (const AdvantageOptions options :
       {AdvantageOptions{}, {.discount = 1, .trace = 0.9}, {.discount = 0.5, .trace = 0}}) {
    Rollout rollout;
    REQUIRE_FALSE(rollout.run(options));
    for (std::size_t t = 0; t < decisions; ++t)
      for (std::size_t e = 0; e < environments; ++e)
        CHECK(std::fabs(rollout.advantages[Rollout::at(t, e)] - rollout.sum(options, t, e)) <
              1e-12);
    CHECK(rollout.advantages[Rollout::at(5, 2)] == 0);
  }
}

TEST_CASE("the whole return is what followed, if critic and trace are out of play") {
  Rollout rollout;
  REQUIRE_FALSE(rollout.run({.discount = 1, .trace = 1}));
  // The last episode of environment 1: all rewards, what the critic expects behind them, less what it expected.
  double expected = rollout.values[Rollout::at(decisions, 1)] - rollout.values[Rollout::at(5, 1)];
  for (std::size_t t = 5; t < decisions; ++t) expected += rollout.rewards[Rollout::at(t, 1)];
  CHECK(std::fabs(rollout.advantages[Rollout::at(5, 1)] - expected) < 1e-12);
}

TEST_CASE("shapes and options that do not go together are refused") {
  Rollout rollout;
  CHECK(std::string(rollout.run({}, shape).text()).find("one row more of values") !=
        std::string::npos);
  CHECK(std::string(rollout.run({.discount = 1.5}).text()).find("from 0 to 1") !=
        std::string::npos);
  CHECK(rollout.run({.trace = std::nan("")}));
  for (const double one : rollout.advantages) CHECK(one == 99);
}

}}  // namespace advantages_test
