// SPDX-License-Identifier: MIT
/// Words of SentencePiece's vocabularies as tokenizer.json cuts them: spaces become U+2581, and each begins a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../utf8.hpp"
#include "letters.hpp"
#include "normalizer.hpp"

namespace adacc { inline namespace v0_1 {

struct Metaspace {
  enum class Before : std::uint8_t { always, first, never };
  bool used = false;
  Before before = Before::always;  ///< of which pieces of a text one stands in front, if none does
  bool split = true;               ///< in front of each U+2581; otherwise a piece is one word
  bool at_spaces = false;  ///< pieces are cut at spaces of all kinds, which go (WhitespaceSplit)

  friend bool operator==(const Metaspace&, const Metaspace&) = default;

  /// Calls visit(word) for each word of a text; `is_first` tells whether the text is the beginning of a larger one.
  template <class Visit>
  void each_word(std::string_view text, bool is_first, const Visit& visit) const {
    std::string words;
    if (!at_spaces) return cut(text, is_first, words, visit);
    std::size_t begin = 0;
    const auto piece = [&](std::size_t end) {
      if (end > begin) cut(text.substr(begin, end - begin), is_first && begin == 0, words, visit);
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t first = at;
      if (kind_of_letter(next_code(text, at)) != LetterKind::space) continue;
      piece(first);
      begin = at;
    }
    piece(text.size());
  }

 private:
  template <class Visit>
  void cut(std::string_view piece, bool is_first, std::string& words, const Visit& visit) const {
    using detail::lower_block;
    const bool wanted = before == Before::always || (before == Before::first && is_first);
    words.clear();
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(lower_block)) words = lower_block;
    for (const char c : piece)
      if (c == ' ') words += lower_block;
      else words += c;
    const std::string_view all = words;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = split ? all.find(lower_block, begin + 1) : all.npos;
      if (end == all.npos) end = all.size();
      visit(all.substr(begin, end - begin));
      begin = end;
    }
  }
};

}}  // namespace adacc::v0_1
