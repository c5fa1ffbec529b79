/// Shortest paths through a chain under prices for bytes and error.
///
/// With prices (multipliers), budget and tolerance leave the constraints and join the objective,
/// and what remains is a shortest path over boundary states, without memory: its length bounds
/// every plan from below, for any prices that are not negative.
#pragma once

#include <cstddef>

#include "chain.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

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
  }

  /// `relaxed`, where given, holds per class a value below all moves (MoveMaker::relaxed).
  void set(Prices prices, std::size_t row, const Array<double>& relaxed) {
    row_ = row;
    const auto below = [&](std::size_t c) { return relaxed.empty() ? -unreachable : relaxed[c]; };
    for (std::size_t at = 0; at < before_.size(); ++at) {
      const SegmentMoves& moves = chain_.moves[at / per_class_];
      const std::size_t pair = at % per_class_;
      PricedPath& best = before_[at];
      best = {};
      for (std::size_t i = moves.first_storing[pair]; i < moves.first_storing[pair + 1]; ++i) {
        const StoringMove& move = moves.storing[i];
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
  static void lower(PricedPath& best, double below) {
    if (below > -unreachable && below < best.length) best.length = below;
  }

  const Chain& chain_;
  std::size_t per_class_ = 1;
  std::size_t row_ = 0;
  Array<PricedPath> before_, behind_, at_;
};

}}}  // namespace adacc::v0_1::detail
