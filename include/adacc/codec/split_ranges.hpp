/// Loops that reduce elements to ranges, as ordered integers (codec/quantize.hpp).
///
/// Integer minima and maxima may be taken in any order, so compilers turn all of these loops into
/// vectors without leave to reorder floats. Columns are read in whole rows, four at a time, because
/// memory likes to be read in order; what is kept per column stays in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quantize.hpp"

namespace adacc::inline v0_1::detail {

/// Columns whose ranges are taken at a time.
inline constexpr std::size_t chunk_cols = 4 * tile_cols;

/// Of every group: ordered extremes, and the smallest and second smallest of the slices' largest
/// magnitudes.
template <std::size_t N>
struct SplitRanges {
  alignas(64) std::int32_t lo[N];
  alignas(64) std::int32_t hi[N];
  alignas(64) std::int32_t least[N];
  alignas(64) std::int32_t second[N];
};

/// lo and hi of every column over `rows` rows, 4 or fewer; of `first` ones they are set, otherwise
/// widened.
template <bool First, class T>
void four_rows(const T* x, std::size_t stride, std::size_t rows, std::size_t cols,
               std::int32_t* __restrict lo, std::int32_t* __restrict hi) {
  const T* __restrict x0 = x;
  const T* __restrict x1 = x + (rows > 1 ? stride : 0);
  const T* __restrict x2 = x + (rows > 2 ? 2 * stride : 0);
  const T* __restrict x3 = x + (rows > 3 ? 3 * stride : 0);
  for (std::size_t c = 0; c < cols; ++c) {
    const std::int32_t a = ordered(to_number(x0[c])), b = ordered(to_number(x1[c]));
    const std::int32_t d = ordered(to_number(x2[c])), e = ordered(to_number(x3[c]));
    const std::int32_t l = smaller_of(smaller_of(a, b), smaller_of(d, e));
    const std::int32_t h = larger_of(larger_of(a, b), larger_of(d, e));
    lo[c] = First ? l : smaller_of(lo[c], l);
    hi[c] = First ? h : larger_of(hi[c], h);
  }
}

/// Takes a slice's extremes into its groups' ranges.
template <bool First>
void close_slice(std::size_t groups, const std::int32_t* __restrict slice_lo,
                 const std::int32_t* __restrict slice_hi, std::int32_t* __restrict lo,
                 std::int32_t* __restrict hi, std::int32_t* __restrict least,
                 std::int32_t* __restrict second) {
  for (std::size_t g = 0; g < groups; ++g) {
    const std::int32_t l = slice_lo[g], h = slice_hi[g];
    const std::int32_t m = larger_of(magnitude_of(l), magnitude_of(h));
    lo[g] = First ? l : smaller_of(lo[g], l);
    hi[g] = First ? h : larger_of(hi[g], h);
    const std::int32_t before = First ? empty_lo : least[g];
    const std::int32_t second_before = First ? empty_lo : second[g];
    second[g] = smaller_of(larger_of(m, before), second_before);
    least[g] = smaller_of(m, before);
  }
}

/// Every column of `rows` x `cols` elements is a group; cols <= chunk_cols.
template <class T>
void column_ranges(const T* x, std::size_t stride, std::size_t rows, std::size_t cols,
                   SplitRanges<chunk_cols>& out) {
  alignas(64) std::int32_t lo[chunk_cols];
  alignas(64) std::int32_t hi[chunk_cols];
  bool first = true;
  for (std::size_t slice = 0; slice < 4; ++slice) {
    const std::size_t begin = slice_begin(rows, slice), end = slice_begin(rows, slice + 1);
    if (begin == end) continue;
    for (std::size_t r = begin; r < end; r += 4) {
      const std::size_t n = end - r < 4 ? end - r : 4;
      if (r == begin) four_rows<true>(x + r * stride, stride, n, cols, lo, hi);
      else four_rows<false>(x + r * stride, stride, n, cols, lo, hi);
    }
    if (first) close_slice<true>(cols, lo, hi, out.lo, out.hi, out.least, out.second);
    else close_slice<false>(cols, lo, hi, out.lo, out.hi, out.least, out.second);
    first = false;
  }
}

/// Widens lo and hi by n elements, but those with skip[i] != 0.
template <bool Skip, class T>
void widen_by_row(const T* __restrict x, std::size_t n, const std::int32_t* __restrict skip,
                  std::int32_t& lo, std::int32_t& hi) {
  std::int32_t l = lo, h = hi;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t order = ordered(to_number(x[i]));
    const bool out = Skip && skip[i] != 0;
    l = smaller_of(l, out ? empty_lo : order);
    h = larger_of(h, out ? empty_hi : order);
  }
  lo = l;
  hi = h;
}

/// The same, but for those beyond `threshold`.
template <class T>
void widen_by_bulk(const T* __restrict x, std::size_t n, std::int32_t threshold, std::int32_t& lo,
                   std::int32_t& hi) {
  std::int32_t l = lo, h = hi;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t order = ordered(to_number(x[i]));
    const bool out = magnitude_of(order) > threshold;
    l = smaller_of(l, out ? empty_lo : order);
    h = larger_of(h, out ? empty_hi : order);
  }
  lo = l;
  hi = h;
}

/// A group of n elements of a row: its extremes and the second smallest of its slices' largest
/// magnitudes.
template <class T>
void row_range(const T* x, std::size_t n, std::int32_t& lo, std::int32_t& hi,
               std::int32_t& second) {
  std::int32_t least = 0;
  for (std::size_t slice = 0; slice < 4; ++slice) {
    const std::size_t begin = slice_begin(n, slice), end = slice_begin(n, slice + 1);
    std::int32_t slice_lo = empty_lo, slice_hi = empty_hi;
    widen_by_row<false>(x + begin, end - begin, nullptr, slice_lo, slice_hi);
    if (slice == 0) close_slice<true>(1, &slice_lo, &slice_hi, &lo, &hi, &least, &second);
    else close_slice<false>(1, &slice_lo, &slice_hi, &lo, &hi, &least, &second);
  }
}

/// Widens largest[c] to the largest magnitude of column c.
template <class T>
void column_magnitudes(const T* __restrict x, std::size_t cols, std::int32_t* __restrict largest) {
  for (std::size_t c = 0; c < cols; ++c)
    largest[c] = larger_of(largest[c], magnitude_of(ordered(to_number(x[c]))));
}

}  // namespace adacc::inline v0_1::detail
