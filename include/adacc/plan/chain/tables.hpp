// SPDX-License-Identifier: MIT
/// What the chain planner lists once for a graph and its costs, whatever the budget: of a number
/// of steps in flight.
#pragma once

#include <cstddef>

#include "../tuning.hpp"
#include "arcs.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The patterns of each structure, and the chain of their arcs.
struct ChainTables {
  Array<Patterns> patterns;  ///< by structure
  Chain chain;
  bool complete = false;  ///< or else time was up, and they are of no use

  ChainTables() = default;
  [[gnu::cold]] ChainTables(const Graph& graph, const CostProfile& profile,
                            const ChainTuning& tuning, int in_flight = 1, PacerRef time = {}) {
    if (time.look()) return;
    Segments segments(graph, profile, tuning.classes_compared, time);
    ArcMaker maker(graph, profile);
    chain.base_seconds = evaluate(graph, profile, retain_all(graph)).seconds;
    for (const Segment& segment : segments.all) {
      if (time.passed()) return;
      const auto structure = static_cast<std::size_t>(segment.structure);
      if (structure == patterns.size())
        patterns.push_back(PatternLister(graph, profile, segment,
                                         static_cast<Graph&&>(segments.structures[structure]),
                                         tuning.most_patterns, in_flight, time)
                               .list());
      if (static_cast<std::size_t>(segment.cost) == chain.arcs.size())
        chain.arcs.push_back(maker.make(patterns[structure], segment, time));
    }
    chain.segments = static_cast<Array<Segment>&&>(segments.all);
    chain.settle();
    complete = !time.passed();
  }
};

}}}  // namespace adacc::v0_1::detail
