// SPDX-License-Identifier: MIT
/// Numbers from text, the same on every machine: with a point, whatever the host's locale is.
///
/// number_text.hpp says why neither strtod nor std::from_chars is used. Decimals are rounded correctly, however many
/// digits they have, and by integers alone: the host's rounding mode does not matter.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "config.hpp"
#include "float_parts.hpp"
#include "natural.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

constexpr bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

/// Removes `word` from the start of `rest`; false if `rest` begins otherwise.
constexpr bool take_word(std::string_view& rest, std::string_view word) {
  if (rest.substr(0, word.size()) != word) return false;
  rest.remove_prefix(word.size());
  return true;
}

/// Takes an "e" or a "p", a sign and digits; huge exponents are clamped. Without digits nothing is taken.
constexpr bool take_exponent(std::string_view& rest, char lower, char upper, int& exponent) {
  constexpr int huge = 100'000'000;
  if (rest.empty() || (rest[0] != lower && rest[0] != upper)) return false;
  std::string_view left = rest.substr(1);
  const bool negative = take_word(left, "-");
  if (!negative) static_cast<void>(take_word(left, "+"));
  if (left.empty() || !is_decimal_digit(left[0])) return false;
  for (exponent = 0; !left.empty() && is_decimal_digit(left[0]); left.remove_prefix(1))
    exponent = exponent >= huge ? huge : 10 * exponent + (left[0] - '0');
  if (negative) exponent = -exponent;
  rest = left;
  return true;
}

/// Digits with a point among them: digits 10^exponent. Digits too far behind to matter are replaced by one, which
/// says whether any of them was not 0.
struct DecimalText {
  Natural digits{};
  std::int64_t exponent = 0;
  int count = 0;  ///< without leading zeros

  constexpr bool take(std::string_view& rest) {
    constexpr int most = 780;  // the middle between two numbers has up to 767
    bool any = false, point = false, more = false;
    for (; !rest.empty(); rest.remove_prefix(1)) {
      const char c = rest[0];
      if (c == '.' && !point) {
        // A point alone is no number, and one behind digits may end it.
        if (!any && (rest.size() < 2 || !is_decimal_digit(rest[1]))) break;
        point = true;
        continue;
      }
      if (!is_decimal_digit(c)) break;
      any = true;
      if (count >= most) {
        more = more || c != '0';
        exponent += point ? 0 : 1;
        continue;
      }
      if (c != '0' || count > 0) {
        digits.multiply_add(10, static_cast<std::uint32_t>(c - '0'));
        ++count;
      }
      exponent -= point ? 1 : 0;
    }
    if (more) digits.multiply_add(10, 1), --exponent, ++count;
    int written = 0;
    if (any && take_exponent(rest, 'e', 'E', written)) exponent += written;
    return any;
  }
};

/// The number nearest to digits 10^exponent.
template <class T>
constexpr T nearest_to(const DecimalText& text, bool negative) {
  const std::int64_t size = text.exponent + text.count;  // the number is below 10^size
  if (text.count == 0 || size < -330) return nearest<T>(0, 0, false, negative);
  if (size > 310) return nearest<T>(1, FloatLayout<T>::bias + 1, false, negative);
  const int exponent = static_cast<int>(text.exponent);
  Natural above = text.digits, below(1);
  above.multiply_by_power_of_ten(exponent > 0 ? exponent : 0);
  below.multiply_by_power_of_ten(exponent < 0 ? -exponent : 0);
  // A quotient of 63 or 64 bits; 53 of them are enough.
  const int shift = 63 - (above.bits() - below.bits());
  above.shift_left(shift > 0 ? shift : 0);
  below.shift_left(63 + (shift < 0 ? -shift : 0));
  std::uint64_t quotient = 0;
  for (int i = 0; i < 64; ++i) {
    quotient <<= 1;
    if (compare(above, below) >= 0) {
      above.subtract(below);
      quotient |= 1;
    }
    above.shift_left(1);
  }
  return nearest<T>(quotient, -shift, !above.is_zero(), negative);
}

/// Takes hexadecimal digits with a point among them, and a power of 2, as printf's %a writes numbers; fails unless
/// `T` has exactly this number.
template <class T>
constexpr bool take_hexadecimal(std::string_view& rest, T& value) {
  std::string_view left = rest;
  const bool negative = take_word(left, "-");
  if (!take_word(left, "0x")) return false;
  std::uint64_t mantissa = 0;
  int exponent = 0, written = 0;
  bool any = false, point = false;
  for (; !left.empty(); left.remove_prefix(1)) {
    const char c = left[0];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    const bool letter = c >= 'a' && c <= 'f';
    if (!letter && !is_decimal_digit(c)) break;
    if (mantissa >> 60 != 0) return false;
    mantissa = mantissa << 4 | static_cast<std::uint64_t>(letter ? c - 'a' + 10 : c - '0');
    exponent -= point ? 4 : 0;
    any = true;
  }
  if (!any || !take_exponent(left, 'p', 'P', written)) return false;
  const T found = nearest<T>(mantissa, exponent + written, false, negative);
  const FloatParts parts = parts_of(found);
  int width = 0, zeros = 0;
  for (; width < 64 && mantissa >> width != 0; ++width) {}
  for (; zeros < 64 && mantissa != 0 && (mantissa >> zeros & 1) == 0; ++zeros) {}
  if (!parts.finite || width - zeros > FloatLayout<T>::fraction + 1 ||
      (mantissa != 0 && exponent + written + zeros < parts.exponent))
    return false;
  value = found;
  rest = left;
  return true;
}

}  // namespace detail

/// Takes the number at the start of `rest`: "-12"; for floating-point types also "0.5", "1e-9", "inf" and "nan".
/// Returns false, and takes nothing, if there is no number, or one out of the range of `T`. Decimals are rounded to
/// the nearest number, which may be 0.
template <class T>
constexpr bool take_number(std::string_view& rest, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    std::string_view left = rest;
    const bool negative = detail::take_word(left, "-");
    const auto special = [&](std::string_view word, std::uint64_t fraction) {
      using Format = detail::FloatLayout<T>;
      if (!detail::take_word(left, word)) return false;
      const std::uint64_t sign = std::uint64_t{negative} << (8 * sizeof(T) - 1);
      const std::uint64_t top = std::uint64_t{Format::top_exponent} << Format::fraction;
      value = __builtin_bit_cast(T, static_cast<typename Format::Bits>(sign | top | fraction));
      rest = left;
      return true;
    };
    if (special("inf", 0) ||
        special("nan", std::uint64_t{1} << (detail::FloatLayout<T>::fraction - 1)))
      return true;
    detail::DecimalText text;
    if (!text.take(left)) return false;
    const T found = detail::nearest_to<T>(text, negative);
    if (!detail::parts_of(found).finite) return false;
    value = found;
    rest = left;
    return true;
  } else {
    const auto [stop, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (problem != std::errc{}) return false;
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    return true;
  }
}

/// Reads all of `text` as a number, like take_number().
template <class T>
constexpr bool read_number(std::string_view text, T& value) {
  T found{};
  if (!take_number(text, found) || !text.empty()) return false;
  value = found;
  return true;
}

/// Reads all of `text` as a number, in the format of printf's %a or as a decimal.
template <class T>
constexpr bool read_hexadecimal(std::string_view text, T& value) {
  T found{};
  std::string_view rest = text;
  if (!detail::take_hexadecimal(rest, found) || !rest.empty()) return read_number(text, value);
  value = found;
  return true;
}

}}  // namespace adacc::v0_1
