// SPDX-License-Identifier: MIT
/// A change of an activation's policy while training runs, as a value: what, when and why.
#pragma once

#include <cstdint>

#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

enum class ChangeReason : std::uint8_t {
  codec_failed,    ///< its error passed twice what was planned
  made_room,       ///< for one whose codec failed: the budget forced it
  error_fell,      ///< less error than planned leaves room for a faster policy
  times_drifted,   ///< under the times measured last, this is faster
  budget_changed,  ///< by the caller
  link_drifted,    ///< at the speed that the link to the store has by now, this is faster
};

constexpr const char* name_of(ChangeReason reason) {
  constexpr const char* names[] = {"codec failed",  "made room",      "error fell",
                                   "times drifted", "budget changed", "link drifted"};
  return names[static_cast<int>(reason)];
}

/// One activation's change of policy, in force from `step` on.
struct PlanChange {
  std::uint64_t step = 0;
  int activation = 0;
  Policy from, to;
  ChangeReason reason = ChangeReason::codec_failed;

  friend constexpr bool operator==(const PlanChange&, const PlanChange&) = default;
};

}}  // namespace adacc::v0_1
