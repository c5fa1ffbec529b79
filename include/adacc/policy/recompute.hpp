// SPDX-License-Identifier: MIT
/// Drop the activation after the last reader in forward and run the layer again in backward.
///
/// A run of consecutive recomputed activations is produced once per backward pass, from the nearest kept activation
/// before the run. If this one is kept without loss, loss and gradients are bit-identical to those of `Retain`.
#pragma once

#include "policy.hpp"

namespace adacc { inline namespace v0_1 {

struct Recompute {
  static constexpr Policy value = recompute();
};

}}  // namespace adacc::v0_1
