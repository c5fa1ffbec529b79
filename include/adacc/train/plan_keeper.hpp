// SPDX-License-Identifier: MIT
/// Who keeps the plan of a training, and what happens to it between two updates.
#pragma once

#include <string>

#include "../core/any_view.hpp"
#include "../core/clock.hpp"
#include "../evolve/evolution.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Keeps the plan of a training: asked around every update. train/evolving.hpp has the one there is;
/// trainings under a plan of the caller's have none, and need not compile it.
template <class Training>
class PlanKeeper {
 public:
  virtual ~PlanKeeper() = default;
  /// Before the first micro-batch of an update, which is this one. What it did is in `boundary`.
  virtual Error before(Training&, PlanBoundary& boundary, AnyView input, AnyView targets) = 0;
  /// That part of it which measures costs, if they are still to be measured.
  virtual Error prepare(Training&, PlanBoundary& boundary, AnyView input, AnyView targets) = 0;
  /// An update was made. A step took so many seconds; 0: nobody knows.
  virtual void after(Training&, double seconds) = 0;
  virtual Evolution& evolution() = 0;
  virtual ClockRef clock() const = 0;
  /// All that it remembers; and from it to where the training was that remembered it.
  virtual std::string text() const = 0;
  virtual Error restore(Training&, Plan plan, const std::string& text) = 0;
};

}}}  // namespace adacc::v0_1::detail
