// SPDX-License-Identifier: MIT
/// Tokenizers as files have them: tokenizer.json and tokenizer_config.json in a folder, tokenizer.ggml.* in the metadata
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
#include "../../core/extremes.hpp"
#include "../../core/no_memory.hpp"
#include "../file.hpp"
#include "../json_string.hpp"
#include "../utf8.hpp"
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
  const bool letters =
      tokenizer.kind_of(token) == TokenizerParts::Kind::word && !tokenizer.is_sentencepiece();
  return letters ? letters_of_bytes(text) : std::string(text);
}

/// The text of a token in JSON; null for no token.
inline std::string named_json(const Tokenizer& tokenizer, std::int32_t token) {
  return token < 0 ? std::string("null")
                   : json_string(stored_text(tokenizer, static_cast<std::size_t>(token)));
}

/// The first merges first; those of one rank by token.
inline std::vector<BytePairs::Merge> sorted_merges(const Tokenizer& tokenizer) {
  std::vector<BytePairs::Merge> merges = tokenizer.merges();
  std::sort(merges.begin(), merges.end(), [](const auto& a, const auto& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.merged < b.merged;
  });
  return merges;
}

/// "left right" of each merge as texts in a file, the first merges first.
inline std::vector<std::string> stored_merges(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (const BytePairs::Merge& merge : sorted_merges(tokenizer))
    texts.push_back(stored_text(tokenizer, static_cast<std::size_t>(merge.left)) + " " +
                    stored_text(tokenizer, static_cast<std::size_t>(merge.right)));
  return texts;
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

namespace detail {

/// The member "decoder" of tokenizer.json.
inline std::string decoder_json(const Tokenizer& tokenizer) {
  if (!tokenizer.is_sentencepiece())
    return R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  std::string made = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":)" +
                     json_string(std::string(lower_block)) +
                     R"(},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})";
  if (tokenizer.has_space_before()) made += R"(,{"type":"Strip","content":" ","start":1,"stop":0})";
  return made + "]}";
}

/// Refuses merges by score that no order replaces. Those of one score are done from left to right: an order does the same if no two
/// of them can overlap, and none makes a merge possible that comes no later.
inline Error check_order(const Tokenizer& tokenizer) {
  const std::vector<BytePairs::Merge> merges = sorted_merges(tokenizer);
  const auto place = [](std::int32_t token) { return static_cast<std::size_t>(token); };
  std::vector<std::uint32_t> beginning(tokenizer.size()),
      shared(tokenizer.size());  // of a token's merge: its rank and 1, if others have this rank
  std::int32_t bad = -1;
  for (auto first = merges.begin(); first != merges.end();) {
    const auto last =
        std::find_if(first, merges.end(), [&](const auto& one) { return one.rank != first->rank; });
    for (auto one = first; one != last; ++one) ++beginning[place(one->left)];
    for (auto one = first; one != last; ++one) {
      if (beginning[place(one->right)] > (one->left == one->right ? 1U : 0U)) bad = one->merged;
      if (last - first > 1) shared[place(one->merged)] = one->rank + 1;
    }
    for (auto one = first; one != last; ++one) beginning[place(one->left)] = 0;
    first = last;
  }
  for (const BytePairs::Merge& merge : merges)
    for (const std::int32_t part : {merge.left, merge.right})
      if (shared[place(part)] > merge.rank) bad = part;
  if (bad < 0) return {};
  return Error::say("its token ", bad,
                    " has the score of another, and a text decides which is merged first");
}

/// Whether two tokenizers have the same tokens for each text.
inline bool are_alike(const Tokenizer& a, const Tokenizer& b) {
  using Kind = TokenizerParts::Kind;
  const auto kind = [](const Tokenizer& its, std::size_t i) {
    return i < its.size() ? its.kind_of(i) : Kind::none;
  };
  for (std::size_t i = 0; i < larger(a.size(), b.size()); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    if (kind(a, i) != kind(b, i) || a.is_normalized(i) != b.is_normalized(i)) return false;
    if (kind(a, i) != Kind::none && a.text_of(token) != b.text_of(token)) return false;
  }
  const auto first = sorted_merges(a), second = sorted_merges(b);
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const auto& one, const auto& other) {
                      return one.left == other.left && one.right == other.right &&
                             one.merged == other.merged;
                    }) &&
         a.words() == b.words() && a.normalizer() == b.normalizer() &&
         a.metaspace() == b.metaspace() && a.has_whole_words() == b.has_whole_words() &&
         a.unknown() == b.unknown() && a.is_sentencepiece() == b.is_sentencepiece() &&
         a.is_unigram() == b.is_unigram() && a.unigram().is_like(b.unigram());
}

