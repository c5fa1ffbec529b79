// SPDX-License-Identifier: MIT
/// Kinds of code points for byte-pair encoders: letters, numbers, spaces, and the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "unicode_table.hpp"

namespace adacc { inline namespace v0_1 {

/// The classes of regular expressions: \p{L}, \p{N}, \s (property White_Space), none of these.
enum class LetterKind : std::uint8_t { other, letter, number, space };

namespace detail {

template <std::size_t count>
bool in_ranges(const unicode::Range (&ranges)[count], std::uint32_t code) {
  const auto* const at =
      std::lower_bound(std::begin(ranges), std::end(ranges), code,
                       [](const unicode::Range& range, std::uint32_t c) { return range.last < c; });
  return at != std::end(ranges) && at->first <= code;
}

}  // namespace detail

inline LetterKind kind_of_letter(std::uint32_t code) {
  using enum LetterKind;
  if (code < 0x80) {
    const std::uint32_t lower = code | 0x20;
    if (lower >= 'a' && lower <= 'z') return letter;
    if (code >= '0' && code <= '9') return number;
    return code == ' ' || (code >= 9 && code <= 13) ? space : other;
  }
  if (code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
      code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000)
    return space;
  if (detail::in_ranges(unicode::letters, code)) return letter;
  return detail::in_ranges(unicode::numbers, code) ? number : other;
}

}}  // namespace adacc::v0_1
