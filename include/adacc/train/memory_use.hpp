// SPDX-License-Identifier: MIT
/// What a training holds, in bytes.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// The blocks that a Training takes. `set_up` is what set-up took and gave back before it took
/// these: the memory in which a store's link was measured. `gradients` are a block of their own; if updates
/// are fused there is none, and they are in the arena.
struct TrainingMemoryUse {
  std::size_t parameters = 0, gradients = 0, moments = 0, arena = 0;
  std::size_t set_up = 0;
  std::size_t sums = 0;  ///< on several ranks: what sums over shards and ranks wait in
  /// In a store, and so no part of the total: moments, which `moments` is then the window of.
  std::size_t stored = 0;
  std::size_t watched =
      0;  ///< on a device, if the plan evolves: what codecs saw, for the host to read

  /// What is held at once.
  constexpr std::size_t total() const {
    const std::size_t held = parameters + gradients + moments + arena + sums + watched;
    return held < set_up ? set_up : held;
  }
};

}}  // namespace adacc::v0_1
