// SPDX-License-Identifier: MIT
/// The replacements of SentencePiece's normalizers, as its models have them compiled ("precompiled_charsmap").
///
/// The bytes are the size of a trie in four bytes, the trie, and texts that end with a zero byte. The trie is a double array as
/// Darts-clone makes it, of 32 bits a unit: bits 0 to 7 are the byte that leads there, bit 8 says that a key ends there, bits 10 to
/// 30 are the distance to the children (times 256 with bit 9). A unit with bit 31 has a key's place among the texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../../core/error.hpp"
#include "../utf8.hpp"
#include "graphemes.hpp"

namespace adacc { inline namespace v0_1 {

class Charsmap {
 public:
  Charsmap() = default;
  /// Errors stand behind "the precompiled_charsmap ".
  static Result<Charsmap> make(std::string bytes) {
    Charsmap made;
    made.bytes_ = static_cast<std::string&&>(bytes);
    const std::string_view all = made.bytes_;
    const auto number = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 4; i-- > 0;)
        value = value << 8 | static_cast<unsigned char>(all[at + i]);
      return value;
    };
    const std::size_t size = all.size() < 8 ? 0 : number(0);
    if (size < 4 || size % 4 != 0 || size > all.size() - 4)
      return Error::say("has ", all.size(), " bytes, of which ", size, " are its trie");
    for (std::size_t at = 4; at < 4 + size; at += 4) made.units_.push_back(number(at));
    if (!is_utf8(made.texts())) return Error::say("has texts that are no UTF-8");
    if (const Error why = made.fault()) return why;
    for (unsigned byte = 0; byte < 128; ++byte) {
      const char c = static_cast<char>(byte);
      made.is_replaced_[byte] = made.find({&c, 1}, false).bytes != 0;
    }
    return made;
  }

  bool empty() const { return bytes_.empty(); }
  /// The bytes from which the map was made.
  const std::string& bytes() const { return bytes_; }

  /// The text that PyPI's tokenizers makes: a character, marks and all, is replaced by the text of the shortest key that begins it. The
  /// code points of a character of six bytes or more are replaced one by one.
  std::string replaced(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    const auto is_ascii = [&](std::size_t at) { return (text[at] & 0x80) == 0; };
    for (std::size_t at = 0; at < text.size();) {
      if (is_ascii(at) && (at + 1 == text.size() || (is_ascii(at + 1) && text[at] != '\r')) &&
          !is_replaced_[static_cast<unsigned char>(text[at])]) {
        out += text[at++];
        continue;
      }
      constexpr std::size_t least_alone = 6;
      const std::size_t end = detail::end_of_grapheme(text, at);
      if (end - at < least_alone && replace(text.substr(at, end - at), out)) {
        at = end;
        continue;
      }
      while (at < end) {
        const std::size_t begin = at;
        static_cast<void>(next_code(text, at));
        const std::string_view code = text.substr(begin, at - begin);
        if (!replace(code, out)) out += code;
      }
    }
    return out;
  }

  /// The text that llama.cpp makes: the longest key is replaced at each place, and a byte that is no UTF-8 by U+FFFD.
  std::string longest_replaced(std::string_view text) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      const Found found = find(text.substr(at), true);
      const std::uint32_t code = next_code(text, at);
      if (found.bytes != 0) {
        out += found.text;
        at = begin + found.bytes;
      } else {
        append_code(out, code);
      }
    }
    return out;
  }

 private:
  struct Found {
    std::size_t bytes = 0;  ///< of the key; 0: there is none
    std::string_view text;
  };

  static std::uint32_t distance(std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
  }
  /// Behind the trie and its size.
  std::string_view texts() const { return std::string_view(bytes_).substr(4 + 4 * units_.size()); }
  std::string_view text_at(std::size_t at) const {
    const std::string_view rest = texts().substr(at);
    return rest.substr(0, rest.find('\0'));
  }
  /// The place of a node's children behind a byte, or `none`.
  std::size_t step(std::size_t place, unsigned char byte, bool& ends_key) const {
    place ^= byte;
    if (place >= units_.size() || (units_[place] & (1U << 31 | 0xFF)) != byte) return none;
    ends_key = (units_[place] >> 8 & 1) != 0;
    return place ^ distance(units_[place]);
  }

  /// The shortest key that `text` begins with, or the longest.
  Found find(std::string_view text, bool longest) const {
    Found found;
    if (units_.empty()) return found;
    std::size_t place = distance(units_[0]);
    for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
      bool ends_key = false;
      place = step(place, static_cast<unsigned char>(text[i]), ends_key);
      if (place == none) break;
      if (!ends_key) continue;
      found = {i + 1, text_at(units_[place] & 0x7FFFFFFF)};
      if (!longest) break;
    }
    return found;
  }
  bool replace(std::string_view text, std::string& out) const {
    const Found found = find(text, false);
    out += found.text;
    return found.bytes != 0;
  }

  /// Looks at all keys. Some are refused: their characters of fewer than six bytes may be parts of larger ones, by rules beyond
  /// end_of_grapheme(). U+00A9 and U+00AE begin emoji; the others a syllable of Hangul.
  Error fault() const {
    std::vector<bool> seen(units_.size());
    std::vector<std::size_t> open{distance(units_[0])};
    while (!open.empty()) {
      const std::size_t place = open.back();
      open.pop_back();
      for (unsigned byte = 1; byte < 256; ++byte) {
        bool ends_key = false;
        const std::size_t next = step(place, static_cast<unsigned char>(byte), ends_key);
        if (next == none) continue;
        if (next >= units_.size()) return Error::say("has a trie with a way out of it");
        const std::size_t at = units_[next] & 0x7FFFFFFF;
        const std::string_view all = texts();
        if (ends_key && (at > all.size() || (at < all.size() && (all[at] & 0xC0) == 0x80)))
          return Error::say("has a text at byte ", at, " of ", all.size());
        if (seen[next]) continue;
        seen[next] = true;
        open.push_back(next);
      }
    }
    for (const std::string_view code :
         {"\xC2\xA9", "\xC2\xAE", "\xD8\x80", "\xD8\x81", "\xD8\x82", "\xD8\x83", "\xD8\x84",
          "\xD8\x85", "\xDB\x9D", "\xDC\x8F"}) {
      bool ends_key = false;
      std::size_t place = distance(units_[0]);
      for (const char c : code)
        if (place != none) place = step(place, static_cast<unsigned char>(c), ends_key);
      if (place != none)
        return Error::say(
            "replaces U+00A9, U+00AE or a sign before Arabic numbers, which is not computed");
    }
    return {};
  }

  static constexpr std::size_t none = ~std::size_t{0};

  std::string bytes_;
  std::vector<std::uint32_t> units_;
  bool is_replaced_[128] = {};
};

}}  // namespace adacc::v0_1
