// SPDX-License-Identifier: MIT
#include "adacc/io/weights/gpt2.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "llmc_graph.hpp"

namespace gpt2_safetensors_test {
namespace {

using namespace adacc;
using train_test::Folder;
using train_test::read_file;
using train_test::StubGraph;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

constexpr LlmcHeader shape{3, 5, 2, 2, 4, 5};
const StubGraph graph(5, 3, 2, 4);

std::vector<float> numbers(float first) {
  std::vector<float> out(graph.parameter_elems, -1);
  for (const Parameter& parameter : graph.parameters)
    if (parameter.owner)
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i) out[parameter.offset + i] = first++;
  return out;
}

Error write(const Folder& folder, const std::vector<float>& from) {
  return write_gpt2<StubGraph, float>(folder / ".", shape, graph,
                                      {from.data(), Shape(from.size())});
}

/// The tensors of a file under other names.
struct Renamed {
  template <class Rename>
  Renamed(const SafeTensors& file, const Rename& rename) {
    copies.reserve(file.size());
    for (const StoredTensor& tensor : file) {
      std::vector<float>& copy = copies.emplace_back(tensor.elems());
      const Shape as = tensor.shape.size() == 2 ? Shape(tensor.shape[0], tensor.shape[1])
                                                : Shape(tensor.shape[0]);
      REQUIRE(!copy_stored(tensor, View<float>(copy.data(), as)));
      tensors.push_back({rename(tensor.name), View<const float>(copy.data(), as)});
    }
  }
  std::vector<std::vector<float>> copies;
  std::vector<NamedTensor> tensors;
};

}  // namespace

TEST_CASE("a model comes back as it was, and its matrices lie as the format has them") {
  const Folder folder;
  const std::vector<float> original = numbers(1);
  REQUIRE(!write(folder, original));
  const auto config = read_gpt2_config(folder / "");
  REQUIRE_MESSAGE(config, config.error.text());
  CHECK(config->layers == 2);
  CHECK(config->heads == 2);
  CHECK(config->channels == 4);
  CHECK(config->max_seq_len == 3);
  CHECK(config->vocab_size == 5);
  std::vector<float> params(graph.parameter_elems, -1);
  for (const char* path : {"", "model.safetensors"}) {
    CHECK(is_gpt2_safetensors(folder / path));
    const Error why = read_gpt2_parameters(folder / path, graph, 2,
                                           View<float>(params.data(), Shape(params.size())));
    CHECK_MESSAGE(!why, why.text());
    CHECK(std::memcmp(params.data(), original.data(), 4 * params.size()) == 0);
  }
  const auto file = SafeTensors::open(folder / "");
  REQUIRE(file);
  CHECK(file->size() == 2 + 2 * 12 + 2);
  const StoredTensor* qkv = file->find("h.1.attn.c_attn.weight");
  REQUIRE(qkv != nullptr);
  CHECK(qkv->shape == std::vector<std::size_t>{4, 12});
  float first[2];
  std::memcpy(first, qkv->bytes.data(), sizeof first);
  CHECK(first[1] == first[0] + 4);  // the next output of the same input
  CHECK(file->find("wte.weight")->shape == std::vector<std::size_t>{5, 4});
}

TEST_CASE("names may have a front, and files more than is needed") {
  const Folder folder;
  const std::vector<float> original = numbers(1);
  REQUIRE(!write(folder, original));
  {
    const auto file = SafeTensors::open(folder / "");
    REQUIRE(file);
    Renamed renamed(*file, [](const std::string& name) { return "transformer." + name; });
    renamed.tensors.push_back({"lm_head.weight", View<const float>(original.data(), Shape(5, 4))});
    REQUIRE(!write_safetensors(folder / "named.safetensors", renamed.tensors));
  }
  std::vector<float> params(graph.parameter_elems, -1);
  const View<float> to(params.data(), Shape(params.size()));
  CHECK(!read_gpt2_parameters(folder / "named.safetensors", graph, 2, to));
  CHECK(params == original);
}

TEST_CASE("a table that was saved as the output head alone is found by its other name") {
  const Folder folder;
  const std::vector<float> original = numbers(1);
  REQUIRE(!write(folder, original));
  const auto file = SafeTensors::open(folder / "");
  REQUIRE(file);
  const Renamed renamed(*file, [](const std::string& name) {
    return name == "wte.weight" ? "lm_head.weight" : "transformer." + name;
  });
  std::vector<float> params(graph.parameter_elems, -1);
  const View<float> to(params.data(), Shape(params.size()));
  std::vector<std::string> problems;
  const auto read = [&](const char* alias, const char* of) {
    REQUIRE(!write_safetensors(folder / "model.safetensors", renamed.tensors,
                               {{"format", "pt"}, {alias, of}}));
    const auto config = read_gpt2_config(folder / "", &problems);
    if (!config) return config.error;
    return read_gpt2_parameters(folder / "", graph, 2, to, &problems);
  };
  const Error good = read("transformer.wte.weight", "lm_head.weight");
  CHECK_MESSAGE(!good, good.text());
  CHECK(params == original);
  // Without one, or with one that leads nowhere, the table alone is missing.
  for (const auto& [alias, of] : {std::pair{"other", "lm_head.weight"},
                                  {"transformer.wte.weight", "nothing"},
                                  {"transformer.wte.weight", "transformer.wte.weight"}}) {
    CHECK(read(alias, of));
    CHECK(problems == std::vector<std::string>{"\"transformer.wte.weight\" is missing"});
  }
}

