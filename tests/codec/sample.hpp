// SPDX-License-Identifier: MIT
/// What the codec tests share: matrices and blobs between guards, and Gaussian numbers.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <vector>

namespace sample {

/// `size` bytes, 64-byte aligned, with 64 bytes before and after that nobody may write.
class Guarded {
 public:
  Guarded(std::size_t size, unsigned char pattern)
      : size_(size), bytes_(size + 3 * guard, pattern) {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!inside(i)) bytes_[i] = 0xEE;
  }
  Guarded(const Guarded& other) : Guarded(other.size_, 0) {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = other.data()[i];
  }
  Guarded& operator=(const Guarded&) = delete;

  unsigned char* data() { return bytes_.data() + offset(); }
  const unsigned char* data() const { return bytes_.data() + offset(); }
  std::size_t size() const { return size_; }
  bool guards_hold() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!inside(i) && bytes_[i] != 0xEE) return false;
    return true;
  }
  friend bool operator==(const Guarded& a, const Guarded& b) {
    return a.size_ == b.size_ && std::memcmp(a.data(), b.data(), a.size_) == 0;
  }

 private:
  static constexpr std::size_t guard = 64;
  /// To the first boundary that leaves at least a guard before it.
  std::size_t offset() const {
    return guard + (guard - reinterpret_cast<std::uintptr_t>(bytes_.data()) % guard) % guard;
  }

  bool inside(std::size_t i) const { return i >= offset() && i < offset() + size_; }

  std::size_t size_;
  std::vector<unsigned char> bytes_;
};

struct Blob : Guarded {
  using Guarded::Guarded;
  adacc::Bytes view() {
    return {static_cast<std::byte*>(static_cast<void*>(data())), adacc::Shape(size())};
  }
  adacc::ConstBytes view() const {
    return {static_cast<const std::byte*>(static_cast<const void*>(data())), adacc::Shape(size())};
  }
};

template <class T>
struct Matrix {
  Matrix(std::size_t row_count, std::size_t col_count)
      : rows(row_count), cols(col_count), memory(rows * cols * sizeof(T), 0) {}

  std::size_t size() const { return rows * cols; }
  T* data() { return static_cast<T*>(static_cast<void*>(memory.data())); }
  const T* data() const { return static_cast<const T*>(static_cast<const void*>(memory.data())); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  adacc::View<T> view() { return {data(), adacc::Shape(rows, cols)}; }
  adacc::View<const T> view() const { return {data(), adacc::Shape(rows, cols)}; }
  bool guards_hold() const { return memory.guards_hold(); }

  std::size_t rows, cols;
  Guarded memory;
};

/// Standard normal numbers (Box and Muller's).
template <class T>
Matrix<T> gaussian(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  Matrix<T> x(rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const adacc::PhiloxBlock block = adacc::random_block({.seed = seed}, i);
    const double u = (block.word[0] + 0.5) / 4294967296.0, v = block.word[1] / 4294967296.0;
    x[i] = static_cast<T>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
  return x;
}

}  // namespace sample
