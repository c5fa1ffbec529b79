// SPDX-License-Identifier: MIT
/// Advantages of decisions: how much better each turned out than expected, for ActorCriticLoss.
///
/// Several environments are played side by side for some decisions, a row each. The advantage of a decision sums the
/// surprises behind the decision in the same episode, each discounted by the distance:
///
///     d_t = reward_t + discount V_(t+1) - V_t
///     A_t = d_t + discount trace A_(t+1)
///
/// Schulman, Moritz, Levine, Jordan, Abbeel, "High-dimensional continuous control using generalized advantage
/// estimation", arXiv 1506.02438, equations 11, 12 and 16.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// How the episode went on after a decision.
enum class Ending : unsigned char {
  none,  ///< the episode goes on
  over,  ///< the episode ended: nothing more is to be expected
  /// No decision: a limit of time had ended the episode in this situation, whose value stands for the rest.
  skipped,
};

struct AdvantageOptions {
  double discount = 0.99;  ///< the worth of a reward one decision later, in [0, 1]
  double trace = 0.95;  ///< the estimator's lambda, in [0, 1]: 0 trusts the critic, 1 the rewards
};

/// Rewards, endings and advantages have the shape (decisions, environments), values (decisions + 1, environments): the
/// last row is of the situations behind the last decisions. The advantage of a skipped row is 0.
template <class T>
Error generalized_advantages(const AdvantageOptions& options, View<const T> rewards,
                             View<const T> values, View<const Ending> endings, View<T> advantages) {
  const Shape shape = rewards.shape();
  if (shape.rank() != 2 || values.shape() != Shape(shape[0] + 1, shape[1]) ||
      endings.shape() != shape || advantages.shape() != shape)
    return Error::misuse("advantages of ", shape, " rewards, ", values.shape(), " values, ",
                         endings.shape(), " endings, into ", advantages.shape(),
                         "; expected (decisions, environments), and one row more of values");
  const auto is_share = [](double x) { return x >= 0 && x <= 1; };
  if (!is_share(options.discount) || !is_share(options.trace))
    return Error::misuse("the discount and the trace of advantages are from 0 to 1");
  const T discount = static_cast<T>(options.discount);
  const T decay = static_cast<T>(options.discount * options.trace);
  for (std::size_t e = 0; e < shape[1]; ++e) {
    T next = values.row(shape[0])[e], sum = 0;
    for (std::size_t t = shape[0]; t-- > 0;) {
      const Ending ending = endings.row(t)[e];
      const T value = values.row(t)[e];
      if (ending != Ending::none) sum = 0;
      if (ending == Ending::over) next = 0;
      if (ending != Ending::skipped)
        sum = rewards.row(t)[e] + discount * next - value + decay * sum;
      next = value;
      advantages.row(t)[e] = sum;
    }
  }
  return {};
}

}}  // namespace adacc::v0_1
