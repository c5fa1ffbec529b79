// SPDX-License-Identifier: MIT
/// Solves a LinearProgram with lp_solve 5.5: link adacc::lp_solve.
///
///     options.planning.planner = adacc::plan_with(adacc::lp_solve());
///
/// lp_lib.h defines about 500 macros, so the functions in use are declared here; a test compares
/// the declarations with that header. The model is built afresh for every solve, as lp_solve keeps
/// state between solves. Tolerances of lp_solve are absolute, and a step takes 1e-3 seconds and 1e9
/// bytes: rows are scaled to size 1 first, and costs to 1e4.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "linear_program.hpp"

struct _lprec;  // lp_solve's own name for a model

namespace adacc { inline namespace v0_1 {

namespace lp_solve_c {

extern "C" {
_lprec* make_lp(int rows, int columns);
void delete_lp(_lprec* lp);
void set_verbose(_lprec* lp, int verbose);
void set_timeout(_lprec* lp, long seconds);
void put_abortfunc(_lprec* lp, int (*stop)(_lprec*, void*), void* handle);
void set_mip_gap(_lprec* lp, unsigned char absolute, double gap);
unsigned char set_obj_fnex(_lprec* lp, int count, double* row, int* columns);
unsigned char set_add_rowmode(_lprec* lp, unsigned char on);
unsigned char add_constraintex(_lprec* lp, int count, double* row, int* columns, int type,
                               double rhs);
unsigned char set_bounds(_lprec* lp, int column, double lower, double upper);
unsigned char set_int(_lprec* lp, int column, unsigned char on);
int solve(_lprec* lp);
unsigned char get_ptr_variables(_lprec* lp, double** values);
unsigned char get_ptr_dual_solution(_lprec* lp, double** duals);
}

/// Constants of lp_solve, by their names in lp_lib.h.
enum RowType : int { le = 1, ge = 2, eq = 3 };
enum Code : int { optimal = 0, suboptimal = 1, infeasible = 2, unbounded = 3, timeout = 7 };

}  // namespace lp_solve_c

namespace detail {

/// A model in lp_solve's memory.
class LpSolve {
 public:
  LpSolve(const LinearProgram& program, bool integers, const LinearOptions& options)
      : program_(program), options_(options),
        lp_(lp_solve_c::make_lp(0, static_cast<int>(program.columns.size()))) {
    if (lp_ != nullptr) ready_ = build(integers);
  }
  LpSolve(const LpSolve&) = delete;
  LpSolve& operator=(const LpSolve&) = delete;
  ~LpSolve() {
    if (lp_ != nullptr) lp_solve_c::delete_lp(lp_);
  }

  LinearSolution::Verdict run(LinearSolution& solution, bool duals) {
    using Verdict = LinearSolution::Verdict;
    if (!ready_) return Verdict::failed;
    const int outcome = lp_solve_c::solve(lp_);
    switch (outcome) {
      case lp_solve_c::optimal:
      case lp_solve_c::suboptimal: break;
      case lp_solve_c::infeasible: return Verdict::infeasible;
      case lp_solve_c::unbounded: return Verdict::unbounded;
      default:
        return outcome == lp_solve_c::timeout || stopped_ ? Verdict::timed_out : Verdict::failed;
    }
    if (!read(solution, duals)) return Verdict::failed;
    return outcome == lp_solve_c::optimal ? Verdict::optimal : Verdict::feasible;
  }

 private:
  static int stop(_lprec*, void* self) {
    LpSolve& solver = *static_cast<LpSolve*>(self);
    const LinearOptions& options = solver.options_;
    solver.stopped_ = solver.stopped_ || options.deadline.passed() ||
                      (options.most_polls > 0 && ++solver.polls_ > options.most_polls);
    return solver.stopped_ ? 1 : 0;
  }

  static double magnitude(double value) { return value < 0 ? -value : value; }

  bool build(bool integers) {
    const std::size_t count = program_.columns.size();
    lp_solve_c::set_verbose(lp_, 0);
    const double left = options_.deadline.left();
    if (left <= 0) {
      stopped_ = true;
      return false;
    }
    if (left < 1e6) lp_solve_c::set_timeout(lp_, static_cast<long>(left) + 1);
    lp_solve_c::put_abortfunc(lp_, &stop, this);
    Array<double> values(count);
    Array<int> columns(count);
    for (const LinearProgram::Column& column : program_.columns)
      if (magnitude(column.cost) > largest_cost_) largest_cost_ = magnitude(column.cost);
    for (std::size_t j = 0; j < count; ++j) {
      values[j] = program_.columns[j].cost * cost_scale();
      columns[j] = static_cast<int>(j) + 1;
    }
    lp_solve_c::set_mip_gap(lp_, 1, 0);
    lp_solve_c::set_mip_gap(lp_, 0, 0);
    bool good = lp_solve_c::set_obj_fnex(lp_, static_cast<int>(count), values.data(),
                                         columns.data()) != 0 &&
                lp_solve_c::set_add_rowmode(lp_, 1) != 0;
    for (const LinearProgram::Row& row : program_.rows) good = good && add(row, values, columns);
    good = good && add_empty_columns();
    lp_solve_c::set_add_rowmode(lp_, 0);
    for (std::size_t j = 0; j < count; ++j) {
      const LinearProgram::Column& column = program_.columns[j];
      const int at = static_cast<int>(j) + 1;
      good = good && lp_solve_c::set_bounds(lp_, at, column.lower, column.upper) != 0;
      if (integers && column.integer) good = good && lp_solve_c::set_int(lp_, at, 1) != 0;
    }
    return good;
  }

