// SPDX-License-Identifier: MIT
/// Tokenizers of the Hugging Face Hub: tokenizer.json, or vocab.json and merges.txt.
///
/// The settings of tokenizer.json known from GPT-2, Llama 2 and 3, Qwen, SmolLM and SentencePiece's unigram models are read;
/// every other setting is refused in words, since the tokens would be others. A post-processor's template says which tokens the model wants
/// around a text (Tokenizer::with_ends()); a tokenizer_config.json beside the file may say so in its place.
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
#include "../../core/no_memory.hpp"
#include "../../core/read_number.hpp"
#include "../file.hpp"
#include "../mapped_file.hpp"
#include "../weights/json_reader.hpp"
#include "byte_level.hpp"
#include "normalizer_json.hpp"
#include "tokenizer.hpp"
#include "tokenizer_config.hpp"
#include "words_json.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The parts of a tokenizer.json, read in any order.
class TokenizerJson {
 public:
  TokenizerJson(std::string_view text, TokenizerParts& parts)
      : json_(text), bytes_(text.size()), parts_(parts) {}

  /// The fault of the file, to stand behind its path; empty if there is none.
  std::string read() {
    const auto member = [&](const std::string& key) {
      if (key == "added_tokens") return json_.array([&] { return added_token(); });
      if (key == "normalizer") return normalizer();
      if (key == "pre_tokenizer") return pre_tokenizer();
      if (key == "post_processor") return post_processor();
      if (key == "model") return model();
      return json_.skip();
    };
    const bool good = json_.object(member) && json_.end();
    if (!problem_.empty()) return problem_;
    if (!good) return json_.fault().text();
    if (!has_model_) return "has no \"model\"";
    if (!has_words_) return "has no \"pre_tokenizer\"";
    return finish();
  }

  /// {"text": 0, …}, the form of a whole vocab.json.
  bool vocabulary() {
    return json_.object([&](const std::string& text) {
      std::uint64_t token = 0;
      return json_.whole_number(token) && put(token, text, TokenizerParts::Kind::word);
    });
  }
  std::string read_vocabulary() {
    const bool good = vocabulary() && json_.end();
    if (!problem_.empty()) return problem_;
    return good ? finish() : json_.fault().text();
  }

 private:
  using Kind = TokenizerParts::Kind;

  bool complain(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }
  /// The value, which has to be one of these texts of JSON.
  bool expect(const std::string& name, std::initializer_list<const char*> accepted,
              const char* why) {
    std::string raw;
    if (!json_.value(raw)) return false;
    for (const char* const one : accepted)
      if (raw == one) return true;
    return complain("has " + name + " " + one_line(raw, 60) + ", and " + why);
  }

  /// Numbers are below the file's bytes, since each has a text.
  bool put(std::uint64_t token, const std::string& text, Kind kind) {
    if (token >= bytes_)
      return complain("gives \"" + one_line(text, 40) + "\" the number " + std::to_string(token) +
                      ", which a file of " + std::to_string(bytes_) + " bytes has no tokens for");
    const auto i = static_cast<std::size_t>(token);
    if (i >= parts_.texts.size()) {
      parts_.texts.resize(i + 1);
      parts_.kinds.resize(i + 1, Kind::none);
    }
    if (parts_.kinds[i] == Kind::word && kind == Kind::word)
      return complain("gives the number " + std::to_string(token) + " to \"" + one_line(text, 40) +
                      "\" and another");
    if (is_unigram_ && parts_.kinds[i] != Kind::none && parts_.texts[i] != text)
      return complain("gives the number " + std::to_string(token) + " to \"" + one_line(text, 40) +
                      "\" and \"" + one_line(parts_.texts[i], 40) + "\"");
    if (parts_.kinds[i] == Kind::special || parts_.kinds[i] == Kind::added)
      return true;  // the token was added, and is in the vocabulary, too
    parts_.texts[i] = text;
    parts_.kinds[i] = kind;
    return true;
  }

  bool normalizer() {
    std::string raw;
    if (!json_.value(raw)) return false;
    const std::string why = NormalizerJson(raw, parts_.normalizer).read();
    return why.empty() || complain("has " + why);
  }

  bool pre_tokenizer() {
    std::string raw;
    if (!json_.value(raw)) return false;
    const std::string why = WordsJson(raw, parts_).read(has_letters_);
    has_words_ = true;
    return why.empty() || complain(why);
  }

