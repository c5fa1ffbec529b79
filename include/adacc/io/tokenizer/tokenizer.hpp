// SPDX-License-Identifier: MIT
/// Text to the tokens of a language model and back, by byte-pair encoding.
///
/// Special tokens are taken out of the text, the text between them is cut into words (pre_tokenizer.hpp), and the
/// bytes of a word, or its characters in SentencePiece's vocabularies, are merged (byte_pairs.hpp). Readers:
/// read_tokenizer.hpp (tokenizer.json, vocab.json and merges.txt), gguf_tokenizer.hpp. Tokenizers are in io/, and
/// WordPiece is in support/, because a GGUF file has weights and tokenizer in one, and no language model is trained
/// without a tokenizer.
///
/// A tokenizer never changes: threads may share one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../file.hpp"
#include "../utf8.hpp"
#include "byte_pairs.hpp"
#include "compose.hpp"
#include "pre_tokenizer.hpp"
#include "token_table.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// U+2581, the letter of a space in SentencePiece's vocabularies.
inline constexpr std::string_view lower_block = "\xE2\x96\x81";

}  // namespace detail

/// Whether special tokens in a text are tokens, or plain text. Text of strangers, such as a user's words in a chat,
/// should be plain text.
enum class SpecialText : std::uint8_t { tokens, text };

/// The parts of a tokenizer, in the order of tokens' numbers.
struct TokenizerParts {
  enum class Kind : std::uint8_t {
    word,     ///< a possible result of merging
    byte,     ///< <0xXX> in SentencePiece
    special,  ///< taken out of the text before
    added,    ///< as special, and a part of decoded text
    none      ///< for no text
  };
  std::vector<std::string> texts;
  std::vector<Kind> kinds;
  std::vector<std::pair<std::string, std::string>>
      merges;  ///< texts of two tokens, the first merges first
  PreTokenizer words = PreTokenizer::gpt2;
  bool compose = false;      ///< text is composed first (compose.hpp)
  bool whole_words = false;  ///< a word in the vocabulary is one token, without merging
  bool sentencepiece =
      false;  ///< symbols are characters, spaces are U+2581, others are tokens <0xXX>
  bool space_before = false;  ///< of a text, with sentencepiece
  std::vector<float> scores;  ///< with sentencepiece and without merges: the highest first
  std::int32_t bos = -1, eos = -1, unknown = -1, padding = -1;  ///< -1: there is none
  bool add_bos = false,
       add_eos = false;  ///< whether the model wants bos before every text, eos behind
};

class Tokenizer {
 public:
  /// Errors name the merge or the number of a missing token.
  static Result<Tokenizer> make(TokenizerParts parts) {
    Tokenizer made;
    if (const Error why = made.set_up(parts)) return why;
    return made;
  }

  /// The count of numbers.
  std::size_t size() const { return texts_.size(); }
  /// The bytes of a token, special ones too; empty without a token of this number.
  std::string_view text_of(std::int32_t token) const {
    const auto i = static_cast<std::size_t>(token);
    return token < 0 || i >= size() ? std::string_view() : texts_[i];
  }
  /// -1 if there is none.
  std::int32_t special(std::string_view text) const {
    for (const Special& one : specials_)
      if (text_of(one.token) == text) return one.token;
    return -1;
  }
  bool is_special(std::int32_t token) const {
    const auto i = static_cast<std::size_t>(token);
    return token >= 0 && i < kinds_.size() && kinds_[i] == TokenizerParts::Kind::special;
  }
  std::int32_t bos() const { return bos_; }
  std::int32_t eos() const { return eos_; }
  std::int32_t unknown() const { return unknown_; }
  std::int32_t padding() const { return padding_; }
  bool adds_bos() const { return add_bos_; }
  bool adds_eos() const { return add_eos_; }
  /// The tokens of a text with bos and eos, as far as the model wants them.
  std::vector<std::int32_t> with_ends(std::vector<std::int32_t> tokens) const {
    if (add_bos_) tokens.insert(tokens.begin(), bos_);
    if (add_eos_) tokens.push_back(eos_);
    return tokens;
  }
  /// Whether texts are composed before encoding, and come back composed.
  bool composes() const { return compose_; }
  bool is_sentencepiece() const { return sentencepiece_; }
  bool has_space_before() const { return space_before_; }
  /// As parts of the tokenizer, for writers.
  TokenizerParts::Kind kind_of(std::size_t token) const { return kinds_[token]; }
  /// In any order. With is_sentencepiece() those that a text can have: one at most for each token.
  const std::vector<BytePairs::Merge>& merges() const { return pairs_.merges(); }
  PreTokenizer words() const { return words_; }
  bool has_whole_words() const { return whole_words_; }

