// SPDX-License-Identifier: MIT
/// Patterns of a chain's segments put together by chance: the bytes that they say, and the plan that they are.
#pragma once

#include <adacc/plan/chain/tables.hpp>

#include <algorithm>
#include <vector>

#include "random_graph.hpp"

namespace pattern_path {

using namespace adacc;
using namespace adacc::detail;

inline const Patterns& patterns_of(const ChainTables& tables, std::size_t segment) {
  return tables.patterns[static_cast<std::size_t>(tables.segments[segment].structure)];
}

/// One pattern per segment of a chain.
using Path = std::vector<const Pattern*>;

/// The highest need, from the last segment to the first: what Placement computes for arcs.
inline SignedBytes need_of(const Path& path) {
  struct {
    SignedBytes need = no_bytes, on_held = no_bytes, on_peak = no_bytes;
    SignedBytes beside = 0, need_beside = no_bytes;
  } behind;
  for (std::size_t j = path.size(); j-- > 0;) {
    const PatternBytes& bytes = path[j]->bytes;
    auto mine = decltype(behind){};
    mine.need = std::max(bytes.need, behind.need + bytes.stored);
    mine.on_held = bytes.need_on_held, mine.on_peak = bytes.need_on_peak;
    mine.beside = bytes.beside, mine.need_beside = bytes.need_beside;
    if (is_replay(path[j]->to)) {
      mine.need = std::max(mine.need, behind.on_peak + bytes.peak_on_stored);
      mine.on_held = std::max(mine.on_held, behind.on_peak + bytes.peak_on_held);
      mine.on_peak = std::max(mine.on_peak, behind.on_peak + bytes.peak_on_peak);
      SignedBytes& holds = bytes.keeps_replay ? mine.on_held : mine.need;
      holds = std::max(holds, behind.on_held + bytes.held);
    }
    if (path[j]->to == paired) {
      mine.need = std::max(mine.need, bytes.need_beside + behind.beside);
      mine.need = std::max(mine.need, behind.need_beside + bytes.beside);
    }
    behind = mine;
  }
  return behind.need;
}

/// A path that fits together; empty if the one drawn does not go through to the front.
inline Path draw_path(const ChainTables& tables, random_graph::Source& random) {
  Path path(tables.chain.size());
  State state = at_hand;
  for (std::size_t j = path.size(); j-- > 0;) {
    std::vector<const Pattern*> fitting;
    for (const Pattern& pattern : patterns_of(tables, j).all)
      if (pattern.to == state && (j > 0 || pattern.from == at_hand)) fitting.push_back(&pattern);
    if (fitting.empty()) return {};
    path[j] = fitting[random.below(fitting.size())];
    state = path[j]->from;
  }
  return path;
}

inline Plan plan_of(const Graph& graph, const ChainTables& tables, const Path& path) {
  Plan plan = plan_from_types(graph);
  for (std::size_t j = 0; j < path.size(); ++j) {
    const Segment& segment = tables.segments[j];
    const Patterns& mine = patterns_of(tables, j);
    for (std::size_t k = 0; k < mine.nodes(); ++k)
      if (!mine.is_outgoing(k))
        plan.policies[static_cast<std::size_t>(segment.original(static_cast<int>(k)))] =
            mine.options[k][mine.choice(*path[j], k).option];
  }
  return plan;
}

}  // namespace pattern_path
