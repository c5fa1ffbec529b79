// SPDX-License-Identifier: MIT
/// Text to the tokens of a language model and back, by byte-pair encoding or a unigram model.
///
/// Special tokens are taken out of the text (special_tokens.hpp), the text between them is normalized (normalizer.hpp) and cut into
/// words (pre_tokenizer.hpp, metaspace.hpp), and the bytes of a word, or its characters in SentencePiece's vocabularies,
/// are merged (byte_pairs.hpp), or the word's likeliest pieces are taken (unigram.hpp). Readers: read_tokenizer.hpp
/// (tokenizer.json, vocab.json and merges.txt), gguf_tokenizer.hpp. Tokenizers are in io/, and WordPiece is in support/,
/// because a GGUF file has weights and tokenizer in one, and no language model is trained without a tokenizer.
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
#include "../../core/extremes.hpp"
#include "../file.hpp"
#include "../utf8.hpp"
#include "byte_pairs.hpp"
#include "special_tokens.hpp"
#include "token_table.hpp"
#include "tokenizer_parts.hpp"
#include "unigram.hpp"

namespace adacc { inline namespace v0_1 {

/// Whether special tokens in a text are tokens, or plain text. Text of strangers, such as a user's words in a chat,
/// should be plain text.
enum class SpecialText : std::uint8_t { tokens, text };

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
    for (std::size_t i = 0; i < kinds_.size() && !text.empty(); ++i)
      if (is_taken_out(kinds_[i]) && texts_[i] == text) return static_cast<std::int32_t>(i);
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
  /// Whether the symbols of words are characters, and spaces U+2581.
  bool is_sentencepiece() const { return sentencepiece_; }
  bool is_unigram() const { return is_unigram_; }
  const TextNormalizer& normalizer() const { return normalizer_; }
  const Metaspace& metaspace() const { return metaspace_; }
  const Unigram& unigram() const { return unigram_; }
  /// Whether a text, or its beginning, gets a space before, which decode() takes away.
  bool has_space_before() const { return space_before_; }
  /// As parts of the tokenizer, for writers.
  TokenizerParts::Kind kind_of(std::size_t token) const { return kinds_[token]; }
  bool is_normalized(std::size_t token) const {
    return token < is_normalized_.size() && is_normalized_[token];
  }
  /// In any order. With is_sentencepiece() those that a text can have: one at most for each token.
  const std::vector<BytePairs::Merge>& merges() const { return pairs_.merges(); }
  PreTokenizer words() const { return words_; }
  bool has_whole_words() const { return whole_words_; }

  /// The tokens of a text, without bos and eos. Some vocabularies lack a few bytes, such as control characters: these
  /// bytes become the unknown token. Without an unknown token they are left out, and `left_out`, if given, grows by
  /// their count.
  std::vector<std::int32_t> encode(std::string_view text, SpecialText special = SpecialText::tokens,
                                   std::size_t* left_out = nullptr) const {
    Work work{.with_specials = special == SpecialText::tokens};
    const auto normalize = [&](std::string_view piece) {
      encode_plain(piece, piece.data() == text.data(), work);
    };
    const auto take = [&](std::int32_t token) { work.tokens.push_back(token); };
    if (work.with_specials) specials_.split(text, normalize, take);
    else if (!text.empty()) normalize(text);
    if (left_out != nullptr) *left_out += work.lost;
    return static_cast<std::vector<std::int32_t>&&>(work.tokens);
  }

  /// The bytes of these tokens. The result of encode() becomes the text again, as its normalizer() has it, if all bytes of the
  /// text have tokens.
  std::string decode(const std::vector<std::int32_t>& tokens,
                     SpecialText special = SpecialText::text) const {
    std::string text;
    for (const std::int32_t token : tokens)
      if (special == SpecialText::text || !is_special(token)) text += bytes_of(token);
    if (space_before_ && !tokens.empty() && text.starts_with(' ') &&
        (!is_special(tokens[0]) || is_normalized(static_cast<std::size_t>(tokens[0]))))
      text.erase(0, 1);
    return text;
  }

  /// The bytes of one token in a text: parts of a character, perhaps.
  std::string bytes_of(std::int32_t token) const {
    const std::string_view text = text_of(token);
    if (text.empty()) return {};
    const auto i = static_cast<std::size_t>(token);
    if (is_normalized(i)) return spaced(normalizer_.normalized(text));
    if (is_taken_out(kind_of(i)) || !sentencepiece_) return std::string(text);
    const int byte = kind_of(i) == TokenizerParts::Kind::byte ? detail::byte_of(text) : -1;
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : spaced(text);
  }

