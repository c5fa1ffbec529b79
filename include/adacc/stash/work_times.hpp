// SPDX-License-Identifier: MIT
/// Seconds of a stash's own work in a step: encodes, decodes and recomputations.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/clock.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class StashWorkTimes {
 public:
  static constexpr double did_not_run = -1;

  /// Later steps, of so many instructions, are timed; without a clock, no longer. Takes room for
  /// the times.
  void time_with(ClockRef clock, std::size_t instructions) {
    clock_ = clock;
    seconds_.clear();
    seconds_.resize(clock ? instructions : 0);
    begin();
  }
  void begin() {
    for (double& seconds : seconds_) seconds = did_not_run;
  }

  /// An instruction's work begins, and ends: `end` takes the result of `start`.
  double start() const { return clock_ ? clock_() : 0; }
  void end(std::size_t instruction, double start) {
    if (clock_) seconds_[instruction] = clock_() - start;
  }

  /// By instruction; negative: no work was timed.
  const Array<double>& seconds() const { return seconds_; }

 private:
  ClockRef clock_;
  Array<double> seconds_;
};

}}}  // namespace adacc::v0_1::detail
