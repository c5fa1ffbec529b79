// SPDX-License-Identifier: MIT
/// Bytes of memory that a training holds.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// The blocks that a trainer takes.
/// - parameters: with their copies in bfloat16, if there are any
/// - gradients: 0 if updates are fused and gradients are in the arena
/// - set_up: memory for measuring a store's link, given back before other blocks are taken
struct TrainingMemoryUse {
  std::size_t parameters = 0, gradients = 0, moments = 0, arena = 0;
  std::size_t set_up = 0;
  std::size_t sums = 0;  ///< on several ranks: buffers of sums over shards and ranks
  /// Moments in a store, and so no part of the total; `moments` is then the moment window.
  std::size_t stored = 0;
  std::size_t watched =
      0;  ///< on a device, if the plan evolves: statistics of codecs, for the host to read
  std::size_t padded =
      0;  ///< if lengths differ (train/lengths.hpp): batches filled up to a length class
  /// The driver's memory for a captured step, and so no part of the total: by how much free device memory fell
  /// when the graph was made. 0 before the capture. Other users of the device may blur the number.
  std::size_t captured = 0;
  /// Frozen parameters in a mapped file, in their form there: all, or, of streamed ones, the most at a time.
  std::size_t mapped = 0;

  /// The most bytes at one time.
  constexpr std::size_t total() const {
    const std::size_t held =
        parameters + gradients + moments + arena + sums + watched + mapped + padded;
    return held < set_up ? set_up : held;
  }
};

}}  // namespace adacc::v0_1
