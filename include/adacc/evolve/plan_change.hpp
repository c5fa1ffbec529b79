// SPDX-License-Identifier: MIT
/// Changes of policies while training runs, as values: what, when and why.
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

struct EvolutionUpdate {
  bool changed = false;  ///< the plan is another one, and its program must be compiled
  Array<PlanChange> changes;
  /// From here on the link is reckoned with as it was found to be (request().link), whether that
  /// changed the plan or not.
  bool link_drifted = false;
  Error failed;  ///< why something that was asked for, or seemed due, left the plan as it was

  /// What happened after that, too.
  void add(const EvolutionUpdate& later) {
    changed = changed || later.changed;
    for (const PlanChange& change : later.changes) changes.push_back(change);
    link_drifted = link_drifted || later.link_drifted;
    if (later.failed) failed = later.failed;
  }
};

/// What happened to the plan between two steps.
struct PlanBoundary {
  EvolutionUpdate update;  ///< changes, or why one was not made
  bool measured = false;   ///< costs were measured, and the plan was made anew from them
  bool looked = false;     ///< something ran in the arena: what that held is lost
};

}}  // namespace adacc::v0_1
