// SPDX-License-Identifier: MIT
/// The one order in which contributions to a sum are added, however they are spread over ranks.
///
/// Items 0, 1, 2, ... are added in pairs, pairs of pairs and so on; of a number that is no power of 2
/// the largest power of 2 of them comes first: 6 items are ((0 + 1) + (2 + 3)) + (4 + 5). So every run
/// of 2^k items that starts at a multiple of 2^k is a sum of its own within it. Ranks that hold one
/// such run each add it by themselves and hand on a single block, and the bits are those of one rank
/// that holds all items. Adding them one after the other, as ((0 + 1) + 2) + 3, has no such parts: a
/// rank would have to wait for those before it, or to keep and send every item.
///
/// The price: a rank that adds 2^k blocks one after the other keeps up to k sums beside the block that
/// is being made.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// How many sums must be kept while `items` items are added in this order.
constexpr int pairwise_levels(std::size_t items) {
  int levels = 0;
  while (items > 1) {
    ++levels;
    items = (items + 1) / 2;
  }
  return levels;
}

/// Whether `ranks` ranks that hold `items` items in equal runs can add their own, and the sum has the
/// bits of one rank's.
constexpr bool pairwise_divides(std::size_t items, std::size_t ranks) {
  if (ranks <= 1) return true;
  const std::size_t mine = items / ranks;
  return items != 0 && items % ranks == 0 && (mine & (mine - 1)) == 0;
}

/// The same of ranks that take the items by turns, rank r those that are r modulo `ranks`, and add each
/// round of them over all ranks before the next.
constexpr bool pairwise_rounds(std::size_t items, std::size_t ranks) {
  if (ranks <= 1 || items == ranks) return true;
  return items != 0 && items % ranks == 0 && (ranks & (ranks - 1)) == 0;
}

/// to[e] = the sum of from[0][e] to from[count - 1][e] in that order, for e < elems. `to` may be one of
/// them.
template <class T>
void pairwise_sum(T* to, const T* const* from, std::size_t count, std::size_t elems) {
  constexpr std::size_t lanes = 128;
  constexpr std::size_t most_levels = 8 * sizeof(std::size_t) / 2;
  T kept[most_levels][lanes], sum[lanes];
  const auto add = [&](std::size_t level, std::size_t n) {
    for (std::size_t e = 0; e < n; ++e) sum[e] = kept[level][e] + sum[e];
  };
  for (std::size_t i = 0; i < elems; i += lanes) {
    const std::size_t n = elems - i < lanes ? elems - i : lanes;
    for (std::size_t item = 0; item < count; ++item) {
      for (std::size_t e = 0; e < n; ++e) sum[e] = from[item][i + e];
      std::size_t level = 0;
      for (; (item >> level & 1) != 0; ++level) add(level, n);
      if (item + 1 == count) {  // what is left are sums of the larger runs before it
        for (++level; count >> level != 0; ++level)
          if ((item >> level & 1) != 0) add(level, n);
      } else {
        for (std::size_t e = 0; e < n; ++e) kept[level][e] = sum[e];
      }
    }
    for (std::size_t e = 0; e < n; ++e) to[i + e] = sum[e];
  }
}

}}  // namespace adacc::v0_1
