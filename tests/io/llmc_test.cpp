// SPDX-License-Identifier: MIT
#include "adacc/io/weights/llmc.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "../train/support.hpp"
#include "adacc/core/block.hpp"
#include "llmc_graph.hpp"

namespace llmc_test { namespace {

using namespace adacc;
using train_test::bytes_of;
using train_test::Folder;
using train_test::says;
using train_test::StubGraph;
using train_test::write_file;

/// A model file whose numbers count up from 1.
struct ModelFile {
  std::vector<std::int32_t> words = std::vector<std::int32_t>(256);
  std::vector<float> numbers;

  ModelFile(int context, int vocab, int layers, int heads, int c, int padded) {
    const std::int32_t start[] = {20240326, 3, context, vocab, layers, heads, c, padded};
    for (std::size_t i = 0; i < 8; ++i) words[i] = start[i];
    const int count = (padded + context) * c + layers * (12 * c * c + 13 * c) + 2 * c;
    for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i + 1));
  }
  std::string bytes() const { return bytes_of(words) + bytes_of(numbers); }
};

constexpr int context = 3, vocab = 5, layers = 2, heads = 2, channels = 4, padded = 7;

ModelFile small_file() { return ModelFile(context, vocab, layers, heads, channels, padded); }

/// The error of reading this file's header, which reading its parameters must repeat.
std::string header_error(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "model.bin", bytes);
  const Result<LlmcHeader> header = read_llmc_header(folder / "model.bin");
  CHECK(says(header.error.text(), "model.bin: ", "expected an llm.c model checkpoint"));
  const StubGraph graph(vocab, context, layers, channels);
  Block<float> params = *Block<float>::make(graph.parameter_elems, "parameters");
  const Error error = read_llmc_parameters(folder / "model.bin", graph, params.view());
  CHECK(std::string(error.text()) == header.error.text());
  return header.error.text();
}

TEST_CASE("a model's parameters land in each copy's own storage, padded rows are dropped") {
  const Folder folder;
  write_file(folder / "model.bin", small_file().bytes());
  const Result<LlmcHeader> header = read_llmc_header(folder / "model.bin");
  REQUIRE(header);
  CHECK(header->max_seq_len == 3);
  CHECK(header->vocab_size == 5);
  CHECK(header->layers == 2);
  CHECK(header->heads == 2);
  CHECK(header->channels == 4);
  CHECK(header->padded_vocab_size == 7);

  const StubGraph graph(5, 3, 2, 4);
  Block<float> params = *Block<float>::make(graph.parameter_elems, "parameters");
  const Error error = read_llmc_parameters(folder / "model.bin", graph, params.view());
  CHECK(std::string(error.text()) == "");
  // Parameters 2 + 12 * copy …: ln1w, ln1b, qkvw, qkvb, attprojw, … of each copy.
  const auto first = [&](std::size_t parameter) {
    return params[graph.parameters[parameter].offset];
  };
  const auto last = [&](std::size_t parameter) {
    const Parameter& p = graph.parameters[parameter];
    return params[p.offset + p.shape.elems() - 1];
  };
  CHECK(first(0) == 1);
  CHECK(last(0) == 20);
  CHECK(params[20] == 0);  // the block's padding, not the file's
  CHECK(first(1) == 29);   // wpe, after 7 rows of 4
  CHECK(first(2) == 41);   // ln1w of copy 0
  CHECK(first(14) == 45);  // ln1w of copy 1
  CHECK(first(3) == 49);   // ln1b of copy 0
  CHECK(first(15) == 53);
  CHECK(first(4) == 57);  // qkvw of copy 0
  CHECK(last(4) == 104);
  CHECK(first(16) == 105);  // qkvw of copy 1
  const std::size_t count = small_file().numbers.size();
  CHECK(first(26) == static_cast<float>(count - 7));  // lnfw
  CHECK(last(27) == static_cast<float>(count));
}

TEST_CASE("a model in double takes the same numbers") {
  const Folder folder;
  write_file(folder / "model.bin", small_file().bytes());
  const StubGraph graph(5, 3, 2, 4);
  Block<double> params = *Block<double>::make(graph.parameter_elems, "parameters");
  CHECK(!read_llmc_parameters(folder / "model.bin", graph, params.view()));
  CHECK(params[graph.parameters[16].offset] == 105);
}

TEST_CASE("files that are no model say what they are") {
  ModelFile tokens = small_file();
  tokens.words[0] = 20240520;
  CHECK(says(header_error(tokens.bytes()).c_str(), "20240520", "20240326", "llm.c token file"));
  ModelFile version = small_file();
  version.words[1] = 5;
  CHECK(says(header_error(version.bytes()).c_str(), "version 5", "version 3"));
  CHECK(says(header_error("").c_str(), "is empty"));
  CHECK(says(header_error("To be, or not to be").c_str(), "looks like text"));
  CHECK(says(header_error("ADACCKPT and so on").c_str(), "an adacc checkpoint"));
  CHECK(says(header_error("abc").c_str(), "truncated", "3 bytes"));
}

