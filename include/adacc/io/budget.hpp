// SPDX-License-Identifier: MIT
/// A budget as a user writes it: "96MiB", "1.5GiB", "50%" of what retaining everything needs.
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

/// Reads a number with one of the suffixes B, KiB, MiB, GiB or %.
inline Result<Budget> parse_budget(const std::string& text) {
  const auto wrong = [&](const char* why) {
    return Error::say("\"", text.substr(0, 40).c_str(), "\" ", why,
                      "; a budget is a number with one of the suffixes B, KiB, MiB, GiB "
                      "(96MiB) or a share of what retain needs (50%)");
  };
  const char* start = text.c_str();
  if (text.empty() || ((*start < '0' || *start > '9') && *start != '.'))
    return wrong("does not start with a number");
  if (text.find_first_of("xX") == 1) return wrong("is not in decimal digits");
  std::string_view suffix(text);
  double number = 0;
  if (!take_number(suffix, number)) return wrong("does not start with a number");
  if (!(number > 0)) return wrong("is not more than nothing");
  Budget budget;
  if (suffix == "%") {
    budget.share = number / 100;
    if (number > 1000) return wrong("is more than ten times what retain needs");
    return budget;
  }
  double unit = 0;
  if (suffix == "B") unit = 1;
  if (suffix == "KiB") unit = static_cast<double>(KiB);
  if (suffix == "MiB") unit = static_cast<double>(MiB);
  if (suffix == "GiB") unit = static_cast<double>(GiB);
  if (suffix.empty()) return wrong("has no unit");
  if (unit == 0) return wrong("has an unknown unit");
  budget.bytes = number * unit;
  if (budget.bytes < 1 || budget.bytes > 1e15) return wrong("is not between 1 B and a petabyte");
  return budget;
}

}}  // namespace adacc::v0_1
