// SPDX-License-Identifier: MIT
/// The member "pre_tokenizer" of tokenizer.json, read and written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "../file.hpp"
#include "../json_string.hpp"
#include "../weights/json_reader.hpp"
#include "tokenizer.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The regular expressions written by hand in pre_tokenizer.hpp.
struct WordPattern {
  PreTokenizer words;
  const char* pattern;
};
inline constexpr WordPattern word_patterns[] = {
    {PreTokenizer::gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PreTokenizer::gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PreTokenizer::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PreTokenizer::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

class WordsJson {
 public:
  WordsJson(std::string_view json, TokenizerParts& to) : json_(json), to_(to) {}

  /// The mistake, in words for behind the path of the file; empty if there is none. `letters`: words are letters of bytes.
  std::string read(bool& letters) {
    to_.words = PreTokenizer::none;
    if (json_.is_null()) return {};
    const bool good = one() && finish() && json_.end();
    letters = letters_;
    if (problem_.empty() && !good) problem_ = json_.fault().text();
    return problem_;
  }

 private:
  bool complain(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }
  bool read_truth(bool& is) {
    std::string raw;
    return json_.truth(is, raw) || raw == "null" ||
           (!json_.fault() && complain("has " + one_line(raw, 20) + " for true or false"));
  }

  /// One pre-tokenizer, or a sequence: the cut into words, single digits, and letters of bytes; or spaces, and U+2581.
  bool one() {
    std::string type, behavior = "Isolated", expression, block, before;
    bool regex = true, individual = false, split = true, prefix = true, has_prefix = false,
         invert = false;
    const auto member = [&](const std::string& key) {
      if (key == "type") return json_.string(type);
      if (key == "pretokenizers") return json_.array([&] { return one(); });
      if (key == "behavior") return json_.string(behavior);
      if (key == "individual_digits") return read_truth(individual);
      if (key == "use_regex") return read_truth(regex);
      if (key == "split") return read_truth(split);
      if (key == "replacement") return json_.string(block);
      if (key == "prepend_scheme") return json_.string(before);
      if (key == "add_prefix_space") return has_prefix = read_truth(prefix);
      if (key == "invert") return read_truth(invert);
      if (key != "pattern") return json_.skip();
      return json_.object([&](const std::string& kind) {
        if (kind == "Regex") return json_.string(expression);
        return complain("cuts words at a pattern of the kind " + one_line(kind, 20) +
                        ", and has to by a Regex");
      });
    };
    if (!json_.object(member)) return false;
    if (type == "Sequence") return true;
    if (letters_)
      return complain("has the pre-tokenizer " + one_line(type, 40) + " behind ByteLevel");
    if (to_.metaspace.used)
      return complain("has the pre-tokenizer " + one_line(type, 40) + " behind Metaspace");
    if (type == "WhitespaceSplit" && !pattern_ && !digits_ && !spaces_) return spaces_ = true;
    if (type == "Metaspace" && !pattern_ && !digits_)
      return metaspace(block, before, split, has_prefix && !prefix);
    if (spaces_)
      return complain("has the pre-tokenizer " + one_line(type, 40) + " behind WhitespaceSplit");
    if (type == "Digits" && individual && !pattern_ && !digits_) return digits_ = true;
    if (invert) return complain("has invert true, and it has to be false");
    if (type == "Split" && behavior == "Isolated" && !pattern_ && !digits_) {
      for (const WordPattern& known : word_patterns)
        if (expression == known.pattern) {
          to_.words = known.words;
          return pattern_ = true;
        }
      return complain("cuts words by " + one_line(expression, 100) +
                      ", which is none of the expressions of GPT-2, Llama 3 and Qwen 2");
    }
    if (type != "ByteLevel")
      return complain("has the pre-tokenizer " + one_line(type, 40) +
                      ", which is not computed there; those are ByteLevel, Split, Digits, "
                      "Metaspace and WhitespaceSplit");
    if (has_prefix && prefix) return complain("has add_prefix_space true, and it has to be false");
    letters_ = true;
    if (!regex) return true;
    if (pattern_) return complain("cuts words by an expression, and by that of GPT-2 again");
    to_.words = PreTokenizer::gpt2;
    return pattern_ = true;
  }

  bool metaspace(const std::string& block, const std::string& before, bool split, bool none) {
    using Before = Metaspace::Before;
    if (block != lower_block)
      return complain("has the pre-tokenizer Metaspace with \"" + one_line(block, 20) +
                      "\" for spaces, and has to have U+2581");
    to_.metaspace = {true, Before::always, split, spaces_};
    if (before == "first") to_.metaspace.before = Before::first;
    else if (before == "never" || (none && before.empty())) to_.metaspace.before = Before::never;
    else if (before != "always" && !before.empty())
      return complain("has the prepend_scheme " + one_line(before, 20));
    return !none || to_.metaspace.before == Before::never ||
           complain("has add_prefix_space false, and the prepend_scheme " + before);
  }

  bool finish() {
    if (to_.metaspace.used) return true;
    if (!letters_) return complain("has no ByteLevel or Metaspace pre-tokenizer");
    if (digits_ && (!pattern_ || to_.words != PreTokenizer::gpt2))
      return complain("has digits alone, and no words of GPT-2");
    if (!pattern_) to_.words = PreTokenizer::none;
    if (digits_) to_.words = PreTokenizer::smollm;
    return true;
  }

  JsonReader json_;
  TokenizerParts& to_;
  std::string problem_;
  bool digits_ = false, letters_ = false, pattern_ = false, spaces_ = false;
};

inline std::string words_json(const Tokenizer& tokenizer) {
  const auto bytes = [](bool regex) {
    return R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)" +
           std::string(regex ? "true}" : "false}");
  };
  const auto both = [](const std::string& first, const std::string& second) {
    return R"({"type":"Sequence","pretokenizers":[)" + first + "," + second + "]}";
  };
  const Metaspace& metaspace = tokenizer.metaspace();
  if (metaspace.used) {
    using enum Metaspace::Before;
    const std::string words = R"({"type":"Metaspace","replacement":)" +
                              json_string(std::string(lower_block)) + R"(,"prepend_scheme":")" +
                              (metaspace.before == always  ? "always"
                               : metaspace.before == first ? "first"
                                                           : "never") +
                              R"(","split":)" + (metaspace.split ? "true}" : "false}");
    return metaspace.at_spaces ? both(R"({"type":"WhitespaceSplit"})", words) : words;
  }
  if (tokenizer.is_sentencepiece()) return "null";
  switch (tokenizer.words()) {
    case PreTokenizer::none: return bytes(false);
    case PreTokenizer::gpt2: return bytes(true);
    case PreTokenizer::smollm:
      return both(R"({"type":"Digits","individual_digits":true})", bytes(true));
    case PreTokenizer::llama3:
    case PreTokenizer::qwen2: break;
  }
  const auto known =
      std::find_if(std::begin(word_patterns), std::end(word_patterns),
                   [&](const WordPattern& one) { return one.words == tokenizer.words(); });
  return both(R"({"type":"Split","pattern":{"Regex":)" + json_string(known->pattern) +
                  R"(},"behavior":"Isolated","invert":false})",
              bytes(false));
}

}}}  // namespace adacc::v0_1::detail