  bool added_token() {
    std::uint64_t token = 0;
    std::string text;
    bool has_token = false, special = true, normalized = false;
    const auto member = [&](const std::string& key) {
      if (key == "id") return has_token = json_.whole_number(token);
      if (key == "special") return read_truth(special);
      if (key == "content") return json_.string(text);
      if (key == "normalized") return read_truth(normalized);
      if (key == "single_word" || key == "lstrip" || key == "rstrip")
        return expect("an added token with " + key, {"false"},
                      "tokens that depend on what is around them are not computed");
      return json_.skip();
    };
    if (!json_.object(member)) return false;
    if (!has_token || text.empty()) return complain("has an added token without id or content");
    if (!put(token, text, special ? Kind::special : Kind::added)) return false;
    if (normalized) parts_.normalized.resize(parts_.texts.size());
    if (normalized) parts_.normalized[static_cast<std::size_t>(token)] = true;
    return true;
  }

  /// One post-processor, or a sequence: templates with one token at most before a text, and one behind.
  bool post_processor() {
    std::string raw;
    if (!json_.value(raw)) return false;
    if (raw == "null") return true;
    JsonReader read(raw);
    const auto one = [&](const auto& self) -> bool {
      std::string type;
      bool has_text = false;
      const auto piece = [&](const std::string& kind) {
        if (kind == "Sequence") return has_text = read.skip();
        if (kind != "SpecialToken") return read.skip();
        std::string& end = has_text ? last_ : first_;
        if (!end.empty())
          return complain("adds several tokens at one end of a text, and can add one");
        return read.object(
            [&](const std::string& key) { return key == "id" ? read.string(end) : read.skip(); });
      };
      const bool good = read.object([&](const std::string& key) {
        if (key == "type") return read.string(type);
        if (key == "processors") return read.array([&] { return self(self); });
        if (key != "single") return read.skip();
        return read.array([&] { return read.object(piece); });
      });
      return good && (type == "Sequence" || type == "TemplateProcessing" || type == "ByteLevel" ||
                      complain("has the post-processor " + one_line(type, 40) +
                               "; those known are TemplateProcessing and ByteLevel"));
    };
    return one(one) || complain("has a post-processor that is none");
  }

  bool read_truth(bool& is) {
    std::string raw;
    return json_.truth(is, raw) ||
           (!json_.fault() && complain("has " + one_line(raw, 20) + " for true or false"));
  }

  bool model() {
    has_model_ = true;
    std::string type;
    const auto member = [&](const std::string& key) {
      if (key == "type") {
        if (!json_.string(type)) return false;
        return type == "BPE" || type == "Unigram" ||
               complain("has a model of the type " + one_line(type, 40) +
                        ", and has to have BPE or Unigram");
      }
      if (key == "vocab") return json_.is_list() ? pieces() : vocabulary();
      if (key == "unk_id") return json_.is_null() ? json_.skip() : json_.whole_number(unknown_id_);
      if (key == "merges") return json_.array([&] { return merge(); });
      if (key == "ignore_merges") return read_truth(parts_.whole_words);
      if (key == "dropout") return expect(key, {"null", "0.0"}, "tokens are not drawn");
      if (key == "byte_fallback") return read_truth(byte_fallback_);
      if (key == "fuse_unk") return read_truth(fuses_unknown_);
      if (key == "continuing_subword_prefix" || key == "end_of_word_suffix")
        return expect(key, {"null", "\"\""}, "parts of words have no marks here");
      if (key == "unk_token") {
        std::string raw;
        if (!json_.value(raw)) return false;
        if (raw == "null") return true;
        JsonReader text(raw);
        return text.string(unknown_);
      }
      return json_.skip();
    };
    if (!json_.object(member)) return false;
    return type.empty() || (type == "Unigram") == is_unigram_ ||
           complain("has a model of the type " + type + " with the vocabulary of another");
  }

  /// [["text", score], …], the vocabulary of a unigram model.
  bool pieces() {
    is_unigram_ = true;
    return json_.array([&] {
      std::string text, number;
      double score = 0;
      int members = 0;
      const bool good = json_.array([&] {
        if (members++ == 0) return json_.string(text);
        return members == 2 && json_.number(number) && read_number(number, score);
      });
      if (!good || members != 2)
        return complain("has as piece " + std::to_string(parts_.scores.size()) +
                        " no text with a score");
      parts_.scores.push_back(score);
      return put(parts_.scores.size() - 1, text, Kind::word);
    });
  }

