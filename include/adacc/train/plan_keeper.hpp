// SPDX-License-Identifier: MIT
/// The keeper of a training's plan, called between updates.
#pragma once

#include <string>

#include "../core/any_view.hpp"
#include "../core/clock.hpp"
#include "../core/shape.hpp"
#include "../evolve/evolution.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Keeps the plan of a training; called around every update. Keepers are in train/evolving.hpp (one plan) and
/// train/lengths.hpp (one for each length class); trainings under the caller's plan have none, and need not compile one.
template <class Training>
class PlanKeeper {
 public:
  virtual ~PlanKeeper() = default;
  /// Makes `training` ready for a batch as it comes: `input` and `targets` become views that its program takes. Returns
  /// the output's shape for this batch; empty: the program's. Between steps.
  virtual Result<Shape> fit(Training&, AnyView&, AnyView&) { return Shape(); }
  /// Behind the step: takes back what fit() lent to the context.
  virtual void release(Training&) {}
  /// Memory for fit().
  virtual std::size_t held_bytes() const { return 0; }
  /// The budget of the arena from the next before() on.
  virtual void want_budget(std::size_t bytes) { evolution().set_budget(bytes); }
  /// The step whose graph and plan are those of a checkpoint; and has this step's program run from now on.
  virtual const typename Training::CompiledStep& saved_step(const Training& training) const {
    return training.compiled_step();
  }
  virtual Error run_saved_step(Training&) { return {}; }
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
