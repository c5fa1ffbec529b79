// SPDX-License-Identifier: MIT
// Byte-pair encoders on small vocabularies. On 10,000 lines of many kinds their tokens are those of another
// program: bench/peers/tokenizer_lines.py, test reference_tokenizers.
#include "adacc/io/tokenizer/read_tokenizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../train/support.hpp"
#include "adacc/io/tokenizer/chat.hpp"
#include "adacc/io/tokenizer/gguf_tokenizer.hpp"
#include "adacc/io/tokenizer/write_tokenizer.hpp"
#include "gguf_bytes.hpp"

namespace tokenizer_test {
namespace {

using namespace adacc;
using gguf_test::GgufBytes;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

/// "a|b|c": the words of a text.
std::string words_of(PreTokenizer by, const std::string& text) {
  std::string words, all;
  each_word(by, text, [&](std::string_view word) {
    words += (words.empty() ? "" : "|") + std::string(word);
    all += word;
  });
  CHECK(all == text);
  return words;
}

/// The letter of a byte: of a space U+0120, of an end of line U+010A.
std::string letters(std::string text) {
  std::string out;
  for (const char c : text)
    if (c == ' ') out += "\xC4\xA0";
    else if (c == '\n') out += "\xC4\x8A";
    else out += c;
  return out;
}
std::string escaped(const std::string& text) {
  return text == "\"" || text == "\\" ? "\\" + text : text;
}

/// All bytes of ASCII that are printed, space and end of line, and what merges give; then special tokens.
struct Vocabulary {
  std::vector<std::string> texts;
  std::vector<std::string> merges{"h e",    "l l", "he ll", "hell o", "\xC4\xA0 hello",
                                  "o hell", "1 2"};
  std::vector<std::string> specials{"<|im_start|>", "<|im_end|>", "<|im_end|>x"};

  Vocabulary() {
    for (char c = '!'; c <= '~'; ++c) texts.push_back(std::string(1, c));
    texts.push_back(letters(" "));
    texts.push_back(letters("\n"));
    for (const std::string& merge : merges) {
      std::string both = merge;
      both.erase(both.find(' '), 1);
      texts.push_back(both);
    }
  }
  std::string json(const std::string& words =
                       R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
                   const std::string& more = "", const std::string& model = "") const {
    std::string vocab, pairs, added;
    for (const std::string& text : texts)
      vocab += (vocab.empty() ? "\"" : ",\"") + escaped(text) +
               "\":" + std::to_string(&text - texts.data());
    for (const std::string& merge : merges) pairs += (pairs.empty() ? "\"" : ",\"") + merge + "\"";
    for (std::size_t i = 0; i < specials.size(); ++i)
      added += std::string(i == 0 ? "" : ",") + R"({"id":)" + std::to_string(texts.size() + i) +
               R"(,"content":")" + specials[i] + R"(","single_word":false,"special":true})";
    return R"({"version":"1.0",)" + more + R"("added_tokens":[)" + added +
           R"(],"normalizer":null,"pre_tokenizer":)" + words + R"(,"model":{"type":"BPE",)" +
           model + R"("vocab":{)" + vocab + R"(},"merges":[)" + pairs + "]}}";
  }
  GgufBytes gguf(const char* words = "gpt-2") const {
    GgufBytes file;
    std::vector<std::string> all = texts;
    all.insert(all.end(), specials.begin(), specials.end());
    std::string kinds;
    for (std::size_t i = 0; i < all.size(); ++i)
      kinds += gguf_test::raw<std::int32_t>(i < texts.size() ? 1 : 3);
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", words);
    file.texts("tokenizer.ggml.tokens", all);
    file.array("tokenizer.ggml.token_type", GgufKind::i32, all.size(), kinds);
    file.texts("tokenizer.ggml.merges", merges);
    file.number("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(texts.size()) + 1);
    return file;
  }
};

/// Pairs by score as Llama 2 has them: the unknown token, those of the ends, 256 bytes, merges, letters.
struct Pairs {
  std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
  std::vector<float> scores{0, 0, 0};

