// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/plan/lp/lp_solve.hpp>

#include <chrono>
#include <random>
#include <vector>

namespace lp_solve_test {

using namespace adacc;

namespace {

using Sense = LinearProgram::Sense;
using Verdict = LinearSolution::Verdict;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void add_binary(LinearProgram& program, double cost) { program.add_column(cost, 0, 1, true); }

double sum(const LinearProgram& program, const LinearProgram::Row& row,
           const Array<double>& values) {
  double total = 0;
  for (std::size_t i = row.first_term; i < row.first_term + row.term_count; ++i)
    total += program.terms[i].value * values[static_cast<std::size_t>(program.terms[i].column)];
  return total;
}

/// Items with a value each, under one capacity: costs of a step's size, rows of an arena's.
LinearProgram knapsack(std::mt19937& random, int items) {
  LinearProgram program;
  std::uniform_real_distribution<double> unit(0.1, 1);
  double total = 0;
  std::vector<double> weights;
  for (int i = 0; i < items; ++i) {
    add_binary(program, -1e-3 * unit(random));
    weights.push_back(1e9 * unit(random));
    total += weights.back();
  }
  program.add_row(Sense::at_most, total / 2.5);
  for (int i = 0; i < items; ++i) program.add_term(i, weights[static_cast<std::size_t>(i)]);
  return program;
}

double brute_force(const LinearProgram& program) {
  double best = 0;
  Array<double> values(program.columns.size());
  for (unsigned bits = 0; bits >> program.columns.size() == 0; ++bits) {
    double cost = 0;
    for (std::size_t j = 0; j < values.size(); ++j) {
      values[j] = bits >> j & 1;
      cost += values[j] * program.columns[j].cost;
    }
    if (sum(program, program.rows[0], values) <= program.rows[0].rhs && cost < best) best = cost;
  }
  return best;
}

}  // namespace

TEST_CASE("lp_solve: a program solved by hand, and its duals") {
  // min -3x - 2y, x + y <= 4, x + 3y <= 6, x <= 3: x = 3, y = 1.
  LinearProgram program;
  program.add_column(-3, 0, 3);
  program.add_column(-2);
  for (const double factor : {1.0, 3.0}) {
    program.add_row(Sense::at_most, factor == 1 ? 4 : 6);
    program.add_term(0, 1);
    program.add_term(1, factor);
  }
  const LinearSolution solution = solve_with_lp_solve(program);
  REQUIRE(solution.verdict == Verdict::optimal);
  CHECK(solution.values[0] == doctest::Approx(3));
  CHECK(solution.values[1] == doctest::Approx(1));
  CHECK(solution.objective == doctest::Approx(-11));
  REQUIRE(solution.duals.size() == 2);
  // Both rows are tight and meet in one point, so only their sum with the bound's price is fixed.
  CHECK(solution.duals[0] <= 0);
  CHECK(solution.duals[1] <= 0);
  CHECK(4 * solution.duals[0] + 6 * solution.duals[1] >= -12 - 1e-9);
}

TEST_CASE("lp_solve: knapsacks against brute force") {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const LinearProgram program = knapsack(random, 4 + i % 9);
    const double best = brute_force(program);
    const LinearSolution exact = solve_with_lp_solve(program);
    REQUIRE(exact.verdict == Verdict::optimal);
    CHECK(exact.objective == doctest::Approx(best).epsilon(1e-7));
    CHECK(sum(program, program.rows[0], exact.values) <= program.rows[0].rhs * (1 + 1e-9));
  }
}

TEST_CASE("lp_solve: a column that no row mentions changes nothing but the objective") {
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    LinearProgram program = knapsack(random, 10);
    for (LinearProgram::Column& column : program.columns)  // few decimals: the objective has a step
      column.cost = 1e-4 * static_cast<double>(static_cast<int>(1e4 * column.cost));
    const double best = brute_force(program);
    program.add_column(1e-3, 1, 1);
    program.add_column(-2e-3, 0, 1);
    CHECK(solve_with_lp_solve(program).objective == doctest::Approx(best - 1e-3).epsilon(1e-7));
  }
}

TEST_CASE("lp_solve: rows of every sense, and what has no solution") {
  LinearProgram program;
  const int x = program.add_column(1, 0, 10, true), y = program.add_column(1e-3, -5, 10);
  program.add_row(Sense::equal, 2.5);
  program.add_term(x, 1);
  program.add_term(y, 1);
  program.add_row(Sense::at_least, 1.2);
  program.add_term(x, 1);
  const LinearSolution solution = solve_with_lp_solve(program);
  REQUIRE(solution.verdict == Verdict::optimal);
  CHECK(solution.values[0] == doctest::Approx(2));
  CHECK(solution.values[1] == doctest::Approx(0.5));

  program.add_row(Sense::at_most, 1);
  program.add_term(x, 1);
  CHECK(solve_with_lp_solve(program).verdict == Verdict::infeasible);
  CHECK(!solve_with_lp_solve(program));

  LinearProgram open;
  open.add_column(-1);
  open.add_row(Sense::at_least, 1);
  open.add_term(0, 1);
  CHECK(solve_with_lp_solve(open).verdict == Verdict::unbounded);
}

TEST_CASE("lp_solve: a deadline that has passed, and one that comes in the middle") {
  std::mt19937 random(11);
  LinearOptions options;
  options.deadline = Deadline(&seconds, 0);
  CHECK(solve_with_lp_solve(knapsack(random, 8), options).verdict == Verdict::timed_out);

  // Equal items, an odd capacity: far too many equal branches to finish.
  LinearProgram program;
  for (int i = 0; i < 60; ++i) add_binary(program, -1 - 1e-6 * i);
  program.add_row(Sense::at_most, 59);
  for (int i = 0; i < 60; ++i) program.add_term(i, 2);
  program.add_row(Sense::at_most, 89);
  for (int i = 0; i < 60; ++i) program.add_term(i, 3);
  options.deadline = Deadline(&seconds, 0.2);
  const LinearSolution solution = solve_with_lp_solve(program, options);
  CHECK((solution.verdict == Verdict::feasible || solution.verdict == Verdict::timed_out));
  if (solution) CHECK(solution.objective < 0);
}

TEST_CASE("lp_solve: a limit of polls ends the search, at the same point every time") {
  std::mt19937 random(3);
  const LinearProgram program = knapsack(random, 40);
  const LinearSolution all = solve_with_lp_solve(program);
  REQUIRE(all.verdict == Verdict::optimal);
  LinearOptions options;
  options.most_polls = 30;
  const LinearSolution first = solve_with_lp_solve(program, options);
  const LinearSolution second = solve_with_lp_solve(program, options);
  CHECK((first.verdict == Verdict::timed_out || first.verdict == Verdict::feasible));
  CHECK(first.verdict == second.verdict);
  if (first) CHECK(first.objective == second.objective);
  if (first) CHECK(first.objective >= all.objective);
}

}  // namespace lp_solve_test
