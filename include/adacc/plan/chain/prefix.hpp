/// What the segments before a boundary cost at least.
///
/// Lengths of shortest paths under several prices for bytes and error guide the search of
/// placement.hpp from the other end; needs inside the prefix are left out, as it is where least is
/// stored that they bind least.
#pragma once

#include <cstddef>

#include "priced_moves.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The least that any listed plan of the segments before a boundary stores, and so on.
struct PrefixMinima {
  struct Least {
    double stored = unreachable, run = unreachable, making = unreachable, error = unreachable;
  };
  Array<Least> least;  ///< boundary * states + state
  std::size_t states = 1;

  explicit PrefixMinima(const Chain& chain) : states(static_cast<std::size_t>(chain.states)) {
    least.resize(chain.size() * states);
    least[0].stored = least[0].error = 0;
    bool complete = true;
    for (std::size_t j = 0; j + 1 < chain.size(); ++j) {
      const SegmentMoves& moves = chain.moves_of(j);
      complete = complete && moves.complete;
      for (const Move& move : moves.moves) {
        const Least& from = least[j * states + move.from];
        Least& to = least[(j + 1) * states + move.to];
        if (from.stored >= unreachable) continue;
        const PatternBytes& bytes = move.bytes;
        lower(to.stored, from.stored + static_cast<double>(bytes.stored));
        lower(to.error, from.error + move.error);
        if (move.to == 0) continue;
        lower(to.run, (bytes.keeps_run ? from.run : from.stored) + static_cast<double>(bytes.run));
        double making = from.stored + static_cast<double>(bytes.making_on_stored);
        if (move.from > 0) {
          const double on_run = from.run + static_cast<double>(bytes.making_on_run);
          const double on_making = from.making + static_cast<double>(bytes.making_on_making);
          making = on_run > making ? on_run : making;
          making = on_making > making ? on_making : making;
        }
        lower(to.making, making);
      }
      if (complete) continue;
      for (std::size_t s = 0; s < states; ++s) least[(j + 1) * states + s] = {0, 0, 0, 0};
    }
  }

  const Least& at(std::size_t boundary, int state) const {
    return least[boundary * states + static_cast<std::size_t>(state)];
  }
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

}}}  // namespace adacc::v0_1::detail
