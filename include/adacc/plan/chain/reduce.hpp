/// Leaves out the moves that no plan close to the bound makes.
///
/// Under prices, every plan that makes a move is at least as slow as the bound plus the move's
/// reduced cost: how much longer the shortest path becomes that goes through it. So what lies
/// beyond a limit can be left out, and nothing is lost but plans slower than that; a search over
/// the few moves that remain, under bounds that hold for them alone, is many times faster.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "shortest_paths.hpp"
#include "tune_prices.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct ReducedChain {
  Chain chain;                    ///< without forms
  Array<int> original;            ///< the cost class that each of its classes is part of
  double left_out = unreachable;  ///< no plan with a move that is missing is faster
};

/// The moves that count where time does not.
inline Chain without_time(const Chain& chain) {
  Chain out;
  out.segments = chain.segments;
  out.states = chain.states;
  out.base_seconds = chain.base_seconds;
  for (const SegmentMoves& all : chain.moves) {
    SegmentMoves moves;
    moves.states = all.states;
    moves.complete = all.complete;
    for (std::size_t at = 0; at + 1 < all.first.size(); ++at) {
      const std::size_t begin = moves.moves.size();
      moves.first.push_back(begin);
      for (std::size_t i = all.first[at]; i < all.first[at + 1]; ++i) {
        const Move& move = all.moves[i];
        bool best = true;
        for (std::size_t k = begin; k < moves.moves.size() && best; ++k)
          best = !dominates_but_for_time(moves.moves[k], move);
        if (!best) continue;
        for (std::size_t k = moves.moves.size(); k-- > begin;)
          if (dominates_but_for_time(move, moves.moves[k])) moves.moves.erase(k);
        moves.moves.push_back(move);
      }
    }
    moves.first.push_back(moves.moves.size());
    moves.list_storing();
    out.moves.push_back(static_cast<SegmentMoves&&>(moves));
  }
  return out;
}

class ChainReducer {
 public:
  /// `relaxed` as in PricedMoves::set. `chain` must outlive this.
  ChainReducer(const Chain& chain, const TunedPrices& tuned, double budget, double tolerance,
               const Array<double>& relaxed)
      : chain_(chain), prices_(tuned.prices), row_(tuned.row),
        states_(static_cast<std::size_t>(chain.states)) {
    PricedMoves priced(chain);
    priced.set(prices_, row_, relaxed);
    const ShortestPaths paths(chain, priced);
    shortest_ = paths.shortest();
    bound_ = shortest_ - prices_.byte * budget - prices_.error * tolerance;
    form_groups();
    rest_ = paths.around(group_of_, groups_.size());
  }

  /// For all plans, in seconds beyond the chain's base.
  double bound() const { return bound_; }

