// SPDX-License-Identifier: MIT
/// A growable array that works in constant expressions on every supported compiler.
///
/// The graph, the schedule and the layout are computed by the same functions at compile time and
/// at run time. std::vector cannot carry them: clang 16 rejects libstdc++ 12's constexpr
/// constructor and resize. This is the little that they need, over new T[], or, if there is no
/// heap, over memory that the caller lends.
///
/// What loops over elements stays out of line: inlined into a planner, and vectorized there for
/// arrays of a few elements, it was a third of its code and of the time to compile it. At run time
/// arrays of plain data share the functions that move bytes, whatever their type.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

namespace detail {

/// `data`, of which `used` bytes are in use, in `bytes` of new memory. What is not `lent` is freed.
[[gnu::noinline]] inline void* grown_bytes(void* data, std::size_t used, std::size_t bytes,
                                           bool lent) {
  void* grown = ::operator new[](bytes);
  if (used > 0) __builtin_memcpy(grown, data, used);
  if (!lent) ::operator delete[](data);
  return grown;
}

[[gnu::noinline]] inline void free_bytes(void* data, bool lent) {
  if (!lent) ::operator delete[](data);
}

}  // namespace detail

template <class T>
class Array {
 public:
  constexpr Array() = default;
  constexpr explicit Array(std::size_t size) { resize(size); }
  constexpr Array(const Array& other) { assign(other); }
  constexpr Array(Array&& other) noexcept { swap(other); }
  constexpr Array& operator=(const Array& other) {
    if (this != &other) assign(other);
    return *this;
  }
  constexpr Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  constexpr ~Array() { release(); }

  /// `size` elements of `data`, which has room for `capacity` and must outlive the array and those
  /// it is moved to. Only what grows beyond that, or is copied, takes memory of its own.
  static constexpr Array over(T* data, std::size_t size, std::size_t capacity) {
    Array array;
    array.data_ = data, array.size_ = size, array.capacity_ = capacity;
    array.lent_ = true;
    return array;
  }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* data() { return data_; }
  constexpr const T* data() const { return data_; }
  constexpr T& operator[](std::size_t i) { return data_[i]; }
  constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T* begin() { return data_; }
  constexpr T* end() { return data_ + size_; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr T& back() { return data_[size_ - 1]; }

  constexpr void clear() { size_ = 0; }

  constexpr void reserve(std::size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }

  /// New elements are value-initialized.
  [[gnu::noinline]] constexpr void resize(std::size_t size) {
    reserve(size);
    for (std::size_t i = size_; i < size; ++i) data_[i] = T{};
    size_ = size;
  }

  constexpr void push_back(T value) {
    if (size_ == capacity_) [[unlikely]]
      grow_more();
    data_[size_++] = static_cast<T&&>(value);
  }

  constexpr void pop_back() { --size_; }

  [[gnu::noinline]] constexpr void insert(std::size_t at, T value) {
    push_back(T{});
    for (std::size_t i = size_ - 1; i > at; --i) data_[i] = static_cast<T&&>(data_[i - 1]);
    data_[at] = static_cast<T&&>(value);
  }

  [[gnu::noinline]] constexpr void erase(std::size_t at) {
    for (std::size_t i = at + 1; i < size_; ++i) data_[i - 1] = static_cast<T&&>(data_[i]);
    --size_;
  }

 private:
  /// Whether elements are bytes that may be copied as such, in memory that any `new` hands out.
  static constexpr bool plain =
      __is_trivially_copyable(T) && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;

  [[gnu::noinline]] constexpr void grow(std::size_t capacity) {
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        data_ = static_cast<T*>(
            // Elements may be pointers. NOLINTNEXTLINE(bugprone-sizeof-expression)
            detail::grown_bytes(data_, size_ * sizeof(T), capacity * sizeof(T), lent_));
        capacity_ = capacity;
        lent_ = false;
        return;
      }
    T* grown = new T[capacity]{};
    for (std::size_t i = 0; i < size_; ++i) grown[i] = static_cast<T&&>(data_[i]);
    release();
    data_ = grown;
    capacity_ = capacity;
    lent_ = false;
  }

  [[gnu::noinline, gnu::cold]] constexpr void grow_more() {
    grow(capacity_ < 8 ? 8 : 2 * capacity_);
  }

  constexpr void release() {
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        detail::free_bytes(data_, lent_);
        return;
      }
    delete_all();
  }

  [[gnu::noinline]] constexpr void delete_all() {
    if (!lent_) delete[] data_;
  }

  [[gnu::noinline]] constexpr void swap(Array& other) {
    T* data = data_;
    std::size_t size = size_, capacity = capacity_;
    const bool lent = lent_;
    data_ = other.data_, size_ = other.size_, capacity_ = other.capacity_, lent_ = other.lent_;
    other.data_ = data, other.size_ = size, other.capacity_ = capacity, other.lent_ = lent;
  }

  [[gnu::noinline]] constexpr void assign(const Array& other) {
    clear();
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        reserve(other.size_);
        size_ = other.size_;
        // NOLINTNEXTLINE(bugprone-sizeof-expression)
        if (size_ > 0) __builtin_memcpy(data_, other.data_, size_ * sizeof(T));
        return;
      }
    resize(other.size_);
    for (std::size_t i = 0; i < size_; ++i) data_[i] = other.data_[i];
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  bool lent_ = false;
};

/// Heap sort: std::sort would bring <algorithm> into every includer.
template <class T, class Less>
constexpr void sort(Array<T>& items, const Less& less) {
  const auto sift = [&](std::size_t root, std::size_t end) {
    for (std::size_t child = 2 * root + 1; child < end; child = 2 * root + 1) {
      if (child + 1 < end && less(items[child], items[child + 1])) ++child;
      if (!less(items[root], items[child])) return;
      T moved = static_cast<T&&>(items[root]);
      items[root] = static_cast<T&&>(items[child]);
      items[child] = static_cast<T&&>(moved);
      root = child;
    }
  };
  // First all parents, from the last to the root; then the root after each removal of the largest.
  for (std::size_t root = items.size() / 2, end = items.size();;) {
    if (root > 0) {
      --root;
    } else {
      if (end < 2) return;
      --end;
      T moved = static_cast<T&&>(items[0]);
      items[0] = static_cast<T&&>(items[end]);
      items[end] = static_cast<T&&>(moved);
    }
    sift(root, end);
  }
}

}}  // namespace adacc::v0_1
