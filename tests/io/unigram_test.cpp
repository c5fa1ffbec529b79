// SPDX-License-Identifier: MIT
// Unigram models on small vocabularies. On 10,000 lines of many kinds their tokens are those of other programs:
// bench/peers/tokenizer_lines.py, test reference_tokenizers.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../train/support.hpp"
#include "adacc/io/tokenizer/gguf_tokenizer.hpp"
#include "adacc/io/tokenizer/read_tokenizer.hpp"
#include "adacc/io/tokenizer/write_tokenizer.hpp"
#include "charsmap_bytes.hpp"
#include "gguf_bytes.hpp"

namespace unigram_test {
namespace {

using namespace adacc;
using charsmap_test::charsmap_of;
using gguf_test::GgufBytes;
using train_test::Folder;
using train_test::write_file;

const std::string block = "\xE2\x96\x81";

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

struct Model {
  std::vector<std::pair<std::string, std::string>> pieces{
      {"<unk>", "0"}, {"<s>", "0"},    {"a", "-3"},   {"b", "-3"},
      {"ab", "-5"},   {"abab", "-11"}, {block, "-2"}, {block + "a", "-4.5"}};
  std::string normalizer = "null", words = "null", added, model;

  std::string json() const {
    std::string vocab;
    for (const auto& [text, score] : pieces)
      vocab += (vocab.empty() ? "[\"" : ",[\"") + text + "\"," + score + "]";
    return R"({"added_tokens":[)" + added + R"(],"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + words + R"(,"model":{"type":"Unigram","unk_id":0,"vocab":[)" +
           vocab + "]" + model + "}}";
  }
  void add(const std::string& text, const std::string& score) { pieces.emplace_back(text, score); }
};

Result<Tokenizer> from_json(const std::string& json) {
  const Folder folder;
  write_file(folder / "tokenizer.json", json);
  return read_tokenizer(folder.path);
}
Tokenizer read(const Model& model) {
  auto made = from_json(model.json());
  REQUIRE_MESSAGE(made, made.error.text());
  return std::move(*made);
}
Error refusal(const Model& model) { return from_json(model.json()).error; }

std::string pieces_of(const Tokenizer& tokenizer, const std::string& text,
                      SpecialText special = SpecialText::tokens) {
  std::string pieces;
  for (const std::int32_t token : tokenizer.encode(text, special))
    pieces += (pieces.empty() ? "" : "|") + std::string(tokenizer.text_of(token));
  return pieces;
}

std::string special(int id, const char* text, const char* more = "") {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + text + R"(","special":true)" +
         more + "}";
}
const std::string metaspace =
    R"({"type":"Metaspace","replacement":")" + block + R"(","prepend_scheme":")";

}  // namespace

TEST_CASE("the likeliest pieces are taken, of equal sums the longest last piece") {
  Model model;
  const Tokenizer tokenizer = read(model);
  CHECK(pieces_of(tokenizer, "ab") == "ab");       // -5 is better than -3 and -3
  CHECK(pieces_of(tokenizer, "abab") == "ab|ab");  // -10 is better than -11
  CHECK(pieces_of(tokenizer, "aba") == "ab|a");
  model.pieces[5].second = "-10";
  CHECK(pieces_of(read(model), "abab") == "abab");
  model.pieces[4].second = "-6";
  model.pieces[5].second = "-30";
  CHECK(pieces_of(read(model), "aab") == "a|ab");  // as a, a, b
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("a trie finds the pieces that a text has at each place") {
  std::uint32_t chance = 1;
  const auto draw = [&](std::uint32_t below) {
    chance = chance * 1664525 + 1013904223;
    return (chance >> 8) % below;
  };
  for (const std::uint32_t letters : {2U, 256U}) {
    const auto text_of = [&](std::size_t length) {
      std::string text;
      while (text.size() < length) text += static_cast<char>(draw(letters));
      return text;
    };
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 2000; ++i) texts.push_back(text_of(draw(letters == 2 ? 12 : 4)));
    std::vector<PieceTrie::Piece> pieces;
    std::map<std::string, std::int32_t> last;
    for (const std::string& text : texts) {
      pieces.push_back({text, static_cast<std::int32_t>(pieces.size())});
      last[text] = pieces.back().token;
    }
    last.erase("");
    const PieceTrie trie(pieces);
    const std::string text = text_of(300);
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::vector<std::int32_t> found, expected;
      trie.each_piece(text, at, [&](std::size_t end, std::int32_t token) {
        CHECK(last.at(text.substr(at, end - at)) == token);
        found.push_back(token);
      });
      for (std::size_t end = at + 1; end <= text.size(); ++end)
        if (const auto piece = last.find(text.substr(at, end - at)); piece != last.end())
          expected.push_back(piece->second);
      CHECK(found == expected);
    }
    for (const auto& [piece, token] : last) CHECK(trie.find(piece) == token);
    CHECK(trie.find("") == -1);
  }
  CHECK(PieceTrie().find("a") == -1);
}

