// SPDX-License-Identifier: MIT
/// When a plan that evolves looks at what was observed, and what it takes to change it.
#pragma once

#include <cstdint>

#include "../core/error.hpp"

namespace adacc { inline namespace v0_1 {

struct EvolutionOptions {
  std::uint64_t check_every = 10;  ///< steps from one look at the codecs' statistics to the next
  /// Gradient errors are probed before this step, by which gradients have settled, and then at twice
  /// and twice as many steps, until they are probed so many steps apart:
  std::uint64_t first_probe = 50;
  std::uint64_t probe_every = 1000;
  std::uint64_t window = 100;  ///< steps in which a tensor changes policy at most once
  int checks = 2;              ///< running, that have to agree
  double above = 2;            ///< times the planned error: a codec fails
  double below = 0.5;          ///< times the planned error: a rejected codec is a candidate again
  /// Share by which steps get slower or faster before times are measured anew, and by which the
  /// link to the store does before the plan follows.
  double drift = 0.25;
  int timed_steps = 16;  ///< whose median is one check of times, or of the link
  /// Steps from one measurement of a store that the plan does not use to the next: it may have become fast
  /// enough to be used. 0: it is never measured again.
  std::uint64_t measure_link_every = 1000;
  double gain = 0.02;  ///< share of a step that a change must win, if nothing forces it
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
