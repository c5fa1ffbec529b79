// SPDX-License-Identifier: MIT
/// The loss of an actor and its critic: a policy gradient with a baseline, for agents that learn by
/// reward.
///
/// A row of x holds the network's output for one situation: a logit for each action, and last the value V, the reward
/// expected from there on. The row of the targets tells the action taken there, and the outcome. With p =
/// softmax(logits), the action a, its advantage A and the logarithm q of a's probability when it was taken:
///
///     r    = exp(log p_a - q)
///     loss = mean over rows of  -min(r A, clamp(r, 1 - clip, 1 + clip) A)
///                               + value_weight (V - reward)^2 - entropy_weight H(p)
///
/// Schulman, Wolski, Dhariwal, Radford, Klimov, "Proximal policy optimization algorithms", arXiv 1707.06347, equations
/// 7 and 9. With an infinite clip, and q from the same parameters, the gradient equals the one of -A log p_a: Williams,
/// "Simple statistical gradient-following algorithms for connectionist reinforcement learning", Machine Learning 8
/// (1992), whose baseline is in A. The bonus for entropy: Mnih et al., "Asynchronous methods for deep reinforcement
/// learning", arXiv 1602.01783.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "../core/bytes.hpp"
#include "../model/contract.hpp"
#include "math/rows.hpp"
#include "math/shapes.hpp"

namespace adacc { inline namespace v0_1 {

/// The columns of a row of the targets: an action and its outcome.
enum class Experience : unsigned char { action, advantage, reward, log_probability };
inline constexpr std::size_t experience_cols = 4;

/// x (…, actions + 1), targets (…, experience_cols), in the order of Experience. Actions count from 0; an action beyond
/// the last makes the loss NaN. A logit of minus infinity forbids an action. dx may overwrite x.
struct ActorCriticLoss {
  double clip = 0.2;  ///< how far r may go before a row has no gradient for the actor; above 0
  double value_weight = 0.5;
  double entropy_weight = 0.01;

  static constexpr const char* name = "actor_critic_loss";
  static constexpr LayerFacts facts{.dx_overwrites_x = true};
  static constexpr auto split = Split::rows;

  constexpr Shape target_shape(Shape in) const {
    switch (in.rank()) {
      case 2: return Shape(in[0], experience_cols);
      case 3: return Shape(in[0], in[1], experience_cols);
      case 4: return Shape(in[0], in[1], in[2], experience_cols);
      default: return Shape();
    }
  }

  /// One sum per row: sums are added in order.
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (!(clip > 0) || !(value_weight >= 0) || !(entropy_weight >= 0))
      return {.error = Error::say(name, ": the clip must be above 0, and neither weight below it")};
    if (const Error why = detail::check_loss_rows(name, in)) return {.error = why};
    if (in.cols() < 2)
      return {.error = Error::say(name, ": the input is ", in,
                                  "; expected rows of a logit for each action, and a value")};
    return {.workspace = sizeof(double) * in.rows()};
  }

  template <class T>
  void forward(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  template <class T>
  void forward_backward(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

 private:
  template <class T>
  void run(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    Bytes workspace = call.workspace;
    const View<double> losses = carve<double>(workspace, call.x.rows());
    const auto all_rows = static_cast<double>(call.part.of(call.x.rows()).whole);
    detail::for_each_row(cpu, call.x.rows(), call.x.cols(), [&](std::size_t r) {
      losses[r] = row(call.x.row(r), call.x.cols() - 1, call.targets.data() + r * experience_cols,
                      1 / all_rows, call.dx.empty() ? nullptr : call.dx.row(r));
    });
    for (const double one : losses) loss.add(one / all_rows);
  }

  /// The loss of a row, in double. Unless `to` is null, `share` times the gradient goes there; `to` may be x.
  template <class T>
  double row(const T* x, std::size_t actions, const T* target, double share, T* to) const {
    const auto of = [&](Experience what) {
      return static_cast<double>(target[static_cast<std::size_t>(what)]);
    };
    double top = x[0], sum = 0;
    for (std::size_t c = 1; c < actions; ++c)
      if (top < static_cast<double>(x[c])) top = x[c];
    for (std::size_t c = 0; c < actions; ++c) sum += std::exp(static_cast<double>(x[c]) - top);
    const double log_sum = top + std::log(sum);
    double entropy = 0;
    for (std::size_t c = 0; c < actions; ++c) {
      const double log_p = static_cast<double>(x[c]) - log_sum, p = std::exp(log_p);
      if (p != 0) entropy -= p * log_p;
    }

    // A target beyond all actions is not cast: the cast is undefined beyond std::size_t.
    const double wanted = of(Experience::action);
    const bool known = wanted >= 0 && wanted < static_cast<double>(actions);
    const std::size_t action = known ? static_cast<std::size_t>(wanted) : actions;
    const double chosen = known && static_cast<double>(action) == wanted
                              ? static_cast<double>(x[action])
                              : std::numeric_limits<double>::quiet_NaN();
    const double ratio = std::exp(chosen - log_sum - of(Experience::log_probability));
    const double advantage = of(Experience::advantage);
    // Beyond the clip nothing is won by going further; a NaN stays one.
    const bool clipped = advantage > 0 ? ratio > 1 + clip : ratio < 1 - clip;
    const double held = advantage > 0 ? 1 + clip : 1 - clip;
    const double gap = static_cast<double>(x[actions]) - of(Experience::reward);
    const double row_loss =
        -(clipped ? held : ratio) * advantage + value_weight * gap * gap - entropy_weight * entropy;
    if (to == nullptr) return row_loss;

    const double pull = clipped ? 0 : advantage * ratio;
    for (std::size_t c = 0; c < actions; ++c) {
      const double log_p = static_cast<double>(x[c]) - log_sum, p = std::exp(log_p);
      const double spread = p == 0 ? 0 : entropy_weight * p * (log_p + entropy);
      to[c] = static_cast<T>(share * (pull * (p - (c == action ? 1 : 0)) + spread));
    }
    to[actions] = static_cast<T>(share * 2 * value_weight * gap);
    return row_loss;
  }
};

}}  // namespace adacc::v0_1