TEST_CASE("unknown characters behind one another are one token, or the bytes of all") {
  Model model;
  Tokenizer tokenizer = read(model);
  std::size_t lost = 0;
  CHECK(tokenizer.encode("axya\xC3\xA9", SpecialText::tokens, &lost) ==
        std::vector<std::int32_t>{2, 0, 2, 0});
  CHECK(lost == 4);
  CHECK(pieces_of(tokenizer, "<unk>x") == "<unk>");  // the text of the unknown token is a piece
  model.model = R"(,"byte_fallback":true)";
  for (const char* const byte : {"<0x78>", "<0x79>", "<0xC3>"}) model.add(byte, "0");
  tokenizer = read(model);
  CHECK(tokenizer.encode("axya") == std::vector<std::int32_t>{2, 8, 9, 2});
  CHECK(tokenizer.decode({2, 8, 9, 2}) == "axya");
  CHECK(pieces_of(tokenizer, "xy\xC3\xA9") == "<unk>");  // 0xA9 has no token
  CHECK(pieces_of(tokenizer, "a<0x78>") == "a|<0x78>");
  // Scores above 0 make unknown characters better than a piece of them.
  model.add("qq", "20");
  for (auto& piece : model.pieces) piece.second = piece.first == "qq" ? "20" : "19";
  CHECK(pieces_of(read(model), "qqqq") == "qq|qq");
  CHECK(pieces_of(read(model), "qqq") == "<unk>|qq");
  // Without an unknown token the characters are left out.
  std::string json = Model().json();
  json.replace(json.find("\"unk_id\":0"), 10, "\"unk_id\":null");
  const auto without = from_json(json);
  REQUIRE_MESSAGE(without, without.error.text());
  lost = 0;
  CHECK(without->encode("axb", SpecialText::tokens, &lost) == std::vector<std::int32_t>{2, 3});
  CHECK(lost == 1);
}

TEST_CASE("special tokens are pieces where they are tokens at all") {
  Model model;
  model.normalizer = R"({"type":"Replace","pattern":{"String":"["},"content":"<"})";
  model.added = special(1, "<s>") + "," + special(8, "ab<s>");
  const Tokenizer tokenizer = read(model);
  CHECK(pieces_of(tokenizer, "a<s>b") == "a|<s>|b");
  CHECK(pieces_of(tokenizer, "ab<s>b") == "ab<s>|b");
  CHECK(pieces_of(tokenizer, "a[s>b") == "a|<s>|b");  // as PyPI's tokenizers finds it
  CHECK(pieces_of(tokenizer, "a[s>b", SpecialText::text) == "a|<unk>|b");
  CHECK(pieces_of(tokenizer, "a<s>b", SpecialText::text) == "a|<unk>|b");
}

TEST_CASE("Metaspace puts U+2581 in the place of spaces and before a text") {
  Model model;
  const auto with = [&](const std::string& words) {
    model.words = words;
    return read(model);
  };
  const Tokenizer always = with(metaspace + R"(always","split":true})");
  CHECK(pieces_of(always, "a  b") == block + "a|" + block + "|" + block + "|b");
  CHECK(pieces_of(always, " a") == block + "a");  // no second one
  CHECK(always.decode(always.encode("ab a")) == "ab a");
  CHECK(pieces_of(with(metaspace + R"(never"})"), "ab a") == "ab|" + block + "a");
  model.added = special(1, "<s>");
  CHECK(pieces_of(with(metaspace + R"(first"})"), "b<s>b") == block + "|b|<s>|b");
  CHECK(pieces_of(with(metaspace + R"(always"})"), "b<s>b") == block + "|b|<s>|" + block + "|b");
  CHECK(pieces_of(with(metaspace + R"(first"})"), "<s>b") == "<s>|b");
  model.added = "";
  model.add("a" + block + "b", "-1");
  CHECK(pieces_of(with(metaspace + R"(never","split":false})"), "a b") == "a" + block + "b");
  CHECK(pieces_of(with(metaspace + R"(never","split":true})"), "a b") == "a|" + block + "|b");
  model.normalizer = R"({"type":"Strip","strip_left":true,"strip_right":true})";
  static_cast<void>(with(metaspace + R"(always"})"));
  model.words = metaspace + R"(first"})";
  CHECK(says(refusal(model), "prepend_scheme first behind a normalizer that may take"));
  model.normalizer = "null";
  const Tokenizer split =
      with(R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)" + metaspace +
           R"(always"}]})");
  CHECK(pieces_of(split, "\ta\n\xE3\x80\x80 ab ") == block + "a|" + block + "|ab");
}

