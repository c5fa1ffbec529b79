// SPDX-License-Identifier: MIT
/// A lower bound on the seconds of the first activations, if stored within a number of bytes.
///
/// For every prefix of activations, an exact knapsack: the Pareto frontier of stored bytes and seconds
/// over all policies of activations read in backward. The knapsack also keeps the limits of earlier
/// instructions: while backward of a layer runs, all activations with later last readers are still
/// stored, beside bytes needed in any case (PartialPlan::stages). Bytes held for a while by
/// recomputation are left out, so this bounds from below. Large frontiers are thinned, and stay bounds.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../tuning.hpp"
#include "partial.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class StorageFrontier {
 public:
  static constexpr double none = 1e300;  ///< seconds if no policies fit

  /// `partial` must be all open. No instruction may hold more than `live_budget` bytes.
  constexpr StorageFrontier(PartialPlan& partial, std::size_t live_budget,
                            std::size_t most_points = ExhaustiveTuning::most_points)
      : begin_(static_cast<std::size_t>(partial.node_count()) + 2) {
    const int count = partial.node_count();
    Array<std::size_t> room(begin_.size());  // at k: for the first k activations
    for (std::size_t& bytes : room) bytes = live_budget;
    for (const PartialPlan::Stage& stage : partial.stages()) {
      const std::size_t left = stage.bytes < live_budget ? live_budget - stage.bytes : 0;
      std::size_t& mine = room[static_cast<std::size_t>(stage.beside)];
      if (left < mine) mine = left;
    }
    for (std::size_t k = room.size() - 1; k-- > 0;)
      if (room[k + 1] < room[k]) room[k] = room[k + 1];
    Array<Point> last, next, sum, merged;
    last.push_back({0, 0});
    append(0, last);
    for (int k = 0; k < count; ++k) {
      if (partial.read(k)) {
        next.clear();
        for (std::size_t i = 0; i < partial.option_count(k); ++i) {
          shift(last, partial.option(k, i), room[static_cast<std::size_t>(k) + 1], sum);
          merge(next, sum, merged);
          swap(next, merged);
        }
        thin(next, most_points);
        swap(last, next);
      }
      append(k + 1, last);
    }
  }

  /// The fewest bytes in which the first `count` activations can be stored.
  constexpr std::size_t least_bytes(int count) const {
    const auto k = static_cast<std::size_t>(count);
    return begin_[k] == begin_[k + 1] ? 0 : points_[begin_[k]].bytes;
  }

  /// The fewest seconds in which the first `count` activations can be stored in `bytes`.
  constexpr double seconds(int count, std::size_t bytes) const {
    const auto k = static_cast<std::size_t>(count);
    std::size_t low = begin_[k], high = begin_[k + 1];  // the first point with more bytes
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (points_[middle].bytes <= bytes) low = middle + 1;
      else high = middle;
    }
    return low == begin_[k] ? none : points_[low - 1].seconds;
  }

 private:
  struct Point {
    std::size_t bytes = 0;
    double seconds = 0;
  };
  using Points = Array<Point>;  // bytes ascend, seconds descend

  static constexpr void swap(Points& a, Points& b) {
    Points c = static_cast<Points&&>(a);
    a = static_cast<Points&&>(b);
    b = static_cast<Points&&>(c);
  }

  static constexpr void shift(const Points& from, const PlanOption& option, std::size_t room,
                              Points& to) {
    to.clear();
    for (const Point& point : from) {
      if (point.bytes + option.stored > room) break;
      to.push_back({point.bytes + option.stored, point.seconds + option.seconds});
    }
  }

  static constexpr void merge(const Points& a, const Points& b, Points& out) {
    out.clear();
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      const bool first = j == b.size() || (i < a.size() && a[i].bytes <= b[j].bytes);
      const Point& point = first ? a[i++] : b[j++];
      if (!out.empty() && point.seconds >= out.back().seconds) continue;
      if (!out.empty() && point.bytes == out.back().bytes) out.pop_back();
      out.push_back(point);
    }
  }

  /// Neighbours become one point that is no worse than either.
  static constexpr void thin(Points& points, std::size_t most) {
    while (points.size() > most) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < points.size(); i += 2) {
        const std::size_t other = i + 1 < points.size() ? i + 1 : i;
        points[kept++] = {points[i].bytes, points[other].seconds};
      }
      points.resize(kept);
    }
  }

  constexpr void append(int count, const Points& points) {
    begin_[static_cast<std::size_t>(count)] = points_.size();
    for (const Point& point : points) points_.push_back(point);
    begin_[static_cast<std::size_t>(count) + 1] = points_.size();
  }

  Points points_;
  Array<std::size_t> begin_;
};

}}}  // namespace adacc::v0_1::detail