 private:
  static bool is_taken_out(TokenizerParts::Kind kind) {
    return kind == TokenizerParts::Kind::special || kind == TokenizerParts::Kind::added;
  }
  /// With a space for each U+2581 of SentencePiece's.
  std::string spaced(std::string_view text) const {
    using detail::lower_block;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const bool space = sentencepiece_ && text.substr(at, lower_block.size()) == lower_block;
      out += space ? ' ' : text[at];
      at += space ? lower_block.size() : 1;
    }
    return out;
  }

  Error set_up(TokenizerParts& parts) {
    using Kind = TokenizerParts::Kind;
    std::vector<bool> found(parts.texts.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = parts.kinds[i] == Kind::word || parts.kinds[i] == Kind::byte;
    texts_ = TokenTable(parts.texts, found);
    kinds_ = static_cast<std::vector<Kind>&&>(parts.kinds);
    is_normalized_ = static_cast<std::vector<bool>&&>(parts.normalized);
    normalizer_ = static_cast<TextNormalizer&&>(parts.normalizer);
    words_ = parts.words;
    metaspace_ = parts.metaspace;
    sentencepiece_ = parts.sentencepiece;
    is_unigram_ = parts.unigram;
    whole_words_ = parts.whole_words;
    space_before_ = metaspace_.used && metaspace_.before != Metaspace::Before::never;
    for (const NormalizerStep& step : normalizer_.steps)
      space_before_ = space_before_ || step.kind == NormalizerStep::Kind::prepend ||
                      (step.kind == NormalizerStep::Kind::block_words && (step.left || step.right));
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
    if (const Error why = set_up_specials()) return why;
    for (std::size_t b = 0; b < 256; ++b) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      const std::string escaped = {'<', '0', 'x', digits[b / 16], digits[b % 16], '>'};
      bytes_[b] = texts_.find(sentencepiece_ ? escaped : std::string(1, static_cast<char>(b)));
    }
    return is_unigram_ ? set_up_pieces(parts) : set_up_merges(parts);
  }

