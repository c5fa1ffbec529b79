// SPDX-License-Identifier: MIT
/// A growable array for constant expressions, on every supported compiler.
///
/// The graph, the schedule and the layout are computed by the same functions at compile time and at run time.
/// std::vector cannot hold them: clang 16 rejects the constexpr constructor and resize of libstdc++ 12. This class
/// has the few operations needed there, over new T[] or over memory lent by the caller (for programs without a heap).
///
/// Loops over elements stay out of line: inlined into a planner, and vectorized there for arrays of a few elements,
/// they were a third of the planner's code and compile time. At run time, arrays of plain data share the functions
/// that move bytes, whatever their type.
#pragma once

#include <cstddef>
#include <cstring>

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Moves the first `used` bytes of `data` to a new allocation of `bytes`; frees `data` unless `lent`.
[[gnu::noinline]] inline void* grown_bytes(void* data, std::size_t used, std::size_t bytes,
                                           bool lent) {
  void* grown = ::operator new[](bytes);
  if (used > 0) std::memcpy(grown, data, used);
  if (!lent) ::operator delete[](data);
  return grown;
}

[[gnu::noinline]] inline void free_bytes(void* data, bool lent) {
  if (!lent) ::operator delete[](data);
}

/// Where an array's elements are.
template <class T>
struct ArrayPlace {
  T* data = nullptr;
  std::size_t size = 0;
  std::size_t capacity = 0;
  bool lent = false;
};

/// `a` and `b` are ArrayPlaces of one type.
[[gnu::noinline]] inline void swap_places(void* a, void* b) {
  std::byte kept[sizeof(ArrayPlace<char>)];
  std::memcpy(kept, a, sizeof kept);
  std::memcpy(a, b, sizeof kept);
  std::memcpy(b, kept, sizeof kept);
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

  /// An array of `size` elements at `data`, which has room for `capacity`. The memory must outlive the array and each
  /// array it is moved to. Only copies, and growth beyond `capacity`, allocate.
  static constexpr Array over(T* data, std::size_t size, std::size_t capacity) {
    Array array;
    array.at_ = {data, size, capacity, true};
    return array;
  }

  constexpr std::size_t size() const { return at_.size; }
  constexpr bool empty() const { return at_.size == 0; }
  constexpr T* data() { return at_.data; }
  constexpr const T* data() const { return at_.data; }
  constexpr T& operator[](std::size_t i) { return at_.data[i]; }
  constexpr const T& operator[](std::size_t i) const { return at_.data[i]; }
  constexpr T* begin() { return at_.data; }
  constexpr T* end() { return at_.data + at_.size; }
  constexpr const T* begin() const { return at_.data; }
  constexpr const T* end() const { return at_.data + at_.size; }
  constexpr T& back() { return at_.data[at_.size - 1]; }

  constexpr void clear() { at_.size = 0; }

  constexpr void reserve(std::size_t capacity) {
    if (capacity > at_.capacity) grow(capacity);
  }

  /// New elements are value-initialized.
  [[gnu::noinline]] constexpr void resize(std::size_t size) {
    reserve(size);
    for (std::size_t i = at_.size; i < size; ++i) at_.data[i] = T{};
    at_.size = size;
  }

  constexpr void push_back(T value) {
    if (at_.size == at_.capacity) [[unlikely]]
      grow_more();
    at_.data[at_.size++] = static_cast<T&&>(value);
  }

  constexpr void pop_back() { --at_.size; }

  [[gnu::noinline]] constexpr void insert(std::size_t at, T value) {
    push_back(T{});
    for (std::size_t i = at_.size - 1; i > at; --i) at_.data[i] = static_cast<T&&>(at_.data[i - 1]);
    at_.data[at] = static_cast<T&&>(value);
  }

  [[gnu::noinline]] constexpr void erase(std::size_t at) {
    for (std::size_t i = at + 1; i < at_.size; ++i) at_.data[i - 1] = static_cast<T&&>(at_.data[i]);
    --at_.size;
  }

 private:
  /// Whether elements may be copied as bytes and `new` aligns memory enough for them.
  static constexpr bool plain =
      __is_trivially_copyable(T) && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;

  [[gnu::noinline]] constexpr void grow(std::size_t capacity) {
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        at_.data = static_cast<T*>(
            // Elements may be pointers. NOLINTNEXTLINE(bugprone-sizeof-expression)
            detail::grown_bytes(at_.data, at_.size * sizeof(T), capacity * sizeof(T), at_.lent));
        at_.capacity = capacity;
        at_.lent = false;
        return;
      }
    T* grown = new T[capacity]{};
    for (std::size_t i = 0; i < at_.size; ++i) grown[i] = static_cast<T&&>(at_.data[i]);
    release();
    at_.data = grown;
    at_.capacity = capacity;
    at_.lent = false;
  }

  [[gnu::noinline, gnu::cold]] constexpr void grow_more() {
    grow(at_.capacity < 8 ? 8 : 2 * at_.capacity);
  }

  constexpr void release() {
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        detail::free_bytes(at_.data, at_.lent);
        return;
      }
    delete_all();
  }

  [[gnu::noinline]] constexpr void delete_all() {
    if (!at_.lent) delete[] at_.data;
  }

  constexpr void swap(Array& other) {
    static_assert(sizeof at_ == sizeof(detail::ArrayPlace<char>));
    if (!__builtin_is_constant_evaluated()) {
      detail::swap_places(&at_, &other.at_);
      return;
    }
    const detail::ArrayPlace<T> kept = at_;
    at_ = other.at_;
    other.at_ = kept;
  }

  [[gnu::noinline]] constexpr void assign(const Array& other) {
    clear();
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated()) {
        reserve(other.at_.size);
        at_.size = other.at_.size;
        // NOLINTNEXTLINE(bugprone-sizeof-expression)
        if (at_.size > 0) std::memcpy(at_.data, other.at_.data, at_.size * sizeof(T));
        return;
      }
    resize(other.at_.size);
    for (std::size_t i = 0; i < at_.size; ++i) at_.data[i] = other.at_.data[i];
  }

  detail::ArrayPlace<T> at_;
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
