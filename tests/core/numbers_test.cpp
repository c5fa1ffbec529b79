// SPDX-License-Identifier: MIT
/// Numbers as text and back, compared with <charconv> where the standard library has all of it. The host's
/// locale has a decimal comma (tests/main.cpp).
#include <doctest/doctest.h>

#include <adacc/core/error.hpp>
#include <adacc/core/number_text.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/read_number.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

namespace numbers_test { namespace {

using namespace adacc;

static_assert(std::string_view(NumberText::shortest(0.1)) == "0.1");
static_assert(std::string_view(NumberText::shortest(0.1F)) == "0.1");
constexpr double read(std::string_view text) {
  double value = -1;
  return read_number(text, value) ? value : -1;
}
static_assert(read("2.5e-3") == 0.0025);

template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

std::string as_text(const NumberText& text) { return text.c_str(); }

/// Random bits as a number, which is any number, and numbers of everyday sizes; no NaN.
template <class T>
struct AnyNumber {
  std::uint64_t next() { return state = state * 6364136223846793005U + 1442695040888963407U; }
  T operator()() {
    typename detail::FloatLayout<T>::Bits bits = 0;
    std::uint64_t random = next() ^ next() >> 32;
    if (next() >> 62 == 0)  // a decimal
      return static_cast<T>(static_cast<double>(random >> (next() >> 58)) /
                            std::pow(10.0, static_cast<double>(next() >> 60)));
    std::memcpy(&bits, &random, sizeof bits);
    const T number = __builtin_bit_cast(T, bits);
    return number == number ? number : T(0);
  }
  std::uint64_t state = 1;
};

#ifdef __cpp_lib_to_chars
template <class T, class... Format>
std::string standard(T value, Format... format) {
  char text[512];
  const auto end = std::to_chars(text, text + sizeof text, value, format...);
  return {text, end.ptr};
}

/// All that is written of a number, and that it is read back.
template <class T>
void compare_number(T value) {
  const std::string text = as_text(NumberText::shortest(value));
  CHECK(text == standard(value));
  T again{};
  CHECK(read_number(text, again));
  CHECK(same(again, value));
}

void compare_digits(double value, int digits) {
  CAPTURE(digits);
  CHECK(as_text(NumberText::fixed(value, digits)) ==
        standard(value, std::chars_format::fixed, digits));
  if (digits > 0)
    CHECK(as_text(NumberText::significant(value, digits)) ==
          standard(value, std::chars_format::general, digits));
}

template <class T>
void compare_reading(std::string_view text) {
  T expected{}, found{};
  const auto problem = std::from_chars(text.data(), text.data() + text.size(), expected).ec;
  if (problem != std::errc{}) return;  // too large, or too small
  CAPTURE(text);
  CHECK(read_number(text, found));
  CHECK(same(found, expected));
}

TEST_CASE("numbers are written and read as <charconv> does") {
  AnyNumber<double> doubles;
  AnyNumber<float> floats;
  for (int i = 0; i < 3000; ++i) {
    const double value = doubles();
    const int digits = i % 18;
    compare_number(value);
    compare_number(floats());
    if (!std::isfinite(value)) continue;
    compare_digits(value, digits);
    const std::string text = standard(value, std::chars_format::scientific, digits);
    compare_reading<double>(text);
    compare_reading<float>(text);
  }
  for (const double value :
       {0.0, -0.0, 0.5, 1.5, 2.5, 9.5, 99.5, 0.05, 0.95, 9.995, 1e22, 1e23, 999999.5, 9.9999995,
        5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    compare_number(value);
    if (std::isfinite(value))
      for (int digits = 0; digits < 18; ++digits) compare_digits(value, digits);
  }
}

TEST_CASE("powers of two, whose neighbours are not as near on both sides") {
  for (int exponent = -1074; exponent < 1024; ++exponent)
    for (const double toward : {-1.0, 0.0, 1.0}) {
      const double power = std::ldexp(1.0, exponent);
      compare_number(toward == 0 ? power : std::nextafter(power, toward * 1e308));
      const auto single = static_cast<float>(power);
      if (std::isfinite(single))
        compare_number(toward == 0 ? single
                                   : std::nextafter(single, static_cast<float>(toward) * 1e38F));
    }
}
#endif

TEST_CASE("the middle between two numbers goes to the even one, a digit more to the upper one") {
  // 2^53 + 1, between 2^53 and 2^53 + 2.
  CHECK(read("9007199254740993") == 9007199254740992.0);
  CHECK(read("9007199254740993.0000000000000000000000000000000000001") == 9007199254740994.0);
  CHECK(read("9007199254740995") == 9007199254740996.0);
  CHECK(read("9007199254740994.99999999999999999999999999999999999999") == 9007199254740994.0);
  // Half of the smallest number, whole: 752 digits.
  std::string half;
  detail::Natural digits(1);
  for (int i = 0; i < 1075; ++i) digits.multiply_add(5, 0);  // 5^1075 10^-1075
  detail::Natural left = digits, power(1);
  power.multiply_by_power_of_ten(751);
  for (int i = 0; i < 752; ++i, left.multiply_add(10, 0))
    half += static_cast<char>('0' + left.divide(power));
  CHECK(half.substr(0, 6) == "247032");
  CHECK(read(half + "e-1075") == 0);
  CHECK(read(half + "1e-1076") == 5e-324);
  CHECK(read(half + std::string(100, '0') + "1e-1176") == 5e-324);
}

TEST_CASE("what is a number, and what is none") {
  double value = 7;
  for (const char* text : {"",     "-",     ".",      "-.",  "e5",  "+1",          " 1",
                           "1 ",   "0,5",   "0x10",   "1e",  "1e+", "1.2.3",       "infinity",
                           "nano", "1e309", "-1e309", "--1", "1-",  "1e5000000000"}) {
    CAPTURE(std::string(text));
    CHECK_FALSE(read_number(text, value));
  }
  CHECK(value == 7);
  CHECK(read("5.") == 5);
  CHECK(read(".5") == 0.5);
  CHECK(read("1E3") == 1000);
  CHECK(read("1e-5000000000") == 0);
  CHECK(read("0e5000000000") == 0);
  CHECK(read(std::string(5000, '0') + "1" + std::string(300, '0')) == 1e300);
  CHECK(read("0." + std::string(5000, '0') + "1e5001") == 1);
  CHECK((read_number("-0", value) && std::signbit(value)));
  CHECK((read_number("-nan", value) && std::isnan(value) && std::signbit(value)));
  float single = 7;
  CHECK_FALSE(read_number("1e39", single));
  // Nearest to the decimal, not to the double that is nearest to it.
  CHECK((read_number("1.00000005960464477539062500000000001", single) &&
         single == std::nextafter(1.0F, 2.0F)));
  std::size_t count = 7;
  CHECK_FALSE(read_number("-1", count));
  const bool wide = sizeof count == 8;
  CHECK_FALSE(read_number(wide ? "18446744073709551616" : "4294967296", count));
  CHECK((read_number(wide ? "18446744073709551615" : "4294967295", count) &&
         count == ~std::size_t{0}));

  std::string_view rest = "0.5GiB";
  CHECK((take_number(rest, value) && value == 0.5 && rest == "GiB"));
  rest = "2e";
  CHECK((take_number(rest, value) && value == 2 && rest == "e"));
}

TEST_CASE("what printf's %a wrote is read to the bit") {
  AnyNumber<double> numbers;
  double again = 0;
  for (int i = 0; i < 2000; ++i) {
    const double value = numbers();
    char text[64];
    std::snprintf(text, sizeof text, "%a", value);
    // This host writes a comma, which nobody reads.
    if (char* const comma = std::strchr(text, ',')) {
      CHECK_FALSE(read_hexadecimal(std::string_view(text), again));
      *comma = '.';
    }
    CAPTURE(std::string(text));
    CHECK(read_hexadecimal(std::string_view(text), again));
    CHECK(same(again, value));
  }
  CHECK((read_hexadecimal("0.5", again) && again == 0.5));
  for (const char* text : {"0x", "0x.p1", "0x1", "0x1.8", "0x1.8p", "0x1.8p+3 ", "0x1p1024",
                           "0x1p-1075", "0x1.00000000000008p+0", "0x1.8.p+1", "0x1.8,p+1"}) {
    CAPTURE(std::string(text));
    CHECK_FALSE(read_hexadecimal(text, again));
  }
}

TEST_CASE("errors say numbers with a point") {
  CHECK(std::string(Error::say("half is ", NumberText::shortest(0.5), ", not ",
                               NumberText::fixed(1234.56, 1), " %")
                        .text()) == "half is 0.5, not 1234.6 %");
  CHECK(as_text(NumberText::hexadecimal(0x00ab00ffULL)) == "0000000000ab00ff");
}

}}  // namespace numbers_test
