// SPDX-License-Identifier: MIT
// BERT's uncased tokenizer, on a vocabulary of a few pieces. On 11258 lines of Python's library, and on
// each of 145758 code points up to U+2FFFF between two letters, it agrees with Hugging Face's tokenizers 0.23.3,
// but for 504: punctuation, marks and formats whose kind is another since their table (of about Unicode 8).
#include <doctest/doctest.h>

#include <support/wordpiece/wordpiece.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace wordpiece_test {
namespace {

using train_test::Folder;
using train_test::write_file;

const std::vector<std::string> pieces = {"[PAD]",
                                         "[UNK]",
                                         "[CLS]",
                                         "[SEP]",
                                         "un",
                                         "##aff",
                                         "##able",
                                         "cafe",
                                         "##s",
                                         "!",
                                         "\xE4\xB8\xAD",
                                         "i",
                                         "resume",
                                         "##\xCF\x83",
                                         "\xE1\x84\x92",
                                         "##\xE1\x85\xA1",
                                         "##\xE1\x86\xAB",
                                         "\xE8\xBB\x8A",
                                         "\xE4\xB8\xBD"};

struct Vocabulary {
  explicit Vocabulary(const char* line_end = "\n") {
    std::string text;
    for (const std::string& piece : pieces) text += piece + line_end;
    write_file(folder / "vocab.txt", text);
  }
  Folder folder;
};

/// The tokens of `text`, at most `most`, as pieces.
std::string pieces_of(const std::string& text, std::size_t most = 64) {
  const Vocabulary vocabulary;
  const auto tokenizer = support::WordPiece::open(vocabulary.folder / "vocab.txt");
  REQUIRE_MESSAGE(tokenizer, tokenizer.error.text());
  CHECK(tokenizer->size() == pieces.size());
  std::string words;
  for (const std::int32_t token : tokenizer->encode(text, most))
    words += (words.empty() ? "" : " ") + pieces[static_cast<std::size_t>(token)];
  return words;
}

}  // namespace

TEST_CASE("words become their longest pieces, and what has none is unknown") {
  CHECK(pieces_of("unaffable cafes") == "[CLS] un ##aff ##able cafe ##s [SEP]");
  CHECK(pieces_of("unx un") == "[CLS] [UNK] un [SEP]");
  CHECK(pieces_of("") == "[CLS] [SEP]");
  CHECK(pieces_of(std::string(101, 'i')) == "[CLS] [UNK] [SEP]");
  CHECK(pieces_of("un!able") == "[CLS] un ! [UNK] [SEP]");
}

TEST_CASE(
    "case, accents, controls and spaces do not matter; punctuation and ideographs stand alone") {
  CHECK(pieces_of("UnAFFable") == "[CLS] un ##aff ##able [SEP]");
  CHECK(pieces_of("Caf\xC3\xA9 R\xC3\x89SUME\xCC\x81") ==
        "[CLS] cafe resume [SEP]");                                    // é, É, U+0301
  CHECK(pieces_of("\xC4\xB0\xCE\xA3") == "[CLS] i ##\xCF\x83 [SEP]");  // İ, capital sigma
  CHECK(pieces_of("un\xC2\xA0\tcafe\x01s\xE2\x80\x8B") == "[CLS] un cafe ##s [SEP]");
  CHECK(pieces_of("un\xE4\xB8\xADun") == "[CLS] un \xE4\xB8\xAD un [SEP]");
  CHECK(pieces_of("un\xE3\x80\x82un") == "[CLS] un [UNK] un [SEP]");  // an ideographic full stop
  CHECK(pieces_of("\xED\x95\x9C") == "[CLS] \xE1\x84\x92 ##\xE1\x85\xA1 ##\xE1\x86\xAB [SEP]");
}

TEST_CASE("separators of lines and paragraphs separate words") {
  CHECK(pieces_of("un\xE2\x80\xA8"
                  "cafe\xE2\x80\xA9un") == "[CLS] un cafe un [SEP]");
  CHECK(pieces_of("un\xC2\x85"
                  "affable") == "[CLS] un ##aff ##able [SEP]");  // U+0085 is a control
}

TEST_CASE("ideographs that are there twice, for compatibility, are the ones they stand for") {
  // U+F902 is U+8ECA, U+2F800 is U+4E3D, and U+FA0E is itself.
  CHECK(pieces_of("un\xEF\xA4\x82un") == "[CLS] un \xE8\xBB\x8A un [SEP]");
  CHECK(pieces_of("\xEF\xA4\x82\xE8\xBB\x8A") == "[CLS] \xE8\xBB\x8A \xE8\xBB\x8A [SEP]");
  CHECK(pieces_of("\xF0\xAF\xA0\x80") == "[CLS] \xE4\xB8\xBD [SEP]");
  CHECK(pieces_of("un\xEF\xA8\x8Eun") == "[CLS] un [UNK] un [SEP]");
  CHECK(pieces_of("un\xF0\xAB\xA0\xA0") == "[CLS] [UNK] [SEP]");     // U+2B820 stands not alone
  CHECK(pieces_of("un\xF0\xAB\xA4\xA0") == "[CLS] un [UNK] [SEP]");  // U+2B920 does
}

TEST_CASE("what is no UTF-8 is left out, byte by byte") {
  for (const char* broken : {"\xFF", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC0\xAF", "\xED\xA0\x80",
                             "\xF4\x90\x80\x80", "\x80"})
    CHECK(pieces_of(std::string("un") + broken + " cafe") == "[CLS] un cafe [SEP]");
}

TEST_CASE("long texts are cut, and end all the same") {
  CHECK(pieces_of("un un un un", 4) == "[CLS] un un [SEP]");
  CHECK(pieces_of("unaffable", 4) == "[CLS] un ##aff [SEP]");
  CHECK(pieces_of("un", 3) == "[CLS] un [SEP]");
}

TEST_CASE("a vocabulary may have any line ends, and has to have what is needed") {
  const Vocabulary windows("\r\n");
  const auto tokenizer = support::WordPiece::open(windows.folder / "vocab.txt");
  REQUIRE(tokenizer);
  CHECK(tokenizer->encode("un", 8) == std::vector<std::int32_t>{2, 4, 3});
  const Folder folder;
  write_file(folder / "vocab.txt", "[PAD]\n[CLS]\n");
  const auto lacking = support::WordPiece::open(folder / "vocab.txt");
  CHECK(train_test::says(lacking.error.text(), "has no [UNK], [SEP]"));
  CHECK(support::WordPiece::open(folder / "nothing").error);
}

}  // namespace wordpiece_test
