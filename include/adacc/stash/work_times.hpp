// SPDX-License-Identifier: MIT
/// How long a stash's own work takes in a step: what it encodes, decodes and has computed again.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/clock.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class StashWorkTimes {
 public:
  static constexpr double did_not_run = -1;

  /// Steps that follow, of so many instructions, are timed; without a clock, no longer. Takes room
  /// for that.
  void time_with(ClockRef clock, std::size_t instructions) {
    clock_ = clock;
    seconds_.clear();
    seconds_.resize(clock ? instructions : 0);
    begin();
  }
  void begin() {
    for (double& seconds : seconds_) seconds = did_not_run;
  }

  /// An instruction's work begins, and ends: `end` is given what `start` returned.
  double start() const { return clock_ ? clock_() : 0; }
  void end(std::size_t instruction, double start) {
    if (clock_) seconds_[instruction] = clock_() - start;
  }

  /// By instruction; negative: none of its work was timed.
  const Array<double>& seconds() const { return seconds_; }

 private:
  ClockRef clock_;
  Array<double> seconds_;
};

}}}  // namespace adacc::v0_1::detail