/// Refuses parts that make a tokenizer with other tokens for a text.
inline Error check_parts(TokenizerParts parts, const Tokenizer& tokenizer, const char* otherwise) {
  const auto made = Tokenizer::make(static_cast<TokenizerParts&&>(parts));
  if (!made) return made.error;
  return are_alike(*made, tokenizer) ? Error() : Error::say(otherwise);
}

/// [["text", score], …] of a unigram model.
inline std::string pieces_json(const Tokenizer& tokenizer) {
  std::string all;
  for (std::size_t i = 0; i < tokenizer.unigram().size(); ++i) {
    all += i == 0 ? "[" : ",[";
    all += json_string(std::string(tokenizer.text_of(static_cast<std::int32_t>(i)))) + ',';
    all += NumberText::shortest(tokenizer.unigram().scores()[i]);
    all += ']';
  }
  return '[' + all + ']';
}

}  // namespace detail

/// The text of a tokenizer.json. Refused is a tokenizer that would be read from the text as another one, by this library or by PyPI's
/// tokenizers.
inline Result<std::string> tokenizer_json(const Tokenizer& tokenizer) {
  using detail::json_string;
  using Kind = TokenizerParts::Kind;
  const auto refused = [](const auto&... why) {
    return Error::say("the tokenizer has no form as a tokenizer.json: ", why...);
  };
  const bool pairs = tokenizer.is_sentencepiece() && !tokenizer.is_unigram();
  if (const Error why = pairs ? detail::check_order(tokenizer) : Error())
    return refused(why.text());
  const std::string normalizer = detail::normalizer_json(tokenizer.normalizer());
  if (normalizer.empty())
    return refused(
        "it has its text as llama.cpp's unigram models do, which PyPI's tokenizers do not");
  std::vector<std::string> texts;
  std::string vocabulary, added, merges;
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const Kind kind = tokenizer.kind_of(i);
    if (kind == Kind::none) continue;
    texts.push_back(detail::stored_text(tokenizer, i));
    if (!is_utf8(texts.back())) return refused("its token ", i, " is no UTF-8");
    const std::string text = json_string(texts.back());
    const std::string number = std::to_string(i);
    if (!vocabulary.empty()) vocabulary += ',';
    vocabulary.append(text).append(":").append(number);
    if (kind == Kind::word || kind == Kind::byte) continue;
    if (!added.empty()) added += ',';
    added.append(R"({"id":)").append(number).append(R"(,"content":)").append(text);
    added += R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":)";
    added += tokenizer.is_normalized(i) ? "true" : "false";
    added += R"(,"special":)";
    added += kind == Kind::special ? "true}" : "false}";
  }
  std::sort(texts.begin(), texts.end());
  const auto twice = std::adjacent_find(texts.begin(), texts.end());
  if (twice != texts.end() && !tokenizer.is_unigram())
    return refused("two of its tokens are \"", one_line(*twice, 40).c_str(), "\"");
  for (const std::string& merge : detail::stored_merges(tokenizer))
    merges += (merges.empty() ? "" : ",") + json_string(merge);
  const auto truth = [](bool is) { return is ? "true" : "false"; };
  std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
                     added + R"(],"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
                     detail::words_json(tokenizer) + R"(,"post_processor":)" +
                     detail::ends_json(tokenizer) + R"(,"decoder":)" +
                     detail::decoder_json(tokenizer) + R"(,"model":)";
  if (tokenizer.is_unigram())
    json += R"({"type":"Unigram","unk_id":)" +
            (tokenizer.unknown() < 0 ? "null" : std::to_string(tokenizer.unknown())) +
            R"(,"vocab":)" + detail::pieces_json(tokenizer) + R"(,"byte_fallback":)" +
            truth(tokenizer.unigram().unknown().falls_back) + "}}\n";
  else
    json += R"({"type":"BPE","dropout":null,"unk_token":)" +
            detail::named_json(tokenizer, tokenizer.unknown()) +
            R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":)" +
            truth(pairs) + R"(,"byte_fallback":)" + truth(pairs) + R"(,"ignore_merges":)" +
            truth(tokenizer.has_whole_words()) + R"(,"vocab":{)" + vocabulary + R"(},"merges":[)" +
            merges + "]}}\n";
  TokenizerParts parts;
  if (const std::string why = detail::TokenizerJson(json, parts).read(); !why.empty())
    return refused("it ", why.c_str());
  if (const Error why = detail::check_parts(static_cast<TokenizerParts&&>(parts), tokenizer,
                                            "it would be read as another one"))
    return refused(why.text());
  return json;
}

