// SPDX-License-Identifier: MIT
#include "adacc/io/weights/json_reader.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

namespace json_reader_test {
namespace {

using adacc::JsonReader;

bool skips(const std::string& text) {
  JsonReader json(text);
  const bool good = json.skip() && json.end();
  CHECK(good == !json.fault());
  return good;
}

std::string string_of(const std::string& text) {
  JsonReader json(text);
  std::string out;
  return json.string(out) && json.end() ? out : std::string("fault: ") + json.fault().text();
}

}  // namespace

TEST_CASE("values are told from what only looks like one") {
  for (const char* good : {"0", "-0.5e+10", "1E5", "\"\"", "true", "false", " null ", "[]", "{}",
                           "[1, [2], {\"a\" : {}}]", "{\"a\":1,\"a\":2}", "10"})
    CHECK_MESSAGE(skips(good), good);
  for (const char* bad : {"",
                          "01",
                          "1.",
                          ".5",
                          "-",
                          "1e",
                          "+1",
                          "tru",
                          "nul",
                          "[1,]",
                          "[,1]",
                          "[1 2]",
                          "{\"a\"}",
                          "{\"a\":}",
                          "{a:1}",
                          "{\"a\":1,}",
                          "[",
                          "{",
                          "\"",
                          "'a'",
                          "[1]]",
                          "\"\t\"",
                          "\"\\x\"",
                          "\"\\u12\"",
                          "\"\\udc00\"",
                          "\"\\ud800\\u0041\""})
    CHECK_MESSAGE(!skips(bad), bad);
  CHECK(skips(std::string(32, '[') + std::string(32, ']')));
  CHECK(!skips(std::string(33, '[') + std::string(33, ']')));
}

TEST_CASE("escapes become UTF-8") {
  CHECK(string_of(R"("a\"\\\/\b\f\n\r\t")") == "a\"\\/\b\f\n\r\t");
  CHECK(string_of(R"("\u0041\u00e4\u20AC\ud83d\ude00")") ==
        "A\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(string_of(R"("\u0000")") == std::string(1, '\0'));
}

TEST_CASE("whole numbers are exact, or a fault that says where") {
  const auto number = [](const char* text) {
    JsonReader json(text);
    std::uint64_t out = 0;
    return json.whole_number(out) && json.end() ? std::to_string(out)
                                                : std::string(json.fault().text());
  };
  CHECK(number("18446744073709551615") == "18446744073709551615");
  CHECK(number("18446744073709551616") == "byte 19 of its JSON has a number that is too large");
  CHECK(number(" 1.0") == "byte 2 of its JSON has no whole number");
  CHECK(number("007") == "byte 3 of its JSON has a number that starts with 0");
}

TEST_CASE("a visitor that stops ends the reading, and everything fails afterwards") {
  JsonReader json(R"({"a": [1, 2, 3], "b": 4})");
  std::vector<std::uint64_t> seen;
  CHECK(!json.object([&](const std::string&) {
    return json.array([&] {
      std::uint64_t n = 0;
      if (!json.whole_number(n)) return false;
      seen.push_back(n);
      return seen.size() < 2;
    });
  }));
  CHECK(seen == std::vector<std::uint64_t>{1, 2});
  CHECK(std::strstr(json.fault().text(), "not read to its end") != nullptr);
  CHECK(!json.end());
}

}  // namespace json_reader_test
