// SPDX-License-Identifier: MIT
/// Texts as JSON writes them.
#pragma once

#include <string>

namespace adacc { inline namespace v0_1 { namespace detail {

/// `text` as a JSON string.
inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr const char* digits = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (code >= 32) out += c;
    else out += "\\u00", out += digits[code >> 4], out += digits[code & 15];
  }
  return out + "\"";
}

}}}  // namespace adacc::v0_1::detail
