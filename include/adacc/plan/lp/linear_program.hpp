// SPDX-License-Identifier: MIT
/// A linear program, possibly with integer columns, its solution, and a solver's functions: plain data.
///
/// Minimizes the sum of cost * x within the columns' bounds and the rows. This header depends on no solver.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"

namespace adacc { inline namespace v0_1 {

struct LinearProgram {
  static constexpr double infinity = 1e30;  ///< bounds and right-hand sides from here on are none

  enum class Sense : unsigned char { at_most, at_least, equal };

  struct Column {
    double cost = 0;
    double lower = 0;
    double upper = infinity;
    bool integer = false;
  };
  struct Row {
    Sense sense = Sense::at_most;
    double rhs = 0;
    std::size_t first_term = 0;
    std::size_t term_count = 0;
  };
  struct Term {
    int column = 0;
    double value = 0;
  };

  Array<Column> columns;
  Array<Row> rows;
  Array<Term> terms;

  /// Returns the column's index.
  int add_column(double cost, double lower = 0, double upper = infinity, bool integer = false) {
    columns.push_back({cost, lower, upper, integer});
    return static_cast<int>(columns.size()) - 1;
  }
  /// Begins a row; add_term() adds the row's terms, each column at most once.
  void add_row(Sense sense, double rhs) { rows.push_back({sense, rhs, terms.size(), 0}); }
  void add_term(int column, double value) {
    if (value == 0) return;
    terms.push_back({column, value});
    ++rows.back().term_count;
  }
};

struct LinearSolution {
  enum class Verdict : unsigned char {
    optimal,
    feasible,  ///< stopped early with a solution
    infeasible,
    unbounded,
    timed_out,  ///< stopped early without a solution
    failed,     ///< the solver gave up
  };
  Verdict verdict = Verdict::failed;
  double objective = 0;  ///< for `values`
  Array<double> values;  ///< one per column; empty without a solution
  /// One per row: the growth of the relaxation's objective per unit of the row's right-hand side. Empty if
  /// the relaxation was not solved.
  Array<double> duals;

  /// True if there are values.
  explicit operator bool() const { return !values.empty(); }
};

struct LinearOptions {
  Deadline deadline;
  /// The solver asks about once an iteration whether to stop. Stop when asked this often: unlike a deadline,
  /// this gives every machine the same outcome. 0: no limit.
  std::size_t most_polls = 0;
};

/// A solver that a program lends to planners (PriceSource).
struct LinearSolver {
  const char* name = "";
  LinearSolution (*solve)(const LinearProgram& program, const LinearOptions& options) = nullptr;
};

}}  // namespace adacc::v0_1
