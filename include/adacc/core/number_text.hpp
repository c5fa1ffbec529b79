// SPDX-License-Identifier: MIT
/// Numbers as text, the same on every machine: with a point, whatever the host's locale is.
///
/// printf, std::to_string and strtod depend on the host's locale, and some standard libraries have no std::to_chars
/// and std::from_chars for floating-point numbers, or not on every system. So all numbers in the library's files and
/// messages are written here, and read by read_number.hpp. The digits are exact. Algorithm: Steele and White, "How to
/// print floating-point numbers accurately" (1990), in the form of Burger and Dybvig, "Printing floating-point
/// numbers quickly and accurately" (1996).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config.hpp"
#include "float_parts.hpp"
#include "natural.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The digits of a nonzero number: d.ddd 10^exponent.
struct Decimal {
  static constexpr int capacity = 340;
  char digits[capacity] = {};
  int count = 0;
  int exponent = 0;
};

/// A number while its digits are written: above / below, in [1, 10), times 10^exponent.
struct DecimalFraction {
  Natural above, below;
  Natural up, down;  ///< half the distance to the next number above, and to the one below
  int exponent = 0;

  constexpr explicit DecimalFraction(const FloatParts& parts) : above(parts.mantissa), below(1) {
    const int twice = parts.next_below_is_nearer ? 2 : 1;
    const int power = parts.exponent > 0 ? parts.exponent : 0;
    above.shift_left(power + twice);
    below.shift_left(twice - (parts.exponent < 0 ? parts.exponent : 0));
    up = down = Natural(1);
    up.shift_left(power + twice - 1);
    down.shift_left(power);
    int width = 0;
    while (parts.mantissa >> width != 0) ++width;
    // log10(2) is slightly more than 78913 / 2^18: the exponent is this one or the next.
    exponent = ((width - 1 + parts.exponent) * 78913) >> 18;
    for (Natural* const part : {&above, &up, &down})
      part->multiply_by_power_of_ten(exponent < 0 ? -exponent : 0);
    below.multiply_by_power_of_ten(exponent > 0 ? exponent : 0);
  }

  constexpr void next_exponent() {
    below.multiply_add(10, 0);
    ++exponent;
  }
  constexpr int take_digit() { return above.divide(below); }
  constexpr void times_ten() {
    for (Natural* const part : {&above, &up, &down}) part->multiply_add(10, 0);
  }
  /// Compares `above` plus half the distance to the next number with `below`.
  constexpr int compare_upper() const {
    Natural sum = above;
    sum.add(up);
    return compare(sum, below);
  }
};

/// The fewest digits read back as this number; among these, the nearest.
constexpr Decimal shortest_decimal(const FloatParts& parts) {
  const bool even = (parts.mantissa & 1) == 0;  // then a tie is read back as this number
  DecimalFraction left(parts);
  left.below.multiply_add(10, 0);
  if (left.compare_upper() >= (even ? 0 : 1)) ++left.exponent;  // 9.99 may be written 10
  else left.times_ten();
  Decimal decimal;
  decimal.exponent = left.exponent;
  for (;; left.times_ten()) {
    int digit = left.take_digit();
    const int below = compare(left.above, left.down), upper = left.compare_upper();
    const bool low = even ? below <= 0 : below < 0, high = even ? upper >= 0 : upper > 0;
    if (low || high) {
      left.above.multiply_add(2, 0);
      const int half = compare(left.above, left.below);
      if (!low || (high && (half > 0 || (half == 0 && digit % 2 != 0)))) ++digit;
    }
    decimal.digits[decimal.count++] = static_cast<char>('0' + digit);
    if (low || high) return decimal;
  }
}

/// Exactly `digits` digits, rounded to nearest, ties to even; with `behind_point`, so many behind the point. No
/// digits at all: the number rounds to 0.
constexpr Decimal rounded_decimal(const FloatParts& parts, int digits, bool behind_point) {
  DecimalFraction left(parts);
  Natural ten = left.below;
  ten.multiply_add(10, 0);
  if (compare(left.above, ten) >= 0) left.next_exponent();
  Decimal decimal;
  decimal.exponent = left.exponent;
  int count = behind_point ? left.exponent + 1 + digits : digits;
  if (count > Decimal::capacity - 1) count = Decimal::capacity - 1;
  if (count < 0) return decimal;
  for (; decimal.count < count; left.times_ten())
    decimal.digits[decimal.count++] = static_cast<char>('0' + left.take_digit());
  left.below.multiply_add(5, 0);
  const int half = compare(left.above, left.below);
  const bool odd = count > 0 && (decimal.digits[count - 1] - '0') % 2 != 0;
  if (half < 0 || (half == 0 && !odd)) return decimal;
  int at = count;
  while (at > 0 && decimal.digits[at - 1] == '9') decimal.digits[--at] = '0';
  if (at > 0) return ++decimal.digits[at - 1], decimal;
  // All digits were nines: a power of ten, with one digit more before the point.
  decimal.digits[0] = '1';
  ++decimal.exponent;
  if (behind_point || count == 0) {
    if (count > 0) decimal.digits[count] = '0';
    ++decimal.count;
  }
  return decimal;
}

}  // namespace detail

