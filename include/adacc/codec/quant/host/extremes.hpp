// SPDX-License-Identifier: MIT
/// Loops that reduce columns to their extremes, as ordered integers (codec/quant/quantize.hpp).
///
/// Integer minima and maxima may be taken in any order, so these loops are vectorized without permission to reorder
/// floats. Meanwhile they request a quarter of the next piece; making codes, which reads and writes memory less
/// evenly, requests the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/vector_target.hpp"
#include "../../read_ahead.hpp"
#include "../quantize.hpp"
#include "vectors.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// Columns whose extremes are taken at a time: the extremes stay in the first-level cache, a block of so many columns
/// in the second.
inline constexpr std::size_t chunk_cols = 4 * tile_cols;

/// For each group: ordered extremes, and the second smallest of the slices' largest magnitudes.
template <std::size_t N>
struct GroupExtremes {
  alignas(64) std::int32_t lo[N];
  alignas(64) std::int32_t hi[N];
  alignas(64) std::int32_t second[N];
};

/// The ordered extremes of the four slices, for as many groups as Ints has lanes.
template <class Ints>
struct LaneSlices {
  Ints lo[4], hi[4];

  LaneSlices() {
    for (std::size_t s = 0; s < 4; ++s) lo[s] = Ints{} + empty_lo, hi[s] = Ints{} + empty_hi;
  }

  /// Writes the extremes and `second` of groups `to` … of out.
  template <std::size_t N>
  void close(GroupExtremes<N>& out, std::size_t to) const {
    Ints l = lo[0], h = hi[0], largest[4];
    for (std::size_t s = 0; s < 4; ++s) {
      largest[s] = lo[s] ^ lo[s] >> 31;
      keep_larger(largest[s], Ints(hi[s] ^ hi[s] >> 31));
      keep_smaller(l, lo[s]);
      keep_larger(h, hi[s]);
    }
    // The second smallest, computed like in group_threshold.
    Ints least = largest[0], most = largest[0], other = largest[2];
    keep_larger(least, largest[1]);
    keep_smaller(most, largest[1]);
    keep_larger(other, largest[3]);
    keep_smaller(least, other);
    other = largest[2];
    keep_smaller(other, largest[3]);
    keep_larger(most, other);
    keep_smaller(least, most);
    std::memcpy(out.lo + to, &l, sizeof l);
    std::memcpy(out.hi + to, &h, sizeof h);
    std::memcpy(out.second + to, &least, sizeof least);
  }
};

/// The extremes of as many columns as Ints has lanes, over `rows` rows.
template <class Ints, class T, std::size_t N>
inline void column_lanes(const T* x, std::size_t stride, std::size_t rows, GroupExtremes<N>& out,
                         std::size_t to) {
  LaneSlices<Ints> slices;
  for (std::size_t s = 0; s < 4; ++s) {
    Ints lo = slices.lo[s], hi = slices.hi[s];
    for (std::size_t r = slice_begin(rows, s); r < slice_begin(rows, s + 1); ++r) {
      Ints order;
      load_orders(x + r * stride, order);
      keep_smaller(lo, order);
      keep_larger(hi, order);
    }
    slices.lo[s] = lo, slices.hi[s] = hi;
  }
  slices.close(out, to);
}

/// Each column of `rows` x `cols` elements is a group; cols <= chunk_cols. A few columns at a time over all rows, so
/// that extremes stay in registers: the rows should be in cache.
template <class T>
void column_extremes(const T* x, std::size_t stride, std::size_t rows, std::size_t cols,
                     ReadAhead& next, GroupExtremes<chunk_cols>& out) {
  std::size_t c = 0;
  for (; c + vector_lanes <= cols; c += vector_lanes) {
    next.more(div_up(rows, 4));
    column_lanes<Ints16>(x + c, stride, rows, out, c);
  }
  for (; c < cols; ++c) column_lanes<std::int32_t>(x + c, stride, rows, out, c);
}

/// Widens largest[c] to the largest magnitude of column c, over `rows` rows.
template <class T>
void column_magnitudes(const T* x, std::size_t stride, std::size_t rows, std::size_t cols,
                       ReadAhead& next, std::int32_t* __restrict largest) {
  for (std::size_t r = 0; r < rows; ++r) {
    next.more(div_up(cols, vector_lanes * 4));
    const T* __restrict row = x + r * stride;
    for (std::size_t c = 0; c < cols; ++c)
      largest[c] = larger(largest[c], magnitude_of(ordered(to_number(row[c]))));
  }
}

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
