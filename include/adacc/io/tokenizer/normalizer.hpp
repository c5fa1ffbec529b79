// SPDX-License-Identifier: MIT
/// Normalizers change a text before it is cut into words, by the steps of tokenizer.json and of GGUF files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../utf8.hpp"
#include "charsmap.hpp"
#include "compose.hpp"
#include "letters.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// U+2581, the letter of a space in SentencePiece's vocabularies.
inline constexpr std::string_view lower_block = "\xE2\x96\x81";

}  // namespace detail

struct NormalizerStep {
  enum class Kind : std::uint8_t {
    compose,           ///< canonical composition (compose.hpp)
    prepend,           ///< `to` stands before a text that is not empty
    replace,           ///< each `from` becomes `to`
    replace_spaces,    ///< two spaces or more become `to`
    replace_start,     ///< a `from` that begins the text becomes `to`
    trim,              ///< spaces (U+0020) at both ends go
    strip,             ///< spaces of all kinds go, at the left and right end as asked
    charsmap,          ///< as PyPI's tokenizers replaces
    longest_charsmap,  ///< as llama.cpp replaces; without a charsmap bytes that are no UTF-8 alone
    block_words        ///< spaces as llama.cpp's unigram models have them: see block_words()
  };
  Kind kind;
  std::string from{}, to{};
  /// Ends to strip; of block_words, whether a text gets a space before, and whether several spaces are one.
  bool left = false, right = false;

  friend bool operator==(const NormalizerStep&, const NormalizerStep&) = default;
};

struct TextNormalizer {
  using Step = NormalizerStep;
  std::vector<NormalizerStep> steps;
  Charsmap charsmap;

  bool has(Step::Kind kind) const {
    for (const Step& step : steps)
      if (step.kind == kind) return true;
    return false;
  }
  friend bool operator==(const TextNormalizer& a, const TextNormalizer& b) {
    return a.steps == b.steps && a.charsmap.bytes() == b.charsmap.bytes();
  }

  std::string normalized(std::string_view text) const {
    std::string out(text);
    for (const Step& step : steps) out = after(step, static_cast<std::string&&>(out));
    return out;
  }

 private:
  std::string after(const Step& step, std::string text) const {
    using enum Step::Kind;
    switch (step.kind) {
      case compose: return composed_text(text);
      case prepend: return text.empty() ? text : step.to + text;
      case replace: return with_replaced(text, step.from, step.to);
      case replace_spaces: return with_spaces(text, step.to);
      case replace_start:
        return text.starts_with(step.from) ? step.to + text.substr(step.from.size()) : text;
      case trim: return trimmed(text);
      case strip: return stripped(text, step.left, step.right);
      case charsmap: return this->charsmap.replaced(text);
      case longest_charsmap: return this->charsmap.longest_replaced(text);
      case block_words: return with_block_words(text, step.left, step.right);
    }
    return text;
  }

  static std::string with_replaced(std::string_view text, std::string_view from,
                                   std::string_view to) {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    for (std::size_t at = 0;;) {
      const std::size_t found = text.find(from, at);
      out += text.substr(at, found - at);
      if (found == text.npos) return out;
      out += to;
      at = found + from.size();
    }
  }
  static std::string with_spaces(std::string_view text, std::string_view to) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at;
      while (end < text.size() && text[end] == ' ') ++end;
      if (end > at + 1) out += to, at = end;
      else out += text[at++];
    }
    return out;
  }
  static std::string trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(' ');
    if (first == text.npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(' ') + 1 - first));
  }
  static std::string stripped(std::string_view text, bool left, bool right) {
    std::size_t begin = text.size(), end = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t first = at;
      if (kind_of_letter(next_code(text, at)) == LetterKind::space) continue;
      if (begin == text.size()) begin = first;
      end = at;
    }
    if (!left) begin = 0;
    if (!right) end = text.size();
    return std::string(text.substr(begin, end > begin ? end - begin : 0));
  }
  /// Spaces become U+2581. `merge`: each word gets one, and all others go. `before`: the first word gets one behind those that it has.
  static std::string with_block_words(std::string_view text, bool before, bool merge) {
    std::string out;
    bool in_word = false, has_before = !before;
    for (const char c : text) {
      const bool space = c == ' ';
      if (space ? !merge : !in_word && (merge || !has_before)) out += detail::lower_block;
      if (!space) out += c, has_before = true;
      in_word = !space;
    }
    return out;
  }
};

}}  // namespace adacc::v0_1