  /// The tokens of a text, without bos and eos. Some vocabularies lack a few bytes, such as control characters: these
  /// bytes become the unknown token. Without an unknown token they are left out, and `left_out`, if given, grows by
  /// their count.
  std::vector<std::int32_t> encode(std::string_view text, SpecialText special = SpecialText::tokens,
                                   std::size_t* left_out = nullptr) const {
    std::vector<std::int32_t> to;
    BytePairs::Scratch scratch;
    std::size_t lost = 0, begin = 0;
    const auto plain = [&](std::size_t end) {
      if (end > begin) encode_plain(text.substr(begin, end - begin), scratch, to, lost);
    };
    if (special == SpecialText::tokens && !specials_.empty()) {
      for (std::size_t at = 0; at < text.size();) {
        const Special* const found = special_at(text, at);
        if (found == nullptr) {
          ++at;
          continue;
        }
        plain(at);
        to.push_back(found->token);
        begin = at += text_of(found->token).size();
      }
    }
    plain(text.size());
    if (left_out != nullptr) *left_out += lost;
    return to;
  }

  /// The bytes of these tokens. The result of encode() becomes the text again, composed if the tokenizer composes(),
  /// if all bytes of the text have tokens.
  std::string decode(const std::vector<std::int32_t>& tokens,
                     SpecialText special = SpecialText::text) const {
    std::string text;
    for (const std::int32_t token : tokens)
      if (special == SpecialText::text || !is_special(token)) text += bytes_of(token);
    if (space_before_ && !tokens.empty() && !is_special(tokens[0]) && text.starts_with(' '))
      text.erase(0, 1);
    return text;
  }

  /// The bytes of one token in a text: parts of a character, perhaps.
  std::string bytes_of(std::int32_t token) const {
    const std::string_view text = text_of(token);
    if (text.empty() || !sentencepiece_) return std::string(text);
    const TokenizerParts::Kind kind = kind_of(static_cast<std::size_t>(token));
    if (is_taken_out(kind)) return std::string(text);
    if (kind == TokenizerParts::Kind::byte)
      for (std::size_t b = 0; b < 256; ++b)
        if (bytes_[b] == token) return std::string(1, static_cast<char>(b));
    std::string out;
    using detail::lower_block;
    for (std::size_t at = 0; at < text.size();) {
      const bool space = text.substr(at, lower_block.size()) == lower_block;
      out += space ? ' ' : text[at];
      at += space ? lower_block.size() : 1;
    }
    return out;
  }

 private:
  struct Special {
    std::int32_t token;
    unsigned char first;  ///< byte
  };
  static bool is_taken_out(TokenizerParts::Kind kind) {
    return kind == TokenizerParts::Kind::special || kind == TokenizerParts::Kind::added;
  }