TEST_CASE("steps of a normalizer") {
  Model model;
  const auto normalized = [&](const std::string& step, const std::string& text) {
    model.normalizer = step;
    return read(model).normalizer().normalized(text);
  };
  const auto replace = [](const std::string& regex, const std::string& to) {
    return R"({"type":"Replace","pattern":{"Regex":")" + regex + R"("},"content":")" + to + "\"}";
  };
  CHECK(normalized(replace(" {2,}", "-"), "  a b   c") == "-a b-c");
  CHECK(normalized(replace("\\\\A +| +\\\\z", ""), "  a b  ") == "a b");
  CHECK(normalized(replace("\\\\A +| +\\\\z", ""), "   ").empty());
  CHECK(normalized(replace("\\\\A" + block, "x"), block + block) == "x" + block);
  CHECK(normalized(R"({"type":"Replace","pattern":{"String":"aa"},"content":"b"})", "aaaaa") ==
        "bba");
  CHECK(normalized(R"({"type":"Strip","strip_left":false,"strip_right":true})", "\na \xC2\xA0\t") ==
        "\na");
  CHECK(normalized(R"({"type":"Strip","strip_left":true,"strip_right":false})", " \n ").empty());
  CHECK(normalized(R"({"type":"Prepend","prepend":")" + block + "\"}", "").empty());
  CHECK(normalized(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":")" + block +
                       R"("},{"type":"NFC"}]})",
                   "e\xCC\x81") == block + "\xC3\xA9");
}

TEST_CASE("a precompiled_charsmap replaces characters with their marks") {
  const auto map = Charsmap::make(charsmap_of({{"A", "a"},
                                               {"A\xCC\x81", "q"},
                                               {"\r", " "},
                                               {"\n", " "},
                                               {"e\xCC\x81", "\xC3\xA9"},
                                               {"bb", "B"},
                                               {"\xEF\xAC\x81", "fi"},
                                               {"x", ""},
                                               {"\xE0\xA2\x90", "P"}}));
  REQUIRE_MESSAGE(map, map.error.text());
  CHECK(map->replaced("AbA x\xEF\xAC\x81") == "aba fi");
  CHECK(map->replaced("\r\n\n") == "  ");      // CR LF is one character
  CHECK(map->replaced("A\xCC\x81z") == "az");  // its accent goes, too
  CHECK(map->replaced("e\xCC\x81"
                      "e") ==
        "\xC3\xA9"
        "e");
  CHECK(map->replaced("A\xCC\x81\xCC\x81\xCC\x81") ==
        "a\xCC\x81\xCC\x81\xCC\x81");                 // of seven bytes
  CHECK(map->replaced("\n\xCC\x81") == " \xCC\x81");  // control characters take no marks
  CHECK(map->replaced("\xDC\xB0"
                      "A") ==
        "\xDC\xB0"
        "a");
  CHECK(map->replaced("bb") == "bb");  // two characters
  CHECK(map->replaced("\xE0\xA2\x90"
                      "AA\xE0\xA2\x90\n") == "PaP ");  // U+0890 takes the next, not a control
  CHECK(map->replaced(std::string("A\0A", 3)) == std::string("a\0a", 3));
  CHECK(map->longest_replaced("bbAA\xCC\x81\r\n\xFF") == "Baq  \xEF\xBF\xBD");

  const auto fault = [](std::string bytes) { return Charsmap::make(std::move(bytes)).error; };
  const std::string good = charsmap_of({{"A", "a"}});
  CHECK(says(fault("abc"), "has 3 bytes"));
  CHECK(says(fault(good.substr(0, 600)), "has 600 bytes, of which"));
  std::string bad = good;
  bad[4 + 4 * (256 + 'A') + 2] = 0x7F;
  CHECK(says(fault(bad), "has a trie with a way out of it"));
  bad = good;
  bad[4 + 4 * 512] = 9;
  CHECK(says(fault(bad), "has a text at byte 9 of 2"));
  CHECK(says(fault(charsmap_of({{"A", "\xFF"}})), "has texts that are no UTF-8"));
  CHECK(says(fault(charsmap_of({{"\xC2\xA9", "c"}})), "replaces U+00A9"));

  CHECK(Charsmap::make(charsmap_test::small_charsmap())->replaced("ABA") == "aBa");
  Model model;
  const std::string base64 = detail::base64(good);
  std::string bytes;
  CHECK(detail::bytes_of_base64(base64, bytes));
  CHECK(bytes == good);
  model.normalizer = R"({"type":"Precompiled","precompiled_charsmap":")" + base64 + "\"}";
  CHECK(pieces_of(read(model), "AB") == "a|<unk>");
  model.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"AAA*"})";
  CHECK(says(refusal(model), "a precompiled_charsmap that is no base64"));
}

