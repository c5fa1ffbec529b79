// SPDX-License-Identifier: MIT
/// Whether steps still take the time of when their profile was new.
///
/// Medians of some steps are compared with the first such median, not with the prediction: a profile wrong by a
/// constant factor orders plans as well as a right one. Times are in units of the prediction, so a change of plan is
/// no drift.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "drift.hpp"
#include "options.hpp"

namespace adacc { inline namespace v0_1 {

class TimeWatch {
 public:
  /// The time of a step over the predicted time, > 0.
  void observe(double times_predicted, const EvolutionOptions& options) {
    times_.push_back(times_predicted);
    if (times_.size() < static_cast<std::size_t>(options.timed_steps)) return;
    const double now = detail::take_median(times_);
    if (!(usual_ > 0)) usual_ = now;
    off_ = detail::is_off(now / usual_, options) ? off_ + 1 : 0;
    drifted_ = drifted_ || off_ >= options.checks;
  }

  /// Calls visit(name, field) for each remembered field.
  template <class Self, class Visit>
  static void each_field(Self& self, const Visit& visit) {
    visit("times", self.times_);
    visit("usual", self.usual_);
    visit("off", self.off_);
    visit("drifted", self.drifted_);
  }

  /// The usual time of steps over the predicted time; 0 after too few steps.
  double usual() const { return usual_; }
  /// Another time than usual in enough consecutive checks; with a new profile, assign TimeWatch{}.
  bool drifted() const { return drifted_; }

 private:
  Array<double> times_;
  double usual_ = 0;  ///< the first median
  int off_ = 0;       ///< consecutive checks
  bool drifted_ = false;
};

}}  // namespace adacc::v0_1
