/// A linear program, possibly with integer columns, and its solution: plain data.
///
/// What planners hand to a solver. Minimizes the sum of cost * x over the columns' bounds and the
/// rows; nothing in here knows any solver.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"

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
  constexpr int add_column(double cost, double lower = 0, double upper = infinity,
                           bool integer = false) {
    columns.push_back({cost, lower, upper, integer});
    return static_cast<int>(columns.size()) - 1;
  }
  constexpr int add_binary(double cost) { return add_column(cost, 0, 1, true); }

  /// Begins a row; add_term() gives it what it sums, each column at most once. Returns its index.
  constexpr int add_row(Sense sense, double rhs) {
    rows.push_back({sense, rhs, terms.size(), 0});
    return static_cast<int>(rows.size()) - 1;
  }
  constexpr void add_term(int column, double value) {
    if (value == 0) return;
    terms.push_back({column, value});
    ++rows.back().term_count;
  }

  /// The left-hand side of `row` at `values`.
  constexpr double sum(const Row& row, const Array<double>& values) const {
    double total = 0;
    for (std::size_t i = 0; i < row.term_count; ++i) {
      const Term& term = terms[row.first_term + i];
      total += term.value * values[static_cast<std::size_t>(term.column)];
    }
    return total;
  }
};

struct LinearSolution {
  enum class Outcome : unsigned char {
    optimal,   ///< within the gap asked for
    feasible,  ///< stopped early with a solution; `bound` says how good it is at worst
    infeasible,
    unbounded,
    timed_out,  ///< stopped early without a solution
    failed,     ///< the solver gave up
  };
  Outcome status = Outcome::failed;
  double objective = 0;  ///< of `values`
  /// No solution is smaller: from the duals of the relaxation, or from the search where it ended.
  double bound = -LinearProgram::infinity;
  Array<double> values;  ///< one per column; empty without a solution
  /// One per row: what the relaxation's objective gains per unit of its right-hand side. Empty
  /// where the relaxation was not solved.
  Array<double> duals;

  /// True where there are values.
  constexpr explicit operator bool() const { return !values.empty(); }
};

/// A bound that needs no trust in a solver: for any `duals` of the right signs, the smallest value
/// that objective + sum(duals * (rhs - row)) takes within the columns' bounds (weak duality).
/// Duals of the wrong sign count as 0.
constexpr double dual_bound(const LinearProgram& program, const Array<double>& duals) {
  Array<double> reduced(program.columns.size());
  for (std::size_t j = 0; j < reduced.size(); ++j) reduced[j] = program.columns[j].cost;
  double bound = 0, scale = 0;
  for (std::size_t r = 0; r < program.rows.size(); ++r) {
    const LinearProgram::Row& row = program.rows[r];
    const double dual = duals[r];
    if (row.sense == LinearProgram::Sense::at_most && dual > 0) continue;
    if (row.sense == LinearProgram::Sense::at_least && dual < 0) continue;
    bound += dual * row.rhs;
    for (std::size_t i = 0; i < row.term_count; ++i) {
      const LinearProgram::Term& term = program.terms[row.first_term + i];
      reduced[static_cast<std::size_t>(term.column)] -= dual * term.value;
    }
  }
  for (const LinearProgram::Column& column : program.columns)
    if (const double size = column.cost < 0 ? -column.cost : column.cost; size > scale)
      scale = size;
  for (std::size_t j = 0; j < reduced.size(); ++j) {
    const LinearProgram::Column& column = program.columns[j];
    const double end = reduced[j] < 0 ? column.upper : column.lower;
    const double size = reduced[j] < 0 ? -reduced[j] : reduced[j];
    if (end < LinearProgram::infinity && end > -LinearProgram::infinity) bound += reduced[j] * end;
    else if (size > 1e-9 * scale) return -LinearProgram::infinity;  // less is rounding
  }
  return bound;
}

}}  // namespace adacc::v0_1
