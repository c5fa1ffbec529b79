// SPDX-License-Identifier: MIT
/// Loops that reduce groups along rows to their extremes, as ordered integers
/// (codec/quant/quantize.hpp).
///
/// Reducing a slice of a row to sixteen lanes is cheap; the horizontal reduction of the lanes to one value costs as
/// much as 64 elements. So sixteen slices, those of four groups, are reduced together: each fold halves the lanes of
/// two vectors of slices and puts them into one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/vector_target.hpp"
#include "../quantize.hpp"
#include "extremes.hpp"
#include "vectors.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// Ordered extremes of the slices of groups; slice s of group g is at [s][g].
template <std::size_t N>
struct SliceExtremes {
  alignas(64) std::int32_t lo[4][N];
  alignas(64) std::int32_t hi[4][N];

  /// Writes the extremes of n groups, from `from` here to `to` of out.
  template <std::size_t M>
  void close(std::size_t n, std::size_t from, GroupExtremes<M>& out, std::size_t to) const {
    std::size_t g = 0;
    for (; g + vector_lanes <= n; g += vector_lanes) close<Ints16>(from + g, out, to + g);
    for (; g < n; ++g) close<std::int32_t>(from + g, out, to + g);
  }

 private:
  template <class Ints, std::size_t M>
  void close(std::size_t from, GroupExtremes<M>& out, std::size_t to) const {
    LaneSlices<Ints> slices;
    for (std::size_t s = 0; s < 4; ++s) {
      std::memcpy(&slices.lo[s], lo[s] + from, sizeof(Ints));
      std::memcpy(&slices.hi[s], hi[s] + from, sizeof(Ints));
    }
    slices.close(out, to);
  }
};

/// Extremes of some slices, each in 16 / (number of slices) lanes.
struct LaneExtremes {
  Ints16 lo, hi;
  LaneExtremes() {  // nvcc 13.0 fails on `Vector v = Vector{} + constant;`
    lo = Ints16{} + empty_lo;
    hi = Ints16{} + empty_hi;
  }

  /// Widens by the elements from x on, except those with skip[i] != 0.
  template <bool Skip, class T>
  void widen(const T* x, [[maybe_unused]] const std::int32_t* skip) {
    Ints16 order;
    load_orders(x, order);
    if constexpr (Skip) {
      Ints16 out;
      std::memcpy(&out, skip, sizeof out);
      keep_smaller(lo, Ints16(ADACC_CHOOSE_LANES(out != 0, Ints16{} + empty_lo, order)));
      keep_larger(hi, Ints16(ADACC_CHOOSE_LANES(out != 0, Ints16{} + empty_hi, order)));
    } else {
      keep_smaller(lo, order);
      keep_larger(hi, order);
    }
  }

  /// Takes in as many other slices. Width: lanes of a slice afterwards.
  template <int Width>
  void fold(const LaneExtremes& other) {
    Ints16 second = lo;
    halves<Width>(lo, second, other.lo);
    keep_smaller(lo, second);
    second = hi;
    halves<Width>(hi, second, other.hi);
    keep_larger(hi, second);
  }

