// SPDX-License-Identifier: MIT
/// Plans with a planner that another source, which the target brings, has compiled.
#include <adacc/cost/estimate.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/model.hpp>

#if !defined(ADACC_SEPARATE_PLANNER)
#error "the target adacc::planner says how it was compiled"
#endif

int main() {
  adacc::StashModel<> model;
  model.add("x", adacc::Shape(64, 64), {0});
  const auto graph = model.graph();
  if (!graph) return 1;
  const adacc::CostProfile profile = adacc::estimated_profile(*graph);
  adacc::PlanRequest request;
  request.budget_bytes = 1;  // refused, in words of the planner's
  const auto outcome = adacc::make_plan(*graph, profile, request);
  const auto least = adacc::smallest_peak(*graph, profile, request);
  return !outcome && least && *least > 1 ? 0 : 1;
}
