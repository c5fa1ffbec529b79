// SPDX-License-Identifier: MIT
/// Who plans, as a user writes it: --solver auto, search or lp_solve.
#pragma once

#include <adacc/plan/make_plan.hpp>

#include <string>

// Defined for programs that link lp_solve.
#ifdef ADACC_LINKS_LP_SOLVE
#include <adacc/plan/lp/lp_solve.hpp>
#endif

namespace support {

inline const char* const solver_names[] = {"auto", "search", "lp_solve"};

/// The planner that `name`, one of solver_names, says, with the solver that the program links.
inline adacc::Planner planner_of(const std::string& name) {
  adacc::PriceSource prices;
  prices.by = name == "search"     ? adacc::Solver::search
              : name == "lp_solve" ? adacc::Solver::lp_solve
                                   : adacc::Solver::automatic;
#ifdef ADACC_LINKS_LP_SOLVE
  prices.linear = &adacc::lp_solve();
#endif
  return {adacc::make_plan, prices};
}

}  // namespace support
