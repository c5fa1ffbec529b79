// SPDX-License-Identifier: MIT
/// The two inner loops of layers in plain loops, four elements a turn.
///
/// On a processor without vector units half of a simple loop's instructions count and branch. Sums have one order,
/// that of the elements, whatever a turn does.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 { namespace plain { namespace sums {

/// `sum` and the products of `count` pairs, added one after the other.
template <class T>
T add_products(T sum, const T* a, const T* b, std::size_t count) {
  for (; count >= 4; count -= 4, a += 4, b += 4) {
    sum += a[0] * b[0];
    sum += a[1] * b[1];
    sum += a[2] * b[2];
    sum += a[3] * b[3];
  }
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Adds `scale` times `from` to `to`; the two do not overlap.
template <class T>
void add_scaled(T* __restrict to, T scale, const T* __restrict from, std::size_t count) {
  for (; count >= 4; count -= 4, to += 4, from += 4) {
    to[0] += scale * from[0];
    to[1] += scale * from[1];
    to[2] += scale * from[2];
    to[3] += scale * from[3];
  }
  for (std::size_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

}}}}  // namespace adacc::v0_1::plain::sums
