// SPDX-License-Identifier: MIT
/// A plan made by the compiler.
///
///     constexpr auto plan = adacc::plan<Net>(adacc::Shape(32, 16), 48 * adacc::KiB);
///     static_assert(plan, "no plan fits");
///     auto step = adacc::make_program(graph, plan);
///
/// The search is exhaustive/planner.hpp's, over estimated costs. Networks may have about a dozen
/// activations: compilers count the steps of a constant expression and stop at a million or so.
#pragma once

#include <cstddef>

#include "../cost/estimate.hpp"
#include "../model/graph_builder.hpp"
#include "exhaustive/planner.hpp"

namespace adacc { inline namespace v0_1 {

/// A plan of `Size` activations, in an array: it can be a constant.
template <std::size_t Size>
struct ConstantPlan {
  Policy policies[Size] = {};
  double seconds = 0;    ///< estimated
  bool proven = false;   ///< no plan within the budget is faster, by the estimate
  Fingerprint made_for;  ///< the graph's
  Error error;           ///< why there is no plan

  static constexpr std::size_t size() { return Size; }
  constexpr explicit operator bool() const { return !error; }
  constexpr const Policy& operator[](int activation) const {
    return policies[static_cast<std::size_t>(activation)];
  }

  /// A Plan of these policies; without policies if there is none.
  constexpr operator Plan() const {
    Plan plan;
    if (error) return plan;
    plan.made_for = made_for;
    plan.policies.reserve(Size);
    for (const Policy& policy : policies) plan.policies.push_back(policy);
    return plan;
  }
};

namespace detail {

/// Counts the layers of a model by its visit().
struct LayerCounter {
  std::size_t count = 0;

  template <class PolicyType, class Functor>
  constexpr void layer(const Functor&) {
    ++count;
  }
  constexpr int current() const { return static_cast<int>(count) - 1; }
  constexpr void add(int) {}
  constexpr void branch(int) {}
  template <class Block>
  constexpr void repeat(int copies, const Block& block) {
    for (int i = 0; i < copies; ++i) block.visit(*this);
  }
};

/// The smallest plan found in as many steps as a compiler takes; if none, the plan of the types.
constexpr SmallestPlan smallest_known(const Graph& graph, const CostProfile& profile,
                                      double tolerance) {
  SmallestPlan smallest =
      smallest_plan(graph, profile, tolerance, ExhaustiveTuning::constant_smallest_nodes);
  if (!smallest.plan.policies.empty()) return smallest;
  smallest.plan = plan_from_types(graph);
  smallest.arena_bytes = peak_bytes(graph, smallest.plan);
  return smallest;
}

/// The result of a search, if its layout, cost and error meet the request. (Other planners have Proposals check
/// theirs, which would take more steps than compilers allow.)
template <std::size_t Size>
constexpr ConstantPlan<Size> constant_plan(const Graph& graph, const CostProfile& profile,
                                           const PlanRequest& request, const SearchResult& found) {
  ConstantPlan<Size> result;
  PlanCost cost;
  bool meets =
      found.found && found.arena_bytes <= request.budget_bytes && !examine(graph, found.plan);
  if (meets) cost = evaluate(graph, profile, found.plan);
  meets =
      meets && cost.error <= request.tolerance && cost.live_bytes <= align_up(request.budget_bytes);
  if (!meets) {
    result.error = over_budget(graph, request, smallest_known(graph, profile, request.tolerance));
    return result;
  }
  for (std::size_t i = 0; i < Size; ++i) result.policies[i] = found.plan.policies[i];
  result.made_for = graph.fingerprint;
  result.seconds = cost.seconds;
  result.proven = found.finished;
  return result;
}

template <class Network>
constexpr std::size_t layer_count() {
  LayerCounter counter;
  Network{}.model.visit(counter);
  return counter.count;
}

}  // namespace detail

/// The fastest plan, by estimated_profile(), of a training step of a default-constructed Network on
/// inputs of shape `input`, whose arena takes at most `budget_bytes`. If none fits, the result's
/// error names the smallest budget that can be met.
template <class Network>
constexpr ConstantPlan<detail::layer_count<Network>()> plan(Shape input, std::size_t budget_bytes,
                                                            double tolerance = 1e-2,
                                                            const GraphOptions& options = {}) {
  ConstantPlan<detail::layer_count<Network>()> result;
  const Result<Graph> graph = make_graph(Network{}, input, options);
  if (!graph) {
    result.error = graph.error;
    return result;
  }
  const CostProfile profile = estimated_profile(*graph);
  PlanRequest request;
  request.budget_bytes = budget_bytes;
  request.tolerance = tolerance;
  result.error = examine(*graph, profile, request);
  if (result.error) return result;
  detail::SearchLimits limits;
  limits.budget_bytes = budget_bytes;
  limits.tolerance = tolerance;
  limits.most_nodes = ExhaustiveTuning::constant_nodes;
  return detail::constant_plan<detail::layer_count<Network>()>(
      *graph, profile, request, detail::Search(*graph, profile, limits).run());
}

}}  // namespace adacc::v0_1