  /// "a b", or ["a", "b"] in newer files.
  bool merge() {
    std::string raw, text;
    if (!json_.value(raw)) return false;
    std::vector<std::string> pair;
    JsonReader read(raw);
    if (raw.starts_with('"')) {
      const std::size_t space = read.string(text) ? text.find(' ') : text.npos;
      if (space != text.npos) pair = {text.substr(0, space), text.substr(space + 1)};
    } else {
      static_cast<void>(read.array([&] {
        pair.emplace_back();
        return pair.size() <= 2 && read.string(pair.back());
      }));
    }
    if (read.fault() || pair.size() != 2 || pair[0].empty() || pair[1].empty())
      return complain(bad_merge(parts_.merges.size(), raw));
    parts_.merges.emplace_back(pair[0], pair[1]);
    return true;
  }
  static std::string bad_merge(std::size_t number, const std::string& raw) {
    return "has as merge " + std::to_string(number) + " " + one_line(raw, 40) +
           ", which is no two pieces of bytes";
  }

  std::string finish() {
    if (!unknown_.empty()) parts_.unknown = token_of(parts_, unknown_);
    for (const auto& [text, token, adds] : {std::tuple{&first_, &parts_.bos, &parts_.add_bos},
                                            std::tuple{&last_, &parts_.eos, &parts_.add_eos}}) {
      *adds = !text->empty();
      if (*adds && (*token = token_of(parts_, *text)) < 0)
        return "adds \"" + one_line(*text, 40) + "\" to each text, which is no token";
    }
    parts_.normalized.resize(parts_.texts.size());
    const bool makes_blocks = parts_.metaspace.used || replaces_spaces();
    parts_.sentencepiece = is_unigram_ || makes_blocks;
    if (parts_.metaspace.before == Metaspace::Before::first && may_lose_beginning())
      return "has the prepend_scheme first behind a normalizer that may take the beginning of a "
             "text away";
    return is_unigram_    ? finish_unigram()
           : makes_blocks ? finish_sentencepiece()
                          : finish_byte_level();
  }

  bool replaces_spaces() const {
    for (const NormalizerStep& step : parts_.normalizer.steps)
      if (step.kind == NormalizerStep::Kind::replace && step.from == " " && step.to == lower_block)
        return true;
    return false;
  }
  /// PyPI's tokenizers then no longer sees that a piece begins its text.
  bool may_lose_beginning() const {
    using enum NormalizerStep::Kind;
    for (const NormalizerStep& step : parts_.normalizer.steps)
      if ((step.kind == strip && step.left) || step.kind == trim ||
          (step.kind == replace && (step.from.size() > 1 || step.to.empty())))
        return true;
    return false;
  }

  /// Sums are in double, and an unknown character has 10 less than the worst piece.
  std::string finish_unigram() {
    const std::size_t count = parts_.scores.size();
    if (has_letters_) return "has a ByteLevel pre-tokenizer and a model of the type Unigram";
    if (count == 0) return "has no \"vocab\"";
    if (unknown_id_ != none && unknown_id_ >= count)
      return "has the unk_id " + std::to_string(unknown_id_) + " of " + std::to_string(count);
    if (unknown_id_ != none) parts_.unknown = static_cast<std::int32_t>(unknown_id_);
    parts_.unigram = true;
    parts_.special_pieces = true;
    parts_.byte_fallback = byte_fallback_;
    parts_.unknown_score = *std::min_element(parts_.scores.begin(), parts_.scores.end()) - 10;
    for (std::size_t i = 0; i < parts_.texts.size() && byte_fallback_; ++i)
      if (parts_.kinds[i] == Kind::word && byte_of(parts_.texts[i]) >= 0)
        parts_.kinds[i] = Kind::byte;
    return {};
  }

  std::string finish_byte_level() {
    if (has_model_ && !has_letters_)
      return "has neither a ByteLevel nor a Metaspace pre-tokenizer, nor the normalizer of Llama 2";
    if (parts_.normalizer.has(NormalizerStep::Kind::prepend))
      return "has a normalizer Prepend beside a ByteLevel pre-tokenizer";
    if (byte_fallback_ || fuses_unknown_)
      return std::string("has ") + (byte_fallback_ ? "byte_fallback" : "fuse_unk") +
             " true, and it has to be false";
    std::string bytes;
    for (std::size_t i = 0; i < parts_.texts.size(); ++i) {
      if (parts_.kinds[i] != Kind::word) continue;
      if (bytes_of_letters(parts_.texts[i], bytes)) parts_.texts[i] = bytes;
      else parts_.kinds[i] = Kind::none;
    }
    for (auto& merge : parts_.merges)
      for (std::string* const piece : {&merge.first, &merge.second}) {
        if (!bytes_of_letters(*piece, bytes))
          return bad_merge(static_cast<std::size_t>(&merge - parts_.merges.data()), *piece);
        *piece = bytes;
      }
    return {};
  }

