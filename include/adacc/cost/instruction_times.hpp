// SPDX-License-Identifier: MIT
/// Seconds of each instruction of a step, by context: reads a clock after each one, unless specialized (for a device,
/// which runs on its own).
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/clock.hpp"
#include "../core/error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The error of a time impossible for a steady clock.
inline Error check_step_seconds(bool steady, double seconds) {
  if (steady && seconds > 0 && seconds < 1e9) return {};
  return Error::say(
      "the clock that measuring was given stood still, went backwards or gave no "
      "number during a step: it must give the seconds of a steady clock");
}

template <class Context>
class InstructionTimes {
 public:
  /// Prepares for steps of at most so many instructions.
  Error make(std::size_t, ClockRef clock) {
    clock_ = clock;
    return {};
  }

  /// Begins a step: `seconds` will get the times of its instructions, each with all parts.
  void begin(Context&, Array<double>& seconds) {
    for (double& sum : seconds) sum = 0;
    start_ = then_ = clock_();
    steady_ = true;
  }
  /// To be called when a part of an instruction has run, or was queued.
  void after(Context&, std::size_t instruction, Array<double>& seconds) {
    const double now = clock_();
    seconds[instruction] += now - then_;
    steady_ = steady_ && now >= then_;
    then_ = now;
  }
  /// Ends the step.
  Error end(Context&, Array<double>&) { return check_step_seconds(steady_, then_ - start_); }

 private:
  ClockRef clock_;
  double start_ = 0, then_ = 0;
  bool steady_ = true;
};

}}}  // namespace adacc::v0_1::detail