  Pairs() {
    constexpr const char* digits = "0123456789ABCDEF";
    for (std::size_t b = 0; b < 256; ++b)
      add({'<', '0', 'x', digits[b / 16], digits[b % 16], '>'}, 0);
    float score = 0;
    const std::string block = "\xE2\x96\x81";
    for (const std::string& text :
         {block + block, std::string("ab"), std::string("bc"), block + block + block + block,
          block + "a", std::string("abc"), block + block + block, block, std::string("a"),
          std::string("b"), std::string("c"), std::string("d"), std::string("\xC3\xA9")})
      add(text, --score);
  }
  void add(const std::string& text, float score) {
    texts.push_back(text);
    scores.push_back(score);
  }
  /// The number of texts if there is none.
  std::size_t find(const std::string& text) const {
    return static_cast<std::size_t>(std::find(texts.begin(), texts.end(), text) - texts.begin());
  }
  GgufBytes gguf() const {
    std::string score_bytes, kinds;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      score_bytes += gguf_test::raw(scores[i]);
      kinds += gguf_test::raw<std::int32_t>(i == 0 ? 2 : i < 3 ? 3 : i < 3 + 256 ? 6 : 1);
    }
    GgufBytes file;
    file.text("tokenizer.ggml.model", "llama");
    file.texts("tokenizer.ggml.tokens", texts);
    file.array("tokenizer.ggml.token_type", GgufKind::i32, texts.size(), kinds);
    file.array("tokenizer.ggml.scores", GgufKind::f32, texts.size(), score_bytes);
    file.number("tokenizer.ggml.unknown_token_id", 0);
    file.number("tokenizer.ggml.bos_token_id", 1);
    file.number("tokenizer.ggml.eos_token_id", 2);
    return file;
  }
};

Result<Tokenizer> from_json(const std::string& json) {
  const Folder folder;
  write_file(folder / "tokenizer.json", json);
  return read_tokenizer(folder.path);
}
Result<Tokenizer> from_gguf(const GgufBytes& bytes) {
  const Folder folder;
  write_file(folder / "model.gguf", bytes.file());
  const auto file = Gguf::open(folder / "model.gguf");
  if (!file) return file.error;
  return read_gguf_tokenizer(*file);
}

/// The file with an architecture and a tensor, written and read.
Gguf written(GgufWriter& file, const Folder& folder) {
  file.text("general.architecture", "llama");
  file.tensor("x", GgufType::f32, {1});
  const float one = 1;
  REQUIRE(!file.begin(folder / "model.gguf"));
  REQUIRE(!file.row({&one, Shape(1)}));
  REQUIRE(!file.end());
  auto read = Gguf::open(folder / "model.gguf");
  REQUIRE_MESSAGE(read, read.error.text());
  return std::move(*read);
}

std::string pieces_of(const Tokenizer& tokenizer, const std::string& text,
                      SpecialText special = SpecialText::tokens) {
  std::string pieces;
  const auto tokens = tokenizer.encode(text, special);
  for (const std::int32_t token : tokens)
    pieces += (pieces.empty() ? "" : "|") + std::string(tokenizer.text_of(token));
  CHECK(tokenizer.decode(tokens) == text);
  return pieces;
}

}  // namespace

TEST_CASE("words are cut as the models' regular expressions cut them") {
  using enum PreTokenizer;
  CHECK(words_of(gpt2, "I'll say 'sup, don'T 12345  x\n\n y ") ==
        "I|'ll| say| '|sup|,| don|'|T| 12345| | x|\n\n| y| ");
  CHECK(words_of(llama3, "I'LL say 'sup 12345  x\n\n y!\n\n") ==
        "I|'LL| say| '|sup| |123|45| | x|\n\n| y|!\n\n");
  CHECK(words_of(qwen2, "a 12\t\tb \r\n  c") == "a| |1|2|\t|\tb| \r\n| | c");
  CHECK(words_of(smollm, "a 12  b1 ") == "a| |1|2| | b|1| ");
  CHECK(words_of(llama3, "'\xC5\xBFx _a (b") == "'\xC5\xBF|x| _|a| (|b");
  CHECK(words_of(gpt2, "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x81\xE3\x80\x80\xD9\xA1\xC2\xBD") ==
        "\xE4\xBD\xA0\xE5\xA5\xBD|\xEF\xBC\x81|\xE3\x80\x80|\xD9\xA1\xC2\xBD");
  CHECK(words_of(gpt2, "a\xFF\xC3 b") == "a|\xFF\xC3| b");
  CHECK(words_of(none, "a b") == "a b");
  CHECK(words_of(gpt2, "").empty());
}

TEST_CASE("the merge of the lowest rank is first, of the same ones the leftmost") {
  const Vocabulary vocabulary;
  for (const auto& tokenizer : {from_json(vocabulary.json()), from_gguf(vocabulary.gguf())}) {
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    CHECK(tokenizer->size() == vocabulary.texts.size() + 3);
    CHECK(pieces_of(*tokenizer, "hello hello helo") == "hello| hello| |he|l|o");
    CHECK(pieces_of(*tokenizer, "lll ohell") == "ll|l| |ohell");
    CHECK(pieces_of(*tokenizer, "ohello") == "o|hello");  // "hell o" comes before "o hell"
    CHECK(pieces_of(*tokenizer, "").empty());
    CHECK(pieces_of(*tokenizer, "1212") == "12|12");
  }
}

TEST_CASE("a word that is a token is one without merging where the model says so") {
  Vocabulary vocabulary;
  vocabulary.texts.push_back("xyz");
  CHECK(pieces_of(*from_json(vocabulary.json()), "xyz") == "x|y|z");
  const std::string llama =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  const auto whole = from_json(vocabulary.json(llama, "", R"("ignore_merges":true,)"));
  REQUIRE_MESSAGE(whole, whole.error.text());
  CHECK(pieces_of(*whole, "xyz(xyz") == "xyz|(|x|y|z");
  CHECK(pieces_of(*from_gguf(vocabulary.gguf("llama-bpe")), "xyz") == "xyz");
  CHECK(pieces_of(*from_gguf(vocabulary.gguf("qwen2")), "xyz12") == "x|y|z|1|2");
}

TEST_CASE("special tokens are taken out of a text, the longest first, or are text") {
  const auto tokenizer = from_json(Vocabulary().json());
  REQUIRE(tokenizer);
  CHECK(pieces_of(*tokenizer, "h<|im_end|>xhe<|im_end|><|im_") ==
        "h|<|im_end|>x|he|<|im_end|>|<|||i|m|_");
  CHECK(pieces_of(*tokenizer, "<|im_end|>", SpecialText::text) == "<|||i|m|_|e|n|d|||>");
  const std::int32_t end = tokenizer->special("<|im_end|>");
  REQUIRE(end >= 0);
  CHECK(tokenizer->is_special(end));
  CHECK(tokenizer->special("h") == -1);
  CHECK(tokenizer->decode({end, 0}, SpecialText::tokens) == "!");
  CHECK(tokenizer->text_of(-1).empty());
  CHECK(tokenizer->text_of(100000).empty());
}

TEST_CASE("bytes without a token are left out and counted, or are the unknown one") {
  Vocabulary vocabulary;
  const auto tokenizer = from_json(vocabulary.json());
  REQUIRE(tokenizer);
  std::size_t left_out = 0;
  const auto tokens = tokenizer->encode("he\x01\xC3\xA9llo", SpecialText::tokens, &left_out);
  CHECK(left_out == 3);
  CHECK(tokenizer->decode(tokens) == "hello");
  const auto unknown = from_json(
      vocabulary.json(R"({"type":"ByteLevel","use_regex":true})", "", R"("unk_token":"?",)"));
  REQUIRE_MESSAGE(unknown, unknown.error.text());
  CHECK(unknown->decode(unknown->encode("a\x01")) == "a?");
}

TEST_CASE(
    "text is composed where the tokenizer says so, special tokens are not, and no UTF-8 stays") {
  const auto same = [](const std::string& text) { return composed_text(text) == text; };
  CHECK(composed_text("e\xCC\x81 e") == "\xC3\xA9 e");
  CHECK(composed_text("e\xCC\x81\xFF\xC3") == "\xC3\xA9\xFF\xC3");
  CHECK(composed_text("\xE2\x84\xAB") == "\xC3\x85");                // U+212B
  CHECK(composed_text("q\xCC\x87\xCC\xA3") == "q\xCC\xA3\xCC\x87");  // by class
  CHECK(composed_text("a\xCC\xA3\xCC\x82") == "\xE1\xBA\xAD");       // both at once
  CHECK(composed_text("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB") == "\xED\x95\x9C");
  CHECK(composed_text("\xE0\xA5\x98") == "\xE0\xA4\x95\xE0\xA4\xBC");  // never composed
  CHECK((same("") && same("abc\xC3\xA9\xE4\xBD\xA0\xEF\xBF\xBD") && same("\xED\x95\x9C")));
  CHECK(same("e\xCC\xB1x\xCC\x81"));
  CHECK(same("e\xCC\x85\xCC\x81"));  // a mark of the same class is between
  Vocabulary vocabulary;
  vocabulary.texts.push_back("\xC3\x83");  // the bytes of U+00E9
  vocabulary.texts.push_back("\xC2\xA9");
  std::string json = vocabulary.json();
  json.replace(json.find("\"normalizer\":null"), 17, "\"normalizer\":{ \"type\": \"NFC\" }");
  const auto tokenizer = from_json(json);
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  const auto composes = [](const Tokenizer& its) {
    return its.normalizer().has(NormalizerStep::Kind::compose);
  };
  CHECK(composes(*tokenizer));
  CHECK(tokenizer->decode(tokenizer->encode("e\xCC\x81")) == "\xC3\xA9");
  CHECK(composes(*from_gguf(vocabulary.gguf("qwen2"))));
  CHECK_FALSE(composes(*from_gguf(vocabulary.gguf())));
}

TEST_CASE("vocab.json and merges.txt are a tokenizer") {
  const Vocabulary vocabulary;
  const Folder folder;
  std::string vocab, merges = "#version: 0.2\n";
  for (const std::string& text : vocabulary.texts)
    vocab += (vocab.empty() ? "{\"" : ",\"") + escaped(text) +
             "\":" + std::to_string(&text - vocabulary.texts.data());
  for (const std::string& merge : vocabulary.merges) merges += merge + "\r\n";
  write_file(folder / "vocab.json",
             vocab + ",\"<|end|>\":" + std::to_string(vocabulary.texts.size()) + "}");
  write_file(folder / "merges.txt", merges);
  const auto tokenizer = read_vocabulary(folder.path, PreTokenizer::gpt2, {"<|end|>"});
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  CHECK(pieces_of(*tokenizer, "hello<|end|> hello") == "hello|<|end|>| hello");
  write_file(folder / "merges.txt", "h e\nhe\n");
  CHECK(says(read_vocabulary(folder.path).error, "has in line 2 \"he\", which is no two pieces"));
}

TEST_CASE("pairs by score: spaces have a letter, and what has no token is bytes") {
  // Scores, not an order: "ab" is the best, then "bc".
  const std::vector<std::string> texts{"<unk>",
                                       "<s>",
                                       "\xE2\x96\x81",
                                       "a",
                                       "b",
                                       "c",
                                       "ab",
                                       "bc",
                                       "\xE2\x96\x81"
                                       "a",
                                       "\xC3\xA9",
                                       "<0xC3>",
                                       "<0xBC>",
                                       "<0x0A>"};
  const std::vector<float> scores{0, 0, -9, -8, -8, -8, -1, -2, -3, -9, 0, 0, 0};
  const std::int32_t kinds[] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6};
  std::string score_bytes, kind_bytes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    score_bytes += gguf_test::raw(scores[i]);
    kind_bytes += gguf_test::raw(kinds[i]);
  }
  GgufBytes file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", texts);
  file.array("tokenizer.ggml.token_type", GgufKind::i32, texts.size(), kind_bytes);
  GgufBytes without = file;
  file.array("tokenizer.ggml.scores", GgufKind::f32, texts.size(), score_bytes);
  file.number("tokenizer.ggml.bos_token_id", 1);
  file.number("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = from_gguf(file);
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  CHECK(tokenizer->adds_bos());
  CHECK(tokenizer->bos() == 1);
  CHECK(tokenizer->encode("abc") == std::vector<std::int32_t>{2, 6, 5});
  CHECK(tokenizer->encode("a bc") == std::vector<std::int32_t>{8, 2, 7});
  CHECK(tokenizer->encode("\xC3\xA9\xC3\xBC\n") == std::vector<std::int32_t>{2, 9, 10, 11, 12});
  for (const char* const text : {"abc", " a b", "\xC3\xBC\n", ""})
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  CHECK(says(from_gguf(without).error, "has no tokenizer.ggml.scores for each of 13 tokens"));
}

