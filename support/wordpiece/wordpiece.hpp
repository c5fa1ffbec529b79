// SPDX-License-Identifier: MIT
/// BERT's uncased tokenizer: text to words, words to the longest pieces that a vocabulary has.
///
/// Words are what is left of UTF-8 without control characters, in lower case and without accents, cut
/// at spaces and around every punctuation mark and ideograph. A word becomes the longest piece of the
/// vocabulary that it begins with, then the longest, marked "##", that its rest begins with, and so
/// on; if that fails, or it has more than 100 letters, it is unknown. Wu et al., "Google's neural
/// machine translation system", arXiv 1609.08144, has the idea.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/core/no_memory.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/mapped_file.hpp>
#include <adacc/io/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unicode_table.hpp"

namespace support {

/// What the tokenizer asks of code points.
class Letters {
 public:
  Letters() {
    for (const unicode::Run& run : unicode::cases)
      for (std::uint32_t code = run.first; code <= run.last; code += run.step)
        folded_[code] = {static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run.delta)};
    for (const char8_t* const letters : unicode::without_marks) {
      const std::vector<std::uint32_t> codes = codes_of(letters);
      for (std::size_t i = 1; i < codes.size(); ++i) folded_[codes[i]] = {codes[0]};
    }
    for (const char8_t* const letters : unicode::several) {
      const std::vector<std::uint32_t> codes = codes_of(letters);
      folded_[codes[0]].assign(codes.begin() + 1, codes.end());
    }
  }

  static bool is_space(std::uint32_t code) {
    return code == '\t' || code == '\n' || code == '\r' || in(unicode::spaces, code);
  }
  static bool is_left_out(std::uint32_t code) {
    return code == 0 || code == 0xFFFD || (!is_space(code) && in(unicode::controls, code));
  }
  static bool is_punctuation(std::uint32_t code) {
    if (code < 0x80)
      return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) ||
             (code >= 91 && code <= 96) || (code >= 123 && code <= 126);
    return in(unicode::punctuation, code);
  }
  static bool is_ideograph(std::uint32_t code) {
    // As the tokenizers library has them, which leaves out the first 256 of the last but one.
    constexpr unicode::Range blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                         {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                         {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    return in(blocks, code);
  }

  /// Appends the letter in lower case and without its marks.
  void fold(std::uint32_t code, std::vector<std::uint32_t>& to) const {
    if (code < 0x80) return to.push_back(code >= 'A' && code <= 'Z' ? code + 32 : code);
    if (in(unicode::marks, code)) return;
    if (code >= 0xAC00 && code < 0xD7A4) {  // Hangul syllables are their parts
      const std::uint32_t index = code - 0xAC00;
      to.push_back(0x1100 + index / 588);
      to.push_back(0x1161 + index % 588 / 28);
      if (index % 28 != 0) to.push_back(0x11A7 + index % 28);
      return;
    }
    const auto found = folded_.find(code);
    if (found == folded_.end()) return to.push_back(code);
    to.insert(to.end(), found->second.begin(), found->second.end());
  }

 private:
  template <std::size_t count>
  static bool in(const unicode::Range (&ranges)[count], std::uint32_t code) {
    const auto* const at = std::lower_bound(
        std::begin(ranges), std::end(ranges), code,
        [](const unicode::Range& range, std::uint32_t c) { return range.last < c; });
    return at != std::end(ranges) && at->first <= code;
  }

  static std::vector<std::uint32_t> codes_of(const char8_t* letters) {
    std::string text;
    for (; *letters != 0; ++letters) text += static_cast<char>(*letters);
    std::vector<std::uint32_t> codes;
    for (std::size_t at = 0; at < text.size();) codes.push_back(adacc::next_code(text, at));
    return codes;
  }

  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> folded_;
};

class WordPiece {
 public:
  /// Reads vocab.txt, a piece a line, of which the first is token 0.
  static adacc::Result<WordPiece> open(const std::string& path) {
    return adacc::detail::or_no_memory("to read a vocabulary", [&]() -> adacc::Result<WordPiece> {
      const auto file = adacc::MappedFile::open(path, "a vocabulary, one piece a line");
      if (!file) return file.error;
      const void* const bytes = file->bytes().data();
      const std::string_view text(static_cast<const char*>(bytes), file->bytes().size());
      WordPiece made;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string_view piece = text.substr(at, end - at);
        if (!piece.empty() && piece.back() == '\r') piece.remove_suffix(1);
        made.pieces_.emplace(piece, static_cast<std::int32_t>(made.count_++));
        at = end + 1;
      }
      std::string missing;
      const auto special = [&](const char* name) {
        const auto found = made.pieces_.find(name);
        if (found != made.pieces_.end()) return found->second;
        missing += (missing.empty() ? "" : ", ") + std::string(name);
        return std::int32_t{0};
      };
      made.unknown_ = special("[UNK]");
      made.first_ = special("[CLS]");
      made.last_ = special("[SEP]");
      if (!missing.empty()) return file->fault("has no ", missing.c_str());
      return made;
    });
  }

  /// How many tokens there are.
  std::size_t size() const { return count_; }

  /// [CLS], the pieces of `text`, [SEP]: at most `most` tokens (3 or more), what does not fit left out.
  std::vector<std::int32_t> encode(std::string_view text, std::size_t most) const {
    std::vector<std::int32_t> tokens{first_};
    std::vector<std::uint32_t> word, folded;
    const auto end_word = [&] {
      if (!word.empty() && tokens.size() < most) append_pieces(word, tokens);
      word.clear();
    };
    for (std::size_t at = 0; at < text.size() && tokens.size() < most;) {
      const std::uint32_t code = adacc::next_code(text, at);
      if (Letters::is_left_out(code)) continue;
      if (Letters::is_space(code)) {
        end_word();
        continue;
      }
      folded.clear();
      letters().fold(code, folded);
      for (const std::uint32_t letter : folded) {
        const bool alone = Letters::is_punctuation(letter) || Letters::is_ideograph(code);
        if (alone) end_word();
        word.push_back(letter);
        if (alone) end_word();
      }
    }
    end_word();
    if (tokens.size() >= most) tokens.resize(most - 1);
    tokens.push_back(last_);
    return tokens;
  }

 private:
  /// The same for all vocabularies.
  static const Letters& letters() {
    static const Letters made;
    return made;
  }

  void append_pieces(const std::vector<std::uint32_t>& word, std::vector<std::int32_t>& to) const {
    constexpr std::size_t longest = 100;
    if (word.size() > longest) return to.push_back(unknown_);
    const std::size_t before = to.size();
    for (std::size_t first = 0; first < word.size();) {
      std::string piece = first == 0 ? "" : "##";
      std::vector<std::size_t> ends;  // of the piece up to each letter
      for (std::size_t i = first; i < word.size(); ++i) {
        adacc::append_code(piece, word[i]);
        ends.push_back(piece.size());
      }
      auto found = pieces_.end();
      while (!ends.empty()) {
        piece.resize(ends.back());
        found = pieces_.find(piece);
        if (found != pieces_.end()) break;
        ends.pop_back();
      }
      if (ends.empty()) {
        to.resize(before);
        return to.push_back(unknown_);
      }
      to.push_back(found->second);
      first += ends.size();
    }
  }

  std::unordered_map<std::string, std::int32_t> pieces_;
  std::size_t count_ = 0;
  std::int32_t unknown_ = 0, first_ = 0, last_ = 0;
};

}  // namespace support
