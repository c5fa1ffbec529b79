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

  ChainTables() = default;
  [[gnu::cold]] ChainTables(const Graph& graph, const CostProfile& profile,
                            const ChainTuning& tuning, int in_flight = 1) {
    Segments segments(graph, profile, tuning.classes_compared);
    ArcMaker maker(graph, profile);
    chain.base_seconds = evaluate(graph, profile, retain_all(graph)).seconds;
    for (const Segment& segment : segments.all) {
      const auto structure = static_cast<std::size_t>(segment.structure);
      if (structure == patterns.size())
        patterns.push_back(PatternLister(graph, profile, segment,
                                         static_cast<Graph&&>(segments.structures[structure]),
                                         tuning.most_patterns, in_flight)
                               .list());
      if (static_cast<std::size_t>(segment.cost) == chain.arcs.size())
        chain.arcs.push_back(maker.make(patterns[structure], segment));
    }
    chain.segments = static_cast<Array<Segment>&&>(segments.all);
    chain.settle();
  }
};

}}}  // namespace adacc::v0_1::detail
