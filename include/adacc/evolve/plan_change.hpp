// SPDX-License-Identifier: MIT
/// Changes of policies while training runs, as values: activation, step and reason.
#pragma once

#include <cstdint>

#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

enum class ChangeReason : std::uint8_t {
  codec_failed,    ///< the codec's error exceeded twice the planned error
  made_room,       ///< for another one, whose codec failed: the budget forced it
  error_fell,      ///< less error than planned leaves room for a faster policy
  times_drifted,   ///< faster under the new times
  budget_changed,  ///< by the caller
  link_drifted,    ///< faster at the new speed of the link to the store
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
  bool changed = false;  ///< there is another plan, whose program must be compiled
  Array<PlanChange> changes;
  /// From here on the measured link counts (request().link), whether or not the plan changed.
  bool link_drifted = false;
  Error failed;  ///< why a requested or due change left the plan as before

  /// Appends a later update.
  void add(const EvolutionUpdate& later) {
    changed = changed || later.changed;
    for (const PlanChange& change : later.changes) changes.push_back(change);
    link_drifted = link_drifted || later.link_drifted;
    if (later.failed) failed = later.failed;
  }
};

/// Events at the plan between two steps.
struct PlanBoundary {
  EvolutionUpdate update;  ///< changes, or why one was not made
  bool measured = false;   ///< costs were measured, and a new plan made from them
  bool looked = false;     ///< the arena was used: its contents are lost
};

}}  // namespace adacc::v0_1
