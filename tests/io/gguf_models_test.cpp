// SPDX-License-Identifier: MIT
// Models from GGUF files: parameters have the bits that were put into the file, in the order of the networks
// here. A real file is read where the environment variable ADACC_GGUF_FILE names one.
#include "adacc/io/weights/gguf_gpt2.hpp"
#include "adacc/io/weights/gguf_llama.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "adacc/model/graph_builder.hpp"
#include "gguf_bytes.hpp"
#include "llmc_graph.hpp"

namespace gguf_models_test {
namespace {

using namespace adacc;
using gguf_test::GgufBytes;
using train_test::Folder;
using train_test::StubGraph;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

const llama::Config config{2, 4, 2, 32, 48, 16, 50, 1e-5F, 5e5, false};

/// Metadata of the network above, but for keys that `without` names.
GgufBytes llama_values(const std::string& without = "") {
  GgufBytes file;
  file.text("general.architecture", "llama");
  const auto number = [&](const std::string& key, std::uint32_t n) {
    if (key != without) file.number("llama." + key, n);
  };
  number("block_count", 2);
  number("attention.head_count", 4);
  number("attention.head_count_kv", 2);
  number("embedding_length", 32);
  number("feed_forward_length", 48);
  number("context_length", 16);
  number("vocab_size", 50);
  file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  file.real("llama.rope.freq_base", 5e5F);
  return file;
}

/// Row r of a head of 8 in a file is this one here: the converter turns (2, 4) rows into (4, 2).
std::size_t row_here(std::size_t r) { return r / 8 * 8 + r % 2 * 4 + r % 8 / 2; }

template <class Graph>
void add_tensors(GgufBytes& file, const Graph& graph, const std::vector<float>& params,
                 const llama::Config& of) {
  each_stored(
      graph, llama::Naming(of, llama::gguf_names),
      [&](const std::string& name, std::size_t offset, Shape shape) {
        const bool turns = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
        std::vector<float> numbers;
        for (std::size_t r = 0; r < shape.rows(); ++r)
          for (std::size_t c = 0; c < shape.cols(); ++c)
            numbers.push_back(params[offset + (turns ? row_here(r) : r) * shape.cols() + c]);
        if (shape.rank() == 1) file.floats(name, {shape[0]}, numbers);
        else file.floats(name, {shape[0], shape[1]}, numbers);
      });
}

std::vector<float> counted(std::size_t elems) {
  std::vector<float> numbers(elems);
  for (std::size_t i = 0; i < elems; ++i) numbers[i] = static_cast<float>(i + 1);
  return numbers;
}

std::string put(const Folder& folder, const GgufBytes& file) {
  write_file(folder / "model.gguf", file.file());
  return folder / "model.gguf";
}

}  // namespace

TEST_CASE("a Llama of a GGUF file has its queries and keys in the order of the network") {
  for (const bool tied : {false, true}) {
    llama::Config mine = config;
    mine.tied_head = tied;
    const auto graph = make_graph(llama::make(mine), Shape(1, 4));
    REQUIRE(graph);
    const std::vector<float> params = counted(graph->parameter_elems);
    const Folder folder;
    GgufBytes file = llama_values();
    file.number("llama.rope.dimension_count", 8);
    add_tensors(file, *graph, params, mine);
    const std::string path = put(folder, file);
    std::vector<std::string> problems;
    const auto found = llama::read_gguf_config(path, &problems);
    REQUIRE_MESSAGE(found, found.error.text());
    CHECK(problems.empty());
    CHECK(found->layers == 2);
    CHECK(found->heads == 4);
    CHECK(found->kv_heads == 2);
    CHECK(found->channels == 32);
    CHECK(found->hidden == 48);
    CHECK(found->context == 16);
    CHECK(found->vocab == 50);
    CHECK(found->epsilon == 1e-5F);
    CHECK(found->base == 5e5);
    CHECK(found->tied_head == tied);
    std::vector<float> read(params.size());
    const Error why = llama::read_gguf_parameters(path, *found, *graph,
                                                  View<float>(read.data(), Shape(read.size())));
    REQUIRE_MESSAGE(!why, why.text());
    CHECK(read == params);
    std::vector<bfloat16> small(params.size());
    REQUIRE(!llama::read_gguf_parameters(path, *found, *graph,
                                         View<bfloat16>(small.data(), Shape(small.size()))));
    for (std::size_t i = 0; i < small.size(); ++i)
      CHECK(to_float(small[i]) == to_float(to_bfloat16(params[i])));
  }
}

TEST_CASE("numbers that are none, and files without some, are found by their key") {
  const Folder folder;
  const auto refusal = [&](const GgufBytes& file) {
    return llama::read_gguf_config(put(folder, file)).error;
  };
  CHECK(says(refusal(llama_values("block_count")), "llama.block_count is missing"));
  CHECK(says(refusal(llama_values("context_length")), "llama.context_length is missing"));
  // Without tensors or a vocabulary's size nothing says how many tokens there are.
  CHECK(says(refusal(llama_values("vocab_size")), "llama.vocab_size is missing"));
  GgufBytes file = llama_values("attention.head_count");
  file.array("llama.attention.head_count", GgufKind::u32, 2,
             gguf_test::raw<std::uint32_t>(4) + gguf_test::raw<std::uint32_t>(4));
  CHECK(says(refusal(file), "llama.attention.head_count is [2 values]"));
  file = llama_values("block_count");
  file.number("llama.block_count", 4000);
  CHECK(says(refusal(file), "llama.block_count is 4000, and the file has no more than 0 tensors"));
}

TEST_CASE("a network that would compute something else refuses a GGUF file in words") {
  const auto graph = make_graph(llama::make(config), Shape(1, 4));
  REQUIRE(graph);
  const std::vector<float> params = counted(graph->parameter_elems);
  const Folder folder;
  const auto refusal = [&](const auto& change) {
    GgufBytes file = llama_values();
    add_tensors(file, *graph, params, config);
    change(file);
    return llama::read_gguf_config(put(folder, file)).error;
  };
  CHECK_FALSE(refusal([](GgufBytes&) {}));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.rope.dimension_count", 4); }),
             "llama.rope.dimension_count is 4, and has to be 8"));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.attention.key_length", 16); }),
             "llama.attention.key_length is 16"));
  CHECK(says(refusal([](GgufBytes& file) { file.text("llama.rope.scaling.type", "linear"); }),
             "llama.rope.scaling.type is \"linear\", and has to be \"none\""));
  CHECK(says(refusal([](GgufBytes& file) { file.number("llama.expert_count", 8); }),
             "llama.expert_count is 8"));
  CHECK(says(refusal([](GgufBytes& file) {
               file.floats("rope_freqs.weight", {4}, {1, 2, 3, 4});
             }),
             "\"rope_freqs.weight\" has no place in this network"));
  CHECK(says(refusal([](GgufBytes& file) { file.floats("blk.0.attn_q.bias", {1}, {1}); }),
             "\"blk.0.attn_q.bias\" has no place"));
  for (const char* const other : {"qwen2", "qwen3", "gemma"}) {
    GgufBytes file;
    file.text("general.architecture", other);
    const std::string path = put(folder, file);
    const std::string named = std::string("is \"") + other + "\", and has to be";
    CHECK(says(llama::read_gguf_config(path).error, named.c_str()));
    CHECK(says(read_gguf_gpt2_config(path).error, named.c_str()));
  }
  CHECK(says(llama::read_gguf_config(put(folder, {})).error, "general.architecture is missing"));
}

