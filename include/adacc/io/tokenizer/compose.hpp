// SPDX-License-Identifier: MIT
/// Canonical composition of text (Unicode's normalization form C), as Qwen's tokenizers want it.
///
/// Letters are taken apart, marks sorted by their class, and letters and marks put together again (Unicode
/// Standard Annex 15). Bytes that are no UTF-8 stay where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "../utf8.hpp"
#include "token_table.hpp"
#include "unicode_table.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

class Composition {
 public:
  /// One composition for all.
  static const Composition& shared() {
    static const Composition made;
    return made;
  }

  /// Whether a text of these code points may be another when it is composed.
  bool may_change(std::uint32_t code) const {
    if (code < 0x300) return false;
    if (class_of(code) != 0 || find(unicode::replaced, code) != nullptr) return true;
    return std::binary_search(seconds_.begin(), seconds_.end(), code) ||
           (code >= hangul_vowel && code < hangul_tail + tails);
  }

  void take_apart(std::uint32_t code, std::vector<std::uint32_t>& to) const {
    if (code >= hangul && code < hangul + syllables) {
      const std::uint32_t index = code - hangul, tail = index % tails;
      to.push_back(hangul_lead + index / (vowels * tails));
      to.push_back(hangul_vowel + index % (vowels * tails) / tails);
      if (tail != 0) to.push_back(hangul_tail + tail);
      return;
    }
    const unicode::Decomposition* found = find(unicode::composed, code);
    if (found == nullptr) found = find(unicode::replaced, code);
    if (found == nullptr) return to.push_back(code);
    take_apart(found->first, to);
    if (found->second != 0) take_apart(found->second, to);
  }

  /// The letter that two are together; 0 if there is none.
  std::uint32_t together(std::uint32_t first, std::uint32_t second) const {
    if (first >= hangul_lead && first < hangul_lead + leads && second >= hangul_vowel &&
        second < hangul_vowel + vowels)
      return hangul + ((first - hangul_lead) * vowels + second - hangul_vowel) * tails;
    if (first >= hangul && first < hangul + syllables && (first - hangul) % tails == 0 &&
        second > hangul_tail && second < hangul_tail + tails)
      return first + second - hangul_tail;
    const std::int32_t place = pairs_.find(hash_of(first, second), [&](std::int32_t at) {
      const unicode::Decomposition& one = unicode::composed[at];
      return one.first == first && one.second == second;
    });
    return place < 0 ? 0 : unicode::composed[place].code;
  }

  static std::uint32_t class_of(std::uint32_t code) {
    const auto* const at =
        std::lower_bound(std::begin(unicode::classes), std::end(unicode::classes), code,
                         [](const unicode::Class& one, std::uint32_t c) { return one.last < c; });
    return at != std::end(unicode::classes) && at->first <= code ? at->combining : 0;
  }

 private:
  static constexpr std::uint32_t hangul = 0xAC00, hangul_lead = 0x1100, hangul_vowel = 0x1161,
                                 hangul_tail = 0x11A7, leads = 19, vowels = 21, tails = 28,
                                 syllables = leads * vowels * tails;

  Composition() {
    pairs_.reserve(std::size(unicode::composed));
    std::int32_t place = 0;
    for (const unicode::Decomposition& one : unicode::composed) {
      pairs_.add(hash_of(one.first, one.second), place++);
      seconds_.push_back(one.second);
    }
    std::sort(seconds_.begin(), seconds_.end());
  }
  static std::uint64_t hash_of(std::uint32_t first, std::uint32_t second) {
    return mixed(std::uint64_t{first} << 32 | second);
  }
  template <std::size_t count>
  static const unicode::Decomposition* find(const unicode::Decomposition (&table)[count],
                                            std::uint32_t code) {
    const auto* const at = std::lower_bound(
        std::begin(table), std::end(table), code,
        [](const unicode::Decomposition& one, std::uint32_t c) { return one.code < c; });
    return at != std::end(table) && at->code == code ? at : nullptr;
  }

  HashedPlaces pairs_;
  std::vector<std::uint32_t> seconds_;  ///< sorted
};

}  // namespace detail

/// The text in normalization form C.
inline std::string composed_text(std::string_view text) {
  constexpr std::uint32_t broken = 0x110000;  // and a byte that is no UTF-8: above all code points
  const detail::Composition& letters = detail::Composition::shared();
  std::vector<std::uint32_t> codes;
  bool may_change = false;
  for (std::size_t at = 0; at < text.size() && !may_change;)
    may_change = letters.may_change(next_code(text, at));
  if (!may_change) return std::string(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::uint32_t code = next_code(text, at);
    if (code == 0xFFFD && at == begin + 1)
      codes.push_back(broken | static_cast<unsigned char>(text[begin]));
    else letters.take_apart(code, codes);
  }
  const auto class_of = [&](std::uint32_t code) { return detail::Composition::class_of(code); };
  for (std::size_t begin = 0; begin < codes.size();
       ++begin) {  // marks behind one another are sorted
    std::size_t end = begin;
    while (end < codes.size() && class_of(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::uint32_t a, std::uint32_t b) { return class_of(a) < class_of(b); });
    begin = end;
  }
  // A mark goes to the last letter unless one of its class, or another letter, is between them.
  std::size_t kept = 0, letter = codes.size();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t code = codes[i], mine = class_of(code);
    const std::uint32_t before = kept > 0 ? class_of(codes[kept - 1]) : 0;
    const bool next_to = letter + 1 == kept;
    if (letter < kept && (next_to || (before != 0 && before < mine))) {
      const std::uint32_t both = letters.together(codes[letter], code);
      if (both != 0) {
        codes[letter] = both;
        continue;
      }
    }
    if (mine == 0) letter = kept;
    codes[kept++] = code;
  }
  std::string out;
  for (std::size_t i = 0; i < kept; ++i)
    if (codes[i] >= broken) out += static_cast<char>(codes[i] & 0xFF);
    else append_code(out, codes[i]);
  return out;
}

}}  // namespace adacc::v0_1
