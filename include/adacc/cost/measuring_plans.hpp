// SPDX-License-Identifier: MIT
/// Plans whose steps together run every instruction that a planner may choose.
///
/// The cost of a codec or a recomputation depends on the caches' contents, so it is timed in place, inside whole
/// steps. One plan retains everything, one recomputes, and one plan per codec compresses all permitted activations.
/// Such steps need about the memory of `retain`. With less memory, the plans start from one that keeps only
/// checkpoints, and at last compress only the last copy of each layer, whose activations are alive together in
/// backward anyway.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../program/layout.hpp"
#include "../program/plan.hpp"
#include "../program/schedule.hpp"
#include "nearest_sources.hpp"
#include "profile.hpp"
#include "sparse_plans.hpp"

namespace adacc { inline namespace v0_1 {

struct MeasuringPlans {
  Array<Plan> plans;
  std::size_t arena_bytes = 0;  ///< the largest peak of the plans
};

namespace detail {

/// Compresses activation `id`. Activations that would be recomputed from a codec without values are retained. False
/// if a reader needs the values.
constexpr bool compress_with(const Graph& graph, Plan& plan, int id, const CodecInfo* codec) {
  Policy& policy = plan.policies[static_cast<std::size_t>(id)];
  const Policy before = policy;
  policy = compress(codec);
  if (codec->keeps_values) return true;
  for (int k = id + 1; k < graph.node_count(); ++k) {
    if (!plan[k].recomputes()) continue;
    bool reads = false;
    graph.forward_reads(k, [&](int source) { reads |= source == id; });
    if (reads) plan.policies[static_cast<std::size_t>(k)] = retain();
  }
  if (!check_readers(graph, plan, id)) return true;
  policy = before;
  return false;
}

enum class Copies : bool { all, last };

/// `plans`, and for each codec `base` with this codec wherever possible.
constexpr MeasuringPlans with_codecs(const Graph& graph, Array<Plan> plans, const Plan& base,
                                     Copies copies) {
  const Array<int> last = last_copies(graph);
  for (const CodecInfo* codec : codecs_of(graph)) {
    Plan plan = base;
    bool used = false;
    for (int k = 0; k < graph.node_count(); ++k) {
      const bool chosen =
          copies == Copies::all || last[static_cast<std::size_t>(graph.node(k).layer)] == k;
      if (chosen && may_use(graph, k, codec)) used |= compress_with(graph, plan, k, codec);
    }
    if (used) plans.push_back(static_cast<Plan&&>(plan));
  }
  MeasuringPlans result;
  for (const Plan& plan : plans) {
    const std::size_t bytes = peak_bytes(graph, plan);
    if (bytes > result.arena_bytes) result.arena_bytes = bytes;
  }
  result.plans = static_cast<Array<Plan>&&>(plans);
  return result;
}

constexpr int measuring_choices = 4;

/// Choices from the most natural to the smallest.
constexpr MeasuringPlans measuring_choice(const Graph& graph, int choice) {
  Array<Plan> plans;
  if (choice == 0) {
    const Plan retain = retain_all(graph);
    Plan again = smallest_sparse(graph, Kept::whole);
    plans.push_back(retain);
    if (peak_bytes(graph, again) <= peak_bytes(graph, retain))
      plans.push_back(static_cast<Plan&&>(again));
    return with_codecs(graph, static_cast<Array<Plan>&&>(plans), retain, Copies::all);
  }
  const Plan base = smallest_sparse(graph, choice == 3 ? Kept::coarse : Kept::whole);
  plans.push_back(base);
  return with_codecs(graph, static_cast<Array<Plan>&&>(plans), base,
                     choice == 1 ? Copies::all : Copies::last);
}

}  // namespace detail

/// The plans for measuring `graph` in an arena of at most `arena_bytes`; if too small, the error names the least
/// bytes.
constexpr Result<MeasuringPlans> measuring_plans(const Graph& graph, std::size_t arena_bytes) {
  std::size_t least = static_cast<std::size_t>(-1);
  for (int choice = 0; choice < detail::measuring_choices; ++choice) {
    MeasuringPlans made = detail::measuring_choice(graph, choice);
    if (made.arena_bytes <= arena_bytes) return made;
    if (made.arena_bytes < least) least = made.arena_bytes;
  }
  return Error::say("measuring this network needs an arena of at least ", shown(least),
                    ", and got ", shown(arena_bytes));
}

/// The arena in which measuring is most like training: the peak of `retain`, or a little more.
constexpr std::size_t measuring_bytes(const Graph& graph) {
  return detail::measuring_choice(graph, 0).arena_bytes;
}

/// The smallest arena in which `graph` can be measured.
constexpr std::size_t least_measuring_bytes(const Graph& graph) {
  std::size_t least = measuring_bytes(graph);
  for (int choice = 1; choice < detail::measuring_choices; ++choice) {
    const std::size_t bytes = detail::measuring_choice(graph, choice).arena_bytes;
    if (bytes < least) least = bytes;
  }
  return least;
}

}}  // namespace adacc::v0_1
