/// What the segments before a boundary cost at least: shortest paths under prices for bytes and
/// error.
///
/// With prices (multipliers), budget and tolerance leave the constraints and join the objective,
/// and what remains is a shortest path over boundary states, without memory: its length bounds
/// every plan from below, for any prices that are not negative. Ranges of such bounds guide the
/// search of placement.hpp from the other end; needs inside the prefix are left out, as it is where
/// least is stored that they bind least.
#pragma once

#include <cstddef>

#include "moves.hpp"

namespace adacc::inline v0_1::detail {

inline constexpr double unreachable = 1e300;

/// A plan's segments and their moves.
struct Chain {
  Array<Segment> segments;
  Array<FormPatterns> forms;
  Array<SegmentMoves> moves;  ///< by cost class
  int states = 1;
  double base_seconds = 0;  ///< of a step that retains everything

  std::size_t size() const { return segments.size(); }
  const SegmentMoves& moves_of(std::size_t segment) const {
    return moves[static_cast<std::size_t>(segments[segment].cost)];
  }
  const FormPatterns& form_of(std::size_t segment) const {
    return forms[static_cast<std::size_t>(segments[segment].form)];
  }

  /// Fills Move::row_need: a run in front of a segment holds, and needs while it is made, at least
  /// as much as the least of all runs.
  void settle_needs() {
    struct Least {
      double run = unreachable, making = unreachable;
    };
    const auto count = static_cast<std::size_t>(states);
    Array<Least> here(count), next(count), least(count);
    const auto lower = [](double& least_yet, double value) {
      if (value < least_yet) least_yet = value;
    };
    for (std::size_t j = 0; j < size(); ++j) {
      for (Least& state : next) state = {};
      for (const Move& move : moves_of(j).moves) {
        if (move.to == 0) continue;
        const PatternBytes& bytes = move.bytes;
        const Least from = move.from > 0 ? here[move.from] : Least{};
        const auto stored = static_cast<double>(bytes.stored);
        lower(next[move.to].run,
              (bytes.keeps_run ? from.run : 0) + static_cast<double>(bytes.run) - stored);
        double making = static_cast<double>(bytes.making_on_stored);
        if (move.from > 0) {
          const double on_run = from.run + static_cast<double>(bytes.making_on_run);
          const double on_making = from.making + static_cast<double>(bytes.making_on_making);
          making = on_run > making ? on_run : making;
          making = on_making > making ? on_making : making;
        }
        lower(next[move.to].making, making - stored);
      }
      for (std::size_t s = 0; s < count; ++s) {
        here[s] = next[s];
        lower(least[s].run, here[s].run);
        lower(least[s].making, here[s].making);
      }
    }
    for (SegmentMoves& segment : moves)
      for (Move& move : segment.moves) {
        move.row_need = static_cast<double>(move.bytes.need);
        if (move.from == 0) continue;
        const double on_run = least[move.from].run + static_cast<double>(move.bytes.need_on_run);
        const double on_making =
            least[move.from].making + static_cast<double>(move.bytes.need_on_making);
        if (move.bytes.need_on_run > no_bytes / 2 && on_run > move.row_need) move.row_need = on_run;
        if (move.bytes.need_on_making > no_bytes / 2 && on_making > move.row_need)
          move.row_need = on_making;
      }
  }
};

struct Prices {
  double byte = 0;   ///< seconds
  double error = 0;  ///< seconds per unit of relative squared gradient error
};

/// Shortest path under prices, and what it uses: stored bytes and the need of the last segment, and
/// error.
struct PricedPath {
  double length = unreachable;
  double bytes = 0;
  double error = 0;
};

/// For every segment class and pair of states, the best move under some prices. Bytes are those of
/// one row: what the segments before `row` store, and what the segment `row` needs on top of them.
class PricedMoves {
 public:
  explicit PricedMoves(const Chain& chain) : chain_(chain) {
    const auto states = static_cast<std::size_t>(chain.states);
    per_class_ = states * states;
    before_.resize(chain.moves.size() * per_class_);
    behind_.resize(chain.moves.size() * per_class_);
    at_.resize(per_class_);
    for (const SegmentMoves& moves : chain.moves)
      for (int to = 0; to < chain.states; ++to)
        for (int from = 0; from < chain.states; ++from) {
          first_.push_back(storing_.size());
          for (const Move& move : moves.between(from, to)) add_storing(move);
        }
    first_.push_back(storing_.size());
  }

