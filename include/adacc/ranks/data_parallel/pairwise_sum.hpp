// SPDX-License-Identifier: MIT
/// The one order of adding terms, however terms are spread over ranks.
///
/// Terms 0, 1, 2, ... are added in pairs, pairs of pairs and so on. If their number is no power of 2,
/// the largest power of 2 comes first: 6 terms are ((0 + 1) + (2 + 3)) + (4 + 5). So every run
/// of 2^k terms from a multiple of 2^k on is a separate sum. If each rank holds one
/// such run, each adds its run alone and hands on a single block, and the bits are those of one rank
/// with all terms. Adding terms one after the other, as ((0 + 1) + 2) + 3, has no such runs: a
/// rank would have to wait for the ranks before, or to keep and send every term.
///
/// The price: a rank adding 2^k blocks one after the other keeps up to k sums beside the latest
/// block.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// The number of sums to keep while `items` terms are added in this order.
constexpr int pairwise_levels(std::size_t items) {
  int levels = 0;
  while (items > 1) {
    ++levels;
    items = (items + 1) / 2;
  }
  return levels;
}

/// Whether `ranks` ranks, holding `items` terms in equal runs, can each add their own for a sum with the
/// bits of one rank.
constexpr bool pairwise_divides(std::size_t items, std::size_t ranks) {
  if (ranks <= 1) return true;
  const std::size_t mine = items / ranks;
  return items != 0 && items % ranks == 0 && (mine & (mine - 1)) == 0;
}

/// Whether the sum has the bits of one rank if ranks take terms by turns, rank r terms r modulo `ranks`, and
/// add each round over all ranks before the next.
constexpr bool pairwise_rounds(std::size_t items, std::size_t ranks) {
  if (ranks <= 1 || items == ranks) return true;
  return items != 0 && items % ranks == 0 && (ranks & (ranks - 1)) == 0;
}

/// to[e] = the sum of from[0][e] to from[count - 1][e] in this order, for e < elems. `to` may be in
/// `from`.
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
      if (item + 1 == count) {  // the sums of larger runs before are left
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
