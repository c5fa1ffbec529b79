// SPDX-License-Identifier: MIT
#include <adacc/io/budget.hpp>

#include <doctest/doctest.h>

#include <string>

namespace budget_test {

using namespace adacc;

TEST_CASE("budgets as users write them") {
  const auto bytes = [](const char* text, std::size_t retain = 1000) {
    const auto budget = parse_budget(text);
    return budget ? budget->of(retain) : 0;
  };
  CHECK(bytes("96MiB") == 96 * MiB);
  CHECK(bytes("1.5GiB") == 3 * GiB / 2);
  CHECK(bytes("12KiB") == 12 * KiB);
  CHECK(bytes("7B") == 7);
  CHECK(bytes("50%") == 500);
  CHECK(bytes("120%") == 1200);
  CHECK(bytes("0.1%") == 1);
  CHECK(bytes(".5KiB") == 512);
  CHECK(bytes("1e3B") == 1000);
  CHECK(bytes("4GB") == 4'000'000'000);
  CHECK(bytes("30 MB") == 30'000'000);
  CHECK(bytes("2 kB") == 2000);
  CHECK(bytes("1TiB") == 1024 * GiB);
  CHECK(bytes("1tb") == 1'000'000'000'000);
  CHECK(bytes("2.5 gib") == 5 * GiB / 2);
  CHECK(bytes(" 40 % ") == 400);
}

TEST_CASE("what is no budget is explained") {
  const auto why = [](const char* text) { return std::string(parse_budget(text).error.text()); };
  for (const char* text : {"",        "MiB",   "-3MiB", "+3MiB",  "nan%",   "inf%", "5 M",
                           "0x10MiB", "0%",    "5",     "5XB",    "5 M iB", "30%%", "1001%",
                           "0.1B",    "1e16B", "37,5%", "0,5GiB", "1e999B", ".B",   "1e-999%"}) {
    CAPTURE(text);
    CHECK(why(text).find("a budget is a number with one of the units") != std::string::npos);
  }
  CHECK(why("5").find("has no unit") != std::string::npos);
  CHECK(why("5 ").find("has no unit") != std::string::npos);
  CHECK(why("5MX").find("unknown unit") != std::string::npos);
}

}  // namespace budget_test
