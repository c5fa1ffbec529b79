// SPDX-License-Identifier: MIT
/// All plans of a small graph, each evaluated by itself: what planners are judged by.
#pragma once

#include <doctest/doctest.h>

#include <adacc/cost/evaluate.hpp>
#include <adacc/plan/choices.hpp>
#include <adacc/plan/request.hpp>

#include <algorithm>
#include <vector>

namespace brute_force {

using namespace adacc;

struct Candidate {
  PlanCost cost;
  std::vector<unsigned char> choices;  ///< into policies_of(), per activation
  std::size_t arena = 0;               ///< 0: not laid out yet
};

class AllPlans {
 public:
  AllPlans(const Graph& graph, const CostProfile& profile) : graph_(graph) {
    for (int k = 0; k < graph.node_count(); ++k) options_.push_back(policies_of(graph, k));
    std::vector<unsigned char> choices(options_.size(), 0);
    do {
      const Plan plan = plan_of(choices);
      if (!examine(graph, plan)) plans_.push_back({evaluate(graph, profile, plan), choices});
    } while (next(choices));
    std::sort(plans_.begin(), plans_.end(), [](const Candidate& a, const Candidate& b) {
      return a.cost.seconds < b.cost.seconds;
    });
  }

  std::size_t size() const { return plans_.size(); }
  const Candidate& operator[](std::size_t i) const { return plans_[i]; }

  Plan plan_of(const std::vector<unsigned char>& choices) const {
    Plan plan;
    for (std::size_t k = 0; k < choices.size(); ++k)
      plan.policies.push_back(options_[k][choices[k]]);
    return plan;
  }

  std::size_t arena(Candidate& candidate) const {
    if (candidate.arena == 0) candidate.arena = peak_bytes(graph_, plan_of(candidate.choices));
    return candidate.arena;
  }

  /// The fastest plan that fits; of those as fast but for rounding, the one with the smallest live
  /// bytes, then error. Null where none fits.
  const Candidate* best(std::size_t budget, double tolerance) {
    Candidate* best = nullptr;
    for (Candidate& candidate : plans_) {
      const PlanCost& cost = candidate.cost;
      if (best != nullptr && cost.seconds > best->cost.seconds * (1 + 1e-12)) break;
      // An arena ends with its last byte, live bytes with the padding behind it.
      if (cost.live_bytes > align_up(budget) || cost.error > tolerance) continue;
      if (best != nullptr &&
          (cost.live_bytes > best->cost.live_bytes ||
           (cost.live_bytes == best->cost.live_bytes && cost.error >= best->cost.error)))
        continue;
      if (arena(candidate) <= budget) best = &candidate;
    }
    return best;
  }

  std::size_t most_live_bytes() const {
    std::size_t most = 0;
    for (const Candidate& candidate : plans_) most = std::max(most, candidate.cost.live_bytes);
    return most;
  }

  /// The smallest arena within the tolerance; 0 where there is no plan.
  std::size_t smallest(double tolerance) {
    std::vector<Candidate*> by_live;
    for (Candidate& candidate : plans_)
      if (candidate.cost.error <= tolerance) by_live.push_back(&candidate);
    std::sort(by_live.begin(), by_live.end(), [](const Candidate* a, const Candidate* b) {
      return a->cost.live_bytes < b->cost.live_bytes;
    });
    std::size_t smallest = 0;
    for (Candidate* candidate : by_live) {
      if (smallest != 0 && candidate->cost.live_bytes >= smallest + alignment - 1) break;
      if (smallest == 0 || arena(*candidate) < smallest) smallest = arena(*candidate);
    }
    return smallest;
  }

 private:
  bool next(std::vector<unsigned char>& choices) const {
    for (std::size_t k = 0; k < choices.size(); ++k) {
      if (++choices[k] < options_[k].size()) return true;
      choices[k] = 0;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<Array<Policy>> options_;
  std::vector<Candidate> plans_;
};

/// What every planner promises of a plan, where `best` is the best one.
inline void check_promises(const Graph& graph, const PlanRequest& request, const Candidate& best,
                           const PlanOutcome& plan) {
  CHECK_FALSE(examine(graph, plan.plan));
  CHECK(plan.peak_bytes <= request.budget_bytes);
  CHECK(plan.error <= request.tolerance * (1 + 1e-9));
  CHECK(plan.bound_seconds <= best.cost.seconds * (1 + 1e-9));
  CHECK(plan.seconds >= best.cost.seconds * (1 - 1e-9));
}

}  // namespace brute_force
