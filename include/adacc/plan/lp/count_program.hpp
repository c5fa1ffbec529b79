// SPDX-License-Identifier: MIT
/// A linear program over the numbers of equal segments that take each arc.
///
/// Equal segments are one group, so the program does not grow with the number of equal blocks: a
/// column counts the segments of a group that take one arc, from one state at a boundary to the
/// next. Rows give the size of every group, balance the states between neighbouring groups (summed
/// over all boundaries alike, which forgets the order), and keep budget and tolerance. The peak lies
/// where most is stored, so the last segments stand alone, each with a row for its need. Every
/// plan is a solution.
///
/// A block has about a thousand arcs, and a solution takes few. So the program has only some columns:
/// arcs on the shortest paths under some prices, then under the program's duals. Bounds at these
/// prices come from a shortest path through the chain itself, so a bound needs no trust in a solver,
/// nor in groups of unequal but similar segments, represented by one of them.
#pragma once

#include <cstddef>

#include "../chain/reduce.hpp"
#include "../chain/tune_prices.hpp"
#include "linear_program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class CountProgram {
 public:
  /// `chain` must outlive the program.
  [[gnu::cold]] CountProgram(const Chain& chain, double budget, double tolerance,
                             const ChainTuning& tuning)
      : chain_(chain), budget_(budget), tolerance_(tolerance) {
    const std::size_t size = chain.size(), classes = chain.arcs.size();
    const std::size_t single = size > most_rows ? size - most_rows : 0;
    holds_all_plans_ = classes <= tuning.most_kinds;
    const auto kind = [&](std::size_t j) -> std::size_t {
      if (j >= single) return classes + j;
      if (holds_all_plans_) return chain.classes[j];
      return chain.structures[j] * tuning.merged_kinds +
             j * tuning.merged_kinds / size;
    };
    const std::size_t none = static_cast<std::size_t>(-1);
    for (std::size_t j = 0; j < size; ++j) {
      Group group;
      group.before = j == 0 ? none : kind(j - 1);
      group.kind = kind(j);
      group.behind = j + 1 == size ? none : kind(j + 1);
      group.segment = j;
      bool known = false;
      for (Group& other : groups_)
        if (other.kind == group.kind && other.before == group.before &&
            other.behind == group.behind) {
          other.count += 1;
          known = true;
        }
      if (j == single) first_single_ = groups_.size();
      if (!known) groups_.push_back(group);
    }
    for (Group& group : groups_) group.used.resize(chain.arcs_of(group.segment).arcs.size());
  }

  /// True if every group has only equal segments: then every plan is a solution.
  bool holds_all_plans() const { return holds_all_plans_; }
  std::size_t columns() const { return columns_.size(); }

  /// Adds the arcs on paths at most `slack` longer than the shortest one. Returns the number added.
  std::size_t add_close(const PricedChain& priced, const Array<double>& ahead, double slack) {
    const Array<double> behind = priced.behind();
    const std::size_t before = columns_.size();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::size_t j = groups_[g].segment;
      for (std::size_t to = 0; to < states; ++to)
        for (std::size_t from = 0; from < states; ++from) {
          const PricedChain::Best& best = priced.best(j, from, to);
          if (ahead[j * states + from] + best.length + behind[(j + 1) * states + to] <=
              behind[0] + slack)
            add(g, *best.arc);
        }
    }
    return columns_.size() - before;
  }

  /// Adds every arc of the chain that a path can take.
  [[gnu::cold]] void add_all() {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const Arc& arc : chain_.arcs_of(groups_[g].segment).arcs) add(g, arc);
  }

  /// The program of the columns so far. Unless `integer`, more columns pay for bytes and errors beyond the
  /// limits, and so the program always has a solution.
  [[gnu::cold]] LinearProgram program(bool integer) const {
    using Sense = LinearProgram::Sense;
    LinearProgram out;
    for (const Column& column : columns_)
      out.add_column(column.arc->seconds, 0, groups_[column.group].count, integer);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      out.add_row(Sense::equal, groups_[g].count);
      for (std::size_t c = 0; c < columns_.size(); ++c)
        if (columns_[c].group == g) out.add_term(static_cast<int>(c), 1);
    }
    // A price at which a step's time buys a hundredth of a limit is high enough.
    const auto add_elastic = [&](double limit) {
      if (!integer) out.add_term(out.add_column(100 * chain_.base_seconds), -larger(limit, 1e-9));
    };
    out.add_row(Sense::at_most, tolerance_);
    for (std::size_t c = 0; c < columns_.size(); ++c)
      out.add_term(static_cast<int>(c), columns_[c].arc->error);
    add_elastic(tolerance_);
    for (std::size_t g = first_single_; g < groups_.size(); ++g) {
      out.add_row(Sense::at_most, budget_);
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const Column& column = columns_[c];
        if (column.group < g)
          out.add_term(static_cast<int>(c), static_cast<double>(column.arc->bytes.stored));
        else if (column.group == g)
          out.add_term(static_cast<int>(c), chain_.need(groups_[g].segment, *column.arc));
      }
      add_elastic(budget_);
    }
    balance(out);
    return out;
  }

  /// The prices given by the duals of a program().
  Prices prices(const Array<double>& duals) const {
    const auto price = [&](std::size_t row) { return duals[row] < 0 ? -duals[row] : 0; };
    Prices out;
    out.error = price(groups_.size());
    const std::size_t rows = groups_.size() - first_single_;
    for (std::size_t i = 0; i < rows; ++i) out.rows[rows - 1 - i] = price(groups_.size() + 1 + i);
    return out;
  }

 private:
  /// Equal segments between equal ones.
  struct Group {
    std::size_t before = 0, kind = 0, behind = 0;  ///< kinds of the neighbours and the group
    std::size_t segment = 0;                       ///< the first one
    double count = 1;
    Array<bool> used;  ///< by arc: has a column
  };
  struct Column {
    std::size_t group = 0;
    const Arc* arc = nullptr;
  };

  void add(std::size_t g, const Arc& arc) {
    const Array<Arc>& all = chain_.arcs_of(groups_[g].segment).arcs;
    if (&arc < all.begin() || &arc >= all.end()) return;  // a stand-in for patterns left out
    if (g >= first_single_ && chain_.need(groups_[g].segment, arc) >= infinite)
      return;  // no way there
    bool& used = groups_[g].used[static_cast<std::size_t>(&arc - all.begin())];
    if (used) return;
    used = true;
    columns_.push_back({g, &arc});
  }

  /// Adds rows: at a boundary, equally many segments enter and leave a state. State 0 follows from the others.
  void balance(LinearProgram& out) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto ends_here = [&](const Group& group) {
        return group.kind == groups_[g].kind && group.behind == groups_[g].behind;
      };
      bool again = false;  // an earlier group ends at the same boundary
      for (std::size_t h = 0; h < g && !again; ++h) again = ends_here(groups_[h]);
      for (std::size_t state = 1; state < states && !again; ++state) {
        out.add_row(LinearProgram::Sense::equal, 0);
        for (std::size_t c = 0; c < columns_.size(); ++c) {
          const Group& group = groups_[columns_[c].group];
          const bool left = ends_here(group) && columns_[c].arc->to == state;
          const bool right = group.before == groups_[g].kind && group.kind == groups_[g].behind &&
                             columns_[c].arc->from == state;
          out.add_term(static_cast<int>(c), (left ? 1 : 0) - (right ? 1 : 0));
        }
        if (out.rows.back().term_count == 0) out.rows.pop_back();
      }
    }
  }

  const Chain& chain_;
  double budget_, tolerance_;
  bool holds_all_plans_ = true;
  Array<Group> groups_;
  std::size_t first_single_ = 0;  ///< in groups_: from here on single segments, with a row each
  Array<Column> columns_;
};