TEST_CASE("what is not computed, or is missing, is refused in words") {
  const Vocabulary good;
  const auto refusal = [](const std::string& json) { return from_json(json).error; };
  CHECK(says(refusal(good.json(R"({"type":"Whitespace"})")), "has the pre-tokenizer Whitespace"));
  CHECK(
      says(refusal(good.json(R"({"type":"Split","pattern":{"Regex":"a+"},"behavior":"Isolated"})")),
           "cuts words by a+, which is none of"));
  CHECK(says(refusal(good.json(R"({"type":"ByteLevel","add_prefix_space":true})")),
             "add_prefix_space true"));
  std::string json = good.json();
  json.replace(json.find("\"normalizer\":null"), 17, "\"normalizer\":{\"type\":\"NFKC\"}");
  CHECK(says(refusal(json),
             "has the normalizer NFKC; those known are NFC, Prepend, Replace, Strip and Precom"));
  json = good.json();
  json.replace(json.find("\"BPE\""), 5, "\"Unigram\"");
  CHECK(says(refusal(json), "a model of the type Unigram with the vocabulary of another"));
  json = good.json();
  json.replace(json.find("\"BPE\""), 5, "\"WordLevel\"");
  CHECK(says(refusal(json), "a model of the type WordLevel, and has to have BPE or Unigram"));
  CHECK(says(refusal(good.json("{\"type\":\"ByteLevel\"}", "", "\"byte_fallback\":true,")),
             "byte_fallback true"));
  json = good.json();
  json.replace(json.find("\"single_word\":false"), 19, "\"single_word\":true");
  CHECK(says(refusal(json), "an added token with single_word true"));
  Vocabulary bad;
  bad.merges.push_back("h q");
  CHECK(says(refusal(bad.json()),
             "merge 7 is of \"h\" and \"q\", and its vocabulary lacks both as one"));
  CHECK(says(from_gguf(bad.gguf()).error, "lacks both as one"));
  bad = {};
  bad.merges[2] = "he";
  CHECK(says(refusal(bad.json()), "has as merge 2 \"he\", which is no two pieces"));
  json = good.json();
  json.replace(json.find("\"vocab\":{"), 9, "\"vocab\":{\"zz\":4000000000,");
  CHECK(says(refusal(json), "gives \"zz\" the number 4000000000"));
  json = good.json();
  json.replace(json.find("\"vocab\":{"), 9, "\"vocab\":{\"zz\":0,");
  CHECK(says(refusal(json), "gives the number 0 to"));
  CHECK(says(refusal("{}"), "has no \"model\""));
  CHECK(says(refusal("{"), "of its JSON"));

  CHECK(says(
      from_gguf(good.gguf("deepseek-coder")).error,
      "cuts words as \"deepseek-coder\" (tokenizer.ggml.pre); those known are gpt-2, llama-bpe"));
  GgufBytes file;
  CHECK(says(from_gguf(file).error, "has no tokenizer.ggml.model"));
  file.text("tokenizer.ggml.model", "bert");
  CHECK(says(from_gguf(file).error, "a tokenizer of the kind \"bert\""));
  file = good.gguf();
  file.number("tokenizer.ggml.bos_token_id", 5000);
  CHECK(says(from_gguf(file).error, "bos token is 5000 of"));
}

