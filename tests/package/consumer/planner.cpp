// SPDX-License-Identifier: MIT
/// Plans with a planner that another source, which the target brings, has compiled.
#include <adacc/plan/make_plan.hpp>

#if !defined(ADACC_SEPARATE_PLANNER)
#error "the target adacc::planner says how it was compiled"
#endif

int main() {
  adacc::PlanRequest request;
  request.budget_bytes = 1;
  // A graph of nothing: refused, in words of the planner's.
  const auto outcome = adacc::make_plan(adacc::Graph(), adacc::CostProfile(), request);
  const auto least = adacc::smallest_peak(adacc::Graph(), adacc::CostProfile(), request);
  return !outcome && !least ? 0 : 1;
}
