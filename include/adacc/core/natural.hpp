// SPDX-License-Identifier: MIT
/// Natural numbers of thousands of bits, to turn floating-point numbers into decimals and back.
///
/// Numbers have a fixed size on the stack. Nothing is checked: the two users (number_text.hpp and read_number.hpp)
/// bound their exponents so everything fits.
#pragma once

#include <cstdint>

#include "config.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class Natural {
 public:
  constexpr explicit Natural(std::uint64_t value = 0) {
    for (; value != 0; value >>= 32) words_[size_++] = static_cast<std::uint32_t>(value);
  }

  constexpr bool is_zero() const { return size_ == 0; }

  /// The number of bits without leading zeros.
  constexpr int bits() const {
    int top = 0;
    if (size_ > 0)
      for (std::uint32_t word = words_[size_ - 1]; word != 0; word >>= 1) ++top;
    return 32 * (size_ - 1) + top + (size_ == 0 ? 32 : 0);
  }

  /// *this = *this * factor + summand.
  constexpr void multiply_add(std::uint32_t factor, std::uint32_t summand) {
    std::uint64_t carry = summand;
    for (int i = 0; i < size_; ++i) {
      carry += std::uint64_t{words_[i]} * factor;
      words_[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words_[size_++] = static_cast<std::uint32_t>(carry);
  }
  constexpr void multiply_by_power_of_ten(int exponent) {
    for (; exponent >= 9; exponent -= 9) multiply_add(1'000'000'000, 0);
    for (; exponent > 0; --exponent) multiply_add(10, 0);
  }

  constexpr void shift_left(int bits) {
    if (size_ == 0 || bits == 0) return;
    const int words = bits / 32, rest = bits % 32;
    words_[size_] = 0;
    for (int i = size_; i >= 0; --i) {
      const std::uint64_t low = i == 0 ? 0 : words_[i - 1];
      const std::uint64_t both = std::uint64_t{words_[i]} << 32 | low;
      words_[i + words] = static_cast<std::uint32_t>(both << rest >> 32);
    }
    for (int i = 0; i < words; ++i) words_[i] = 0;
    size_ += words + 1;
    trim();
  }

  constexpr void add(const Natural& other) {
    while (size_ < other.size_) words_[size_++] = 0;
    std::uint64_t carry = 0;
    for (int i = 0; i < size_; ++i) {
      carry += std::uint64_t{words_[i]} + (i < other.size_ ? other.words_[i] : 0);
      words_[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words_[size_++] = static_cast<std::uint32_t>(carry);
  }

  /// Requires other <= *this.
  constexpr void subtract(const Natural& other) {
    std::uint64_t borrow = 0;
    for (int i = 0; i < size_; ++i) {
      const std::uint64_t less = (i < other.size_ ? other.words_[i] : 0) + borrow;
      borrow = words_[i] < less ? 1 : 0;
      words_[i] = static_cast<std::uint32_t>(words_[i] - less);
    }
    trim();
  }

  /// Negative, 0 or positive if `a` is less than, equal to or greater than `b`.
  friend constexpr int compare(const Natural& a, const Natural& b) {
    if (a.size_ != b.size_) return a.size_ < b.size_ ? -1 : 1;
    for (int i = a.size_ - 1; i >= 0; --i)
      if (a.words_[i] != b.words_[i]) return a.words_[i] < b.words_[i] ? -1 : 1;
    return 0;
  }

  /// *this becomes the remainder; returns the quotient, which must be small.
  constexpr int divide(const Natural& by) {
    int quotient = 0;
    for (; compare(*this, by) >= 0; ++quotient) subtract(by);
    return quotient;
  }

 private:
  constexpr void trim() {
    while (size_ > 0 && words_[size_ - 1] == 0) --size_;
  }

  std::uint32_t words_[124] = {};  // the lowest first
  int size_ = 0;
};

}}}  // namespace adacc::v0_1::detail
