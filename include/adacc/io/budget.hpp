// SPDX-License-Identifier: MIT
/// A budget as a user writes it: "96MiB", "1.5 GB", "50%" of what retaining everything needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "../core/read_number.hpp"

namespace adacc { inline namespace v0_1 {

struct Budget {
  double bytes = 0;  ///< 0 if the budget is relative
  double share = 1;  ///< share of retain's peak

  std::size_t of(std::size_t retain_peak_bytes) const {
    return static_cast<std::size_t>(bytes > 0 ? bytes
                                              : share * static_cast<double>(retain_peak_bytes));
  }
};

namespace detail {

struct ByteUnit {
  const char* name;  ///< in small letters
  double bytes;
};
inline constexpr ByteUnit byte_units[] = {{"b", 1},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12},
                                          {"kib", static_cast<double>(KiB)},
                                          {"mib", static_cast<double>(MiB)},
                                          {"gib", static_cast<double>(GiB)},
                                          {"tib", 1024 * static_cast<double>(GiB)}};

inline std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace detail

/// Reads a number with a unit of bytes or a percent sign. Spaces around both, and small and capital
/// letters, make no difference.
inline Result<Budget> parse_budget(const std::string& text) {
  const auto wrong = [&](const char* why) {
    return Error::say("\"", text.substr(0, 40).c_str(), "\" ", why,
                      "; a budget is a number with one of the units B, kB, MB, GB, TB (powers of "
                      "1000), KiB, MiB, GiB, TiB (powers of 1024), as in 96MiB, or a share of the "
                      "peak that there is without a budget, as in 50%");
  };
  std::string_view rest = detail::without_spaces(text);
  if (rest.empty() || ((rest[0] < '0' || rest[0] > '9') && rest[0] != '.'))
    return wrong("does not start with a number");
  if (rest.find_first_of("xX") == 1) return wrong("is not in decimal digits");
  double number = 0;
  if (!take_number(rest, number)) return wrong("does not start with a number");
  if (!(number > 0)) return wrong("is not more than nothing");
  rest = detail::without_spaces(rest);
  Budget budget;
  if (rest == "%") {
    budget.share = number / 100;
    if (number > 1000) return wrong("is more than ten times that peak");
    return budget;
  }
  if (rest.empty()) return wrong("has no unit");
  std::string lower_case(rest);
  for (char& c : lower_case)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  double unit = 0;
  for (const detail::ByteUnit& each : detail::byte_units)
    if (lower_case == each.name) unit = each.bytes;
  if (unit == 0) return wrong("has an unknown unit");
  budget.bytes = number * unit;
  if (budget.bytes < 1 || budget.bytes > 1e15) return wrong("is not between 1 B and a petabyte");
  return budget;
}

}}  // namespace adacc::v0_1