TEST_CASE("normalized added tokens are found in normalized text") {
  Model model;
  model.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":")" + block +
                     R"("},{"type":"Replace","pattern":{"String":" "},"content":")" + block +
                     "\"}]}";
  model.added = special(1, "<s>", R"(,"normalized":true)") + "," +
                special(8, "a a", R"(,"normalized":true)") + "," + special(9, "b b");
  const Tokenizer tokenizer = read(model);
  CHECK(pieces_of(tokenizer, "b <s>b") == block + "|b|<s>|b");
  CHECK(pieces_of(tokenizer, "b<s>") == block + "|b|<s>");  // as a piece
  CHECK(tokenizer.encode("b a ab").at(2) == 8);
  CHECK(tokenizer.encode("a ab") == std::vector<std::int32_t>{8, 3});
  CHECK(tokenizer.encode("bb b") == std::vector<std::int32_t>{6, 3, 9});
  for (const char* const text : {"b <s>b", "a ab", "b a ab", "<s>"})
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(pieces_of(tokenizer, "b a ab", SpecialText::text) ==
        block + "|b|" + block + "a|" + block + "|ab");
}

TEST_CASE("a written unigram model has the tokens of the one that was read") {
  Model model;
  model.pieces[4].second = "-5.4999999999999991";
  model.model = R"(,"byte_fallback":true)";
  for (const char* const byte : {"<0x78>", "<0x79>"}) model.add(byte, "0");
  model.normalizer =
      R"({"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":")" +
      detail::base64(charsmap_of({{"A", "a"}})) +
      R"("},{"type":"Strip","strip_left":false,"strip_right":true},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":")" +
      block + "\"}]}";
  model.added = special(1, "<s>") + "," + special(10, "b b", R"(,"normalized":true)");
  for (const char* const scheme : {"always", "first", "never"}) {
    model.words = metaspace + scheme + R"(","split":false})";
    const Tokenizer tokenizer = read(model);
    const Folder folder;
    REQUIRE(!write_tokenizer(folder.path, tokenizer));
    const auto again = read_tokenizer(folder.path);
    REQUIRE_MESSAGE(again, again.error.text());
    for (const std::string text : {"AB ab  b", "xyA<s>b bab ", "z", ""})
      for (const SpecialText how : {SpecialText::tokens, SpecialText::text})
        CHECK(again->encode(text, how) == tokenizer.encode(text, how));
    CHECK(again->unigram().scores()[4] == -5.4999999999999991);
    CHECK(again->unknown() == 0);
    GgufWriter file;
    CHECK(says(add_gguf_tokenizer(file, tokenizer, 100), "has no form in a GGUF file"));
  }
}

