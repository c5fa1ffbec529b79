// SPDX-License-Identifier: MIT
/// Text as code points and back (RFC 3629).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adacc { inline namespace v0_1 {

/// The code point at `at`, which moves behind it; what is no UTF-8 is U+FFFD, byte by byte.
inline std::uint32_t next_code(std::string_view text, std::size_t& at) {
  constexpr std::uint32_t none = 0xFFFD;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(at++);
  if (first < 0x80) return first;
  const std::size_t more = first >= 0xF8   ? 0
                           : first >= 0xF0 ? 3
                           : first >= 0xE0 ? 2
                                           : first >= 0xC0;
  if (more == 0 || more > text.size() - at) return none;
  std::uint32_t code = first & (0x3FU >> more);
  for (std::size_t i = 0; i < more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return none;
    code = code << 6 | (byte(at + i) & 0x3FU);
  }
  constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return none;
  at += more;
  return code;
}

inline bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (next_code(text, at) == 0xFFFD && at == begin + 1) return false;
  }
  return true;
}

inline void append_code(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  if (code < 0x10000) put(0xE0 | code >> 12);
  else put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
  put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

}}  // namespace adacc::v0_1
