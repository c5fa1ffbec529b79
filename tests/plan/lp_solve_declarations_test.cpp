// SPDX-License-Identifier: MIT
// The functions that plan/lp/lp_solve.hpp declares are those of lp_lib.h, type by type. Where they
// differ, this does not compile: two declarations of one C function must agree.
#include <adacc/plan/lp/lp_solve.hpp>

#include <type_traits>

#include <lpsolve/lp_lib.h>

#define ADACC_SAME_FUNCTION(name) \
  static_assert(std::is_same_v<decltype(&adacc::lp_solve_c::name), decltype(&::name)>)

ADACC_SAME_FUNCTION(make_lp);
ADACC_SAME_FUNCTION(delete_lp);
ADACC_SAME_FUNCTION(set_verbose);
ADACC_SAME_FUNCTION(set_timeout);
ADACC_SAME_FUNCTION(put_abortfunc);
ADACC_SAME_FUNCTION(set_mip_gap);
ADACC_SAME_FUNCTION(set_obj_fnex);
ADACC_SAME_FUNCTION(set_add_rowmode);
ADACC_SAME_FUNCTION(add_constraintex);
ADACC_SAME_FUNCTION(set_bounds);
ADACC_SAME_FUNCTION(set_int);
ADACC_SAME_FUNCTION(solve);
ADACC_SAME_FUNCTION(get_ptr_variables);
ADACC_SAME_FUNCTION(get_ptr_dual_solution);

static_assert(adacc::lp_solve_c::le == LE && adacc::lp_solve_c::ge == GE &&
              adacc::lp_solve_c::eq == EQ);
static_assert(adacc::lp_solve_c::optimal == OPTIMAL &&
              adacc::lp_solve_c::suboptimal == SUBOPTIMAL &&
              adacc::lp_solve_c::infeasible == INFEASIBLE &&
              adacc::lp_solve_c::unbounded == UNBOUNDED && adacc::lp_solve_c::timeout == TIMEOUT);
static_assert(adacc::LinearProgram::infinity == DEF_INFINITE);