TEST_CASE("another model is refused in words, and changes nothing") {
  const Folder folder;
  REQUIRE(!write(folder, numbers(1)));
  std::vector<float> params(graph.parameter_elems, -1);
  const View<float> to(params.data(), Shape(params.size()));
  const StubGraph wider(5, 3, 2, 8), deeper(5, 3, 3, 4);
  std::vector<float> larger(wider.parameter_elems + deeper.parameter_elems, -1);
  const View<float> block(larger.data(), Shape(larger.size()));
  CHECK(says(read_gpt2_parameters(folder / "", wider, 2, block), "28 of 28 tensors"));
  CHECK(
      says(read_gpt2_parameters(folder / "", deeper, 3, block), "\"h.2.ln_1.weight\" is missing"));
  std::vector<std::string> problems;
  CHECK(read_gpt2_parameters(folder / "", deeper, 3, block, &problems));
  REQUIRE(problems.size() == 12);
  CHECK(problems[0] == "\"h.2.ln_1.weight\" is missing");
  CHECK(problems[11] == "\"h.2.mlp.c_proj.bias\" is missing");
  CHECK(read_gpt2_parameters(folder / "", wider, 2, block, &problems));
  REQUIRE(problems.size() == 28);
  CHECK(problems[6] == "\"h.0.attn.c_attn.weight\" is (4, 12), not (8, 24)");
  CHECK(says(read_gpt2_parameters(folder / "", deeper, 2, block), "not that of a GPT-2"));
  CHECK(larger == std::vector<float>(larger.size(), -1));
  std::vector<float> broken = numbers(1);
  broken[graph.parameters[3].offset + 1] = std::nanf("");
  REQUIRE(!write(folder, broken));
  CHECK(says(read_gpt2_parameters(folder / "", graph, 2, to), "\"h.0.ln_1.bias\" has NaN"));

  const std::string good = read_file(folder / "config.json");
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    text.replace(text.find(what), what.size(), instead);
    write_file(folder / "config.json", text);
    return read_gpt2_config(folder / "").error;
  };
  CHECK(says(with("\"gpt2\"", "\"llama\""), "model_type is \"llama\""));
  CHECK(says(with("\"model_type\"", "\"type\""), "model_type is missing"));
  CHECK(says(with("gelu_new", "relu"), "activation_function is \"relu\""));
  CHECK(says(with("1e-05", "1e-06"), "layer_norm_epsilon is 1e-06"));
  // What would be computed otherwise than it was trained, and what makes no difference.
  const auto setting = [&](const char* text) {
    return with("\"n_head\"", std::string(text) + ", \"n_head\"");
  };
  CHECK(says(with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
             "tie_word_embeddings is false, and has to be true"));
  CHECK(says(setting("\"scale_attn_by_inverse_layer_idx\": true"),
             "scale_attn_by_inverse_layer_idx is true, and has to be false"));
  CHECK(says(setting("\"scale_attn_weights\": false"),
             "scale_attn_weights is false, and has to be true"));
  CHECK(says(setting("\"is_causal\": false"), "is_causal is false, and has to be true"));
  CHECK(says(setting("\"add_cross_attention\": true"),
             "add_cross_attention is true, and has to be false"));
  CHECK(
      says(setting("\"quantization_config\": {\"quant_method\": \"fp8\"}"), "and has to be null"));
  CHECK(says(setting("\"n_inner\": 17"), "n_inner is 17, and has to be 4 n_embd"));
  for (const char* same :
       {"\"n_inner\": null", "\"n_inner\": 16", "\"reorder_and_upcast_attn\": true",
        "\"scale_attn_weights\": true, \"scale_attn_by_inverse_layer_idx\": false",
        "\"quantization_config\": null, \"add_cross_attention\": false"})
    CHECK_MESSAGE(!setting(same), setting(same).text());
  CHECK(says(with("\"n_head\": 2", "\"n_head\": 3"), "n_head 3 does not divide n_embd 4"));
  CHECK(
      says(with("\"n_layer\": 2", "\"n_layer\": 0"), "n_layer is 0, and has to be a whole number"));
  CHECK(says(with("\"n_layer\": 2", "\"n_layer\": 2.5"),
             "n_layer is 2.5, and has to be a whole number"));
  const Error two = with("\"n_head\": 2", "\"n_layer\": 0");
  CHECK(says(two, "n_layer is 0"));
  CHECK(says(two, "n_head is missing"));
  CHECK(read_gpt2_config(folder / "", &problems).error);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == "n_layer is 0, and has to be a whole number from 1 to 4096");
  // Numbers that are blown up are compared with the tensors before anything of that size is made.
  for (const auto& [number, name] : {std::pair{"\"n_layer\": 2", "n_layer"},
                                     {"\"n_embd\": 4", "wte.weight"},
                                     {"\"n_positions\": 3", "wpe.weight"},
                                     {"\"vocab_size\": 5", "wte.weight"}})
    for (const char* zeros : {"00", "000", "0000", "00000000"}) {
      const Error why = with(number, std::string(number) + zeros);
      CAPTURE(std::string(why.text()));
      CHECK(says(why, name));
    }
  CHECK(says(with("\"n_layer\": 2", "\"n_layer\": 4096"),
             "n_layer is 4096, and the file has no more than 28 tensors"));
  CHECK(says(with("\"n_layer\": 2", "\"n_layer\": 3"),
             "12 of 40 tensors are not there as they should be: \"h.2.ln_1.weight\" is missing"));
  CHECK(says(with("}", ""), "JSON lacks"));
  CHECK(says(read_gpt2_config(folder / "nowhere/").error, "cannot be opened"));
}

}  // namespace gpt2_safetensors_test
