// SPDX-License-Identifier: MIT
/// The caller's block of memory for steps, with a mark: is a step under way in this memory?
///
/// Steps may share a SharedArena, one after the other: training and evaluation do. Two at once would destroy each other's
/// activations, an easy mistake with steps in slices. So a step bound to a SharedArena takes the mark at its beginning and
/// gives it back at its end. Make one SharedArena for a block of memory; steps bound to the bytes themselves are not watched.
#pragma once

#include <cstdint>

#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

class SharedArena {
 public:
  SharedArena() = default;
  /// 64-byte aligned memory, which stays the caller's. The memory outlives the arena, and the arena the steps
  /// bound to it.
  explicit SharedArena(Bytes memory) : memory_(memory) {}
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  Bytes memory() const { return memory_; }
  /// The memory of an arena made without; before a step is bound to the arena.
  void set_memory(Bytes memory) { memory_ = memory; }
  /// Whether a step is under way here.
  bool busy() const { return busy_; }

  /// The number of this use, never 0; 0 if the SharedArena is busy.
  std::uint64_t take() {
    if (busy_) return 0;
    busy_ = true;
    return ++uses_;
  }
  /// Ends use number `use`, unless this use has ended.
  void give(std::uint64_t use) {
    if (use == uses_) busy_ = false;
  }

 private:
  Bytes memory_;
  std::uint64_t uses_ = 0;
  bool busy_ = false;
};

}}  // namespace adacc::v0_1