  std::string finish_sentencepiece() {
    if (has_letters_) return "has a pre-tokenizer beside the normalizer of Llama 2";
    if (!byte_fallback_)
      return "has byte_fallback false, and it has to be true with the normalizer of Llama 2";
    if (parts_.merges.empty()) return "has no merges";
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < parts_.texts.size(); ++i)
      if (parts_.kinds[i] == Kind::word && byte_of(parts_.texts[i]) >= 0) {
        parts_.kinds[i] = Kind::byte;
        ++bytes;
      }
    if (bytes != 256)
      return "has " + std::to_string(bytes) +
             " tokens of single bytes (<0x00> to <0xFF>), and needs 256";
    return {};
  }
  JsonReader json_;
  std::size_t bytes_;
  TokenizerParts& parts_;
  std::string problem_, unknown_, first_, last_;
  bool has_model_ = false, has_words_ = false, has_letters_ = false, is_unigram_ = false;
  bool byte_fallback_ = false, fuses_unknown_ = false;
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t unknown_id_ = none;
};

inline Result<Tokenizer> made_tokenizer(TokenizerParts parts, const std::string& path) {
  auto made = Tokenizer::make(static_cast<TokenizerParts&&>(parts));
  if (!made) made.error = Error::say(one_line(path, 80).c_str(), ": ", made.error.text());
  return made;
}

}  // namespace detail

/// Tokens at the ends of a text, which a model's config.json has and its tokenizer's files do not; -1: none.
struct TextEnds {
  std::int32_t bos = -1, eos = -1;
};

/// `path` is a tokenizer.json, or the folder of one, whose tokenizer_config.json may name the tokens at the ends of a text, and
/// say whether they are added.
inline Result<Tokenizer> read_tokenizer(const std::string& path, const TextEnds& ends = {}) {
  return detail::or_no_memory("to read a tokenizer", [&]() -> Result<Tokenizer> {
    const std::string place = is_folder(path) ? path + "/tokenizer.json" : path;
    const auto file = MappedFile::open(place, "a tokenizer.json");
    if (!file) return file.error;
    TokenizerParts parts;
    parts.bos = ends.bos;
    parts.eos = ends.eos;
    const std::string why = detail::TokenizerJson(detail::text_of_file(*file), parts).read();
    if (!why.empty()) return file->fault(why.c_str());
    if (is_folder(path)) {
      const auto config = read_tokenizer_config(path);
      if (!config) return config.error;
      if (const Error unknown = detail::set_ends(*config, path, parts)) return unknown;
    }
    return detail::made_tokenizer(static_cast<TokenizerParts&&>(parts), place);
  });
}

/// vocab.json and merges.txt in a folder, which do not say how words are cut, nor which tokens are special:
/// `specials` are, if in the vocabulary.
inline Result<Tokenizer> read_vocabulary(
    const std::string& folder, PreTokenizer words = PreTokenizer::gpt2,
    const std::vector<std::string>& specials = {"<|endoftext|>"}, const TextEnds& ends = {}) {
  return detail::or_no_memory("to read a tokenizer", [&]() -> Result<Tokenizer> {
    const std::string path = folder_of(folder) + "vocab.json";
    const auto vocabulary = MappedFile::open(path, "a vocab.json");
    if (!vocabulary) return vocabulary.error;
    TokenizerParts parts;
    parts.words = words;
    parts.bos = ends.bos;
    parts.eos = ends.eos;
    const std::string why =
        detail::TokenizerJson(detail::text_of_file(*vocabulary), parts).read_vocabulary();
    if (!why.empty()) return vocabulary->fault(why.c_str());
    for (std::size_t i = 0; i < parts.texts.size(); ++i)
      if (std::find(specials.begin(), specials.end(), parts.texts[i]) != specials.end())
        parts.kinds[i] = TokenizerParts::Kind::special;
    const auto config = read_tokenizer_config(folder);
    if (!config) return config.error;
    if (const Error unknown = detail::set_ends(*config, folder, parts)) return unknown;
    const auto merges = MappedFile::open(folder_of(folder) + "merges.txt", "a merges.txt");
    if (!merges) return merges.error;
    const std::string_view text = detail::text_of_file(*merges);
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = detail::smaller(text.find('\n', at), text.size());
      std::string_view line = text.substr(at, end - at);
      at = end + 1;
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
      parts.merges.emplace_back();
      if (!bytes_of_merge(line, parts.merges.back().first, parts.merges.back().second))
        return merges->fault("has in line ", number, " \"", one_line(std::string(line), 40).c_str(),
                             "\", which is no two pieces of bytes");
    }
    return detail::made_tokenizer(static_cast<TokenizerParts&&>(parts), path);
  });
}

}}  // namespace adacc::v0_1