  Error set_up(TokenizerParts& parts) {
    using Kind = TokenizerParts::Kind;
    std::vector<bool> found(parts.texts.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = parts.kinds[i] == Kind::word || parts.kinds[i] == Kind::byte;
    texts_ = TokenTable(parts.texts, found);
    kinds_ = static_cast<std::vector<Kind>&&>(parts.kinds);
    words_ = parts.words;
    compose_ = parts.compose;
    sentencepiece_ = parts.sentencepiece;
    space_before_ = parts.space_before;
    whole_words_ = parts.whole_words;
    for (const auto& [mine, given, name] :
         {std::tuple{&bos_, parts.bos, "bos"}, std::tuple{&eos_, parts.eos, "eos"},
          std::tuple{&unknown_, parts.unknown, "unknown"},
          std::tuple{&padding_, parts.padding, "padding"}}) {
      if (given >= 0 && static_cast<std::size_t>(given) >= size())
        return Error::say("the tokenizer's ", name, " token is ", given, " of ", size());
      *mine = given;
    }
    add_bos_ = parts.add_bos && bos_ >= 0;
    add_eos_ = parts.add_eos && eos_ >= 0;
    for (std::size_t i = 0; i < kinds_.size(); ++i)
      if (is_taken_out(kinds_[i]) && !texts_[i].empty())
        specials_.push_back(
            {static_cast<std::int32_t>(i), static_cast<unsigned char>(texts_[i][0])});
    std::stable_sort(specials_.begin(), specials_.end(), [&](const Special& a, const Special& b) {
      if (a.first != b.first) return a.first < b.first;
      return text_of(a.token).size() > text_of(b.token).size();
    });
    std::size_t at = 0;
    for (std::size_t b = 0; b <= 256; ++b) {
      while (at < specials_.size() && specials_[at].first < b) ++at;
      first_special_[b] = at;
    }
    for (std::size_t b = 0; b < 256; ++b) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      const std::string escaped = {'<', '0', 'x', digits[b / 16], digits[b % 16], '>'};
      bytes_[b] = texts_.find(sentencepiece_ ? escaped : std::string(1, static_cast<char>(b)));
    }
    const bool by_score = sentencepiece_ && parts.merges.empty();
    if (const Error why = by_score ? merge_by_score(parts.scores) : merge_in_order(parts.merges))
      return why;
    // A word is known without merging if merging would end with this word. Within a longer text the same merges, in the same order,
    // make this word, or none do: of all pairs that are its text, the last one here is the only one that is ever merged.
    is_whole_.assign(size(), whole_words_);
    BytePairs::Scratch scratch;
    std::vector<std::int32_t> merged;
    std::vector<BytePairs::Merge> possible;
    for (std::size_t i = 0; i < size() && !parts.whole_words; ++i) {
      if (kinds_[i] != Kind::word || texts_[i].empty()) continue;
      std::size_t lost = 0;
      const auto token = static_cast<std::int32_t>(i);
      merged.clear();
      scratch.last.merged = -1;
      merge_word(texts_[i], scratch, merged, lost);
      is_whole_[i] = lost == 0 && merged.size() == 1 && merged[0] == token;
      if (is_whole_[i] && scratch.last.merged == token) possible.push_back(scratch.last);
    }
    if (sentencepiece_ && !whole_words_)
      pairs_ = BytePairs(static_cast<std::vector<BytePairs::Merge>&&>(possible));
    return {};
  }

  bool is_word(std::int32_t token) const {
    return kind_of(static_cast<std::size_t>(token)) == TokenizerParts::Kind::word;
  }

  Error merge_in_order(const std::vector<std::pair<std::string, std::string>>& pairs) {
    std::vector<BytePairs::Merge> merges;
    merges.reserve(pairs.size());
    for (const auto& [left, right] : pairs) {
      const std::int32_t l = texts_.find(left), r = texts_.find(right),
                         m = texts_.find(left + right);
      if (l < 0 || r < 0 || m < 0)
        return Error::say("the tokenizer's merge ", merges.size(), " is of \"",
                          one_line(left, 40).c_str(), "\" and \"", one_line(right, 40).c_str(),
                          "\", and its vocabulary lacks ",
                          l < 0   ? "the first"
                          : r < 0 ? "the second"
                                  : "both as one");
      if (sentencepiece_ && !(is_word(l) && is_word(r) && is_word(m)))
        return Error::say("the tokenizer's merge ", merges.size(), " is of a single byte");
      merges.push_back({l, r, m, static_cast<std::uint32_t>(merges.size())});
    }
    pairs_ = BytePairs(static_cast<std::vector<BytePairs::Merge>&&>(merges));
    return {};
  }

