// SPDX-License-Identifier: MIT
/// The three inner loops of convolutions in int8: a run of elements and some rows, four rows a turn (row_sums.hpp).
///
///     rows     where each row begins
///     number   how many rows there are, at most four
///     offset   of the run in each row
///     count    elements of the run
#pragma once

#include <cstddef>
#include <cstdint>

namespace adacc { inline namespace v0_1 { namespace plain { namespace sums {

inline constexpr std::size_t rows_a_turn = 4;

/// Adds to totals[r] the products of x - zero and row r.
inline void add_products(std::int32_t* totals, const std::int8_t* x, std::int32_t zero,
                         const std::int8_t* const* rows, std::size_t number, std::size_t offset,
                         std::size_t count) {
  if (number == rows_a_turn) {
    const std::int8_t *a = rows[0] + offset, *b = rows[1] + offset, *c = rows[2] + offset,
                      *d = rows[3] + offset;
    std::int32_t sum_a = totals[0], sum_b = totals[1], sum_c = totals[2], sum_d = totals[3];
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t element = x[i] - zero;
      sum_a += element * a[i];
      sum_b += element * b[i];
      sum_c += element * c[i];
      sum_d += element * d[i];
    }
    totals[0] = sum_a, totals[1] = sum_b, totals[2] = sum_c, totals[3] = sum_d;
    return;
  }
  for (std::size_t r = 0; r < number; ++r)
    for (std::size_t i = 0; i < count; ++i) totals[r] += (x[i] - zero) * rows[r][offset + i];
}

/// Adds scales[r] times row r to `to`, row after row. `to` overlaps nothing.
template <class T>
void add_rows(T* __restrict to, const T* scales, const std::int8_t* const* rows, std::size_t number,
              std::size_t offset, std::size_t count) {
  if (number == rows_a_turn) {
    const std::int8_t *a = rows[0] + offset, *b = rows[1] + offset, *c = rows[2] + offset,
                      *d = rows[3] + offset;
    const T scale_a = scales[0], scale_b = scales[1], scale_c = scales[2], scale_d = scales[3];
    for (std::size_t i = 0; i < count; ++i) {
      T sum = to[i];
      sum += scale_a * static_cast<T>(a[i]);
      sum += scale_b * static_cast<T>(b[i]);
      sum += scale_c * static_cast<T>(c[i]);
      sum += scale_d * static_cast<T>(d[i]);
      to[i] = sum;
    }
    return;
  }
  for (std::size_t r = 0; r < number; ++r)
    for (std::size_t i = 0; i < count; ++i)
      to[i] += scales[r] * static_cast<T>(rows[r][offset + i]);
}

/// Adds scales[r] times x - zero to row r. The rows overlap nothing.
template <class T>
void add_to_rows(T* const* rows, const T* scales, const std::int8_t* x, std::int32_t zero,
                 std::size_t number, std::size_t offset, std::size_t count) {
  if (number == rows_a_turn) {
    T* __restrict a = rows[0] + offset;
    T* __restrict b = rows[1] + offset;
    T* __restrict c = rows[2] + offset;
    T* __restrict d = rows[3] + offset;
    const T scale_a = scales[0], scale_b = scales[1], scale_c = scales[2], scale_d = scales[3];
    for (std::size_t i = 0; i < count; ++i) {
      const T element = static_cast<T>(x[i] - zero);
      a[i] += scale_a * element;
      b[i] += scale_b * element;
      c[i] += scale_c * element;
      d[i] += scale_d * element;
    }
    return;
  }
  for (std::size_t r = 0; r < number; ++r)
    for (std::size_t i = 0; i < count; ++i)
      rows[r][offset + i] += scales[r] * static_cast<T>(x[i] - zero);
}

}}}}  // namespace adacc::v0_1::plain::sums
