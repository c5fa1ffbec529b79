// SPDX-License-Identifier: MIT
/// The likeliest pieces of a word, where each piece has a probability of its own.
///
/// Kudo, "Subword regularization", arXiv 1804.10959. Viterbi's algorithm finds the way to cut a word with the largest sum of
/// scores (logarithms of probabilities); among equal sums, the way whose last piece is longest. A
/// character that is no piece is an unknown one, at a score of its own. Rules, and sums in double, are those of PyPI's tokenizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "../utf8.hpp"
#include "piece_trie.hpp"

namespace adacc { inline namespace v0_1 {

class Unigram {
 public:
  /// The memory for a word: kept from word to word.
  struct Scratch {
    struct Best {
      double score = 0;
      std::uint32_t begin = nowhere;
      std::int32_t token = -1;  ///< of the piece from `begin` to this place
    };
    struct Span {
      std::size_t begin, end;
      std::int32_t token;
    };
    std::vector<Best> best;
    std::vector<Span> spans;
  };
  /// Unknown characters behind one another are one token, or the tokens of their bytes if all have one.
  struct Unknown {
    std::int32_t token = -1;
    double score = 0;
    bool falls_back = false;              ///< to the tokens of bytes
    std::array<std::int32_t, 256> bytes;  ///< -1: there is none

    friend bool operator==(const Unknown&, const Unknown&) = default;
  };

  Unigram() = default;
  /// `scores` by token; `hidden` tokens are pieces only in a text whose special tokens count.
  Unigram(std::vector<PieceTrie::Piece> pieces, std::vector<double> scores,
          std::vector<bool> hidden, const Unknown& unknown)
      : trie_(static_cast<std::vector<PieceTrie::Piece>&&>(pieces)),
        scores_(static_cast<std::vector<double>&&>(scores)),
        hidden_(static_cast<std::vector<bool>&&>(hidden)), unknown_(unknown) {}

  const std::vector<double>& scores() const { return scores_; }
  /// The number of tokens that may be pieces, which come first.
  std::size_t size() const { return scores_.size(); }
  const Unknown& unknown() const { return unknown_; }
  /// Whether two models of the same texts find the same pieces.
  bool is_like(const Unigram& other) const {
    return scores_ == other.scores_ && hidden_ == other.hidden_ && unknown_ == other.unknown_;
  }

  /// Appends the tokens of `word` to `to`; `lost` grows by the bytes that have none.
  void encode(std::string_view word, bool with_hidden, Scratch& scratch,
              std::vector<std::int32_t>& to, std::size_t& lost) const {
    find_best(word, with_hidden, scratch.best);
    auto& spans = scratch.spans;
    spans.clear();
    for (std::size_t end = word.size(); end > 0; end = spans.back().begin) {
      const Scratch::Best& last = scratch.best[end];
      if (!spans.empty() && last.token == unknown_.token && spans.back().token == unknown_.token)
        spans.back().begin = last.begin;
      else spans.push_back({last.begin, end, last.token});
    }
    for (std::size_t i = spans.size(); i-- > 0;) {
      const std::int32_t token = spans[i].token;
      if (token != unknown_.token) to.push_back(token);
      else
        add_unknown(word.substr(spans[i].begin, spans[i].end - spans[i].begin), with_hidden, to,
                    lost);
    }
  }

 private:
  static constexpr std::uint32_t nowhere = ~0U;

  bool is_piece(std::int32_t token, bool with_hidden) const {
    return with_hidden || !hidden_[static_cast<std::size_t>(token)];
  }

  void find_best(std::string_view word, bool with_hidden, std::vector<Scratch::Best>& best) const {
    best.assign(word.size() + 1, {});
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t begin = at;
      static_cast<void>(next_code(word, at));
      const double before = best[begin].score;
      bool is_known = false;  // whether this character is a piece
      const auto consider = [&](std::size_t end, std::int32_t token, double score) {
        Scratch::Best& there = best[end];
        if (there.begin == nowhere || before + score > there.score)
          there = {before + score, static_cast<std::uint32_t>(begin), token};
      };
      trie_.each_piece(word, begin, [&](std::size_t end, std::int32_t token) {
        if (!is_piece(token, with_hidden)) return;
        consider(end, token, scores_[static_cast<std::size_t>(token)]);
        is_known = is_known || end == at;
      });
      if (!is_known) consider(at, unknown_.token, unknown_.score);
    }
  }

  void add_unknown(std::string_view text, bool with_hidden, std::vector<std::int32_t>& to,
                   std::size_t& lost) const {
    const std::int32_t whole = trie_.find(text);
    if (whole >= 0 && is_piece(whole, with_hidden)) return to.push_back(whole);
    const std::size_t size = to.size();
    for (const char c : text) {
      const std::int32_t token = unknown_.bytes[static_cast<unsigned char>(c)];
      if (token >= 0) to.push_back(token);
    }
    if (to.size() == size + text.size()) return;
    to.resize(size);
    lost += text.size();
    if (unknown_.token >= 0) to.push_back(unknown_.token);
  }

  PieceTrie trie_;
  std::vector<double> scores_;
  std::vector<bool> hidden_;
  Unknown unknown_{};
};

}}  // namespace adacc::v0_1
