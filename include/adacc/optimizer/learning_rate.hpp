// SPDX-License-Identifier: MIT
/// The learning rate of a step: constant, or linear warm-up and then half a cosine.
#pragma once

#include <cmath>
#include <cstdint>

#include "../core/error.hpp"

namespace adacc { inline namespace v0_1 {

/// With s counted from 0:
///
///     s < warmup_steps   lr (s + 1) / warmup_steps
///     otherwise          min_lr + (lr - min_lr) (1 + cos(pi d)) / 2,
///                        d = min(1, (s - warmup_steps) / (total_steps - warmup_steps))
///
/// If min_lr equals lr, or is negative (the default), the rate is constant after the warm-up. A pure function of the
/// step, so a resumed run continues with the same rates.
struct LearningRate {
  double lr = 1e-3;
  double min_lr = -1;
  std::uint64_t warmup_steps = 0;
  std::uint64_t total_steps = 0;

  double at(std::uint64_t step) const {
    if (step < warmup_steps)
      return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    if (min_lr < 0) return lr;
    if (step >= total_steps) return min_lr;
    const double done =
        static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
    return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(3.14159265358979323846 * done));
  }

  /// An error if the numbers make no schedule.
  Error validate() const {
    if (!(lr >= 0) || !std::isfinite(lr))
      return Error::say("the learning rate must be a finite number, zero or more");
    if (min_lr >= 0 && !(min_lr <= lr))
      return Error::say("the smallest learning rate must not exceed the learning rate");
    if (std::isnan(min_lr)) return Error::say("the smallest learning rate must be a number");
    if (min_lr >= 0 && min_lr < lr && warmup_steps >= total_steps)
      return Error::say("the warm-up takes ", warmup_steps, " of ", total_steps,
                        " steps; a decay needs at least one step after it");
    return {};
  }
};

}}  // namespace adacc::v0_1