/// Writes tokenizer.json and tokenizer_config.json into an existing folder, or nothing.
inline Error write_tokenizer(const std::string& folder, const Tokenizer& tokenizer,
                             const std::string& chat_template = {}) {
  return detail::or_no_memory("to write a tokenizer", [&]() -> Error {
    const auto json = tokenizer_json(tokenizer);
    if (!json) return json.error;
    if (const Error why = write_file(folder + "/tokenizer.json", *json)) return why;
    std::string config = R"({"tokenizer_class":"PreTrainedTokenizerFast")";
    for (const auto& [name, token] :
         {std::pair{"bos", tokenizer.bos()}, std::pair{"eos", tokenizer.eos()},
          std::pair{"unk", tokenizer.unknown()}, std::pair{"pad", tokenizer.padding()}})
      config += std::string(",\"") + name + "_token\":" + detail::named_json(tokenizer, token);
    const auto truth = [](bool is) { return is ? "true" : "false"; };
    config += std::string(",\"add_bos_token\":") + truth(tokenizer.adds_bos()) +
              ",\"add_eos_token\":" + truth(tokenizer.adds_eos()) +
              ",\"clean_up_tokenization_spaces\":false";
    if (!chat_template.empty())
      config += ",\"chat_template\":" + detail::json_string(chat_template);
    return write_file(folder + "/tokenizer_config.json", config + "}\n");
  });
}

namespace detail {

/// The scores of tokens in a GGUF file: that of a merge is its place, and other tokens come behind.
inline Result<std::vector<double>> scores_of_merges(const Tokenizer& tokenizer) {
  const auto merges = sorted_merges(tokenizer);
  std::vector<double> scores(tokenizer.size(), -static_cast<double>(merges.size()));
  for (std::size_t i = 0; i < merges.size(); ++i)
    scores[static_cast<std::size_t>(merges[i].merged)] = -static_cast<double>(i);
  TokenizerParts parts;
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    parts.texts.emplace_back(tokenizer.text_of(static_cast<std::int32_t>(i)));
    parts.kinds.push_back(tokenizer.kind_of(i));
  }
  parts.scores = scores;
  parts.sentencepiece = true;
  parts.words = PreTokenizer::none;
  parts.normalizer.steps = block_steps(tokenizer.has_space_before());
  parts.unknown = tokenizer.unknown();
  if (const Error why =
          check_parts(static_cast<TokenizerParts&&>(parts), tokenizer,
                      "a GGUF file has scores of tokens in place of merges, and no scores give the "
                      "merges of this tokenizer"))
    return why;
  return scores;
}

