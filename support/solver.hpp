// SPDX-License-Identifier: MIT
/// Who plans, as a user writes it: --solver auto, search or lp_solve.
#pragma once

#include <adacc/plan/request.hpp>

#include <string>

// Defined for programs that link lp_solve.
#ifdef ADACC_LINKS_LP_SOLVE
#include <adacc/plan/lp/lp_solve.hpp>
#endif

namespace support {

inline const char* const solver_names[] = {"auto", "search", "lp_solve"};

/// Sets what `name`, one of solver_names, says, and lends the solver that the program links. Request
/// is a PlanRequest, or TrainingOptions.
template <class Request>
void choose_solver(const std::string& name, Request& request) {
  request.solver = name == "search"     ? adacc::Solver::search
                   : name == "lp_solve" ? adacc::Solver::lp_solve
                                        : adacc::Solver::automatic;
#ifdef ADACC_LINKS_LP_SOLVE
  request.linear_solver = &adacc::lp_solve();
#endif
}

}  // namespace support
