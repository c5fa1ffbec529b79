// SPDX-License-Identifier: MIT
/// The keeper of a training's plan, called between updates.
#pragma once

#include <string>

#include "../core/any_view.hpp"
#include "../core/clock.hpp"
#include "../evolve/evolution.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Keeps the plan of a training; called around every update. The only keeper is in train/evolving.hpp;
/// trainings under the caller's plan have none, and need not compile one.
template <class Training>
class PlanKeeper {
 public:
  virtual ~PlanKeeper() = default;
  /// Before the first micro-batch of an update: `input` and `targets`. `boundary` gets the changes.
  virtual Error before(Training&, PlanBoundary& boundary, AnyView input, AnyView targets) = 0;
  /// The part of before() that measures costs, if they are not measured yet.
  virtual Error prepare(Training&, PlanBoundary& boundary, AnyView input, AnyView targets) = 0;
  /// After an update. `seconds`: of its step; 0: unknown.
  virtual void after(Training&, double seconds) = 0;
  virtual Evolution& evolution() = 0;
  virtual ClockRef clock() const = 0;
  /// The keeper's state for a checkpoint; and back to the state saved as `text`.
  virtual std::string text() const = 0;
  virtual Error restore(Training&, Plan plan, const std::string& text) = 0;
};

}}}  // namespace adacc::v0_1::detail
