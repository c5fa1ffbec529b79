// SPDX-License-Identifier: MIT
/// Plans without a store, for one graph and any number of budgets.
#pragma once

#include <cstddef>

#include "chain/planner.hpp"
#include "exhaustive/planner.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline bool searches_all(const Graph& graph, const PlanRequest& request) {
  std::size_t open = 0;
  for (const Node& node : graph.nodes) open += node.policy.planned() ? 1U : 0U;
  return open <= ExhaustiveTuning::open_activations && request.prices.by != Solver::lp_solve &&
         request.in_flight == 1;
}

/// Tables for every budget are made once. Requests must have passed examine().
class ArenaPlanner {
 public:
  /// Graph and profile must outlive the planner.
  ArenaPlanner(const Graph& graph, const CostProfile& profile) : graph_(graph), profile_(profile) {}

  /// Proposes the fastest plan found; if there is none, the smallest.
  [[gnu::cold]] void search(const PlanRequest& request, Proposals& proposals) {
    if (!search_all(request, proposals)) segments(request, proposals).search();
  }

  /// Proposes the fastest plan found. Only plans below `most_seconds` are of interest: the search ends when
  /// there can be none.
  [[gnu::cold]] void search_below(double most_seconds, const PlanRequest& request,
                                  Proposals& proposals) {
    if (!search_all(request, proposals)) segments(request, proposals).search_below(most_seconds);
  }

  /// Proposes the smallest plan found.
  [[gnu::cold]] void propose_smallest(const PlanRequest& request, Proposals& proposals) {
    if (searches_all(graph_, request))
      proposals.offer_smallest(
          smallest_plan(graph_, profile_, request.tolerance, 0, proposals.shared_time()),
          exhaustive);
    if (!proposals.smallest().proven()) segments(request, proposals).propose_smallest();
  }

  /// Partial plans looked at by all searches by segments so far.
  std::size_t extensions() const { return findings_.extensions; }

 private:
  /// Whether the exhaustive search, in a share of the time, left nothing to do. If the search does not end, the
  /// rest of the time is for segments.
  bool search_all(const PlanRequest& request, Proposals& proposals) const {
    return proposals.retain_fits() ||
           (searches_all(graph_, request) &&
            search_exhaustively(graph_, profile_, request,
                                proposals.deadline().part(ExhaustiveTuning::share),
                                ExhaustiveTuning::nodes_asked, proposals) &&
            (proposals.found() || proposals.smallest().proven()));
  }

  ChainPlanner segments(const PlanRequest& request, Proposals& proposals) {
    if (!tables_.complete || listed_for_ != request.in_flight)
      tables_ = ChainTables(graph_, profile_, tuning_, request.in_flight, proposals.shared_time());
    if (listed_for_ != request.in_flight || tolerance_ != request.tolerance)
      findings_.smallest = {};
    listed_for_ = request.in_flight;
    tolerance_ = request.tolerance;
    return {tables_, graph_, profile_, request, tuning_, proposals, findings_};
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const ChainTuning tuning_;
  ChainTables tables_;
  int listed_for_ = 0;      ///< steps in flight
  ChainFindings findings_;  ///< for requests of this tolerance and number of steps in flight
  double tolerance_ = 0;
};

}}}  // namespace adacc::v0_1::detail