/// Prices by a linear program, and the bound proven by them. Sets `why` if the solver failed or time was up.
[[gnu::cold]] inline TunedPrices count_prices(const Chain& chain, double budget, double tolerance,
                                              const LinearSolver& solver, const Deadline& deadline,
                                              const ChainTuning& tuning, Error& why) {
  if (deadline.passed()) {
    why = Error::say(solver.name, " ran out of time");
    return {};
  }
  CountProgram program(chain, budget, tolerance, tuning);
  PricedChain priced(chain);
  TunedPrices best;
  Prices prices;
  for (int round = 0; round < tuning.most_programs; ++round) {
    priced.set(prices);
    const Array<double> ahead = priced.ahead();
    double bound = ahead[chain.size() * states] - prices.error * tolerance;
    if (bound < infinite / 2) bound -= prices.byte() * budget;
    if (bound > best.bound) best = {prices, bound};
    const double step = chain.base_seconds + larger(best.bound, 0.0);
    if (program.add_close(priced, ahead, tuning.column_slack * step) == 0 && round > 0) return best;
    const LinearSolution solution =
        solver.solve(program.program(false), {deadline, tuning.most_polls});
    if (solution.verdict != LinearSolution::Verdict::optimal) {
      why = Error::say(solver.name, solution.verdict == LinearSolution::Verdict::timed_out
                                        ? " ran out of time"
                                        : " failed");
      return best;
    }
    if (program.holds_all_plans() &&
        solution.objective - best.bound <= tuning.price_tolerance * step)
      return best;
    prices = program.prices(solution.duals);
  }
  return best;
}

}}}  // namespace adacc::v0_1::detail