  /// `relaxed`, where given, holds per class a value below all moves (MoveMaker::relaxed).
  void set(Prices prices, std::size_t row, const Array<double>& relaxed) {
    row_ = row;
    const auto below = [&](std::size_t c) { return relaxed.empty() ? -unreachable : relaxed[c]; };
    for (std::size_t at = 0; at < before_.size(); ++at) {
      PricedPath& best = before_[at];
      best = {};
      for (std::size_t i = first_[at]; i < first_[at + 1]; ++i) {
        const Storing& move = storing_[i];
        const double length = move.seconds + prices.byte * move.bytes + prices.error * move.error;
        if (length < best.length) best = {length, move.bytes, move.error};
      }
      lower(best, below(at / per_class_));
    }
    for (std::size_t j = row; j < chain_.size(); ++j) {
      const auto c = static_cast<std::size_t>(chain_.segments[j].cost);
      PricedPath* best = j == row ? at_.data() : &behind_[c * per_class_];
      for (int to = 0; to < chain_.states; ++to)
        for (int from = 0; from < chain_.states; ++from, ++best) {
          *best = {};
          for (const Move& move : chain_.moves[c].between(from, to)) {
            const double bytes = j == row ? move.row_need : 0;
            const double length = move.seconds + prices.byte * bytes + prices.error * move.error;
            if (length < best->length) *best = {length, bytes, move.error};
          }
          lower(*best, j == row || relaxed.empty() || below(c) <= -unreachable ? below(c) : 0);
        }
    }
  }

  const PricedPath& best(std::size_t segment, int from, int to) const {
    const std::size_t at = static_cast<std::size_t>(to * chain_.states + from);
    const auto c = static_cast<std::size_t>(chain_.segments[segment].cost) * per_class_;
    return segment < row_ ? before_[c + at] : segment > row_ ? behind_[c + at] : at_[at];
  }

  /// The shortest path through all segments.
  PricedPath path() const {
    const auto states = static_cast<std::size_t>(chain_.states);
    Array<PricedPath> now(states), next(states);
    now[0] = {0, 0, 0};
    for (std::size_t j = 0; j < chain_.size(); ++j) {
      for (int to = 0; to < chain_.states; ++to) {
        PricedPath& reached = next[static_cast<std::size_t>(to)];
        reached = {};
        for (int from = 0; from < chain_.states; ++from) {
          const PricedPath& start = now[static_cast<std::size_t>(from)];
          const PricedPath& step = best(j, from, to);
          if (start.length + step.length >= reached.length) continue;
          reached = {start.length + step.length, start.bytes + step.bytes,
                     start.error + step.error};
        }
      }
      for (std::size_t s = 0; s < states; ++s) now[s] = next[s];
    }
    return now[0];
  }

 private:
  /// What counts of a move before the row.
  struct Storing {
    double seconds = 0, bytes = 0, error = 0;
  };

  /// Moves come in the order of their seconds: those that then store and err no less never count.
  void add_storing(const Move& move) {
    const auto bytes = static_cast<double>(move.bytes.stored);
    for (std::size_t i = first_.back(); i < storing_.size(); ++i)
      if (storing_[i].bytes <= bytes && storing_[i].error <= move.error) return;
    storing_.push_back({move.seconds, bytes, move.error});
  }