TEST_CASE("a GPT-2 of a GGUF file has the parameters that were put in") {
  const StubGraph graph(5, 3, 2, 4);
  std::vector<float> params(graph.parameter_elems);
  float next = 1;
  for (const Parameter& parameter : graph.parameters)
    if (parameter.owner)
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i)
        params[parameter.offset + i] = next++;
  const auto file_with = [&](float head) {
    GgufBytes file;
    file.text("general.architecture", "gpt2");
    file.number("gpt2.block_count", 2);
    file.number("gpt2.attention.head_count", 2);
    file.number("gpt2.embedding_length", 4);
    file.number("gpt2.feed_forward_length", 16);
    file.number("gpt2.context_length", 3);
    file.real("gpt2.attention.layer_norm_epsilon", 1e-5F);
    const auto add = [&](const std::string& name, const Parameter& parameter, bool transposed) {
      CHECK_FALSE(transposed);
      const float* const from = params.data() + parameter.offset;
      const std::vector<float> numbers(from, from + parameter.shape.elems());
      if (parameter.shape.rank() == 1) file.floats(name, {numbers.size()}, numbers);
      else file.floats(name, {parameter.shape[0], parameter.shape[1]}, numbers);
    };
    REQUIRE(detail::each_gpt2_parameter(graph, 2, add, detail::gguf_gpt2_names));
    std::vector<float> table(params.begin(), params.begin() + 20);
    table[3] += head;
    file.floats("output.weight", {5, 4}, table);
    return file;
  };
  const Folder folder;
  const std::string path = put(folder, file_with(0));
  const auto header = read_gguf_gpt2_config(path);
  REQUIRE_MESSAGE(header, header.error.text());
  CHECK(header->layers == 2);
  CHECK(header->heads == 2);
  CHECK(header->channels == 4);
  CHECK(header->vocab_size == 5);
  CHECK(header->max_seq_len == 3);
  std::vector<float> read(params.size());
  REQUIRE(!read_gguf_gpt2_parameters(path, graph, 2, View<float>(read.data(), Shape(read.size()))));
  CHECK(read == params);
  CHECK(says(read_gguf_gpt2_config(put(folder, file_with(1))).error, "output.weight is another"));
}

TEST_CASE("a real GGUF file is read whole") {
  const char* const path = std::getenv("ADACC_GGUF_FILE");
  if (path == nullptr || *path == '\0') {
    MESSAGE("skipped: ADACC_GGUF_FILE names no file");
    return;
  }
  const auto found = llama::read_gguf_config(path);
  REQUIRE_MESSAGE(found, found.error.text());
  const auto graph = make_graph(llama::make(*found), Shape(1, 4));
  REQUIRE(graph);
  std::vector<bfloat16> params(graph->parameter_elems);
  const Error why = llama::read_gguf_parameters(
      path, *found, *graph, View<bfloat16>(params.data(), Shape(params.size())));
  CHECK_MESSAGE(!why, why.text());
}

}  // namespace gguf_models_test
