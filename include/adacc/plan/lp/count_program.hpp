/// A linear program over how many segments of a class use which pattern.
///
/// Equal segments are one group, so its size does not grow with the number of equal blocks: a
/// column counts the segments of a group that make one move, from one state at a boundary to the
/// next. Rows give the size of every group, balance the states between neighbouring groups (summed
/// over all boundaries alike, which forgets the order), and keep budget and tolerance. As the peak
/// lies where most is stored, the last segments stand alone, each with a row for its need. Every
/// plan is a solution, so what the program proves holds for all plans.
///
/// A block has about a thousand moves, of which a solution uses few. So a solver gets a part of the
/// columns: those closest to the shortest paths under some prices first, then those that its duals
/// miss.
#pragma once

#include <cstddef>

#include "../chain/shortest_paths.hpp"
#include "linear_program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class CountProgram {
 public:
  using Sense = LinearProgram::Sense;

  /// More take seconds: blocks that all differ, in hundreds.
  static constexpr std::size_t most_columns = 250000;

  /// What duals say about all columns, those that the solver did not see included.
  struct Judged {
    double bound = 0;       ///< for the seconds of every plan, beyond the chain's base
    Array<double> reduced;  ///< per column: its cost, less what the duals pay for it
    Array<double> least;    ///< per group: of its columns
  };

  CountProgram() = default;
  /// `chain` must outlive this. The last `singles` segments, 1 or more, stand alone.
  CountProgram(const Chain& chain, double budget, double tolerance, std::size_t singles = 8)
      : chain_(&chain) {
    form_groups(singles);
    for (Group& group : groups_) {
      group.first = moves_.size();
      if (moves_.size() <= most_columns) list_moves(group);
      group.last = moves_.size();
    }
    if (!too_large()) write(budget, tolerance);
  }

  bool too_large() const { return moves_.size() > most_columns; }
  std::size_t column_count() const { return moves_.size(); }
  std::size_t group_count() const { return groups_.size(); }

  /// The columns on paths at most `slack` longer than the shortest one under `prices`.
  Array<bool> closest(Prices prices, double slack) const {
    const auto states = static_cast<std::size_t>(chain_->states);
    PricedMoves priced(*chain_);
    priced.set(prices, chain_->size() - 1, {});
    const ShortestPaths paths(*chain_, priced);
    const Array<double> rest = paths.around(group_of_, groups_.size());
    Array<bool> out(moves_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t c = groups_[g].first; c < groups_[g].last; ++c) {
        const Move& move = *moves_[c];
        const double bytes =
            g + 1 == groups_.size() ? move.row_need : static_cast<double>(move.bytes.stored);
        out[c] = rest[(g * states + move.to) * states + move.from] + move.seconds +
                     prices.byte * bytes + prices.error * move.error <=
                 paths.shortest() + slack;
      }
    return out;
  }

  /// The program of the columns in `used`, in their order. Where `elastic`, more columns pay for
  /// what passes budget and tolerance, so that it has a solution whatever the columns.
  LinearProgram part(const Array<bool>& used, bool elastic, bool integer) const {
    LinearProgram out;
    Array<int> place(whole_.columns.size());
    for (std::size_t c = 0; c < whole_.columns.size(); ++c) {
      place[c] = -1;
      if (c < used.size() ? !used[c] : !elastic) continue;
      const LinearProgram::Column& column = whole_.columns[c];
      place[c] = out.add_column(column.cost, column.lower, column.upper, integer);
    }
    for (const LinearProgram::Row& row : whole_.rows) {
      out.add_row(row.sense, row.rhs);
      for (std::size_t i = row.first_term; i < row.first_term + row.term_count; ++i)
        if (const int at = place[static_cast<std::size_t>(whole_.terms[i].column)]; at >= 0)
          out.add_term(at, whole_.terms[i].value);
    }
    return out;
  }

  /// By weak duality, for whatever `duals`: one per row.
  Judged judge(const Array<double>& duals) const {
    Judged out;
    out.reduced.resize(whole_.columns.size());
    for (std::size_t c = 0; c < whole_.columns.size(); ++c) out.reduced[c] = whole_.columns[c].cost;
    for (std::size_t r = 0; r < whole_.rows.size(); ++r) {
      const LinearProgram::Row& row = whole_.rows[r];
      if (row.sense == Sense::at_most && duals[r] > 0) continue;
      out.bound += duals[r] * row.rhs;
      for (std::size_t i = row.first_term; i < row.first_term + row.term_count; ++i)
        out.reduced[static_cast<std::size_t>(whole_.terms[i].column)] -=
            duals[r] * whole_.terms[i].value;
    }
    // All segments of a group make its best move: no solution is below that.
    for (const Group& group : groups_) {
      double least = unreachable;
      for (std::size_t c = group.first; c < group.last; ++c)
        if (out.reduced[c] < least) least = out.reduced[c];
      out.bound += least * group.count;
      out.least.push_back(least);
    }
    return out;
  }

  /// Adds to `used`, of every group and pair of states, the column that the duals pay most beyond
  /// its cost, if that is more than `least`. Returns how many were added.
  std::size_t extend(Array<bool>& used, const Judged& judged, double least) const {
    std::size_t added = 0;
    for (const Group& group : groups_)
      for (std::size_t c = group.first; c < group.last;) {
        std::size_t best = c, next = c;
        for (; next < group.last && moves_[next]->from == moves_[c]->from &&
               moves_[next]->to == moves_[c]->to;
             ++next)
          if (judged.reduced[next] < judged.reduced[best]) best = next;
        if (judged.reduced[best] < -least && !used[best]) {
          used[best] = true;
          ++added;
        }
        c = next;
      }
    return added;
  }

  /// The columns of all solutions that cost at most `slack` more than judged.bound.
  Array<bool> within(const Judged& judged, double slack) const {
    Array<bool> out(moves_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t c = groups_[g].first; c < groups_[g].last; ++c)
        out[c] = judged.reduced[c] - judged.least[g] <= slack;
    return out;
  }

  /// What duals say of error, and of a byte that all late segments find stored.
  Prices prices(const Array<double>& duals) const {
    const auto price = [](double dual) { return dual < 0 ? -dual : 0; };
    Prices out;
    out.error = price(duals[first_limit_]);
    for (std::size_t r = first_limit_ + 1; r < duals.size(); ++r) out.byte += price(duals[r]);
    return out;
  }

 private:
  /// Equal segments between equal ones.
  struct Group {
    std::size_t before = 0, kind = 0, behind = 0;  ///< its own, and those of its neighbours
    const SegmentMoves* moves = nullptr;
    double count = 0;
    std::size_t first = 0, last = 0;  ///< into moves_
  };

  void form_groups(std::size_t singles) {
    const std::size_t size = chain_->size();
    const std::size_t single = size > singles ? size - singles : 0;
    const auto kind = [&](std::size_t j) {
      return j < single ? static_cast<std::size_t>(chain_->segments[j].cost)
                        : chain_->moves.size() + j;
    };
    const std::size_t none = chain_->moves.size() + size;
    for (std::size_t j = 0; j < size; ++j) {
      if (j == single) first_single_ = groups_.size();
      Group group;
      group.before = j == 0 ? none : kind(j - 1);
      group.kind = kind(j);
      group.behind = j + 1 == size ? none : kind(j + 1);
      group.moves = &chain_->moves_of(j);
      std::size_t g = 0;
      while (g < groups_.size() &&
             !(groups_[g].kind == group.kind && groups_[g].before == group.before &&
               groups_[g].behind == group.behind))
        ++g;
      if (g == groups_.size()) groups_.push_back(group);
      groups_[g].count += 1;
      group_of_.push_back(g);
    }
  }

  /// A move that costs, stores and errs no less than another counts for nothing in an early group,
  /// and in a late one if it also needs no less.
  void list_moves(const Group& group) {
    const bool single = group.kind >= chain_->moves.size();
    for (int to = 0; to < chain_->states; ++to)
      for (int from = 0; from < chain_->states; ++from) {
        const std::size_t first = moves_.size();
        for (const Move& move : group.moves->between(from, to)) {
          bool best = true;
          for (std::size_t c = first; c < moves_.size() && best; ++c) {
            const Move& other = *moves_[c];
            best = other.bytes.stored > move.bytes.stored || other.error > move.error ||
                   other.seconds > move.seconds || (single && other.row_need > move.row_need);
          }
          if (best) moves_.push_back(&move);
        }
      }
  }

  void write(double budget, double tolerance) {
    const auto column = [](std::size_t c) { return static_cast<int>(c); };
    for (const Group& group : groups_)
      for (std::size_t c = group.first; c < group.last; ++c)
        whole_.add_column(moves_[c]->seconds, 0, group.count);
    for (const Group& group : groups_) {
      whole_.add_row(Sense::equal, group.count);
      for (std::size_t c = group.first; c < group.last; ++c) whole_.add_term(column(c), 1);
    }
    write_balance();
    // A price at which a step's time buys a hundredth of a limit is high enough.
    first_limit_ = whole_.rows.size();
    const auto add_elastic = [&](double limit) {
      whole_.add_term(whole_.add_column(100 * chain_->base_seconds), -(limit > 0 ? limit : 1));
    };
    whole_.add_row(Sense::at_most, tolerance);
    for (std::size_t c = 0; c < moves_.size(); ++c) whole_.add_term(column(c), moves_[c]->error);
    add_elastic(tolerance);
    for (std::size_t g = first_single_; g < groups_.size(); ++g) {
      whole_.add_row(Sense::at_most, budget);
      for (std::size_t c = 0; c < groups_[g].first; ++c)
        whole_.add_term(column(c), static_cast<double>(moves_[c]->bytes.stored));
      for (std::size_t c = groups_[g].first; c < groups_[g].last; ++c)
        whole_.add_term(column(c), moves_[c]->row_need);
      add_elastic(budget);
    }
  }

  /// As many segments leave a state at a boundary as enter it. State 0 follows from the others.
  void write_balance() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto ends_here = [&](const Group& group) {
        return group.kind == groups_[g].kind && group.behind == groups_[g].behind;
      };
      bool again = false;  // an earlier group ends at the same boundary
      for (std::size_t h = 0; h < g && !again; ++h) again = ends_here(groups_[h]);
      for (int state = 1; state < chain_->states && !again; ++state) {
        whole_.add_row(Sense::equal, 0);
        for (const Group& group : groups_) {
          const bool left = ends_here(group);
          const bool right = group.before == groups_[g].kind && group.kind == groups_[g].behind;
          if (!left && !right) continue;
          for (std::size_t c = group.first; c < group.last; ++c)
            whole_.add_term(static_cast<int>(c), (left && moves_[c]->to == state ? 1 : 0) -
                                                     (right && moves_[c]->from == state ? 1 : 0));
        }
        if (whole_.rows.back().term_count == 0) whole_.rows.pop_back();
      }
    }
  }

  const Chain* chain_ = nullptr;
  Array<Group> groups_;
  Array<std::size_t> group_of_;   ///< of each segment
  std::size_t first_single_ = 0;  ///< of groups_: each one segment, with a row for its need
  std::size_t first_limit_ = 0;   ///< of the rows: tolerance, then budgets
  Array<const Move*> moves_;      ///< by group, then pair of states
  LinearProgram whole_;           ///< a column per move, then the elastic ones
};

}}}  // namespace adacc::v0_1::detail
