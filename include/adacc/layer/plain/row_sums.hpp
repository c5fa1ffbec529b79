// SPDX-License-Identifier: MIT
/// The three inner loops of layers in plain loops: a vector and the rows of a matrix, four rows a turn.
///
/// On a processor without vector units a simple loop spends two of three instructions on loads, counts and branches.
/// Four rows share them: an element that is loaded once meets four others. Every sum has one order, that of elements
/// or of rows, however many rows a turn takes.
///
///     rows     how many rows the matrix has
///     count    elements of a row, and of the vector that meets them
///     matrix   the rows, one behind the other
#pragma once

#include <cstddef>

#include "../../core/view.hpp"

namespace adacc { inline namespace v0_1 { namespace plain { namespace sums {

/// y[r] = first[r] + the products of x and row r, added one after the other.
template <class T>
void multiply(T* y, const T* first, const T* x, const T* matrix, std::size_t rows,
              std::size_t count) {
  for (; rows >= 4; rows -= 4, matrix += 4 * count) {
    const T *a = matrix, *b = a + count, *c = b + count, *d = c + count;
    T sum_a = *first++, sum_b = *first++, sum_c = *first++, sum_d = *first++;
    for (std::size_t i = 0; i < count; ++i) {
      const T element = x[i];
      sum_a += element * a[i];
      sum_b += element * b[i];
      sum_c += element * c[i];
      sum_d += element * d[i];
    }
    *y++ = sum_a, *y++ = sum_b, *y++ = sum_c, *y++ = sum_d;
  }
  for (; rows > 0; --rows, matrix += count) {
    T sum = *first++;
    for (std::size_t i = 0; i < count; ++i) sum += x[i] * matrix[i];
    *y++ = sum;
  }
}

/// Adds scales[r] times row r to `to`, row after row. `to` overlaps nothing.
template <class T>
void add_rows(T* __restrict to, const T* scales, const T* __restrict matrix, std::size_t rows,
              std::size_t count) {
  for (; rows >= 4; rows -= 4, scales += 4, matrix += 4 * count) {
    const T *a = matrix, *b = a + count, *c = b + count, *d = c + count;
    const T scale_a = scales[0], scale_b = scales[1], scale_c = scales[2], scale_d = scales[3];
    for (std::size_t i = 0; i < count; ++i) {
      T sum = to[i];
      sum += scale_a * a[i];
      sum += scale_b * b[i];
      sum += scale_c * c[i];
      sum += scale_d * d[i];
      to[i] = sum;
    }
  }
  for (; rows > 0; --rows, ++scales, matrix += count)
    for (std::size_t i = 0; i < count; ++i) to[i] += *scales * matrix[i];
}

/// Adds scales[r] times x to row r of the matrix, which overlaps nothing.
template <class T>
void add_to_rows(T* __restrict matrix, const T* scales, const T* __restrict x, std::size_t rows,
                 std::size_t count) {
  for (; rows >= 4; rows -= 4, scales += 4, matrix += 4 * count) {
    T *a = matrix, *b = a + count, *c = b + count, *d = c + count;
    const T scale_a = scales[0], scale_b = scales[1], scale_c = scales[2], scale_d = scales[3];
    for (std::size_t i = 0; i < count; ++i) {
      const T element = x[i];
      a[i] += scale_a * element;
      b[i] += scale_b * element;
      c[i] += scale_c * element;
      d[i] += scale_d * element;
    }
  }
  for (; rows > 0; --rows, ++scales, matrix += count)
    for (std::size_t i = 0; i < count; ++i) matrix[i] += *scales * x[i];
}

/// The elements of a tensor; null if it is empty, wherever it points.
template <class T>
T* elements(const View<T>& tensor) {
  return tensor.empty() ? nullptr : tensor.data();
}
/// The element `at` of those; null if there are none.
template <class T>
T* element(T* elements, std::size_t at) {
  return elements == nullptr ? nullptr : elements + at;
}

/// Backward of y = weight x + bias, vector by vector. Null: a gradient that nobody wants.
template <class T>
struct AffineBackward {
  const T* weight;
  T* dweight;
  T* dbias;
  std::size_t out;    ///< elements of y
  std::size_t count;  ///< elements of x

  /// From the gradient of y. x is read for dweight alone.
  void operator()(const T* dy, const T* x, T* dx) const {
    if (dweight != nullptr) add_to_rows(dweight, dy, x, out, count);
    if (dbias != nullptr)
      for (std::size_t o = 0; o < out; ++o) dbias[o] += dy[o];
    if (dx != nullptr) add_rows(dx, dy, weight, out, count);
  }
};

}}}}  // namespace adacc::v0_1::plain::sums
