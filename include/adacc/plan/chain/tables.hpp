// SPDX-License-Identifier: MIT
/// The chain planner's tables of a graph, its costs and a number of steps in flight: made once, and used
/// for every budget.
#pragma once

#include <cstddef>

#include "../tuning.hpp"
#include "arcs.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The patterns of each structure, and the chain of their arcs.
struct ChainTables {
  Array<Segment> segments;
  Array<Restricted> restricted;
  Array<Patterns> patterns;  ///< by structure
  Chain chain;
  bool complete = false;  ///< false: time was up, and the tables are of no use

  ChainTables() = default;
  [[gnu::cold]] ChainTables(const Graph& graph, const CostProfile& profile,
                            const ChainTuning& tuning, int in_flight = 1, PacerRef time = {}) {
    if (time.look()) return;
    Segments cut(graph, profile, tuning.classes_compared, time, tuning.most_open);
    ArcMaker maker(graph, profile);
    chain.base_seconds = evaluate(graph, profile, retain_all(graph)).seconds;
    for (const Segment& segment : cut.all) {
      if (time.passed()) return;
      const auto structure = static_cast<std::size_t>(segment.structure);
      if (structure == patterns.size())
        patterns.push_back(PatternLister(graph, profile, segment,
                                         static_cast<Graph&&>(cut.structures[structure]),
                                         tuning.most_patterns, in_flight, time)
                               .list());
      if (static_cast<std::size_t>(segment.cost) == chain.arcs.size())
        chain.arcs.push_back(maker.make(patterns[structure], segment, time));
    }
    restricted = static_cast<Array<Restricted>&&>(cut.restricted);
    segments = static_cast<Array<Segment>&&>(cut.all);
    for (const Segment& segment : segments) {
      chain.classes.push_back(static_cast<std::size_t>(segment.cost));
      chain.structures.push_back(static_cast<std::size_t>(segment.structure));
    }
    chain.settle();
    complete = !time.passed();
  }
};

}}}  // namespace adacc::v0_1::detail
