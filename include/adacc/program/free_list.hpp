// SPDX-License-Identifier: MIT
/// The free bytes of an arena at one moment, for placing buffers.
#pragma once

#include <cstddef>

#include "../core/array.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Free intervals of an arena with an `end`, or without one, sorted by offset.
class FreeList {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  constexpr explicit FreeList(std::size_t end = none) { holes_.push_back({0, end}); }

  /// Takes the lowest `bytes` free in one piece, from a multiple of `unit` on, and returns their
  /// offset; none if there are no such bytes.
  constexpr std::size_t take(std::size_t bytes, std::size_t unit) {
    for (std::size_t i = 0; i < holes_.size(); ++i) {
      Hole& hole = holes_[i];
      const std::size_t offset = (hole.begin + unit - 1) / unit * unit;
      if (offset > hole.end || hole.end - offset < bytes) continue;
      const Hole before{hole.begin, offset};
      hole.begin = offset + bytes;
      if (hole.begin == hole.end) holes_.erase(i);
      if (before.begin != before.end) holes_.insert(i, before);
      return offset;
    }
    return none;
  }

  /// Marks `bytes` from `offset` on as taken; some of them may be taken already.
  constexpr void remove(std::size_t offset, std::size_t bytes) {
    const std::size_t end = offset + bytes;
    for (std::size_t i = 0; i < holes_.size() && holes_[i].begin < end;) {
      const Hole hole = holes_[i];
      const bool below = hole.begin<offset, above = hole.end> end;
      if (hole.end <= offset || hole.begin == hole.end) {
        ++i;
      } else if (below && above) {
        holes_[i].end = offset;
        holes_.insert(i + 1, {end, hole.end});
        return;
      } else if (below) {
        holes_[i++].end = offset;
      } else if (above) {
        holes_[i].begin = end;
        return;
      } else {
        holes_.erase(i);
      }
    }
  }

  /// Where the last hole of an arena without end begins: all bytes from there on are free.
  constexpr std::size_t top() const { return holes_[holes_.size() - 1].begin; }

  constexpr void give(std::size_t offset, std::size_t bytes) {
    std::size_t low = 0, high = holes_.size();  // the first hole behind offset
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (holes_[middle].begin < offset) low = middle + 1;
      else high = middle;
    }
    const bool joins_next = low < holes_.size() && holes_[low].begin == offset + bytes;
    const bool joins_previous = low > 0 && holes_[low - 1].end == offset;
    if (joins_next && joins_previous) {
      holes_[low - 1].end = holes_[low].end;
      holes_.erase(low);
    } else if (joins_next) {
      holes_[low].begin = offset;
    } else if (joins_previous) {
      holes_[low - 1].end = offset + bytes;
    } else {
      holes_.insert(low, {offset, offset + bytes});
    }
  }

 private:
  struct Hole {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Array<Hole> holes_;
};

}}}  // namespace adacc::v0_1::detail
