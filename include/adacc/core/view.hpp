// SPDX-License-Identifier: MIT
/// A tensor owned by somebody else: a pointer and a shape.
///
/// `View<float>` may be written, `View<const float>` may not; the first converts to the second. Elements are dense
/// and row-major. Accesses are not checked: set-up has checked the sizes.
#pragma once

#include <cstddef>
#include <type_traits>

#include "config.hpp"
#include "shape.hpp"

namespace adacc { inline namespace v0_1 {

template <class T>
class View {
 public:
  constexpr View() = default;
  ADACC_HD constexpr View(T* data, Shape shape) : data_(data), shape_(shape) {}
  template <class U>
    requires std::is_same_v<const U, T>
  ADACC_HD constexpr View(const View<U>& other) : data_(other.data()), shape_(other.shape()) {}

  ADACC_HD constexpr T* data() const { return data_; }
  ADACC_HD constexpr Shape shape() const { return shape_; }
  ADACC_HD constexpr bool empty() const { return data_ == nullptr || shape_.elems() == 0; }
  ADACC_HD constexpr std::size_t size() const { return shape_.elems(); }
  ADACC_HD constexpr std::size_t rows() const { return shape_.rows(); }
  ADACC_HD constexpr std::size_t cols() const { return shape_.cols(); }
  ADACC_HD constexpr T& operator[](std::size_t i) const { return data_[i]; }
  ADACC_HD constexpr T* begin() const { return data_; }
  ADACC_HD constexpr T* end() const { return data_ + size(); }

  /// The first element of row `r` of the tensor seen as a matrix.
  ADACC_HD constexpr T* row(std::size_t r) const { return data_ + r * cols(); }

 private:
  T* data_ = nullptr;
  Shape shape_;
};

template <class T>
View(T*, Shape) -> View<T>;

/// Raw memory: aux, workspaces, encoded activations, the arena.
using Bytes = View<std::byte>;
using ConstBytes = View<const std::byte>;

/// The bytes taken by `carve` for `count` elements of T.
template <class T>
constexpr std::size_t carved_bytes(std::size_t count) {
  return align_up(count * sizeof(T));
}

/// Takes room for `count` elements of T from the front of `memory`, which shrinks by `carved_bytes<T>(count)`. Layers
/// cut their workspace this way, in the order in which they summed up `carved_bytes` for its size.
template <class T, class Byte>
auto carve(View<Byte>& memory, std::size_t count) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;
  View<Element> taken(static_cast<Element*>(static_cast<Pointer>(memory.data())), Shape(count));
  std::size_t bytes = carved_bytes<T>(count);
  if (bytes > memory.size()) bytes = memory.size();  // the last piece need not be padded
  memory = View<Byte>(memory.data() + bytes, Shape(memory.size() - bytes));
  return taken;
}

}}  // namespace adacc::v0_1