/// A number as text, to append to a string or to an Error.
class NumberText {
 public:
  /// The shortest text read back as this number, of this type: "0.1", "1e-09".
  template <class T>
  static constexpr NumberText shortest(T value) {
    NumberText text;
    const detail::FloatParts parts = detail::parts_of(value);
    if (text.put_special(parts)) return text;
    const detail::Decimal decimal = detail::shortest_decimal(parts);
    const int n = decimal.count, e = decimal.exponent;
    const int scientific = n + (n > 1) + (e > 99 || e < -99 ? 5 : 4);
    const int plain = e < 0 ? n + 1 - e : n > e + 1 ? n + 1 : e + 1;
    if (plain > scientific) text.put_scientific(decimal);
    // A whole number with more places than shortest digits gets its exact digits, not zeros.
    else if (e + 1 > n) text.put_fixed(detail::rounded_decimal(parts, 0, true), 0);
    else text.put_fixed(decimal, n - 1 - e > 0 ? n - 1 - e : 0);
    return text;
  }

  /// With `decimals` decimals (at most 20), like printf's %.2f.
  static constexpr NumberText fixed(double value, int decimals) {
    NumberText text;
    const detail::FloatParts parts = detail::parts_of(value);
    const int kept = decimals < 0 ? 0 : decimals > 20 ? 20 : decimals;
    if (!parts.finite) static_cast<void>(text.put_special(parts));
    else if (parts.mantissa != 0)
      text.put_sign(parts), text.put_fixed(detail::rounded_decimal(parts, kept, true), kept);
    else text.put_sign(parts), text.put_fixed({}, kept);
    return text;
  }

  /// With at most `digits` significant digits (from 1 to 20), like printf's %.3g: "0.125", "1e-09".
  static constexpr NumberText significant(double value, int digits) {
    NumberText text;
    const detail::FloatParts parts = detail::parts_of(value);
    if (text.put_special(parts)) return text;
    const int kept = digits < 1 ? 1 : digits > 20 ? 20 : digits;
    detail::Decimal decimal = detail::rounded_decimal(parts, kept, false);
    while (decimal.count > 1 && decimal.digits[decimal.count - 1] == '0') --decimal.count;
    const int decimals = decimal.count - 1 - decimal.exponent;
    if (decimal.exponent < -4 || decimal.exponent >= kept) text.put_scientific(decimal);
    else text.put_fixed(decimal, decimals > 0 ? decimals : 0);
    return text;
  }

  /// All 16 hexadecimal digits.
  static constexpr NumberText hexadecimal(std::uint64_t value) {
    NumberText text;
    for (int shift = 60; shift >= 0; shift -= 4)
      text.put("0123456789abcdef"[(value >> shift) & 15]);
    return text;
  }

  constexpr const char* c_str() const { return text_; }
  constexpr operator std::string_view() const { return {text_, size_}; }
  template <class Text>
  constexpr void append_to(Text& text) const {
    text.append(text_);
  }

 private:
  constexpr void put(char c) {
    if (size_ + 1 < sizeof text_) text_[size_++] = c;
  }
  constexpr void put(const char* text) {
    for (; *text != '\0'; ++text) put(*text);
  }
  constexpr void put_sign(const detail::FloatParts& parts) {
    if (parts.negative) put('-');
  }

  /// Writes the sign, and the whole text of 0, inf and nan; false if digits are to follow.
  constexpr bool put_special(const detail::FloatParts& parts) {
    put_sign(parts);
    if (parts.finite && parts.mantissa != 0) return false;
    if (parts.finite) put('0');
    else put((parts.mantissa & (parts.mantissa - 1)) == 0 ? "inf" : "nan");
    return true;
  }

  /// Writes a digit for each place, from the first one or the point to `decimals` places behind the point.
  constexpr void put_fixed(const detail::Decimal& decimal, int decimals) {
    const int first = decimal.count > 0 && decimal.exponent > 0 ? decimal.exponent : 0;
    for (int place = first; place >= -decimals; --place) {
      if (place == -1) put('.');
      const int i = decimal.exponent - place;
      put(i >= 0 && i < decimal.count ? decimal.digits[i] : '0');
    }
  }

  constexpr void put_scientific(const detail::Decimal& decimal) {
    for (int i = 0; i < decimal.count; ++i) {
      if (i == 1) put('.');
      put(decimal.digits[i]);
    }
    const int e = decimal.exponent < 0 ? -decimal.exponent : decimal.exponent;
    put(decimal.exponent < 0 ? "e-" : "e+");
    if (e > 99) put(static_cast<char>('0' + e / 100));
    put(static_cast<char>('0' + e / 10 % 10));
    put(static_cast<char>('0' + e % 10));
  }

  char text_[352] = {};
  std::size_t size_ = 0;
};

}}  // namespace adacc::v0_1
