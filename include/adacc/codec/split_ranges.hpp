/// Loops that reduce columns to ranges, as ordered integers (codec/quantize.hpp).
///
/// Integer minima and maxima may be taken in any order, so these loops are vectors without leave to
/// reorder floats. Columns are read in whole rows, one row after the other: that is one stream,
/// which the processor foresees. Four rows at a time would take less arithmetic, but half as long
/// again; and asking for the next block's lines while the codes of this one are made, which should
/// hide the one behind the other, disturbs the stream so much that both together take longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quantize.hpp"
#include "split_vectors.hpp"

namespace adacc::inline v0_1::detail {

/// How many rows further on a page is opened, see open_page.
constexpr std::size_t rows_ahead(std::size_t row_bytes) {
  const std::size_t rows = div_up(24576, row_bytes);
  return rows < 2 ? 2 : rows;
}

/// Memory is as fast as it can be where it is read in order, which the processor foresees, but not
/// beyond a page: asking for one line of a page to come makes it know the page in time.
inline void open_page(const void* to_read) { __builtin_prefetch(to_read, 0, 3); }
inline void open_page_to_write(const void* to_write) { __builtin_prefetch(to_write, 1, 3); }

/// Columns whose ranges are taken at a time: what is kept of them stays in the first-level cache, a
/// block of so many in the second.
inline constexpr std::size_t chunk_cols = 4 * tile_cols;

/// Of every group: ordered extremes, and the second smallest of the slices' largest magnitudes.
template <std::size_t N>
struct SplitRanges {
  alignas(64) std::int32_t lo[N];
  alignas(64) std::int32_t hi[N];
  alignas(64) std::int32_t second[N];
};

/// lo and hi of as many columns as Ints has lanes: set by a first row, otherwise widened.
template <class Ints, bool First, class T>
inline void widen_lanes(const T* x, std::int32_t* lo, std::int32_t* hi) {
  Ints order, l, h;
  load_orders(x, order);
  l = h = order;
  if constexpr (!First) {
    std::memcpy(&l, lo, sizeof l);
    std::memcpy(&h, hi, sizeof h);
    keep_smaller(l, order);
    keep_larger(h, order);
  }
  std::memcpy(lo, &l, sizeof l);
  std::memcpy(hi, &h, sizeof h);
}

template <bool First, class T>
void widen_columns(const T* __restrict x, std::size_t cols, std::int32_t* __restrict lo,
                   std::int32_t* __restrict hi) {
  std::size_t c = 0;
  for (; c + vector_lanes <= cols; c += vector_lanes)
    widen_lanes<Ints16, First>(x + c, lo + c, hi + c);
  for (; c < cols; ++c) widen_lanes<std::int32_t, First>(x + c, lo + c, hi + c);
}

/// What is known of groups' slices: ordered extremes, those of slice s of group g at [s][g].
template <std::size_t N>
struct SliceRanges {
  alignas(64) std::int32_t lo[4][N];
  alignas(64) std::int32_t hi[4][N];
};

/// The ranges of as many groups as Ints has lanes, from their slices.
template <class Ints, std::size_t N, std::size_t M>
inline void close_lanes(const SliceRanges<N>& slices, std::size_t from, SplitRanges<M>& out,
                        std::size_t to) {
  Ints lo, hi, largest[4];
  for (std::size_t s = 0; s < 4; ++s) {
    Ints l, h;
    std::memcpy(&l, slices.lo[s] + from, sizeof l);
    std::memcpy(&h, slices.hi[s] + from, sizeof h);
    largest[s] = l ^ l >> 31;
    keep_larger(largest[s], Ints(h ^ h >> 31));
    if (s == 0) lo = l, hi = h;
    keep_smaller(lo, l);
    keep_larger(hi, h);
  }
  // As in group_threshold.
  Ints least = largest[0], most = largest[0], other = largest[2];
  keep_larger(least, largest[1]);
  keep_smaller(most, largest[1]);
  keep_larger(other, largest[3]);
  keep_smaller(least, other);
  other = largest[2];
  keep_smaller(other, largest[3]);
  keep_larger(most, other);
  keep_smaller(least, most);
  std::memcpy(out.lo + to, &lo, sizeof lo);
  std::memcpy(out.hi + to, &hi, sizeof hi);
  std::memcpy(out.second + to, &least, sizeof least);
}

/// n groups, from slices' `from` to out's `to`.
template <std::size_t N, std::size_t M>
void close_slices(std::size_t n, const SliceRanges<N>& slices, std::size_t from,
                  SplitRanges<M>& out, std::size_t to) {
  std::size_t g = 0;
  for (; g + vector_lanes <= n; g += vector_lanes)
    close_lanes<Ints16>(slices, from + g, out, to + g);
  for (; g < n; ++g) close_lanes<std::int32_t>(slices, from + g, out, to + g);
}

/// Every column of `rows` x `cols` elements is a group; cols <= chunk_cols. There are more_rows
/// rows after these that will be read soon.
template <class T>
void column_ranges(const T* x, std::size_t stride, std::size_t rows, std::size_t more_rows,
                   std::size_t cols, SplitRanges<chunk_cols>& out) {
  SliceRanges<chunk_cols> slices;
  const std::size_t ahead = rows_ahead(cols * sizeof(T));
  for (std::size_t slice = 0; slice < 4; ++slice) {
    std::int32_t *lo = slices.lo[slice], *hi = slices.hi[slice];
    const std::size_t begin = slice_begin(rows, slice), end = slice_begin(rows, slice + 1);
    for (std::size_t r = begin; r < end; ++r) {
      if (r + ahead < rows + more_rows) open_page(x + (r + ahead) * stride);
      if (r == begin) widen_columns<true>(x + r * stride, cols, lo, hi);
      else widen_columns<false>(x + r * stride, cols, lo, hi);
    }
    for (std::size_t c = 0; begin == end && c < cols; ++c) lo[c] = empty_lo, hi[c] = empty_hi;
  }
  close_slices(cols, slices, 0, out, 0);
}

/// Widens largest[c] to the largest magnitude of column c, over `rows` rows.
template <class T>
void column_magnitudes(const T* x, std::size_t stride, std::size_t rows, std::size_t more_rows,
                       std::size_t cols, std::int32_t* __restrict largest) {
  const std::size_t ahead = rows_ahead(cols * sizeof(T));
  for (std::size_t r = 0; r < rows; ++r) {
    if (r + ahead < rows + more_rows) open_page(x + (r + ahead) * stride);
    const T* __restrict row = x + r * stride;
    for (std::size_t c = 0; c < cols; ++c)
      largest[c] = larger_of(largest[c], magnitude_of(ordered(to_number(row[c]))));
  }
}

}  // namespace adacc::inline v0_1::detail