  /// Two tokens are merged if they make a third one, at the rank of the third one's score.
  Error merge_by_score(const std::vector<float>& scores) {
    if (scores.size() != size())
      return Error::say("the tokenizer has ", scores.size(), " scores for ", size(), " tokens");
    std::vector<float> sorted = scores;
    for (const float score : sorted)
      if (!(score == score)) return Error::say("the tokenizer has a score that is no number");
    std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return a > b; });
    std::vector<BytePairs::Merge> merges;
    for (std::size_t i = 0; i < size(); ++i) {
      if (kinds_[i] != TokenizerParts::Kind::word) continue;
      const std::string_view text = texts_[i];
      const auto place = std::lower_bound(sorted.begin(), sorted.end(), scores[i],
                                          [](float a, float b) { return a > b; });
      constexpr std::size_t longest = 512;  // a text of n bytes has n ways to be two
      if (text.size() > longest)
        return Error::say("the tokenizer's token ", i, " has ", text.size(), " bytes, of at most ",
                          longest);
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        const std::int32_t left = texts_.find(text.substr(0, cut)),
                           right = texts_.find(text.substr(cut));
        if (left >= 0 && right >= 0 && is_word(left) && is_word(right))
          merges.push_back({left, right, static_cast<std::int32_t>(i),
                            static_cast<std::uint32_t>(place - sorted.begin())});
      }
    }
    pairs_ = BytePairs(static_cast<std::vector<BytePairs::Merge>&&>(merges));
    return {};
  }

  /// The longest special token at `at`; null if there is none.
  const Special* special_at(std::string_view text, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    for (std::size_t i = first_special_[byte]; i < first_special_[byte + 1U]; ++i)
      if (text.substr(at).starts_with(text_of(specials_[i].token))) return &specials_[i];
    return nullptr;
  }

  void encode_plain(std::string_view text, BytePairs::Scratch& scratch,
                    std::vector<std::int32_t>& to, std::size_t& lost) const {
    std::string composed, spaced;
    if (compose_) text = composed = composed_text(text);
    if (sentencepiece_) {
      using detail::lower_block;
      if (space_before_) spaced = lower_block;
      for (const char c : text)
        if (c == ' ') spaced += lower_block;
        else spaced += c;
      text = spaced;
    }
    each_word(words_, text, [&](std::string_view word) {
      const std::int32_t whole = texts_.find(word);
      if (whole >= 0 && is_whole_[static_cast<std::size_t>(whole)]) return to.push_back(whole);
      merge_word(word, scratch, to, lost);
    });
  }

  void merge_word(std::string_view word, BytePairs::Scratch& scratch, std::vector<std::int32_t>& to,
                  std::size_t& lost) const {
    const auto add_byte = [&](char c) {
      const std::int32_t token = bytes_[static_cast<unsigned char>(c)];
      if (token >= 0) return scratch.add(token);
      ++lost;
      if (unknown_ >= 0) scratch.add(unknown_);
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t begin = at;
      if (sentencepiece_) static_cast<void>(next_code(word, at));
      else ++at;
      const std::string_view symbol = word.substr(begin, at - begin);
      const std::int32_t token = sentencepiece_ ? texts_.find(symbol) : -1;
      if (token >= 0) scratch.add(token);
      else
        for (const char c : symbol) add_byte(c);
    }
    pairs_.merge(scratch, to);
  }

  TokenTable texts_;
  std::vector<TokenizerParts::Kind> kinds_;
  std::vector<bool> is_whole_;
  std::vector<Special> specials_;  ///< by first byte, the longest first
  std::size_t first_special_[257] = {};
  std::int32_t bytes_[256] = {};
  BytePairs pairs_;
  PreTokenizer words_ = PreTokenizer::gpt2;
  bool compose_ = false, whole_words_ = false, sentencepiece_ = false, space_before_ = false;
  bool add_bos_ = false, add_eos_ = false;
  std::int32_t bos_ = -1, eos_ = -1, unknown_ = -1, padding_ = -1;
};

}}  // namespace adacc::v0_1
