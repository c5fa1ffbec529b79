// SPDX-License-Identifier: MIT
/// The letters that stand for bytes in the vocabularies of byte-level encoders (GPT-2's bytes_to_unicode).
///
/// Printable characters of Latin-1 stand for themselves, and the other bytes, in their order, are the letters
/// from U+0100 on: a space is U+0120.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../utf8.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Whether the letter of this byte is itself.
constexpr bool is_own_letter(std::uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

}  // namespace detail

/// The letters of `bytes`.
inline std::string letters_of_bytes(std::string_view bytes) {
  std::string letters;
  for (const char c : bytes) {
    const std::uint32_t byte = static_cast<unsigned char>(c);
    std::uint32_t code = byte;
    if (!detail::is_own_letter(byte)) {
      code = 256;
      for (std::uint32_t other = 0; other < byte; ++other) code += !detail::is_own_letter(other);
    }
    append_code(letters, code);
  }
  return letters;
}

/// The bytes that `letters` stand for; false if one stands for none.
inline bool bytes_of_letters(std::string_view letters, std::string& bytes) {
  using detail::is_own_letter;
  bytes.clear();
  for (std::size_t at = 0; at < letters.size();) {
    std::uint32_t code = next_code(letters, at);
    if (!is_own_letter(code)) {
      if (code < 256) return false;
      std::uint32_t left = code - 256;
      for (code = 0; code < 256 && (is_own_letter(code) || left-- > 0);) ++code;
      if (code == 256) return false;
    }
    bytes += static_cast<char>(code);
  }
  return true;
}

/// "a b", the two parts of a merge, as bytes. False if there are no two, or a letter stands for no byte.
inline bool bytes_of_merge(std::string_view merge, std::string& left, std::string& right) {
  const std::size_t space = merge.find(' ');
  return space != merge.npos && space > 0 && space + 1 < merge.size() &&
         bytes_of_letters(merge.substr(0, space), left) &&
         bytes_of_letters(merge.substr(space + 1), right);
}

}}  // namespace adacc::v0_1
