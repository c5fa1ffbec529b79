// SPDX-License-Identifier: MIT
/// The outcome of an update, and the sums behind an update.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "../model/class_targets.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "../program/declinable.hpp"

namespace adacc { inline namespace v0_1 {

/// The outcome of an update.
struct TrainingOutcome {
  /// The mean over micro-batches of their mean losses. A loss over classes is the mean over the counted targets of all
  /// micro-batches (model/class_targets.hpp).
  double loss = 0;
  double grad_norm = 0;  ///< L2, of the mean gradient over all parameters, before clipping
  /// False: nothing was updated, and the gradients are given up; if updates are fused, `skipped`
  /// parameters were not.
  bool finite = true;
  /// No target of any micro-batch counted: the loss is 0, and nothing was updated.
  bool none_counted = false;
  std::size_t batches = 0;  ///< micro-batches
  /// If updates are fused: parameters that keep their values and state, because the loss, or a gradient
  /// completed together with theirs, was not finite. Others are updated.
  std::size_t skipped = 0;
  /// Activations whose codec lost rows (codec/row_errors.hpp), counted in every micro-batch on all ranks, by
  /// how they were kept instead.
  DeclinedCounts declined{};
};

namespace detail {

inline Error clip_before_all() {
  return Error::say(
      "clipping by the norm of a step's own gradients needs all of them before the first update, "
      "and fused updates give each up as it comes: let updates be separate (Updates::separate), or "
      "clip by the norm of the step before (ClipBy::previous)");
}

/// The micro-batches summed in gradients(), on all ranks.
struct SummedBatches {
  double losses = 0;  ///< the sum of their losses, each divided by the number of all its targets
  double norm = 0;    ///< L2, of the summed gradients
  std::size_t batches = 0;  ///< micro-batches
  DeclinedCounts declined{};
  TargetCount targets{};  ///< of all micro-batches, which have equally many

  /// Divides losses and gradients: the number of micro-batches, if all targets counted.
  double weight() const { return targets.weight(batches); }
};

}  // namespace detail

}}  // namespace adacc::v0_1
