// SPDX-License-Identifier: MIT
/// Tokenizers in the metadata of GGUF files (tokenizer.ggml.*).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/extremes.hpp"
#include "../../core/no_memory.hpp"
#include "../weights/gguf.hpp"
#include "byte_level.hpp"
#include "tokenizer.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

struct GgufWords {
  const char* name;  ///< tokenizer.ggml.pre
  PreTokenizer words;
  bool whole_words, compose;
  bool add_bos = false;  ///< where the file does not say
};
inline constexpr GgufWords gguf_words[] = {{"gpt-2", PreTokenizer::gpt2, false, false},
                                           {"llama-bpe", PreTokenizer::llama3, true, false, true},
                                           {"smollm", PreTokenizer::smollm, false, false},
                                           {"qwen2", PreTokenizer::qwen2, false, true}};

/// How words are cut, by name; an error lists the names.
inline Error find_words(const Gguf& file, TokenizerParts& parts) {
  std::string_view name;
  const GgufValue* const pre = file.value("tokenizer.ggml.pre");
  const bool named = pre != nullptr && pre->text(name);
  std::string list;
  for (const GgufWords& known : gguf_words) {
    list += (list.empty() ? "" : ", ") + std::string(known.name);
    if (!named || name != known.name) continue;
    parts.words = known.words;
    parts.whole_words = known.whole_words;
    if (known.compose) parts.normalizer.steps.push_back({NormalizerStep::Kind::compose});
    parts.add_bos = known.add_bos;
    return {};
  }
  if (!named)
    return file.fault("has no tokenizer.ggml.pre, which names how words are cut; those known are ",
                      list.c_str());
  return file.fault("cuts words as \"", one_line(std::string(name), 40).c_str(),
                    "\" (tokenizer.ggml.pre); those known are ", list.c_str());
}

/// tokenizer.ggml.NAME_token_id.
inline void find_token(const Gguf& file, const char* name, std::int32_t& token) {
  std::uint64_t number = 0;
  const GgufValue* const value = file.value("tokenizer.ggml." + std::string(name) + "_token_id");
  if (value != nullptr && value->whole_number(number))
    token = number > 0x7FFFFFFF ? 0x7FFFFFFF : static_cast<std::int32_t>(number);
}

/// The token at an end of a text, "bos" or "eos", and tokenizer.ggml.add_NAME_token; `adds` stays where the file does not say.
inline Error find_end(const Gguf& file, const char* name, std::int32_t& token, bool& adds) {
  find_token(file, name, token);
  const GgufValue* const add = file.value("tokenizer.ggml.add_" + std::string(name) + "_token");
  if (add == nullptr) return {};
  adds = add->is_true();
  if (adds && token < 0)
    return file.fault("adds a token ", name, " to each text (tokenizer.ggml.add_", name,
                      "_token), and does not say which (tokenizer.ggml.", name, "_token_id)");
  return {};
}

/// Kinds by tokenizer.ggml.token_type: 1 normal, 2 unknown, which llama.cpp takes out of a text as 3, control; 4 of the user,
/// 5 unused, 6 a byte.
inline TokenizerParts::Kind kind_of_gguf(double type) {
  using enum TokenizerParts::Kind;
  return type == 1                ? word
         : type == 2 || type == 3 ? special
         : type == 4              ? added
         : type == 6              ? byte
                                  : none;
}

/// Spaces become U+2581, of which one stands before a text, or none.
inline std::vector<NormalizerStep> block_steps(bool before) {
  const std::string block(lower_block);
  std::vector<NormalizerStep> steps;
  if (before) steps.push_back({NormalizerStep::Kind::prepend, "", block});
  steps.push_back({NormalizerStep::Kind::replace, " ", block});
  return steps;
}

/// The normalizer and the scores of a unigram model ("t5"), with llama.cpp's defaults. Bytes are no pieces there, and the score of unknown
/// characters is a float.
inline Error set_up_unigram(const Gguf& file, TokenizerParts& parts) {
  const auto truth = [&](const char* key) {
    const GgufValue* const value = file.value(key);
    return value != nullptr && value->is_true();
  };
  NormalizerStep spaces{NormalizerStep::Kind::block_words};
  spaces.left = truth("tokenizer.ggml.add_space_prefix");
  spaces.right = truth("tokenizer.ggml.remove_extra_whitespaces");
  parts.normalizer.steps = {{NormalizerStep::Kind::longest_charsmap}, spaces};
  parts.unigram = true;
  parts.byte_fallback = false;
  float least = 0;
  bool has_word = false;
  for (std::size_t i = 0; i < parts.scores.size(); ++i) {
    if (parts.kinds[i] == TokenizerParts::Kind::added) parts.scores[i] = 0;
    if (parts.kinds[i] != TokenizerParts::Kind::word) continue;
    const auto score = static_cast<float>(parts.scores[i]);
    least = has_word ? smaller(least, score) : score;
    has_word = true;
  }
  parts.unknown_score = static_cast<double>(least - 10.0F);
  const GgufValue* const map = file.value("tokenizer.ggml.precompiled_charsmap");
  if (map == nullptr) return {};
  std::string bytes;
  const auto keep = [&](double byte) {
    bytes += static_cast<char>(static_cast<int>(byte) & 0xFF);
    return true;
  };
  if (!map->array || GgufValue::size_of(map->kind) != 1 || !map->each_number(keep))
    return file.fault("has a tokenizer.ggml.precompiled_charsmap that is no list of bytes");
  auto made = Charsmap::make(bytes);
  if (!made) return file.fault("has a tokenizer whose precompiled_charsmap ", made.error.text());
  parts.normalizer.charsmap = static_cast<Charsmap&&>(*made);
  return {};
}

}  // namespace detail

