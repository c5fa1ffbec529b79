// SPDX-License-Identifier: MIT
/// The best plan of all, by branch and bound: the fastest, the smallest, or the one of least error.
///
/// Activations are decided from the last to the first (partial.hpp says why), each node of the tree
/// under three bounds:
///
///   - live bytes: open activations stored in no bytes and back in no time;
///   - seconds: open activations read in backward are stored during the window's worst instruction, so
///     stored bytes must fit beside this instruction's: an exact knapsack (storage_frontier.hpp)
///     bounds the time from below;
///   - error: the errors of decided activations, carried errors included.
///
/// A leaf counts once its schedule has been laid out: the budget holds for the arena.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"
#include "../../program/layout.hpp"
#include "../../program/schedule.hpp"
#include "../proposals.hpp"
#include "../tuning.hpp"
#include "partial.hpp"
#include "storage_frontier.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The quantity to minimize.
enum class Goal : unsigned char { seconds, arena_bytes, error };

struct SearchLimits {
  Goal goal = Goal::seconds;
  std::size_t budget_bytes = 0;  ///< for the arena; of no use to Goal::arena_bytes
  double tolerance = 0;
  double most_seconds = infinite;
  double gap = 0;                                         ///< for Goal::seconds
  std::size_t most_nodes = static_cast<std::size_t>(-1);  ///< in the tree
  /// With Goal::arena_bytes, the most nodes spent on a gain below one buffer's padding of up to 63 bytes.
  std::size_t most_ties = 0;
  PacerRef time;
  PacerRef give_up;  ///< the time until a plan is found
};

struct SearchResult {
  bool found = false;
  bool finished = false;  ///< the whole tree was searched or cut off
  Plan plan;
  std::size_t arena_bytes = 0;  ///< the plan's; with Goal::arena_bytes in the best layout
  std::size_t least_bytes = 0;  ///< with Goal::arena_bytes: no plan takes fewer
  double bound_seconds = 0;     ///< with Goal::seconds: no plan is faster
};

class Search {
 public:
  constexpr Search(const Graph& graph, const CostProfile& profile, const SearchLimits& limits)
      : graph_(graph), limits_(limits), partial_(graph, profile),
        live_budget_(limits.goal == Goal::arena_bytes ||
                             limits.budget_bytes > static_cast<std::size_t>(-1) - padding
                         ? static_cast<std::size_t>(-1)
                         : limits.budget_bytes + padding),
        frontier_(partial_, live_budget_), fixed_error_(graph.nodes.size() + 1) {
    for (int k = 0; k < graph.node_count(); ++k) {
      double& error = fixed_error_[static_cast<std::size_t>(k) + 1];
      error = fixed_error_[static_cast<std::size_t>(k)];
      if (partial_.option_count(k) == 1)
        error += error_of(graph, profile, k, partial_.option(k, 0).policy);
    }
  }

  [[gnu::noinline]] constexpr SearchResult run() {
    result_.bound_seconds = infinite;
    branch();
    while (!frames_.empty() && !stopped_) {
      Frame& frame = frames_.back();
      partial_.open_to(frame.node);
      if (frame.next == children_.size()) {
        children_.resize(frame.begin);
        frames_.pop_back();
        continue;
      }
      const Child child = children_[frame.next++];
      if (hopeless(child.cost)) continue;
      partial_.decide(child.option);
      if (partial_.first_decided() == 0) judge(child.cost);
      else branch();
    }
    result_.finished = frames_.empty();
    leave_open();
    if (result_.found && best_.seconds < result_.bound_seconds)
      result_.bound_seconds = best_.seconds;
    if (result_.bound_seconds >= infinite) result_.bound_seconds = partial_.base_seconds();
    if (result_.finished && result_.found)
      result_.least_bytes = result_.arena_bytes - (ties_ < limits_.most_ties ? 0 : padding);
    return static_cast<SearchResult&&>(result_);
  }

 private:
  /// An arena ends with the last byte of the highest buffer; live bytes count this buffer's padding.
  static constexpr std::size_t padding = alignment - 1;

  struct Child {
    std::size_t option = 0;
    PartialCost cost;  ///< bounds
  };
  /// A node of the tree, with children children_[begin, the next frame's begin).
  struct Frame {
    int node = 0;  ///< the activation decided by the children
    std::size_t begin = 0;
    std::size_t next = 0;
  };

  /// A bound that is no better than the best plan.
  constexpr bool no_better(const PartialCost& bound) const {
    if (!result_.found) return false;
    if (limits_.goal == Goal::arena_bytes)
      return bound.live_bytes >= result_.arena_bytes + (ties_ < limits_.most_ties ? padding : 0);
    if (limits_.goal == Goal::error && bound.error != best_.error) return bound.error > best_.error;
    return !faster(bound, best_);
  }

  constexpr bool hopeless(const PartialCost& bound) {
    if (bound.seconds > limits_.most_seconds || no_better(bound)) return true;
    if (!result_.found || limits_.goal == Goal::error) return false;
    if (limits_.goal == Goal::arena_bytes) {
      if (bound.live_bytes >= result_.arena_bytes) ++ties_;
      return false;
    }
    if (limits_.gap <= 0 || bound.seconds < best_.seconds * (1 - limits_.gap)) return false;
    if (bound.seconds < result_.bound_seconds) result_.bound_seconds = bound.seconds;
    return true;
  }