TEST_CASE("a unigram model of a GGUF file has its text as llama.cpp has it") {
  const auto bytes_of = [](bool prefix, bool merge) {
    GgufBytes file;
    file.text("tokenizer.ggml.model", "t5");
    const std::vector<std::string> texts{"<pad>", "</s>", "<unk>",     "a",   "b",
                                         "ab",    block,  block + "a", "<x>", "c"};
    const float scores[] = {0, 0, 0, -3, -3, -5, -2, -4, -9, -90};
    std::string score_bytes, kinds;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      score_bytes += gguf_test::raw(scores[i]);
      kinds += gguf_test::raw<std::int32_t>(i == 2 ? 2 : i < 2 ? 3 : i == 8 ? 4 : i == 9 ? 5 : 1);
    }
    file.texts("tokenizer.ggml.tokens", texts);
    file.array("tokenizer.ggml.token_type", GgufKind::i32, texts.size(), kinds);
    file.array("tokenizer.ggml.scores", GgufKind::f32, texts.size(), score_bytes);
    if (prefix) file.truth("tokenizer.ggml.add_space_prefix", true);
    if (merge) file.truth("tokenizer.ggml.remove_extra_whitespaces", true);
    const std::string map = charsmap_of({{"A", "a"}, {"\t", " "}});
    file.array("tokenizer.ggml.precompiled_charsmap", GgufKind::i8, map.size(), map);
    return file;
  };
  const auto open = [](const GgufBytes& bytes) {
    const Folder folder;
    write_file(folder / "model.gguf", bytes.file());
    const auto file = Gguf::open(folder / "model.gguf");
    REQUIRE_MESSAGE(file, file.error.text());
    return read_gguf_tokenizer(*file);
  };
  for (const bool merge : {false, true}) {
    const auto tokenizer = open(bytes_of(true, merge));
    REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
    CHECK(pieces_of(*tokenizer, "A\tab ") ==
          block + "a|" + block + (merge ? "|ab" : "|ab|" + block));
    CHECK(pieces_of(*tokenizer, "  b") ==
          (merge ? block + "|b" : block + "|" + block + "|" + block + "|b"));
    CHECK(pieces_of(*tokenizer, "b<x>c</s>") == block + "|b|<x>|" + block + "|<unk>|</s>");
    CHECK(tokenizer->unigram().unknown().score == -15);
    CHECK(tokenizer->with_ends({3}) == std::vector<std::int32_t>{3, 1});
    CHECK(tokenizer->decode(tokenizer->encode("ab a")) == "ab a");
    const Folder folder;
    CHECK(says(write_tokenizer(folder.path, *tokenizer), "has its text as llama.cpp's unigram"));
    GgufWriter writer;
    REQUIRE(!add_gguf_tokenizer(writer, *tokenizer, 12));
    writer.text("general.architecture", "llama");
    writer.tensor("x", GgufType::f32, {1});
    const float one = 1;
    REQUIRE(!writer.begin(folder / "model.gguf"));
    REQUIRE(!writer.row({&one, Shape(1)}));
    REQUIRE(!writer.end());
    const auto file = Gguf::open(folder / "model.gguf");
    REQUIRE_MESSAGE(file, file.error.text());
    const auto again = read_gguf_tokenizer(*file);
    REQUIRE_MESSAGE(again, again.error.text());
    CHECK(again->size() == 12);
    for (const char* const text : {"A\tab ",
                                   "  b<x>\xFF"
                                   "c",
                                   ""})
      CHECK(again->encode(text) == tokenizer->encode(text));
  }
  CHECK(pieces_of(*open(bytes_of(false, false)), " ab") == block + "|ab");
}

TEST_CASE("what is not computed of unigram models is refused in words") {
  const auto with = [](auto&& change) {
    Model model;
    change(model);
    return refusal(model);
  };
  CHECK(says(with([](Model& m) { m.normalizer = R"({"type":"NFKC"})"; }),
             "the normalizer NFKC; those known are"));
  CHECK(says(with([](Model& m) { m.normalizer = R"({"type":"Prepend","prepend":"_"})"; }),
             "the normalizer Prepend of \"_\""));
  CHECK(says(with([](Model& m) {
               m.normalizer = R"({"type":"Replace","pattern":{"Regex":"a+"},"content":""})";
             }),
             "the normalizer Replace of a+"));
  CHECK(says(with([](Model& m) { m.words = R"({"type":"ByteLevel","use_regex":true})"; }),
             "has a ByteLevel pre-tokenizer and a model of the type Unigram"));
  CHECK(says(with([](Model& m) { m.words = R"({"type":"Metaspace","replacement":"_"})"; }),
             "Metaspace with \"_\" for spaces"));
  CHECK(says(with([](Model& m) { m.words = metaspace + R"(last"})"; }), "the prepend_scheme last"));
  CHECK(says(with([](Model& m) { m.pieces.clear(); }), "has no \"vocab\""));
  CHECK(says(with([](Model& m) { m.pieces[3].second = "\"b\""; }), "has as piece 3 no text with"));
  CHECK(says(with([](Model& m) { m.added = special(1, "<S>"); }),
             "gives the number 1 to \"<s>\" and \"<S>\""));
  std::string json = Model().json();
  json.replace(json.find("\"unk_id\":0"), 10, "\"unk_id\":8");
  CHECK(says(from_json(json).error, "has the unk_id 8 of 8"));
  json = Model().json();
  json.replace(json.find("Unigram"), 7, "BPE");
  CHECK(says(from_json(json).error, "a model of the type BPE with the vocabulary of another"));
}

}  // namespace unigram_test