TEST_CASE("tokens at the ends of a text are those that the files ask for") {
  const Vocabulary vocabulary;
  const auto end = static_cast<std::int32_t>(vocabulary.texts.size()) + 1, begin = end - 1;
  const std::int32_t h = 'h' - '!';
  using Tokens = std::vector<std::int32_t>;
  const auto ends_of = [&](const Result<Tokenizer>& tokenizer) {
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    return tokenizer->with_ends(tokenizer->encode("h"));
  };
  GgufBytes file = vocabulary.gguf();
  CHECK(ends_of(from_gguf(file)) == Tokens{h});
  file.truth("tokenizer.ggml.add_eos_token", true);
  CHECK(ends_of(from_gguf(file)) == Tokens{h, end});
  GgufBytes unknown = file;
  unknown.truth("tokenizer.ggml.add_bos_token", true);
  CHECK(says(from_gguf(unknown).error, "adds a token bos to each text"));
  unknown.number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(begin));
  CHECK(ends_of(from_gguf(unknown)) == Tokens{begin, h, end});
  // llama.cpp adds bos in a Llama 3's file that does not say.
  GgufBytes llama = vocabulary.gguf("llama-bpe");
  llama.number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(begin));
  CHECK(ends_of(from_gguf(llama)) == Tokens{begin, h});
  llama.truth("tokenizer.ggml.add_bos_token", false);
  CHECK(ends_of(from_gguf(llama)) == Tokens{h});

  const std::string words = R"({"type":"ByteLevel","use_regex":true})";
  const auto processed = [&](const std::string& processor) {
    return vocabulary.json(words, "\"post_processor\":" + processor + ",");
  };
  const std::string first =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|im_start|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[]}]})";
  CHECK(ends_of(from_json(processed(first))) == Tokens{begin, h});
  CHECK(ends_of(from_json(processed("null"))) == Tokens{h});
  std::string other = first;
  other.replace(other.find("im_start"), 8, "im_begin");
  CHECK(says(from_json(processed(other)).error,
             "adds \"<|im_begin|>\" to each text, which is no token"));
  CHECK(says(from_json(processed(R"({"type":"RobertaProcessing"})")).error,
             "has the post-processor RobertaProcessing"));
  const std::string twice = R"({"SpecialToken":{"id":"<|im_end|>","type_id":0}},)";
  other = first;
  other.insert(other.find("{\"SpecialToken"), twice);
  CHECK(says(from_json(processed(other)).error, "adds several tokens at one end of a text"));

  // tokenizer_config.json decides, if it says so.
  const Folder folder;
  write_file(folder / "tokenizer.json", processed(first));
  const auto with = [&](const std::string& config, const TextEnds& ends = {}) {
    write_file(folder / "tokenizer_config.json", config);
    return read_tokenizer(folder.path, ends);
  };
  CHECK(ends_of(with("{}")) == Tokens{begin, h});
  CHECK(ends_of(with(R"({"add_bos_token":false})")) == Tokens{h});
  CHECK(ends_of(with(R"({"add_bos_token":null,"eos_token":"<|im_end|>"})")) == Tokens{begin, h});
  CHECK(ends_of(with(R"({"add_eos_token":true,"eos_token":{"content":"<|im_end|>"}})")) ==
        Tokens{h, end});
  CHECK(ends_of(with(R"({"add_eos_token":true,"eos_token":"<|im_start|>"})", {-1, 5})) ==
        Tokens{h, begin});
  CHECK(with(R"({"eos_token":"<|im_end|>"})", {-1, 5})->eos() == 5);
  CHECK(with(R"({"eos_token":"<|im_end|>"})")->eos() == end);
  CHECK(says(with(R"({"add_eos_token":true,"eos_token":"<x>"})").error,
             "its tokenizer_config.json adds \"<x>\" to each text, which is no token"));
  CHECK(says(with("{").error, "of its JSON"));
}