  static void lower(PricedPath& best, double below) {
    if (below > -unreachable && below < best.length) best.length = below;
  }

  const Chain& chain_;
  std::size_t per_class_ = 1;
  std::size_t row_ = 0;
  Array<PricedPath> before_, behind_, at_;
  Array<Storing> storing_;
  Array<std::size_t> first_;  ///< into storing_: of class, to, from
};

/// Bounds for every boundary, state and pair of prices. Boundary j lies before segment j.
class PrefixBounds {
 public:
  /// What is bounded: seconds + error price * error + byte price * the bytes that are stored, or
  /// that a run holds, or that making it takes at its worst.
  enum Kind { stored, run, making };

  PrefixBounds(const Chain& chain, const Array<Prices>& prices, const Array<Array<double>>& relaxed)
      : states_(static_cast<std::size_t>(chain.states)), prices_(prices) {
    values_.resize((chain.size() + 1) * states_ * 3 * prices_.size());
    for (double& value : values_) value = unreachable;
    PricedMoves priced(chain);
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      priced.set(prices_[i], chain.size() - 1, relaxed.empty() ? Array<double>() : relaxed[i]);
      at(0, 0, stored, i) = 0;
      for (std::size_t j = 0; j + 1 < chain.size(); ++j) {
        const SegmentMoves& moves = chain.moves_of(j);
        for (int to = 0; to < chain.states; ++to) {
          double& value = at(j + 1, to, stored, i);
          for (int from = 0; from < chain.states; ++from) {
            const double length = at(j, from, stored, i) + priced.best(j, from, to).length;
            if (length < value) value = length;
          }
          if (to > 0 && moves.complete) bound_run(moves, j, to, i);
          else if (to > 0) at(j + 1, to, run, i) = at(j + 1, to, making, i) = -unreachable;
        }
      }
    }
  }

  std::size_t price_count() const { return prices_.size(); }
  const Prices& price(std::size_t i) const { return prices_[i]; }
  /// The values of all prices, one after the other.
  const double* values(std::size_t boundary, int state, Kind kind) const {
    return values_.data() + index(boundary, state, kind, 0);
  }

 private:
  std::size_t index(std::size_t boundary, int state, Kind kind, std::size_t i) const {
    return ((boundary * states_ + static_cast<std::size_t>(state)) * 3 +
            static_cast<std::size_t>(kind)) *
               prices_.size() +
           i;
  }
  double& at(std::size_t boundary, int state, Kind kind, std::size_t i) {
    return values_[index(boundary, state, kind, i)];
  }

  void bound_run(const SegmentMoves& moves, std::size_t j, int to, std::size_t i) {
    double& run_value = at(j + 1, to, run, i);
    double& making_value = at(j + 1, to, making, i);
    for (const Move& move : moves.into(to)) {
      const PatternBytes& bytes = move.bytes;
      const double length = move.seconds + prices_[i].error * move.error;
      const double from_stored = at(j, move.from, stored, i);
      if (from_stored >= unreachable) continue;
      const double from_run = at(j, move.from, run, i);
      const auto priced = [&](double start, SignedBytes added) {
        return start + prices_[i].byte * static_cast<double>(added) + length;
      };
      const double held = priced(bytes.keeps_run ? from_run : from_stored, bytes.run);
      if (held < run_value) run_value = held;
      double made = -unreachable;
      const auto raise = [&](double start, SignedBytes added) {
        if (added > no_bytes / 2 && priced(start, added) > made) made = priced(start, added);
      };
      raise(from_stored, bytes.making_on_stored);
      if (move.from > 0) {
        raise(from_run, bytes.making_on_run);
        raise(at(j, move.from, making, i), bytes.making_on_making);
      }
      if (made < making_value) making_value = made;
    }
  }

  std::size_t states_;
  Array<Prices> prices_;
  Array<double> values_;
};

}  // namespace adacc::inline v0_1::detail