  /// Keeps the moves of plans that may be faster than `cutoff`, but no more than about
  /// `most_moves` per segment.
  ReducedChain reduce(double cutoff, std::size_t most_moves) const {
    const double reach = cutoff - bound_;
    const double early = limit(reach, most_moves, false);
    const double late = limit(reach, 4 * most_moves, true);
    ReducedChain out;
    out.chain.segments = chain_.segments;
    out.chain.states = chain_.states;
    out.chain.base_seconds = chain_.base_seconds;
    for (std::size_t j = 0; j < chain_.size(); ++j)
      out.chain.segments[j].cost = static_cast<int>(group_of_[j]);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const SegmentMoves& all = moves_of(g);
      const double most = groups_[g].late ? late : early;
      SegmentMoves moves;
      moves.states = all.states;
      moves.complete = all.complete;
      each_pair(g, [&](SegmentMoves::Range range, double rest) {
        moves.first.push_back(moves.moves.size());
        if (rest >= unreachable) return;
        for (const Move& move : range) {
          const double cost = reduced(g, move, rest);
          if (cost <= most) moves.moves.push_back(move);
          else lower(out.left_out, bound_ + cost);
        }
      });
      moves.first.push_back(moves.moves.size());
      moves.list_storing();
      out.original.push_back(static_cast<int>(groups_[g].cost));
      out.chain.moves.push_back(static_cast<SegmentMoves&&>(moves));
    }
    out.chain.settle_needs();
    return out;
  }

 private:
  /// Segments of one cost class, or one of the last segments.
  struct Group {
    std::size_t cost = 0;
    std::size_t segment = 0;  ///< one of them
    bool late = false;
  };

  static constexpr std::size_t late_ = 8;  ///< segments at the end: needs bind there, one by one

  const SegmentMoves& moves_of(std::size_t group) const {
    return chain_.moves[groups_[group].cost];
  }

  void form_groups() {
    Array<int> known(chain_.moves.size());
    for (int& group : known) group = -1;
    for (std::size_t j = 0; j < chain_.size(); ++j) {
      const auto cost = static_cast<std::size_t>(chain_.segments[j].cost);
      const bool late = j + late_ >= chain_.size() || j >= row_;
      if (late || known[cost] < 0) {
        if (!late) known[cost] = static_cast<int>(groups_.size());
        groups_.push_back({cost, j, late});
        group_of_.push_back(groups_.size() - 1);
      } else {
        group_of_.push_back(static_cast<std::size_t>(known[cost]));
      }
    }
  }

  template <class Visit>
  void each_pair(std::size_t group, const Visit& visit) const {
    const SegmentMoves& moves = moves_of(group);
    for (int to = 0; to < chain_.states; ++to)
      for (int from = 0; from < chain_.states; ++from)
        visit(moves.between(from, to),
              rest_[(group * states_ + static_cast<std::size_t>(to)) * states_ +
                    static_cast<std::size_t>(from)]);
  }

  double reduced(std::size_t group, const Move& move, double rest) const {
    const std::size_t j = groups_[group].segment;
    const double bytes = j < row_    ? static_cast<double>(move.bytes.stored)
                         : j == row_ ? move.row_need
                                     : 0;
    return rest + move.seconds + prices_.byte * bytes + prices_.error * move.error - shortest_;
  }

  /// The reduced cost below which about `most_moves` per segment lie, of some segments; at most
  /// `reach`.
  double limit(double reach, std::size_t most_moves, bool late) const {
    constexpr std::size_t most_groups = 32;
    constexpr int shift = 49;  // leaves exponent and 3 bits of a positive double
    Array<std::uint32_t> count(std::size_t{1} << (64 - 1 - shift));
    std::size_t of_kind = 0;
    for (const Group& group : groups_) of_kind += group.late == late ? 1U : 0U;
    if (of_kind == 0) return reach;
    const std::size_t stride = (of_kind + most_groups - 1) / most_groups;
    std::size_t seen = 0, sampled = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].late != late || seen++ % stride != 0) continue;
      ++sampled;
      each_pair(g, [&](SegmentMoves::Range range, double rest) {
        if (rest >= unreachable) return;
        for (const Move& move : range)
          if (const double cost = reduced(g, move, rest); cost <= reach)
            ++count[std::bit_cast<std::uint64_t>(cost > 0 ? cost : 0) >> shift];
      });
    }
    std::size_t left = most_moves * sampled;
    for (std::size_t bin = 0; bin < count.size(); ++bin) {
      if (count[bin] > left) {
        const double cost = std::bit_cast<double>(std::uint64_t{bin} << shift);
        const double rounding = 1e-12 * chain_.base_seconds;  // of the shortest path's own moves
        return cost > rounding ? cost : rounding;
      }
      left -= count[bin];
    }
    return reach;
  }

  const Chain& chain_;
  Prices prices_;
  std::size_t row_;
  std::size_t states_;
  double shortest_ = 0;
  double bound_ = 0;
  Array<Group> groups_;
  Array<std::size_t> group_of_;  ///< of each segment
  Array<double> rest_;           ///< of group, to, from: the shortest path around a step
};

}}}  // namespace adacc::v0_1::detail