  bool add(const LinearProgram::Row& row, Array<double>& values, Array<int>& columns) {
    double largest = 0;
    for (std::size_t i = 0; i < row.term_count; ++i) {
      const LinearProgram::Term& term = program_.terms[row.first_term + i];
      values[i] = term.value;
      columns[i] = term.column + 1;
      if (magnitude(term.value) > largest) largest = magnitude(term.value);
    }
    if (largest == 0) largest = 1;
    for (std::size_t i = 0; i < row.term_count; ++i) values[i] /= largest;
    row_scales_.push_back(largest);
    const int types[] = {lp_solve_c::le, lp_solve_c::ge, lp_solve_c::eq};
    return lp_solve_c::add_constraintex(lp_, static_cast<int>(row.term_count), values.data(),
                                        columns.data(), types[static_cast<int>(row.sense)],
                                        row.rhs / largest) != 0;
  }

  /// Repeats a bound of every column missing in the rows, as a row: lp_solve 5.5.2.x takes the step of the
  /// objective from integers and rows alone, and would cut off better solutions.
  bool add_empty_columns() {
    Array<bool> used(program_.columns.size());
    for (const LinearProgram::Term& term : program_.terms)
      used[static_cast<std::size_t>(term.column)] = true;
    bool good = true;
    for (std::size_t j = 0; j < used.size(); ++j) {
      const LinearProgram::Column& column = program_.columns[j];
      const bool above = column.upper < LinearProgram::infinity;
      if (used[j] || (!above && column.lower <= -LinearProgram::infinity)) continue;
      double one = 1;
      int at = static_cast<int>(j) + 1;
      good = good && lp_solve_c::add_constraintex(lp_, 1, &one, &at,
                                                  above ? lp_solve_c::le : lp_solve_c::ge,
                                                  above ? column.upper : column.lower) != 0;
    }
    return good;
  }

  /// The largest cost becomes 1e4.
  double cost_scale() const { return largest_cost_ > 0 ? 1e4 / largest_cost_ : 1; }

  bool read(LinearSolution& solution, bool duals) const {
    double* found = nullptr;
    if (lp_solve_c::get_ptr_variables(lp_, &found) == 0 || found == nullptr) return false;
    solution.values.resize(program_.columns.size());
    solution.objective = 0;
    for (std::size_t j = 0; j < solution.values.size(); ++j) {
      solution.values[j] = found[j];
      solution.objective += program_.columns[j].cost * found[j];
    }
    if (!duals) return true;
    if (lp_solve_c::get_ptr_dual_solution(lp_, &found) == 0 || found == nullptr) return false;
    solution.duals.resize(program_.rows.size());
    for (std::size_t r = 0; r < solution.duals.size(); ++r)
      solution.duals[r] = found[r + 1] / row_scales_[r] / cost_scale();
    return true;
  }

  const LinearProgram& program_;
  LinearOptions options_;
  _lprec* lp_ = nullptr;
  Array<double> row_scales_;
  double largest_cost_ = 0;
  bool ready_ = false;
  bool stopped_ = false;
  std::size_t polls_ = 0;
};

}  // namespace detail

/// Solves `program`: first the relaxation, for the duals, then, if the solution is not integral, the whole
/// program. Prints nothing.
inline LinearSolution solve_with_lp_solve(const LinearProgram& program,
                                          const LinearOptions& options = {}) {
  using Verdict = LinearSolution::Verdict;
  LinearSolution solution;
  solution.verdict = detail::LpSolve(program, false, options).run(solution, true);
  if (solution.verdict == Verdict::feasible) solution.verdict = Verdict::failed;
  bool integral = true;
  for (std::size_t j = 0; j < program.columns.size() && solution; ++j) {
    const double value = solution.values[j];
    const auto whole =
        static_cast<double>(static_cast<long long>(value + (value < 0 ? -0.5 : 0.5)));
    if (program.columns[j].integer)
      integral = integral && value - whole < 1e-7 && whole - value < 1e-7;
  }
  if (solution.verdict == Verdict::optimal && !integral) {
    solution.values.clear();
    solution.verdict = detail::LpSolve(program, true, options).run(solution, false);
  }
  const bool solved = solution.verdict == Verdict::optimal || solution.verdict == Verdict::feasible;
  if (!solved) solution.values.clear();
  if (!solved && options.deadline.passed()) solution.verdict = Verdict::timed_out;
  return solution;
}

/// For plan_with() (plan/make_plan.hpp).
inline const LinearSolver& lp_solve() {
  static constexpr LinearSolver solver{"lp_solve", &solve_with_lp_solve};
  return solver;
}

}}  // namespace adacc::v0_1