  Error set_up_specials() {
    std::vector<SpecialTokens::One> plain, normalized;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (!is_taken_out(kinds_[i]) || texts_[i].empty()) continue;
      const auto token = static_cast<std::int32_t>(i);
      if (!is_normalized(i)) {
        plain.push_back({std::string(texts_[i]), token});
        continue;
      }
      normalized.push_back({normalizer_.normalized(texts_[i]), token});
      if (normalized.back().text.empty())
        return Error::say("the tokenizer's added token ", token, " is no text when normalized");
    }
    specials_ = SpecialTokens(static_cast<std::vector<SpecialTokens::One>&&>(plain));
    normalized_specials_ =
        SpecialTokens(static_cast<std::vector<SpecialTokens::One>&&>(normalized));
    return {};
  }

  Error set_up_pieces(TokenizerParts& parts) {
    using Kind = TokenizerParts::Kind;
    for (const double score : parts.scores)
      if (!(score - score == 0)) return Error::say("the tokenizer has a score that is not finite");
    Unigram::Unknown unknown{unknown_, parts.unknown_score, parts.byte_fallback, {}};
    unknown.bytes.fill(-1);
    std::vector<PieceTrie::Piece> pieces;
    std::vector<bool> hidden(size());
    for (std::size_t i = 0; i < detail::smaller(size(), parts.scores.size()); ++i) {
      hidden[i] = is_taken_out(kinds_[i]);
      const bool is_piece = kinds_[i] == Kind::word || kinds_[i] == Kind::added ||
                            (kinds_[i] == Kind::special && parts.special_pieces) ||
                            (kinds_[i] == Kind::byte && parts.byte_fallback);
      if (!is_piece || texts_[i].empty()) continue;
      const auto token = static_cast<std::int32_t>(i);
      pieces.push_back({texts_[i], token});
      const int byte = kinds_[i] == Kind::byte ? detail::byte_of(texts_[i]) : -1;
      if (byte >= 0) unknown.bytes[static_cast<std::size_t>(byte)] = token;
    }
    unigram_ = Unigram(static_cast<std::vector<PieceTrie::Piece>&&>(pieces),
                       static_cast<std::vector<double>&&>(parts.scores),
                       static_cast<std::vector<bool>&&>(hidden), unknown);
    return {};
  }

  Error set_up_merges(TokenizerParts& parts) {
    using Kind = TokenizerParts::Kind;
    const bool by_score = sentencepiece_ && parts.merges.empty();
    if (const Error why = by_score ? merge_by_score(parts.scores) : merge_in_order(parts.merges))
      return why;
    // A word is known without merging if merging would end with this word. Within a longer text the same merges, in the same order,
    // make this word, or none do: of all pairs that are its text, the last one here is the only one that is ever merged.
    is_whole_.assign(size(), whole_words_);
    Work work;
    std::vector<BytePairs::Merge> possible;
    for (std::size_t i = 0; i < size() && !parts.whole_words; ++i) {
      if (kinds_[i] != Kind::word || texts_[i].empty()) continue;
      const auto token = static_cast<std::int32_t>(i);
      BytePairs::Merge last{-1, -1, -1, 0};
      work.tokens.clear();
      work.lost = 0;
      merge_word(texts_[i], work, [&](const BytePairs::Merge& merge) { last = merge; });
      is_whole_[i] = work.lost == 0 && work.tokens.size() == 1 && work.tokens[0] == token;
      if (is_whole_[i] && last.merged == token) possible.push_back(last);
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
  Error merge_by_score(const std::vector<double>& scores) {
    if (scores.size() != size())
      return Error::say("the tokenizer has ", scores.size(), " scores for ", size(), " tokens");
    for (const double score : scores)
      if (!(score == score)) return Error::say("the tokenizer has a score that is no number");
    std::vector<double> sorted = scores;
    std::sort(sorted.begin(), sorted.end(), [](double a, double b) { return a > b; });
    std::vector<BytePairs::Merge> merges;
    for (std::size_t i = 0; i < size(); ++i) {
      if (kinds_[i] != TokenizerParts::Kind::word) continue;
      const std::string_view text = texts_[i];
      const auto place = std::lower_bound(sorted.begin(), sorted.end(), scores[i],
                                          [](double a, double b) { return a > b; });
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

  /// The tokens of a text until now, and the memory that words share.
  struct Work {
    std::vector<std::int32_t> tokens{};
    std::size_t lost = 0;  ///< bytes without a token
    bool with_specials = true;
    BytePairs::Scratch pairs{};
    Unigram::Scratch pieces{};
  };

  /// A piece without special tokens, which may be the beginning of its text.
  void encode_plain(std::string_view text, bool is_first, Work& work) const {
    std::string normalized;
    if (!normalizer_.steps.empty()) text = normalized = normalizer_.normalized(text);
    const auto words = [&](std::string_view piece) {
      encode_words(piece, is_first && piece.data() == text.data(), work);
    };
    const auto take = [&](std::int32_t token) { work.tokens.push_back(token); };
    if (work.with_specials) normalized_specials_.split(text, words, take);
    else if (!text.empty()) words(text);
  }

  void encode_words(std::string_view text, bool is_first, Work& work) const {
    const auto word = [&](std::string_view one) {
      if (is_unigram_)
        return unigram_.encode(one, work.with_specials, work.pieces, work.tokens, work.lost);
      const std::int32_t whole = texts_.find(one);
      if (whole >= 0 && is_whole_[static_cast<std::size_t>(whole)])
        return work.tokens.push_back(whole);
      merge_word(one, work, [](const BytePairs::Merge&) {});
    };
    if (metaspace_.used) metaspace_.each_word(text, is_first, word);
    else each_word(words_, text, word);
  }

  /// Calls did(merge) for each merge.
  template <class Did>
  void merge_word(std::string_view word, Work& work, const Did& did) const {
    const auto add_byte = [&](char c) {
      const std::int32_t token = bytes_[static_cast<unsigned char>(c)];
      if (token >= 0) return work.pairs.add(token);
      ++work.lost;
      if (unknown_ >= 0) work.pairs.add(unknown_);
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t begin = at;
      if (sentencepiece_) static_cast<void>(next_code(word, at));
      else ++at;
      const std::string_view symbol = word.substr(begin, at - begin);
      const std::int32_t token = sentencepiece_ ? texts_.find(symbol) : -1;
      if (token >= 0) work.pairs.add(token);
      else
        for (const char c : symbol) add_byte(c);
    }
    pairs_.merge(work.pairs, work.tokens, did);
  }

  TokenTable texts_;
  std::vector<TokenizerParts::Kind> kinds_;
  std::vector<bool> is_normalized_;
  std::vector<bool> is_whole_;
  SpecialTokens specials_, normalized_specials_;
  TextNormalizer normalizer_;
  PreTokenizer words_ = PreTokenizer::gpt2;
  Metaspace metaspace_;
  std::int32_t bytes_[256] = {};
  BytePairs pairs_;
  Unigram unigram_;
  bool whole_words_ = false, sentencepiece_ = false, is_unigram_ = false, space_before_ = false;
  bool add_bos_ = false, add_eos_ = false;
  std::int32_t bos_ = -1, eos_ = -1, unknown_ = -1, padding_ = -1;
};

}}  // namespace adacc::v0_1