 private:
  /// `first` becomes the first halves of all slices in a and b, `a` the second halves.
  template <int Width>
  static void halves(Ints16& first, Ints16& a, const Ints16& b) {
    if constexpr (Width == 8) {
      first = ADACC_SHUFFLE_LANES(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      a = ADACC_SHUFFLE_LANES(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    } else if constexpr (Width == 4) {
      first = ADACC_SHUFFLE_LANES(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
      a = ADACC_SHUFFLE_LANES(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    } else if constexpr (Width == 2) {  // from here on within four lanes, which is cheaper
      first = ADACC_SHUFFLE_LANES(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      a = ADACC_SHUFFLE_LANES(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    } else {
      first = ADACC_SHUFFLE_LANES(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
      a = ADACC_SHUFFLE_LANES(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    }
  }
};

/// Four groups of n elements; `skip` is read only if Skip.
template <bool Skip, class T>
struct FourGroups {
  const T* x[4];
  std::size_t n;
  const std::int32_t* skip[4];

  /// Reduces slice i % 4 of group i / 4.
  void slice(std::size_t i, LaneExtremes& to) const {
    const std::size_t begin = slice_begin(n, i % 4), end = slice_begin(n, i % 4 + 1);
    const T* from = x[i / 4];
    const std::int32_t* out = Skip ? skip[i / 4] : nullptr;
    if (end - begin >= vector_lanes) {
      std::size_t c = begin;
      for (; c + vector_lanes <= end; c += vector_lanes)
        to.template widen<Skip>(from + c, Skip ? out + c : nullptr);
      if (c == end) return;
      c = end - vector_lanes;  // some of them once more
      to.template widen<Skip>(from + c, Skip ? out + c : nullptr);
    } else if (begin < end) {
      T few[vector_lanes];
      std::int32_t few_out[vector_lanes] = {};
      for (std::size_t j = 0; j < vector_lanes; ++j) {
        const std::size_t c = begin + j < end ? begin + j : begin;
        few[j] = from[c];
        if constexpr (Skip) few_out[j] = out[c];
      }
      to.template widen<Skip>(few, few_out);
    }
  }

  /// Reduces the Count slices from `first`, in order except for the last two folds, which leave slice s of group g in
  /// lane 4 s + g.
  template <std::size_t Count>
  void slices(std::size_t first, LaneExtremes& to) const {
    if constexpr (Count == 1) {
      slice(first, to);
    } else {
      if (Count == 2 && n == 2 * vector_lanes) {  // two slices in a vector as they are
        const std::size_t c = first % 4 * (vector_lanes / 2);
        return to.template widen<Skip>(x[first / 4] + c, Skip ? skip[first / 4] + c : nullptr);
      }
      LaneExtremes second;
      slices<Count / 2>(first, to);
      slices<Count / 2>(first + Count / 2, second);
      to.template fold<static_cast<int>(16 / Count)>(second);
    }
  }

  /// Writes the slices of groups to … to + 3.
  template <std::size_t N>
  void reduce(SliceExtremes<N>& out, std::size_t to) const {
    LaneExtremes all;
    slices<16>(0, all);
    std::int32_t lo[16], hi[16];
    std::memcpy(lo, &all.lo, sizeof lo);
    std::memcpy(hi, &all.hi, sizeof hi);
    for (std::size_t s = 0; s < 4; ++s) {
      std::memcpy(out.lo[s] + to, lo + 4 * s, 4 * sizeof *lo);
      std::memcpy(out.hi[s] + to, hi + 4 * s, 4 * sizeof *hi);
    }
  }
};

/// The extremes of the groups of `rows` x `cols` elements, row by row; each group has Group elements, the last of a
/// row may have fewer. `skip` is for columns. Requests more of `next` meanwhile.
template <std::size_t Group, bool Skip, class T, std::size_t N>
void row_extremes(const T* x, std::size_t stride, std::size_t rows, std::size_t cols,
                  const std::int32_t* skip, ReadAhead& next, GroupExtremes<N>& out) {
  constexpr std::size_t most = Group == whole_row ? 1 : chunk_cols / Group;
  constexpr std::size_t group = Group == whole_row ? 0 : Group;
  const std::size_t whole = Group == whole_row ? 0 : cols / Group;
  const std::size_t tail = cols - whole * group, per_row = whole + (tail == 0 ? 0 : 1);
  SliceExtremes<4 * most> slices;
  for (std::size_t top = 0; top < rows; top += 4) {
    const std::size_t n = rows - top < 4 ? rows - top : 4;
    for (std::size_t r = 0; r < n; ++r) next.more(div_up(cols, vector_lanes * 4));
    const auto four = [&](std::size_t size, std::size_t to, const auto& place) {
      FourGroups<Skip, T> groups;
      groups.n = size;
      for (std::size_t j = 0; j < 4; ++j) {
        const auto [row, col] = place(j);
        groups.x[j] = x + (top + (row < n ? row : n - 1)) * stride + col;
        groups.skip[j] = Skip ? skip + col : nullptr;
      }
      groups.reduce(slices, to);
    };
    struct Place {
      std::size_t row, col;
    };
    Place start = {0, 0};
    for (std::size_t i = 0; i != 4 * whole && start.row < n; i += 4)
      four(group, i, [&](std::size_t) {
        const Place here = start;
        start.col += group;
        if (start.col == whole * group) ++start.row, start.col = 0;
        return here;
      });
    if (tail == 0) {
      slices.close(n * whole, 0, out, top * per_row);
      continue;
    }
    four(tail, 4 * whole, [&](std::size_t j) { return Place{j, whole * group}; });
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t to = (top + j) * per_row;
      slices.close(whole, j * whole, out, to);
      slices.close(1, 4 * whole + j, out, to + whole);
      if (Group != whole_row && tail < fewest_for_outliers) out.second[to + whole] = 0;
    }
  }
}

/// Widens lo and hi by those of n elements that are not beyond `limit`, n <= 256; calls beyond(i) for the others, in
/// no order.
template <class T, class Visit>
void widen_by_bulk(const T* x, std::size_t n, std::int32_t limit, std::int32_t& lo,
                   std::int32_t& hi, const Visit& beyond) {
  const std::size_t vectors = n / vector_lanes;
  if (vectors != 0) {
    LaneExtremes bulk;
    Ints16 hit = {}, bit;
    bit = Ints16{} + 1;
    for (std::size_t v = 0; v < vectors; ++v) {
      Ints16 order;
      load_orders(x + v * vector_lanes, order);
      const Ints16 out = (order ^ order >> 31) > limit;
      keep_smaller(bulk.lo, Ints16(ADACC_CHOOSE_LANES(out, Ints16{} + empty_lo, order)));
      keep_larger(bulk.hi, Ints16(ADACC_CHOOSE_LANES(out, Ints16{} + empty_hi, order)));
      hit |= out & bit;
      bit += bit;
    }
    bulk.fold<8>(bulk);
    bulk.fold<4>(bulk);
    bulk.fold<2>(bulk);
    bulk.fold<1>(bulk);
    lo = smaller(lo, bulk.lo[0]);
    hi = larger(hi, bulk.hi[0]);
    std::uint32_t hits[vector_lanes];
    std::memcpy(hits, &hit, sizeof hits);
    for (std::size_t lane = 0; lane < vector_lanes; ++lane)
      for (std::uint32_t bits = hits[lane]; bits != 0; bits &= bits - 1)
        beyond(static_cast<std::size_t>(std::countr_zero(bits)) * vector_lanes + lane);
  }
  for (std::size_t i = vectors * vector_lanes; i < n; ++i) {
    const std::int32_t order = ordered(to_number(x[i]));
    if (magnitude_of(order) > limit) {
      beyond(i);
      continue;
    }
    lo = smaller(lo, order);
    hi = larger(hi, order);
  }
}

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
