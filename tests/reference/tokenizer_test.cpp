// SPDX-License-Identifier: MIT
// Compares the tokens of texts with those of another program, for bench/peers/tokenizer_lines.py, which says
// what the files are: TOKENIZER LINES IDS FOLDER, where the tokenizer is a tokenizer.json, a GGUF file, or a folder of
// vocab.json and merges.txt and a kind of words. It is written into FOLDER.
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/tokenizer/read_tokenizer.hpp>
#include <adacc/io/tokenizer/write_tokenizer.hpp>

#include <support/processor_seconds.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace adacc;

Result<Tokenizer> open(const std::string& path) {
  if (is_folder(path))
    return read_vocabulary(path, PreTokenizer::smollm,
                           {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  if (!path.ends_with(".gguf")) return read_tokenizer(path);
  const auto file = Gguf::open(path);
  if (!file) return file.error;
  return read_gguf_tokenizer(*file);
}

bool read(std::ifstream& file, void* to, std::size_t bytes) {
  return static_cast<bool>(file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
}

/// With a space for each of SentencePiece's letters of a space, none at the beginning, and of words without spaces none.
std::string without_blocks(const Tokenizer& tokenizer, const std::string& text) {
  if (!tokenizer.is_sentencepiece()) return text;
  std::string out;
  const bool spaces = !tokenizer.metaspace().at_spaces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::uint32_t code = next_code(text, at);
    if (code == 0x2581) out += spaces ? " " : "";
    else if (spaces || kind_of_letter(code) != LetterKind::space)
      out += text.substr(begin, at - begin);
  }
  return tokenizer.has_space_before() && out.starts_with(' ') ? out.substr(1) : out;
}

bool comes_back(const Tokenizer& tokenizer, const std::string& text,
                const std::vector<std::int32_t>& tokens) {
  const std::string expected = without_blocks(tokenizer, tokenizer.normalizer().normalized(text));
  const std::string found = tokenizer.decode(tokens);
  if (!tokenizer.is_sentencepiece() || !tokenizer.metaspace().at_spaces) return found == expected;
  return without_blocks(tokenizer, found) == expected;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return std::printf("usage: reference_tokenizers TOKENIZER LINES IDS FOLDER\n"), 1;
  const auto tokenizer = open(words[1]);
  if (!tokenizer) return std::printf("%s\n", tokenizer.error.text()), 1;
  const bool is_unigram_file = tokenizer->is_unigram() && std::string(words[1]).ends_with(".gguf");
  if (const Error why = write_tokenizer(words[4], *tokenizer); why && !is_unigram_file)
    return std::printf("%s\n", why.text()), 1;
  std::ifstream lines(words[2], std::ios::binary), ids(words[3], std::ios::binary);
  std::size_t number = 0, bytes = 0, other = 0, left_out = 0, not_back = 0;
  double seconds = 0;
  for (std::uint32_t size = 0, tokens = 0; read(lines, &size, sizeof size); ++number) {
    std::string text(size, '\0');
    if (!read(lines, text.data(), size) || !read(ids, &tokens, sizeof tokens))
      return std::printf("the files end too early\n"), 1;
    std::vector<std::int32_t> expected(tokens);
    if (!read(ids, expected.data(), tokens * sizeof expected[0]) && tokens != 0)
      return std::printf("the files end too early\n"), 1;
    std::size_t lost = 0;
    const double start = support::processor_seconds();
    const auto mine = tokenizer->encode(text, SpecialText::tokens, &lost);
    seconds += support::processor_seconds() - start;
    bytes += size;
    left_out += lost;
    if (mine != expected && ++other <= 3)
      std::printf("other tokens for line %zu: %.200s\n", number, text.c_str());
    // SentencePiece's space before a text between special tokens comes back; the texts of bytes' tokens do as bytes.
    const bool cut =
        tokenizer->is_sentencepiece() &&
        (mine != tokenizer->encode(text, SpecialText::text) || text.find("<0x") != text.npos);
    if (lost == 0 && !cut && !comes_back(*tokenizer, text, mine)) ++not_back;
  }
  std::printf(
      "%s: %zu lines, %zu bytes; %zu with other tokens, %zu that did not come back, %zu bytes "
      "without a token; %.1f MB/s\n",
      words[1], number, bytes, other, not_back, left_out,
      seconds > 0 ? static_cast<double>(bytes) / seconds / 1e6 : 0.0);
  return number > 0 && other == 0 && not_back == 0 ? 0 : 1;
}