TEST_CASE("a written tokenizer has the tokens of the one that was read") {
  Vocabulary vocabulary;
  vocabulary.texts.push_back("xyz");
  vocabulary.texts.push_back("\xC3\x83");
  vocabulary.texts.push_back("\xC2\xA9");
  const std::string texts[] = {"hello<|im_end|>x ohell ohello 12345 xyz\n",
                               "e\xCC\x81 \xC3\xA9 I'Ll", "\"\\ \x01", ""};
  for (const char* const words : {"gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    CAPTURE(words);
    GgufBytes bytes = vocabulary.gguf(words);
    bytes.number("tokenizer.ggml.bos_token_id",
                 static_cast<std::uint32_t>(vocabulary.texts.size()));
    bytes.truth("tokenizer.ggml.add_eos_token", true);
    const auto tokenizer = from_gguf(bytes);
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    const auto same = [&](const Result<Tokenizer>& read) {
      REQUIRE_MESSAGE(read, read.error.text());
      for (const std::string& text : texts)
        for (const SpecialText special : {SpecialText::tokens, SpecialText::text})
          CHECK(read->encode(text, special) == tokenizer->encode(text, special));
      CHECK(read->with_ends({7}) == tokenizer->with_ends({7}));
      CHECK(read->bos() == tokenizer->bos());
      CHECK(read->eos() == tokenizer->eos());
    };
    const Folder folder;
    REQUIRE(!write_tokenizer(folder.path, *tokenizer, "{{ \"x\" }}\n"));
    const auto in_folder = read_tokenizer(folder.path);
    same(in_folder);
    CHECK(in_folder->size() == tokenizer->size());
    const auto config = read_tokenizer_config(folder.path);
    REQUIRE_MESSAGE(config, config.error.text());
    CHECK(config->chat_template == "{{ \"x\" }}\n");
    CHECK(config->bos == "<|im_start|>");

    GgufWriter file;
    REQUIRE(!add_gguf_tokenizer(file, *in_folder, tokenizer->size() + 2, config->chat_template));
    const Gguf read = written(file, folder);
    const auto in_file = read_gguf_tokenizer(read);
    same(in_file);
    CHECK(in_file->size() == tokenizer->size() + 2);  // unused ones
    std::string_view text;
    CHECK(read.value("tokenizer.chat_template")->text(text));
    CHECK(text == "{{ \"x\" }}\n");
  }
}

TEST_CASE("a tokenizer that a file has no form for is refused") {
  const Folder folder, empty;
  GgufWriter file;
  const auto bytes = from_json(Vocabulary().json(R"({"type":"ByteLevel","use_regex":false})"));
  REQUIRE(bytes);
  CHECK(says(add_gguf_tokenizer(file, *bytes, 1000), "has no name for how this tokenizer cuts"));
  // Qwen's words without its normalizer.
  REQUIRE(!write_tokenizer(folder.path, *from_gguf(Vocabulary().gguf("qwen2"))));
  std::string json = train_test::read_file(folder / "tokenizer.json");
  json.replace(json.find("{\"type\":\"NFC\"}"), 14, "null");
  const auto plain = from_json(json);
  REQUIRE_MESSAGE(plain, plain.error.text());
  CHECK(says(add_gguf_tokenizer(file, *plain, 1000), "has no name for how this tokenizer cuts"));
  CHECK(says(add_gguf_tokenizer(file, *from_json(Vocabulary().json()), 5), "and the network 5"));

  const auto refusal = [&](const Pairs& pairs) {
    const auto tokenizer = from_gguf(pairs.gguf());
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    return write_tokenizer(empty.path, *tokenizer);
  };
  Pairs pairs;
  CHECK(!write_tokenizer(folder.path, *from_gguf(pairs.gguf())));
  pairs.texts[3 + 'q'] = "<0xxx>";
  CHECK(says(refusal(pairs), "has 255 tokens of single bytes (<0x00> to <0xFF>), and needs 256"));
  pairs = {};
  pairs.add("ab", -7);
  CHECK(says(refusal(pairs), "two of its tokens are \"ab\""));
  pairs = {};
  pairs.add("a\xFF", -7);
  CHECK(says(refusal(pairs), "is no UTF-8"));
  pairs = {};  // "cab" is "ca", "b" or "c", "ab": the left one is first, wherever it is
  pairs.add("ca", pairs.scores.back());
  pairs.scores[pairs.find("ab")] = pairs.scores.back();
  CHECK(says(refusal(pairs), "has the score of another, and a text decides which is merged first"));
  CHECK(says(add_gguf_tokenizer(file, *from_gguf(pairs.gguf()), 1000), "has the score of another"));
  pairs = {};  // of one score, without a letter in common
  pairs.add("cd", pairs.scores[pairs.find("ab")]);
  CHECK(!write_tokenizer(folder.path, *from_gguf(pairs.gguf())));
  pairs.add("cdcd", 0);  // and one makes a better one possible
  CHECK(says(refusal(pairs), "has the score of another"));
  CHECK(empty.entries() == 0);

  // Merges in an order that no scores have: "abc" is no merge, and would be one by score.
  pairs = {};
  REQUIRE(!write_tokenizer(folder.path, *from_gguf(pairs.gguf())));
  json = train_test::read_file(folder / "tokenizer.json");
  json.replace(json.find(",\"ab c\""), 7, "");
  const auto lacking = from_json(json);
  REQUIRE_MESSAGE(lacking, lacking.error.text());
  CHECK(pieces_of(*lacking, "abc") == "\xE2\x96\x81|ab|c");
  CHECK(says(add_gguf_tokenizer(file, *lacking, 1000), "no scores give the merges"));
}

TEST_CASE("a written tokenizer of pairs by score has the tokens of the one that was read") {
  const std::string texts[] = {"abc",     " a  bc",      "cab<s>abcd",
                               "",        "      a",     "\xC3\xA9\xC3\xBC\n\x01<unk>",
                               "<0x41>A", "\xE2\x96\x81"};
  for (const bool space_before : {true, false}) {
    CAPTURE(space_before);
    GgufBytes bytes = Pairs().gguf();
    bytes.truth("tokenizer.ggml.add_space_prefix", space_before);
    const auto tokenizer = from_gguf(bytes);
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    CHECK(pieces_of(*tokenizer, "abcd") == (space_before ? "\xE2\x96\x81|abc|d" : "abc|d"));
    const auto same = [&](const Result<Tokenizer>& read) {
      REQUIRE_MESSAGE(read, read.error.text());
      for (const std::string& text : texts) {
        CAPTURE(text);
        for (const SpecialText special : {SpecialText::tokens, SpecialText::text}) {
          const auto tokens = tokenizer->encode(text, special);
          CHECK(read->encode(text, special) == tokens);
          CHECK(read->decode(tokens) == tokenizer->decode(tokens));
        }
      }
      CHECK(read->with_ends({7}) == tokenizer->with_ends({7}));
      CHECK(read->with_ends({7}).size() == 2);
      CHECK(read->unknown() == 0);
      CHECK(read->eos() == 2);
    };
    const Folder folder;
    REQUIRE(!write_tokenizer(folder.path, *tokenizer));
    const auto in_folder = read_tokenizer(folder.path);
    same(in_folder);
    GgufWriter file;
    REQUIRE(!add_gguf_tokenizer(file, *in_folder, tokenizer->size() + 2));
    const Gguf read = written(file, folder);
    same(read_gguf_tokenizer(read));
  }

  const Folder folder;
  REQUIRE(!write_tokenizer(folder.path, *from_gguf(Pairs().gguf())));
  const std::string json = train_test::read_file(folder / "tokenizer.json");
  const auto other = [&](const std::string& from, const std::string& to) {
    std::string changed = json;
    REQUIRE(changed.find(from) != changed.npos);
    return from_json(changed.replace(changed.find(from), from.size(), to)).error;
  };
  CHECK(!other("\"fuse_unk\":true", "\"fuse_unk\":false"));
  CHECK(!other("\"a b\"", "[\"a\",\"b\"]"));
  CHECK(says(other("\"byte_fallback\":true", "\"byte_fallback\":false"),
             "has byte_fallback false, and it has to be true with"));
  CHECK(says(other("\"pre_tokenizer\":null", R"("pre_tokenizer":{"type":"ByteLevel"})"),
             "has a pre-tokenizer beside"));
  CHECK(!other("\"normalized\":false", "\"normalized\":true"));
  CHECK(says(other("\"prepend\":\"\xE2\x96\x81\"", "\"prepend\":\"_\""), "has the normalizer"));
  CHECK(says(other("\"a b\"", "\"<0x41> b\",\"a b\""), "lacks both as one"));
  std::string none = json;
  none.replace(none.find("\"normalizer\":"), 13, "\"normalizer\":null,\"x\":");
  CHECK(says(from_json(none).error, "has neither a ByteLevel nor a Metaspace"));
}

TEST_CASE("pairs by score are merged as SentencePiece merges them, whatever the scores") {
  Pairs pairs;
  pairs.texts.resize(3 + 256);
  pairs.scores.resize(3 + 256);
  std::uint32_t chance = 1;
  const auto draw = [&](std::uint32_t below) {
    chance = chance * 1664525 + 1013904223;
    return (chance >> 16) % below;
  };
  const auto text_of = [&](std::size_t length) {
    std::string text;
    while (text.size() < length) text += "abc"[draw(3)];
    return text;
  };
  for (const char* const letter : {"a", "b", "c"}) pairs.add(letter, -100);
  for (std::size_t i = 0; i < 60; ++i) {
    const std::string text = text_of(2 + draw(5));
    if (pairs.find(text) == pairs.texts.size())
      pairs.add(text, -static_cast<float>(draw(20)));  // many have one score
  }
  GgufBytes bytes = pairs.gguf();
  bytes.truth("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = from_gguf(bytes);
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  for (std::size_t i = 0; i < 500; ++i) {
    std::vector<std::string> symbols;
    const std::string text = text_of(1 + draw(30));
    for (const char c : text) symbols.emplace_back(1, c);
    for (bool merged = true; merged;) {
      std::size_t best = symbols.size();
      float score = -1000;
      for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
        const std::size_t found = pairs.find(symbols[at] + symbols[at + 1]);
        if (found == pairs.texts.size() || pairs.scores[found] <= score) continue;
        best = at;
        score = pairs.scores[found];
      }
      merged = best < symbols.size();
      if (!merged) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::string expected;
    for (const std::string& symbol : symbols) expected += (expected.empty() ? "" : "|") + symbol;
    CHECK(pieces_of(*tokenizer, text) == expected);
  }
}

TEST_CASE("added tokens are taken out of a text as special ones are, and stay in decoded text") {
  std::string json = Vocabulary().json();
  const std::size_t at = json.find("\"special\":true");
  json.replace(at, 14, "\"special\":false");
  const auto tokenizer = from_json(json);
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  const auto tokens = tokenizer->encode("<|im_start|>h<|im_end|>");
  CHECK(tokens.size() == 3);
  CHECK(tokenizer->decode(tokens, SpecialText::tokens) == "<|im_start|>h");
}

TEST_CASE("chats have the tokens of their template, and answers are known") {
  Vocabulary vocabulary;
  vocabulary.specials = {"<|im_start|>",        "<|im_end|>",        "<|begin_of_text|>",
                         "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  const auto tokenizer = from_gguf(vocabulary.gguf());
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  const std::vector<ChatMessage> chat{
      {"system", "x"}, {"user", " <|im_end|> "}, {"assistant", "hello"}};
  const auto text = [&](const char* name, bool ask, std::string* answers) {
    const auto form = chat_template(name);
    REQUIRE(form);
    const auto made = encode_chat(*tokenizer, *form, chat, ask);
    REQUIRE_MESSAGE(made, made.error.text());
    REQUIRE(made->answers.size() == made->tokens.size());
    answers->clear();
    for (std::size_t i = 0; i < made->tokens.size(); ++i)
      if (made->answers[i] != 0) *answers += tokenizer->text_of(made->tokens[i]);
    return tokenizer->decode(made->tokens);
  };
  std::string answers;
  CHECK(text("chatml", false, &answers) ==
        "<|im_start|>system\nx<|im_end|>\n<|im_start|>user\n <|im_end|> <|im_end|>\n"
        "<|im_start|>assistant\nhello<|im_end|>\n");
  CHECK(answers == "hello<|im_end|>");
  CHECK(text("llama3", true, &answers) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nx<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n<|im_end|><|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nhello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(answers == "hello<|eot_id|>");
  CHECK(text("plain", true, &answers) ==
        "system: x\nuser:  <|im_end|> \nassistant: hello<|im_end|>assistant:");
  CHECK(answers == " hello<|im_end|>");
  const auto asked = encode_chat(*tokenizer, ChatTemplate::chatml, {chat[1]}, false);
  REQUIRE(asked);
  std::size_t ends = 0;
  for (const std::int32_t token : asked->tokens) ends += token == tokenizer->special("<|im_end|>");
  CHECK(ends == 1);  // what the user wrote is text

  CHECK(says(chat_template("jinja").error, "\"jinja\"; there are chatml, llama3 and plain"));
  CHECK(says(encode_chat(*tokenizer, ChatTemplate::plain, {{"asistant", "x"}}, false).error,
             "message 0 has the role \"asistant\""));
  const auto lacking = from_json(Vocabulary().json());
  REQUIRE(lacking);
  CHECK(says(encode_chat(*lacking, ChatTemplate::llama3, chat, false).error,
             "<|begin_of_text|>, <|start_header_id|>"));
  CHECK(says(encode_chat(*lacking, ChatTemplate::plain, chat, false).error, "eos"));
}

}  // namespace tokenizer_test