TEST_CASE("a model that is too short or too long is refused") {
  const std::string whole = small_file().bytes();
  CHECK(says(header_error(whole.substr(0, whole.size() - 1)).c_str(), "truncated"));
  CHECK(says(header_error(whole.substr(0, 1024)).c_str(), "truncated"));
  CHECK(says(header_error(whole.substr(0, 500)).c_str(), "truncated", "500 bytes"));
  CHECK(says(header_error(whole.substr(0, 8)).c_str(), "truncated", "8 bytes"));
  CHECK(says(header_error(whole + "x").c_str(), "too long"));
}

TEST_CASE("zero, negative and absurd sizes are refused before anything is allocated") {
  const char* names[] = {"max_seq_len", "vocab_size", "num_layers",
                         "num_heads",   "channels",   "padded_vocab_size"};
  for (std::size_t i = 0; i < 6; ++i)
    for (std::int32_t wrong : {0, -1, std::numeric_limits<std::int32_t>::min()}) {
      ModelFile file = small_file();
      file.words[2 + i] = wrong;
      CHECK(says(header_error(file.bytes()).c_str(), names[i], "positive"));
    }
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  ModelFile huge = small_file();
  for (std::size_t i = 2; i < 8; ++i) huge.words[i] = most;
  CHECK(says(header_error(huge.bytes()).c_str(), "too large to address"));
  ModelFile large = small_file();
  large.words[3] = large.words[7] = most;
  CHECK(says(header_error(large.bytes()).c_str(), "truncated"));
  ModelFile heads_wrong = small_file();
  heads_wrong.words[5] = 3;
  CHECK(says(header_error(heads_wrong.bytes()).c_str(), "3 heads", "do not divide"));
  ModelFile padding = small_file();
  padding.words[7] = 4;
  CHECK(says(header_error(padding.bytes()).c_str(), "vocabulary of 5"));
}

TEST_CASE("a model that is missing or a folder is named") {
  const Folder folder;
  CHECK(
      says(read_llmc_header(folder / "none").error.text(), "/none: ", "No such file", "expected"));
  CHECK(says(read_llmc_header(folder.path).error.text(), folder.path.c_str(), "is a folder"));
}

TEST_CASE("a file of another model's shape is refused, and tells the difference") {
  const Folder folder;
  write_file(folder / "model.bin", small_file().bytes());
  const auto error = [&](const StubGraph& graph) {
    Block<float> params = *Block<float>::make(graph.parameter_elems, "parameters");
    const Error refused = read_llmc_parameters(folder / "model.bin", graph, params.view());
    for (std::size_t i = 0; i < params.size(); ++i) CHECK(params[i] == 0);
    return std::string(refused.text());
  };
  CHECK(says(error(StubGraph(7, 3, 2, 4)).c_str(), "wte of 5 x 4", "\"weight\" of 7 x 4"));
  CHECK(says(error(StubGraph(5, 2, 2, 4)).c_str(), "wpe of 3 x 4", "2 x 4"));
  CHECK(says(error(StubGraph(5, 3, 3, 4)).c_str(), "holds 28 parameters", "has 40"));
  CHECK(says(error(StubGraph(5, 3, 2, 8)).c_str(), "wte of 5 x 4", "5 x 8"));
  const StubGraph graph(5, 3, 2, 4);
  Block<float> small = *Block<float>::make(graph.parameter_elems - 16, "parameters");
  CHECK(says(read_llmc_parameters(folder / "model.bin", graph, small.view()).text(), "too few"));
}

TEST_CASE("NaN and infinities are refused by the parameter's name") {
  const Folder folder;
  const StubGraph graph(5, 3, 2, 4);
  Block<float> params = *Block<float>::make(graph.parameter_elems, "parameters");
  const auto error = [&](std::size_t at, float value) {
    ModelFile file = small_file();
    file.numbers[at] = value;
    write_file(folder / "model.bin", file.bytes());
    return std::string(read_llmc_parameters(folder / "model.bin", graph, params.view()).text());
  };
  CHECK(says(error(106, NAN).c_str(), "model.bin", "qkvw of layer 1", "NaN", "element 2"));
  CHECK(says(error(0, -INFINITY).c_str(), "wte of layer 0", "an infinity", "element 0"));
  CHECK(error(27, NAN).empty());  // in a row that is padding
}

}}  // namespace llmc_test
