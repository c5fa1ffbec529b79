// SPDX-License-Identifier: MIT
/// Byte-level tokenizers as files have them: tokenizer.json and tokenizer_config.json in a folder, tokenizer.ggml.* in the metadata
/// of a GGUF file. What is written is read with the same tokens by read_tokenizer() and read_gguf_tokenizer(), and by PyPI's
/// tokenizers and llama.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../file.hpp"
#include "../json_string.hpp"
#include "../weights/write_gguf.hpp"
#include "byte_level.hpp"
#include "gguf_tokenizer.hpp"
#include "read_tokenizer.hpp"
#include "tokenizer.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The text of a token in a file: words are letters of bytes.
inline std::string stored_text(const Tokenizer& tokenizer, std::size_t token) {
  const std::string_view text = tokenizer.text_of(static_cast<std::int32_t>(token));
  return tokenizer.kind_of(token) == TokenizerParts::Kind::word ? letters_of_bytes(text)
                                                                : std::string(text);
}

/// "left right" of each merge in letters, the first merges first.
inline std::vector<std::string> stored_merges(const Tokenizer& tokenizer) {
  std::vector<BytePairs::Merge> merges = tokenizer.merges();
  std::sort(merges.begin(), merges.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::vector<std::string> texts;
  texts.reserve(merges.size());
  for (const BytePairs::Merge& merge : merges)
    texts.push_back(letters_of_bytes(tokenizer.text_of(merge.left)) + " " +
                    letters_of_bytes(tokenizer.text_of(merge.right)));
  return texts;
}

/// The members of tokenizer.json that say how words are cut.
inline std::string words_json(const Tokenizer& tokenizer) {
  const auto bytes = [](bool regex) {
    return R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)" +
           std::string(regex ? "true}" : "false}");
  };
  const auto both = [](const std::string& first, const std::string& second) {
    return R"({"type":"Sequence","pretokenizers":[)" + first + "," + second + "]}";
  };
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

/// The post-processor of tokenizer.json: tokens around a text.
inline std::string ends_json(const Tokenizer& tokenizer) {
  if (!tokenizer.adds_bos() && !tokenizer.adds_eos()) return "null";
  std::string tokens;
  const auto end = [&](bool adds, std::int32_t token) -> std::string {
    if (!adds) return {};
    const std::string text = json_string(std::string(tokenizer.text_of(token)));
    if (tokens.find(text + ":") == tokens.npos)
      tokens += (tokens.empty() ? "" : ",") + text + R"(:{"id":)" + text + R"(,"ids":[)" +
                std::to_string(token) + R"(],"tokens":[)" + text + "]}";
    return R"({"SpecialToken":{"id":)" + text + R"(,"type_id":0}})";
  };
  const std::string bos = end(tokenizer.adds_bos(), tokenizer.bos()),
                    eos = end(tokenizer.adds_eos(), tokenizer.eos());
  const auto one = [&](const char* id) {
    return (bos.empty() ? "" : bos + ",") + R"({"Sequence":{"id":")" + id + R"(","type_id":0}})" +
           (eos.empty() ? "" : "," + eos);
  };
  return R"({"type":"TemplateProcessing","single":[)" + one("A") + R"(],"pair":[)" + one("A") +
         "," + one("B") + R"(],"special_tokens":{)" + tokens + "}}";
}

}  // namespace detail

/// Refuses tokenizers that are not written here.
inline Error check_byte_level(const Tokenizer& tokenizer) {
  if (!tokenizer.is_sentencepiece()) return {};
  return Error::say(
      "a tokenizer of pairs by score (SentencePiece) is not written: byte-level ones are");
}

