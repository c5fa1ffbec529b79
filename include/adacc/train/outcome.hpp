// SPDX-License-Identifier: MIT
/// What an update did, and what it was made of.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "../program/declinable.hpp"

namespace adacc { inline namespace v0_1 {

/// What an update did.
struct TrainingOutcome {
  double loss = 0;       ///< the mean over its micro-batches of their mean losses
  double grad_norm = 0;  ///< L2, of the mean gradient over all parameters, before clipping
  /// False: nothing was updated, and the gradients are given up; if updates are fused, `skipped`
  /// parameters were not.
  bool finite = true;
  std::size_t batches = 0;  ///< micro-batches
  /// If updates are fused: parameters that keep their values and state, because the loss, or the gradient
  /// of one that is complete with them, was not finite. Others are updated.
  std::size_t skipped = 0;
  /// Activations whose codec lost rows (codec/row_errors.hpp), each counted in every micro-batch, and how
  /// they were kept instead. Of all ranks.
  DeclinedCounts declined{};
};

namespace detail {

inline Error clip_before_all() {
  return Error::say(
      "clipping by the norm of a step's own gradients needs all of them before the first update, "
      "and fused updates give each up as it comes: let updates be separate (Updates::separate), or "
      "clip by the norm of the step before (ClipBy::previous)");
}

/// What gradients() is the sum of, on all ranks.
struct SummedBatches {
  double losses = 0;        ///< the sum of theirs
  double norm = 0;          ///< L2, of the summed gradients
  std::size_t batches = 0;  ///< micro-batches
  DeclinedCounts declined{};
};

}  // namespace detail

}}  // namespace adacc::v0_1
