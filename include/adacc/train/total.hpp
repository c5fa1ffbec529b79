// SPDX-License-Identifier: MIT
/// The total budget of training, and the rest for the arena.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "../optimizer/stored_moments.hpp"
#include "../optimizer/update_table.hpp"
#include "../plan/make_plan.hpp"
#include "../plan/request.hpp"
#include "memory_use.hpp"

namespace adacc { inline namespace v0_1 {

/// Bytes that training holds beside the arena. Gradients are in the arena if updates are fused.
template <class Optimizer>
Result<TrainingMemoryUse> memory_beside_arena(const Graph& graph, const Optimizer& optimizer) {
  const Result<UpdateTable> table =
      UpdateTable::make(optimizer, graph.parameters, wide(graph.scalar));
  if (!table) return table.error;
  const std::size_t scalar = bytes_of(wide(graph.scalar));
  TrainingMemoryUse use{graph.parameter_bytes(), graph.lent_gradient_elems() * scalar,
                        table->bytes(), 0};
  use.mapped = graph.mapped_bytes;
  return use;
}

/// Bytes beside the arena if the optimizer's state is in a store, and passes through `window`.
template <class Optimizer>
Result<TrainingMemoryUse> memory_beside_arena(const Graph& graph, const Optimizer& optimizer,
                                              MomentWindow window) {
  Result<TrainingMemoryUse> use = memory_beside_arena(graph, optimizer);
  if (!use) return use;
  const Result<UpdateTable> table =
      UpdateTable::make(optimizer, graph.parameters, wide(graph.scalar));
  const Result<MomentTurns> turns = MomentTurns::make(optimizer, *table, graph, window);
  if (!turns) return turns.error;
  use->moments = turns->window_bytes();
  use->stored = turns->store_bytes();
  return use;
}

/// Bytes beside the arena with the optimizer's state in memory or, if there is one, in the store.
template <class Optimizer>
Result<TrainingMemoryUse> memory_beside_arena(const Graph& graph, const Optimizer& optimizer,
                                              const MomentStore& moments) {
  return moments.store ? memory_beside_arena(graph, optimizer, moments.window)
                       : memory_beside_arena(graph, optimizer);
}

/// The bytes of `total` left for the arena beside `held`. If the smallest plan takes more, the
/// error names the least total. The request's own budget is ignored.
inline Result<std::size_t> arena_budget(std::size_t total, const TrainingMemoryUse& held,
                                        const Graph& graph, const CostProfile& profile,
                                        PlanRequest request) {
  const Deadline deadline(request.clock, request.deadline_seconds);
  const std::size_t fixed = held.total();
  // If retaining everything fits the total, no search for the smallest plan is needed.
  const std::size_t left = total > fixed ? total - fixed : 0;
  if (left >= peak_bytes(graph, retain_all(graph))) return left;
  request.budget_bytes = left > 0 ? left : 1;
  const Result<std::size_t> smallest = smallest_peak(graph, profile, request);
  if (!smallest) return smallest.error;
  if (left >= *smallest) return left;
  const char* limit = total < held.parameters + held.mapped ? "the parameters themselves"
                      : total < fixed                       ? "what is held beside the arena"
                                                            : "the arena";
  const Error why = Error::say("a total of ", shown(total), " is too small, limited by ", limit,
                               ": the least known is ", shown(fixed + *smallest));
  if (!graph.fuses_updates()) {
    Graph other = graph;
    set_updates(other, Updates::fused);
    if (request.clock) request.deadline_seconds = deadline.left();
    const Result<std::size_t> fused = smallest_peak(other, profile, request);
    const std::size_t least = held.parameters + held.moments + held.mapped + (fused ? *fused : 0);
    if (fused && least < fixed + *smallest)
      return Error::say(why.text(), ", with fused updates ", shown(least),
                        ", of which parameters take ", shown(held.parameters), " and moments ",
                        shown(held.moments));
  }
  return Error::say(why.text(), ", of which parameters take ", shown(held.parameters),
                    ", gradients ", shown(held.gradients), ", moments ", shown(held.moments),
                    " and the smallest arena ", shown(*smallest));
}

}}  // namespace adacc::v0_1
