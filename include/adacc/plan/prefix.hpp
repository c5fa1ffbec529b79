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

namespace adacc::detail {

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

/// For every segment class and pair of states, the best move under some prices.
class PricedMoves {
 public:
  PricedMoves(const Chain& chain) : chain_(chain) {
    const auto states = static_cast<std::size_t>(chain.states);
    best_.resize(chain.moves.size() * states * states);
  }

  /// `relaxed`, where given, holds per class a value below all moves (MoveMaker::relaxed).
  void set(Prices prices, const Array<double>& relaxed) {
    const int last = chain_.segments[chain_.size() - 1].cost;
    std::size_t at = 0;
    for (std::size_t c = 0; c < chain_.moves.size(); ++c)
      for (int to = 0; to < chain_.states; ++to)
        for (int from = 0; from < chain_.states; ++from, ++at) {
          PricedPath& best = best_[at];
          best = {};
          for (const Move& move : chain_.moves[c].between(from, to)) {
            const auto bytes = static_cast<double>(static_cast<int>(c) == last ? move.bytes.need
                                                                               : move.bytes.stored);
            const double length = move.seconds + prices.byte * bytes + prices.error * move.error;
            if (length < best.length) best = {length, bytes, move.error};
          }
          if (!relaxed.empty() && relaxed[c] > -unreachable && relaxed[c] < best.length)
            best.length = relaxed[c];
        }
  }

  const PricedPath& best(std::size_t segment, int from, int to) const {
    const auto states = static_cast<std::size_t>(chain_.states);
    return best_[(static_cast<std::size_t>(chain_.segments[segment].cost) * states +
                  static_cast<std::size_t>(to)) *
                     states +
                 static_cast<std::size_t>(from)];
  }

  /// The shortest path through all segments.
  PricedPath path() const {
    Array<PricedPath> now(static_cast<std::size_t>(chain_.states)), next(now.size());
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
      for (std::size_t s = 0; s < now.size(); ++s) now[s] = next[s];
    }
    return now[0];
  }

 private:
  const Chain& chain_;
  Array<PricedPath> best_;
};

/// Bounds for every boundary, state and price of a byte. Boundary j lies before segment j.
class PrefixBounds {
 public:
  /// What is bounded: seconds + error price * error + byte price * the bytes that are stored, or
  /// that a run holds, or that making it takes at its worst.
  enum Kind { stored, run, making };

  PrefixBounds(const Chain& chain, const Array<double>& byte_prices, double error_price,
               const Array<Array<double>>& relaxed)
      : states_(static_cast<std::size_t>(chain.states)), prices_(byte_prices) {
    values_.resize((chain.size() + 1) * states_ * 3 * prices_.size());
    for (double& value : values_) value = unreachable;
    PricedMoves priced(chain);
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      priced.set({prices_[i], error_price}, relaxed.empty() ? Array<double>() : relaxed[i]);
      at(0, 0, stored, i) = 0;
      for (std::size_t j = 0; j + 1 < chain.size(); ++j) {
        const SegmentMoves& moves = chain.moves_of(j);
        for (int to = 0; to < chain.states; ++to) {
          double& value = at(j + 1, to, stored, i);
          for (int from = 0; from < chain.states; ++from) {
            const double length = at(j, from, stored, i) + priced.best(j, from, to).length;
            if (length < value) value = length;
          }
          if (to > 0 && moves.complete) bound_run(moves, j, to, i, error_price);
          else if (to > 0) at(j + 1, to, run, i) = at(j + 1, to, making, i) = -unreachable;
        }
      }
    }
  }

  std::size_t price_count() const { return prices_.size(); }
  double price(std::size_t i) const { return prices_[i]; }
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

  void bound_run(const SegmentMoves& moves, std::size_t j, int to, std::size_t i,
                 double error_price) {
    double& run_value = at(j + 1, to, run, i);
    double& making_value = at(j + 1, to, making, i);
    for (const Move& move : moves.into(to)) {
      const PatternBytes& bytes = move.bytes;
      const double length = move.seconds + error_price * move.error;
      const double from_stored = at(j, move.from, stored, i);
      if (from_stored >= unreachable) continue;
      const double from_run = at(j, move.from, run, i);
      const auto priced = [&](double start, SignedBytes added) {
        return start + prices_[i] * static_cast<double>(added) + length;
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
  Array<double> prices_;
  Array<double> values_;
};

}  // namespace adacc::detail
