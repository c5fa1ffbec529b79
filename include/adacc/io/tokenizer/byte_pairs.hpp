// SPDX-License-Identifier: MIT
/// Byte-pair encoding: of a word's symbols, the two neighbours whose merge has the lowest rank become one, the
/// leftmost of several, until no two can be merged.
///
/// Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units", arXiv 1508.07909.
/// A heap holds the merges that are possible, so a word of n symbols takes n log n steps, a text without
/// spaces too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "token_table.hpp"

namespace adacc { inline namespace v0_1 {

class BytePairs {
 public:
  struct Merge {
    std::int32_t left, right, merged;
    std::uint32_t rank;  ///< the lower first
  };

  /// The memory for merging a word: kept from word to word, and allocated once.
  struct Scratch {
    struct Symbol {
      std::int32_t token, before,
          next;  ///< the neighbours' places; -1: none. A token of -1 is gone.
    };
    struct Possible {
      std::uint64_t order;  ///< rank, and the left symbol's place below
      std::int32_t left, right, merged;
      friend bool operator<(const Possible& a, const Possible& b) { return a.order > b.order; }
    };
    std::vector<Symbol> symbols;
    std::vector<Possible> heap;

    void add(std::int32_t token) {
      const auto at = static_cast<std::int32_t>(symbols.size());
      if (at > 0) symbols.back().next = at;
      symbols.push_back({token, at - 1, -1});
    }
  };

  BytePairs() = default;
  /// The last one counts among several merges of one pair.
  explicit BytePairs(std::vector<Merge> merges)
      : merges_(static_cast<std::vector<Merge>&&>(merges)) {
    places_.reserve(merges_.size());
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      const Merge& merge = merges_[i];
      const std::int32_t known = find(merge.left, merge.right);
      if (known >= 0) merges_[static_cast<std::size_t>(known)] = merge;
      else places_.add(hash_of(merge.left, merge.right), static_cast<std::int32_t>(i));
    }
  }

  /// Merges the symbols of `scratch`, appends what is left of them to `to`, and clears `scratch`. Calls did(merge) for each merge.
  template <class Did>
  void merge(Scratch& scratch, std::vector<std::int32_t>& to, const Did& did) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    heap.clear();
    const auto look = [&](std::int32_t place) {
      const Scratch::Symbol& left = symbols[static_cast<std::size_t>(place)];
      if (left.next < 0) return false;
      const std::int32_t right = symbols[static_cast<std::size_t>(left.next)].token;
      const std::int32_t found = find(left.token, right);
      if (found < 0) return false;
      const Merge& merge = merges_[static_cast<std::size_t>(found)];
      heap.push_back({std::uint64_t{merge.rank} << 32 | static_cast<std::uint32_t>(place),
                      left.token, right, merge.merged});
      return true;
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) look(static_cast<std::int32_t>(i));
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const Scratch::Possible best = heap.back();
      heap.pop_back();
      const auto place = static_cast<std::int32_t>(best.order & 0xFFFFFFFFU);
      Scratch::Symbol& left = symbols[static_cast<std::size_t>(place)];
      if (left.token != best.left || left.next < 0) continue;
      Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      if (right.token != best.right) continue;
      left.token = best.merged;
      did(Merge{best.left, best.right, best.merged, static_cast<std::uint32_t>(best.order >> 32)});
      left.next = right.next;
      right.token = -1;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].before = place;
      if (look(place)) std::push_heap(heap.begin(), heap.end());
      if (left.before >= 0 && look(left.before)) std::push_heap(heap.begin(), heap.end());
    }
    for (const Scratch::Symbol& symbol : symbols)
      if (symbol.token >= 0) to.push_back(symbol.token);
    symbols.clear();
  }

  /// In any order.
  const std::vector<Merge>& merges() const { return merges_; }

 private:
  static std::uint64_t hash_of(std::int32_t left, std::int32_t right) {
    return detail::mixed(static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                         static_cast<std::uint32_t>(right));
  }
  std::int32_t find(std::int32_t left, std::int32_t right) const {
    return places_.find(hash_of(left, right), [&](std::int32_t place) {
      const Merge& merge = merges_[static_cast<std::size_t>(place)];
      return merge.left == left && merge.right == right;
    });
  }

  std::vector<Merge> merges_;
  detail::HashedPlaces places_;
};

}}  // namespace adacc::v0_1
