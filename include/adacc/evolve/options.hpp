// SPDX-License-Identifier: MIT
/// When an evolving plan looks at observations, and which of them change it.
#pragma once

#include <cstdint>

#include "../core/error.hpp"

namespace adacc { inline namespace v0_1 {

struct EvolutionOptions {
  std::uint64_t check_every = 10;  ///< steps between two looks at the codecs' statistics
  /// Gradient errors are probed before this step, when gradients have settled, then at twice as many steps, again and
  /// again, until probes are so many steps apart:
  std::uint64_t first_probe = 50;
  std::uint64_t probe_every = 1000;
  std::uint64_t change_interval = 100;  ///< steps in which a tensor changes policy at most once
  int checks = 2;                       ///< consecutive checks that must agree
  double above = 2;                     ///< times the planned error: a codec fails
  double below = 0.5;  ///< times the planned error: a rejected codec is a candidate again
  /// Share by which steps change before times are measured anew, and by which the link to the store changes before
  /// the plan follows.
  double drift = 0.25;
  int timed_steps = 16;  ///< the median of so many is one check of times, or of the link
  /// Steps between two measurements of a store that the plan does not use: it may have become fast enough. 0: no
  /// measurements.
  std::uint64_t measure_link_every = 1000;
  double gain = 0.02;  ///< share of a step that an unforced change must win
};

constexpr Error examine(const EvolutionOptions& options) {
  if (options.check_every == 0 || options.probe_every == 0 || options.checks < 1 ||
      options.timed_steps < 1 || !(options.above > 1) || !(options.below < 1) ||
      !(options.below >= 0) || !(options.drift > 0) || !(options.gain >= 0))
    return Error::say(
        "an evolving plan checks every 1 step or more, above 1 and below 1 times "
        "the planned error, with a drift above 0 and a gain of 0 or more");
  return {};
}

}}  // namespace adacc::v0_1
