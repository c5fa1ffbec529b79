// SPDX-License-Identifier: MIT
/// The caller's block of memory for steps, with a mark that says whether a step is under way in it.
///
/// Steps may share an arena, one after the other: training and evaluation do. Two at once would
/// destroy each other's activations, and in slices that is quickly written by mistake. So a step
/// bound to an Arena takes the mark when it begins and gives it back at its end. Make one Arena for
/// a block of memory; steps that are bound to the bytes themselves are not watched.
#pragma once

#include <cstdint>

#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

class Arena {
 public:
  Arena() = default;
  /// 64-byte aligned memory, which stays the caller's. It outlives the Arena, and that outlives the
  /// steps bound to it.
  explicit Arena(Bytes memory) : memory_(memory) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Bytes memory() const { return memory_; }
  /// Whether a step is under way in it.
  bool busy() const { return busy_; }

  /// The number of this use, never 0; 0 if the arena is busy.
  std::uint64_t take() {
    if (busy_) return 0;
    busy_ = true;
    return ++uses_;
  }
  /// Ends use number `use`, if it still lasts.
  void give(std::uint64_t use) {
    if (use == uses_) busy_ = false;
  }

 private:
  Bytes memory_;
  std::uint64_t uses_ = 0;
  bool busy_ = false;
};

}}  // namespace adacc::v0_1