/// Refuses tokenizers for which a GGUF file has no form.
inline Error check_gguf_form(const Tokenizer& tokenizer) {
  const auto refused = [](const auto&... why) {
    return Error::say("the tokenizer has no form in a GGUF file: ", why...);
  };
  const std::vector<NormalizerStep>& steps = tokenizer.normalizer().steps;
  for (std::size_t i = 0; i < tokenizer.size(); ++i)
    if (tokenizer.is_normalized(i)) return refused("its token ", i, " is found in normalized text");
  if (tokenizer.metaspace().used)
    return refused(
        "its words are Metaspace's, and llama.cpp puts U+2581 before texts that begin with one, "
        "too");
  if (tokenizer.is_unigram())
    return tokenizer.normalizer().has(NormalizerStep::Kind::block_words)
               ? Error()
               : refused("llama.cpp normalizes the text of unigram models otherwise");
  if (tokenizer.is_sentencepiece()) {
    if (steps != block_steps(tokenizer.has_space_before()))
      return refused("llama.cpp normalizes its text otherwise");
    const Error why = check_order(tokenizer);
    return why ? refused(why.text()) : Error();
  }
  return {};
}

}  // namespace detail

/// Adds the metadata of a tokenizer to `file`, for a network of `vocabulary` tokens: numbers without a token
/// get unused ones. llama.cpp knows some ways to cut words by name, each with its own settings: others are refused in words.
inline Error add_gguf_tokenizer(GgufWriter& file, const Tokenizer& tokenizer,
                                std::size_t vocabulary, const std::string& chat_template = {}) {
  using Kind = TokenizerParts::Kind;
  const bool unigram = tokenizer.is_unigram(), characters = tokenizer.is_sentencepiece();
  if (const Error why = detail::check_gguf_form(tokenizer)) return why;
  Result<std::vector<double>> scores = characters && !unigram
                                           ? detail::scores_of_merges(tokenizer)
                                           : Result(tokenizer.unigram().scores());
  if (!scores) return scores.error;
  const auto known = std::find_if(
      std::begin(detail::gguf_words), std::end(detail::gguf_words), [&](const auto& one) {
        const auto& steps = tokenizer.normalizer().steps;
        return one.words == tokenizer.words() && steps.size() == (one.compose ? 1U : 0U) &&
               one.compose == tokenizer.normalizer().has(NormalizerStep::Kind::compose) &&
               one.whole_words == tokenizer.has_whole_words();
      });
  if (!characters && known == std::end(detail::gguf_words))
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
    const bool is_unknown = characters && tokenizer.unknown() >= 0 &&
                            i == static_cast<std::size_t>(tokenizer.unknown());
    types.push_back(kind == Kind::word      ? 1
                    : kind == Kind::byte    ? 6
                    : kind == Kind::added   ? 4
                    : kind != Kind::special ? 5
                    : is_unknown            ? 2
                                            : 3);
  }
  file.text("tokenizer.ggml.model", unigram ? "t5" : characters ? "llama" : "gpt2");
  file.text("tokenizer.ggml.pre", characters ? "default" : known->name);
  file.texts("tokenizer.ggml.tokens", texts);
  file.numbers("tokenizer.ggml.token_type", types);
  if (characters) {
    scores->resize(vocabulary, -static_cast<double>(vocabulary));
    file.reals("tokenizer.ggml.scores", std::vector<float>(scores->begin(), scores->end()));
  }
  if (unigram) {
    for (const NormalizerStep& step : tokenizer.normalizer().steps)
      if (step.kind == NormalizerStep::Kind::block_words) {
        file.truth("tokenizer.ggml.add_space_prefix", step.left);
        file.truth("tokenizer.ggml.remove_extra_whitespaces", step.right);
      }
    if (!tokenizer.normalizer().charsmap.empty())
      file.bytes("tokenizer.ggml.precompiled_charsmap", tokenizer.normalizer().charsmap.bytes());
  } else if (characters) {
    file.truth("tokenizer.ggml.add_space_prefix", tokenizer.has_space_before());
  } else {
    file.texts("tokenizer.ggml.merges", detail::stored_merges(tokenizer));
  }
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