/// Writes tokenizer.json and tokenizer_config.json into an existing folder.
inline Error write_tokenizer(const std::string& folder, const Tokenizer& tokenizer,
                             const std::string& chat_template = {}) {
  using detail::json_string;
  using Kind = TokenizerParts::Kind;
  return detail::or_no_memory("to write a tokenizer", [&]() -> Error {
    if (const Error why = check_byte_level(tokenizer)) return why;
    std::string vocabulary, added, merges;
    for (std::size_t i = 0; i < tokenizer.size(); ++i) {
      const Kind kind = tokenizer.kind_of(i);
      if (kind == Kind::none) continue;
      const std::string text = json_string(detail::stored_text(tokenizer, i));
      const std::string number = std::to_string(i);
      if (!vocabulary.empty()) vocabulary += ',';
      vocabulary.append(text).append(":").append(number);
      if (kind == Kind::word) continue;
      if (!added.empty()) added += ',';
      added.append(R"({"id":)").append(number).append(R"(,"content":)").append(text);
      added +=
          R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)";
      added += kind == Kind::special ? "true}" : "false}";
    }
    for (const std::string& merge : detail::stored_merges(tokenizer))
      merges += (merges.empty() ? "" : ",") + json_string(merge);
    const auto named = [&](std::int32_t token) {
      return token < 0
                 ? std::string("null")
                 : json_string(detail::stored_text(tokenizer, static_cast<std::size_t>(token)));
    };
    const auto truth = [](bool is) { return is ? "true" : "false"; };
    if (const Error why = write_file(
            folder + "/tokenizer.json",
            R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added +
                R"(],"normalizer":)" + (tokenizer.composes() ? R"({"type":"NFC"})" : "null") +
                R"(,"pre_tokenizer":)" + detail::words_json(tokenizer) + R"(,"post_processor":)" +
                detail::ends_json(tokenizer) +
                R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
                R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":)" +
                named(tokenizer.unknown()) +
                R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)"
                R"("byte_fallback":false,"ignore_merges":)" +
                truth(tokenizer.has_whole_words()) + R"(,"vocab":{)" + vocabulary +
                R"(},"merges":[)" + merges + "]}}\n"))
      return why;
    std::string config = R"({"tokenizer_class":"PreTrainedTokenizerFast")";
    for (const auto& [name, token] :
         {std::pair{"bos", tokenizer.bos()}, std::pair{"eos", tokenizer.eos()},
          std::pair{"unk", tokenizer.unknown()}, std::pair{"pad", tokenizer.padding()}})
      config += std::string(",\"") + name + "_token\":" + named(token);
    config += std::string(",\"add_bos_token\":") + truth(tokenizer.adds_bos()) +
              ",\"add_eos_token\":" + truth(tokenizer.adds_eos()) +
              ",\"clean_up_tokenization_spaces\":false";
    if (!chat_template.empty()) config += ",\"chat_template\":" + json_string(chat_template);
    return write_file(folder + "/tokenizer_config.json", config + "}\n");
  });
}

/// Adds the metadata of a byte-level tokenizer to `file`, for a network of `vocabulary` tokens: numbers without a token
/// get unused ones. llama.cpp knows some ways to cut words by name, each with its own settings: others are refused in words.
inline Error add_gguf_tokenizer(GgufWriter& file, const Tokenizer& tokenizer,
                                std::size_t vocabulary, const std::string& chat_template = {}) {
  using Kind = TokenizerParts::Kind;
  if (const Error why = check_byte_level(tokenizer)) return why;
  const auto known = std::find_if(
      std::begin(detail::gguf_words), std::end(detail::gguf_words), [&](const auto& one) {
        return one.words == tokenizer.words() && one.compose == tokenizer.composes() &&
               one.whole_words == tokenizer.has_whole_words();
      });
  if (known == std::end(detail::gguf_words))
    return Error::say(
        "a GGUF file has no name for how this tokenizer cuts words: those of GPT-2, Llama 3 (with "
        "ignore_merges), Qwen 2 (with the normalizer NFC) and SmolLM are written");
  if (tokenizer.size() > vocabulary)
    return Error::misuse("the tokenizer has ", tokenizer.size(), " tokens, and the network ",
                         vocabulary);
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
  for (std::size_t i = 0; i < vocabulary; ++i) {
    const Kind kind = i < tokenizer.size() ? tokenizer.kind_of(i) : Kind::none;
    std::string text = i < tokenizer.size() ? detail::stored_text(tokenizer, i) : std::string();
    if (text.empty()) text = "[PAD" + std::to_string(i) + "]";
    texts.push_back(text);
    types.push_back(kind == Kind::word      ? 1
                    : kind == Kind::special ? 3
                    : kind == Kind::added   ? 4
                                            : 5);
  }
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", known->name);
  file.texts("tokenizer.ggml.tokens", texts);
  file.numbers("tokenizer.ggml.token_type", types);
  file.texts("tokenizer.ggml.merges", detail::stored_merges(tokenizer));
  for (const auto& [name, token] :
       {std::pair{"bos", tokenizer.bos()}, std::pair{"eos", tokenizer.eos()},
        std::pair{"unknown", tokenizer.unknown()}, std::pair{"padding", tokenizer.padding()}})
    if (token >= 0)
      file.number("tokenizer.ggml." + std::string(name) + "_token_id",
                  static_cast<std::uint32_t>(token));
  file.truth("tokenizer.ggml.add_bos_token", tokenizer.adds_bos());
  file.truth("tokenizer.ggml.add_eos_token", tokenizer.adds_eos());
  if (!chat_template.empty()) file.text("tokenizer.chat_template", chat_template);
  return {};
}

}}  // namespace adacc::v0_1
