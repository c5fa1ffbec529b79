// SPDX-License-Identifier: MIT
/// Activations as numbers to compute with: one source for float, double and bfloat16.
///
/// float and double are read and written in place. bfloat16 is widened to float on the stack, a short piece at a time,
/// and rounded to the nearest when a result is stored: an expression of Eigen's bfloat16 would round after every
/// operation.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "../../core/bfloat16.hpp"
#include "../../core/dtype.hpp"
#include "packet.hpp"
#include "rows.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
inline constexpr bool in_place = !std::is_same_v<T, bfloat16>;

/// Elements of a piece of T that elementwise kernels compute at a time.
template <class T>
inline constexpr std::size_t piece_elems = in_place<T> ? tile_elems : stack_elems;

/// One activation as a number.
template <class T>
Wide<T> number(T x) {
  if constexpr (in_place<T>) return x;
  else return to_float(x);
}

inline void widen(const bfloat16* from, std::size_t n, float* to) {
  for (std::size_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
inline void narrow(const float* from, std::size_t n, bfloat16* to) {
  for (std::size_t i = 0; i < n; ++i) to[i] = to_bfloat16(from[i]);
}

/// `n` activations to read. At most stack_elems, if they are bfloat16.
template <class T>
class Numbers {
 public:
  Numbers(const T* from, std::size_t n) : at_(from), n_(n) {}
  const T* data() const { return at_; }
  auto array() const { return as_array(at_, n_); }

 private:
  const T* at_;
  std::size_t n_;
};
template <>
class Numbers<bfloat16> {
 public:
  Numbers(const bfloat16* from, std::size_t n) : n_(n) { widen(from, n, at_); }
  const float* data() const { return at_; }
  auto array() const { return as_array(data(), n_); }

 private:
  alignas(alignment) float at_[stack_elems];
  std::size_t n_;
};

/// A place to compute `n` activations in, stored by store(). At most stack_elems, if they are bfloat16.
template <class T>
class Draft {
 public:
  Draft(T* to, std::size_t n) : to_(to), n_(n) {}
  T* data() { return to_; }
  auto array() { return as_array(to_, n_); }
  void store() {}

 private:
  T* to_;
  std::size_t n_;
};
template <>
class Draft<bfloat16> {
 public:
  Draft(bfloat16* to, std::size_t n) : to_(to), n_(n) {}
  float* data() { return at_; }
  auto array() { return as_array(at_, n_); }
  void store() { narrow(at_, n_, to_); }

 private:
  alignas(alignment) float at_[stack_elems];
  bfloat16* to_;
  std::size_t n_;
};

/// Stores the value of an array expression as `n` activations, which the expression may read element by element. At
/// most stack_elems, if they are bfloat16.
template <class T, class Expression>
void store(T* to, std::size_t n, const Expression& expression) {
  Draft<T> draft(to, n);
  draft.array() = expression;
  draft.store();
}

/// `n` numbers become activations of T, packed from the start of the same memory.
template <class T>
void round_in_place(Wide<T>* numbers, std::size_t n) {
  if constexpr (!in_place<T>) {
    auto* const to = static_cast<std::byte*>(static_cast<void*>(numbers));
    T piece[stack_elems];
    for (std::size_t i = 0; i < n; i += stack_elems) {
      const std::size_t count = n - i < stack_elems ? n - i : stack_elems;
      narrow(numbers + i, count, piece);
      std::memcpy(to + i * sizeof(T), piece, count * sizeof(T));
    }
  }
}

/// Calls body(first, count) for a row of `cols` elements: at once if T is computed in place, else in pieces.
template <class T, class Body>
void for_each_span(std::size_t cols, const Body& body) {
  if constexpr (in_place<T>) body(std::size_t{0}, cols);
  else
    for (std::size_t first = 0; first < cols; first += stack_elems)
      body(first, cols - first < stack_elems ? cols - first : stack_elems);
}

/// The sum of body(first, count) over these spans, in order.
template <class T, class Body>
Wide<T> sum_of_spans(std::size_t cols, const Body& body) {
  if constexpr (in_place<T>) return body(std::size_t{0}, cols);
  Wide<T> sum = 0;
  for_each_span<T>(cols, [&](std::size_t first, std::size_t n) { sum += body(first, n); });
  return sum;
}

/// The sum of a[i] b[i].
template <class Target = BuildTarget, class T>
Wide<T> dot_of_rows(const T* a, const T* b, std::size_t n) {
  return sum_of_spans<T>(n, [&](std::size_t first, std::size_t count) {
    const Numbers<T> left(a + first, count), right(b + first, count);
    return dot<Target>(left.data(), right.data(), count);
  });
}

}}}  // namespace adacc::v0_1::detail
