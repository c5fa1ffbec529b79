/// Shortest paths from both ends of a priced chain, and through every step of its groups.
#pragma once

#include <cstddef>

#include "priced_moves.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class ShortestPaths {
 public:
  ShortestPaths(const Chain& chain, const PricedMoves& priced)
      : size_(chain.size()), states_(static_cast<std::size_t>(chain.states)) {
    ahead_.resize((size_ + 1) * states_);
    behind_.resize((size_ + 1) * states_);
    for (double& length : ahead_) length = unreachable;
    for (double& length : behind_) length = unreachable;
    ahead_[0] = behind_[size_ * states_] = 0;
    const auto each_step = [&](std::size_t j, const auto& visit) {
      for (int to = 0; to < chain.states; ++to)
        for (int from = 0; from < chain.states; ++from)
          if (const double length = priced.best(j, from, to).length; length < unreachable)
            visit(j * states_ + static_cast<std::size_t>(from),
                  (j + 1) * states_ + static_cast<std::size_t>(to), length);
    };
    for (std::size_t j = 0; j < size_; ++j)
      each_step(j, [&](std::size_t from, std::size_t to, double length) {
        lower(ahead_[to], ahead_[from] + length);
      });
    for (std::size_t j = size_; j-- > 0;)
      each_step(j, [&](std::size_t from, std::size_t to, double length) {
        lower(behind_[from], behind_[to] + length);
      });
  }

  double shortest() const { return behind_[0]; }

  /// What is shortest of paths through a segment of group g from state f to state t, without that
  /// segment's own length: at [(g * states + t) * states + f]. group_of has the segments' groups.
  Array<double> around(const Array<std::size_t>& group_of, std::size_t groups) const {
    Array<double> rest(groups * states_ * states_);
    for (double& length : rest) length = unreachable;
    for (std::size_t j = 0; j < size_; ++j)
      for (std::size_t to = 0; to < states_; ++to)
        for (std::size_t from = 0; from < states_; ++from)
          lower(rest[(group_of[j] * states_ + to) * states_ + from],
                ahead_[j * states_ + from] + behind_[(j + 1) * states_ + to]);
    return rest;
  }

 private:
  std::size_t size_, states_;
  Array<double> ahead_, behind_;  ///< at [boundary * states + state]
};

}}}  // namespace adacc::v0_1::detail