  /// Bounds below the current node; false if no plan below it fits.
  constexpr bool bound(PartialCost& cost) {
    count_node();
    cost = partial_.cost();
    const int open = partial_.first_decided();
    if (cost.error > limits_.tolerance ||
        cost.error + fixed_error_[static_cast<std::size_t>(open)] > limits_.tolerance * (1 + 1e-9))
      return false;
    const std::size_t stored = cost.window_bytes + frontier_.least_bytes(open);
    if (stored > cost.live_bytes) cost.live_bytes = stored;
    if (limits_.goal == Goal::arena_bytes) return true;
    if (cost.live_bytes > live_budget_) return false;
    const double seconds = frontier_.seconds(open, live_budget_ - cost.window_bytes);
    cost.seconds += seconds;
    return seconds < StorageFrontier::none;
  }

  /// Below the current node: fixes every activation with one option, then branches on the next one with
  /// several.
  constexpr void branch() {
    while (partial_.first_decided() > 0) {
      const int k = partial_.first_decided() - 1;
      const bool fixed = partial_.option_count(k) == 1;
      if (!fixed && partial_.needed(k)) return list_children(k);
      if (!partial_.allowed(0)) return;
      partial_.decide(0);  // an activation not needed in backward may have any policy
    }
    if (PartialCost cost; bound(cost)) judge(cost);
  }

  constexpr void list_children(int k) {
    const std::size_t begin = children_.size();
    for (std::size_t i = 0; i < partial_.option_count(k); ++i) {
      if (!partial_.allowed(i)) continue;
      Child child{i, {}};
      partial_.decide(i);
      const bool fits = bound(child.cost);
      partial_.open_to(k);
      if (!fits || hopeless(child.cost)) continue;
      std::size_t at = children_.size();
      while (at > begin && before(child.cost, children_[at - 1].cost)) --at;
      children_.insert(at, child);
    }
    frames_.push_back({k, begin, begin});
  }

  constexpr bool before(const PartialCost& a, const PartialCost& b) const {
    if (limits_.goal == Goal::arena_bytes && a.live_bytes != b.live_bytes)
      return a.live_bytes < b.live_bytes;
    if (limits_.goal == Goal::error && a.error != b.error) return a.error < b.error;
    return a.seconds < b.seconds;
  }

  /// Keeps a whole plan if it is the best so far; `cost` has bounds, exact for a whole plan without loops.
  constexpr void judge(const PartialCost& cost) {
    if (cost.seconds > limits_.most_seconds || no_better(cost)) return;
    const Plan& plan = partial_.plan();
    const Schedule schedule = make_schedule(graph_, plan);
    PartialCost exact = cost;
    // The bound took one part of buffers that may live within a loop.
    if (graph_.parts > 1) exact.live_bytes = live_bytes(schedule);
    if (limits_.goal != Goal::arena_bytes && no_better(exact)) return;
    spend(ExhaustiveTuning::work_a_layout);
    const std::size_t arena = arena_of(schedule, plan);
    if (limits_.goal != Goal::arena_bytes) {
      if (arena > limits_.budget_bytes) return;
    } else if (result_.found && arena >= result_.arena_bytes) {
      return;
    }
    result_.arena_bytes = arena;
    result_.found = true;
    result_.plan = plan;
    best_ = exact;
  }

  /// The arena of a plan; with loops, the schedule without loops may need less. If a first placement fits the
  /// budget, its arena is enough: a search for the best, dear in constant expressions, would say nothing new.
  constexpr std::size_t arena_of(const Schedule& schedule, const Plan& plan) const {
    if (limits_.goal != Goal::arena_bytes) {
      const Timeline timeline(schedule);
      for (const int threshold : ExhaustiveTuning::thresholds)
        if (const std::size_t arena = place(schedule, timeline, threshold).arena_bytes;
            arena <= limits_.budget_bytes)
          return arena;
    }
    return schedule.loops.empty() ? make_layout(schedule).arena_bytes : peak_bytes(graph_, plan);
  }

  constexpr void count_node() {
    ++nodes_;
    if (nodes_ >= limits_.most_nodes) stopped_ = true;
    spend(ExhaustiveTuning::work_a_node);
  }

  /// Spends `work` for each node of the graph.
  constexpr void spend(std::size_t work) {
    if ((result_.found ? limits_.time : limits_.give_up).spend(work * graph_.nodes.size()))
      stopped_ = true;
  }

  /// If the search was stopped early, lowers the bound to the minimum over unexplored children.
  constexpr void leave_open() {
    for (std::size_t f = 0; f < frames_.size(); ++f) {
      const std::size_t end = f + 1 < frames_.size() ? frames_[f + 1].begin : children_.size();
      // The next frame, if there is one, lists the child in which the search was.
      std::size_t next = frames_[f].next;
      if (f + 1 == frames_.size() && next > frames_[f].begin) --next;
      for (; next < end; ++next)
        if (const double seconds = children_[next].cost.seconds; seconds < result_.bound_seconds)
          result_.bound_seconds = seconds;
    }
  }

  const Graph& graph_;
  SearchLimits limits_;
  PartialPlan partial_;
  std::size_t live_budget_;
  StorageFrontier frontier_;
  Array<double> fixed_error_;  // at k: of the first k activations, under any plan
  Array<Frame> frames_;
  Array<Child> children_;
  SearchResult result_;
  PartialCost best_;
  std::size_t nodes_ = 0;
  std::size_t ties_ = 0;
  bool stopped_ = false;
};

}}}  // namespace adacc::v0_1::detail
