// SPDX-License-Identifier: MIT
/// Cuts text into the words that byte-pair encoding works in, as the regular expressions of models do.
///
/// Words are pieces of the text: one behind the other they are the text, whatever is in it. Bytes that are no
/// UTF-8 count as signs that are no letters, numbers or spaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../utf8.hpp"
#include "letters.hpp"

namespace adacc { inline namespace v0_1 {

enum class PreTokenizer : std::uint8_t {
  none,    ///< all is one word
  gpt2,    ///< letters, numbers or signs, each perhaps with a space before; then spaces
  llama3,  ///< letters with one sign before; up to three digits; signs with the ends of lines behind
  qwen2,   ///< as llama3, each digit alone
  smollm,  ///< each digit alone, what is between them as gpt2
};

namespace detail {

/// A place in a text, and the code point there.
class WordCursor {
 public:
  WordCursor(std::string_view text, std::size_t at) : text_(text), next_(at) { step(); }

  bool ended() const { return ended_; }
  std::size_t at() const { return at_; }
  std::uint32_t code() const { return code_; }
  LetterKind kind() const { return kind_; }
  bool is(LetterKind kind) const { return !ended_ && kind_ == kind; }
  bool ends_line() const { return !ended_ && (code_ == '\r' || code_ == '\n'); }

  void step() {
    at_ = next_;
    ended_ = at_ == text_.size();
    if (ended_) return;
    code_ = next_code(text_, next_);
    kind_ = kind_of_letter(code_);
  }
  void skip(LetterKind kind) {
    while (is(kind)) step();
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0, next_ = 0;
  std::uint32_t code_ = 0;
  LetterKind kind_ = LetterKind::other;
  bool ended_ = false;
};

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`, where an apostrophe is; 0 if there is none of them. In any
/// case, U+017F is an s, too.
inline std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  constexpr std::string_view ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return 3;
  for (const std::string_view end : ends) {
    bool same = text.size() - at > end.size();
    for (std::size_t i = 0; same && i < end.size(); ++i) {
      const char c = text[at + 1 + i];
      same = c == end[i] || (any_case && c == static_cast<char>(end[i] - 'a' + 'A'));
    }
    if (same) return 1 + end.size();
  }
  return 0;
}

/// The end of the spaces that begin at `first`, of which all but the last are taken if something follows.
inline std::size_t end_of_spaces(const WordCursor& first) {
  WordCursor cursor = first;
  std::size_t last = cursor.at();
  for (; cursor.is(LetterKind::space); cursor.step()) last = cursor.at();
  return cursor.ended() || last == first.at() ? cursor.at() : last;
}

/// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
inline std::size_t gpt2_word_end(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    if (const std::size_t bytes = contraction(text, at, false); bytes != 0) return at + bytes;
  const WordCursor first(text, at);
  WordCursor cursor = first;
  if (first.code() == ' ') cursor.step();
  if (cursor.ended() || cursor.is(LetterKind::space)) return end_of_spaces(first);
  cursor.skip(cursor.kind());
  return cursor.at();
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+
inline std::size_t llama3_word_end(std::string_view text, std::size_t at, int most_digits) {
  using enum LetterKind;
  if (text[at] == '\'')
    if (const std::size_t bytes = contraction(text, at, true); bytes != 0) return at + bytes;
  const WordCursor first(text, at);
  WordCursor cursor = first;
  if (!first.ends_line() && (first.kind() == other || first.kind() == space)) cursor.step();
  if (cursor.is(letter)) {
    cursor.skip(letter);
    return cursor.at();
  }
  if (first.kind() == number) {
    for (int i = 0; i < most_digits && cursor.is(number); ++i) cursor.step();
    return cursor.at();
  }
  if (first.kind() == other || (first.code() == ' ' && cursor.is(other))) {
    cursor.skip(other);
    while (cursor.ends_line()) cursor.step();
    return cursor.at();
  }
  std::size_t line_end = at;  // behind the last in these spaces
  for (cursor = first; cursor.is(space);) {
    const bool ends_line = cursor.ends_line();
    cursor.step();
    if (ends_line) line_end = cursor.at();
  }
  return line_end > at ? line_end : end_of_spaces(first);
}

}  // namespace detail

/// Calls visit(word) for each word of the text.
template <class Visit>
void each_word(PreTokenizer by, std::string_view text, const Visit& visit) {
  const auto cut = [&](std::string_view piece, const auto& end_of) {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = end_of(piece, at);
      visit(piece.substr(at, end - at));
      at = end;
    }
  };
  const auto llama = [](int most_digits) {
    return [most_digits](std::string_view piece, std::size_t at) {
      return detail::llama3_word_end(piece, at, most_digits);
    };
  };
  switch (by) {
    case PreTokenizer::none:
      if (!text.empty()) visit(text);
      return;
    case PreTokenizer::gpt2: return cut(text, detail::gpt2_word_end);
    case PreTokenizer::llama3: return cut(text, llama(3));
    case PreTokenizer::qwen2: return cut(text, llama(1));
    case PreTokenizer::smollm: break;
  }
  std::size_t begin = 0;
  for (detail::WordCursor cursor(text, 0); !cursor.ended();) {
    const std::size_t at = cursor.at();
    const bool digit = cursor.is(LetterKind::number);
    cursor.step();
    if (!digit) continue;
    cut(text.substr(begin, at - begin), detail::gpt2_word_end);
    begin = cursor.at();
    visit(text.substr(at, begin - at));
  }
  cut(text.substr(begin), detail::gpt2_word_end);
}

}}  // namespace adacc::v0_1