/// The tokenizer of the file: byte-level ("gpt2" in tokenizer.ggml.model), SentencePiece's pairs by score ("llama"), or its
/// unigram models ("t5").
inline Result<Tokenizer> read_gguf_tokenizer(const Gguf& file) {
  return detail::or_no_memory("to read a tokenizer", [&]() -> Result<Tokenizer> {
    std::string_view model;
    const GgufValue* const named = file.value("tokenizer.ggml.model");
    if (named == nullptr || !named->text(model)) return file.fault("has no tokenizer.ggml.model");
    TokenizerParts parts;
    const bool unigram = model == "t5";
    parts.sentencepiece = unigram || model == "llama";
    if (!parts.sentencepiece && model != "gpt2")
      return file.fault("has a tokenizer of the kind \"", one_line(std::string(model), 40).c_str(),
                        "\" (tokenizer.ggml.model); those known are gpt2, llama and t5");
    parts.add_bos = model == "llama";
    if (unigram) {
      parts.add_eos = true;
      parts.padding = 0;
      parts.eos = 1;
      parts.unknown = 2;
    }
    if (parts.sentencepiece) parts.words = PreTokenizer::none;
    else if (const Error why = detail::find_words(file, parts)) return why;

    const auto array = [&](const char* key) { return file.value(key); };
    const GgufValue* const tokens = array("tokenizer.ggml.tokens");
    const auto keep = [&](std::string_view text) { return parts.texts.emplace_back(text), true; };
    if (tokens == nullptr || !tokens->array || !tokens->each_string(keep))
      return file.fault("has no tokenizer.ggml.tokens");
    const std::size_t count = parts.texts.size();
    const auto as_many = [&](const GgufValue* value) {
      return value != nullptr && value->array && value->count == count;
    };
    const GgufValue* const types = array("tokenizer.ggml.token_type");
    const auto keep_kind = [&](double type) {
      return parts.kinds.push_back(detail::kind_of_gguf(type)), true;
    };
    if (!as_many(types) || !types->each_number(keep_kind))
      return file.fault("has no tokenizer.ggml.token_type for each of ", count, " tokens");
    if (parts.sentencepiece) {
      const GgufValue* const scores = array("tokenizer.ggml.scores");
      const auto keep_score = [&](double score) { return parts.scores.push_back(score), true; };
      if (!as_many(scores) || !scores->each_number(keep_score))
        return file.fault("has no tokenizer.ggml.scores for each of ", count, " tokens");
      const GgufValue* const prefix = file.value("tokenizer.ggml.add_space_prefix");
      if (const Error why = unigram ? detail::set_up_unigram(file, parts) : Error()) return why;
      if (!unigram)
        parts.normalizer.steps = detail::block_steps(prefix == nullptr || prefix->is_true());
      detail::find_token(file, "unknown", parts.unknown);
    } else {
      std::string bytes, left, right;
      for (std::size_t i = 0; i < count; ++i) {
        if (parts.kinds[i] != TokenizerParts::Kind::word) continue;
        if (bytes_of_letters(parts.texts[i], bytes)) parts.texts[i] = bytes;
        else parts.kinds[i] = TokenizerParts::Kind::none;
      }
      std::string bad;
      const auto keep_merge = [&](std::string_view text) {
        if (!bytes_of_merge(text, left, right))
          return bad = std::string(text.substr(0, 200)), false;
        return parts.merges.emplace_back(left, right), true;
      };
      const GgufValue* const merges = array("tokenizer.ggml.merges");
      if (merges == nullptr || !merges->array || merges->kind != GgufKind::string)
        return file.fault("has no tokenizer.ggml.merges");
      if (!merges->each_string(keep_merge))
        return file.fault("has as merge ", parts.merges.size(), " \"", one_line(bad, 40).c_str(),
                          "\", which is no two pieces of bytes");
    }
    detail::find_token(file, "padding", parts.padding);
    if (const Error why = detail::find_end(file, "bos", parts.bos, parts.add_bos)) return why;
    if (const Error why = detail::find_end(file, "eos", parts.eos, parts.add_eos)) return why;
    auto made = Tokenizer::make(static_cast<TokenizerParts&&>(parts));
    if (!made) return file.fault(made.error.text());
    return made;
  });
}

}}  // namespace adacc::v0_1
