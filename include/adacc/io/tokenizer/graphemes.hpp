// SPDX-License-Identifier: MIT
/// Code points that are one character for a reader, such as a letter and its accents (Unicode Standard Annex 29).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../utf8.hpp"
#include "grapheme_table.hpp"
#include "letters.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The end of the character at `at`. Flags, families of emoji, syllables of Hangul and Indic conjuncts, all of six bytes or more,
/// end with their first letter and its marks.
inline std::size_t end_of_grapheme(std::string_view text, std::size_t at) {
  const auto in = [](const auto& table, std::uint32_t code) { return in_ranges(table, code); };
  std::uint32_t code = next_code(text, at);
  if (code == '\r' && at < text.size() && text[at] == '\n') return at + 1;
  if (in(unicode::controls, code)) return at;
  for (std::size_t next = at; at < text.size(); at = next) {
    const bool takes_next = code >= 0x300 && in(unicode::prepended, code);
    code = next_code(text, next);
    const bool joined = code >= 0x300 && in(unicode::joined, code);
    if (!joined && (!takes_next || in(unicode::controls, code))) break;
  }
  return at;
}

}}}  // namespace adacc::v0_1::detail
