// SPDX-License-Identifier: MIT
/// The parts of tokenizers: readers find them in files, and Tokenizer::make() takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metaspace.hpp"
#include "normalizer.hpp"
#include "pre_tokenizer.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The byte of "<0xXX>"; -1 if the text is none.
inline int byte_of(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const std::size_t high = digits.find(text[3]), low = digits.find(text[4]);
  return high > 15 || low > 15 ? -1 : static_cast<int>(16 * high + low);
}

}  // namespace detail

/// The parts of a tokenizer, in the order of tokens' numbers.
struct TokenizerParts {
  enum class Kind : std::uint8_t {
    word,     ///< a possible result of merging, or a piece
    byte,     ///< <0xXX> in SentencePiece
    special,  ///< taken out of the text before
    added,    ///< as special, and a part of decoded text
    none      ///< for no text
  };
  std::vector<std::string> texts;
  std::vector<Kind> kinds;
  /// Whether a special or added token is found in normalized text, as normalized text; may be empty.
  std::vector<bool> normalized;
  TextNormalizer normalizer;
  PreTokenizer words = PreTokenizer::gpt2;
  Metaspace metaspace;  ///< if used, in the place of `words`
  std::vector<std::pair<std::string, std::string>>
      merges;                  ///< texts of two tokens, the first merges first
  bool whole_words = false;    ///< a word in the vocabulary is one token, without merging
  bool sentencepiece = false;  ///< symbols are characters, others are tokens <0xXX>
  bool unigram = false;  ///< words are cut into the likeliest pieces, by scores, and not merged
  bool byte_fallback = true;  ///< of a unigram model: unknown characters are tokens <0xXX>
  bool special_pieces =
      false;  ///< of a unigram model: special tokens with a score are pieces, as added ones are
  double unknown_score = 0;  ///< of a unigram model
  /// One for each piece of a unigram model, which are its first tokens; or for SentencePiece's pairs without merges: the
  /// highest first.
  std::vector<double> scores;
  std::int32_t bos = -1, eos = -1, unknown = -1, padding = -1;  ///< -1: there is none
  /// Whether the model wants bos before every text, and eos behind.
  bool add_bos = false, add_eos = false;
};

}}  // namespace adacc::v0_1
