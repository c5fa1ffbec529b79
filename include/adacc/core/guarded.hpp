// SPDX-License-Identifier: MIT
/// Memory of exactly the requested size, with guards that detect writes outside.
///
/// Kernels get no more memory than they declare. A pattern right in front of the block and right behind shows
/// afterwards whether a kernel wrote more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bytes.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

/// `bytes` bytes, 64-byte aligned.
class GuardedBlock {
 public:
  static constexpr std::size_t guard_bytes = 256;  ///< on either side

  /// The contents start as `fill` in every byte; 0xFF makes floats and doubles NaN.
  explicit GuardedBlock(std::size_t bytes, unsigned char fill = 0xFF)
      : storage_(bytes + 2 * guard_bytes + alignment), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + guard_bytes;
    start_ = guard_bytes + (alignment - address % alignment) % alignment;
    for (std::size_t i = 0; i < storage_.size(); ++i) storage_[i] = pattern(i);
    this->fill(fill);
  }
  GuardedBlock(GuardedBlock&&) = default;
  GuardedBlock& operator=(GuardedBlock&&) = default;
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  std::size_t size() const { return bytes_; }
  std::byte* data() { return storage_.data() + start_; }
  const std::byte* data() const { return storage_.data() + start_; }

  Bytes bytes() { return {data(), Shape(bytes_)}; }
  ConstBytes bytes() const { return {data(), Shape(bytes_)}; }

  template <class T>
  T* as() {
    return static_cast<T*>(static_cast<void*>(data()));
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(static_cast<const void*>(data()));
  }

  void fill(unsigned char value) {
    // The second comparison always holds; without it g++ 12 warns of a wrapped size.
    if (bytes_ > 0 && bytes_ < storage_.size()) std::memset(data(), value, bytes_);
  }

  /// Whether nothing outside the block was written since construction.
  bool intact() const {
    for (std::size_t i = 0; i < storage_.size(); ++i)
      if ((i < start_ || i >= start_ + bytes_) && storage_[i] != pattern(i)) return false;
    return true;
  }

  /// Whether two blocks hold the same bytes.
  friend bool operator==(const GuardedBlock& a, const GuardedBlock& b) {
    return a.bytes_ == b.bytes_ &&
           (a.bytes_ == 0 || std::memcmp(a.data(), b.data(), a.bytes_) == 0);
  }

 private:
  static std::byte pattern(std::size_t i) { return static_cast<std::byte>((i * 37 + 11) & 0xFF); }

  std::vector<std::byte> storage_;
  std::size_t start_ = 0;
  std::size_t bytes_ = 0;
};

}}}  // namespace adacc::v0_1::testing
