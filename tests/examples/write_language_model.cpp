// SPDX-License-Identifier: MIT
// Writes a tiny language model with a tokenizer of single letters: write_language_model FAMILY PLACE. FAMILY is llama or gpt2, and
// PLACE a GGUF file, or a folder that is there and gets the same model as the Hugging Face Hub has it; a Llama in two files.
#include <adacc/core/random.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/io/weights/gpt_mapped.hpp>
#include <adacc/io/weights/llama_mapped.hpp>
#include <adacc/model/graph_builder.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "../io/gguf_bytes.hpp"

namespace {

using adacc::Error;

constexpr std::size_t channels = 32, heads = 4, kv_heads = 2, hidden = 48, context = 96;

std::vector<std::string> tokens() {
  std::vector<std::string> all{"<|im_start|>", "<|im_end|>", "\xC4\xA0",
                               "\xC4\x8A"};  // a space, the end of a line
  for (char c = '!'; c <= '~'; ++c) all.emplace_back(1, c);
  return all;
}

class Writer {
 public:
  explicit Writer(const std::string& family) {
    file.text("general.architecture", family);
    const auto number = [&](const char* key, std::size_t n) {
      file.number(family + "." + key, static_cast<std::uint32_t>(n));
    };
    number("block_count", 2);
    number("attention.head_count", heads);
    number("embedding_length", channels);
    number("context_length", context);
    const std::vector<std::string> texts = tokens();
    std::string kinds;
    for (std::size_t i = 0; i < texts.size(); ++i)
      kinds += gguf_test::raw<std::int32_t>(i < 2 ? 3 : 1);
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "gpt-2");
    file.texts("tokenizer.ggml.tokens", texts);
    file.array("tokenizer.ggml.token_type", adacc::GgufKind::i32, texts.size(), kinds);
    file.texts("tokenizer.ggml.merges", {});
    file.number("tokenizer.ggml.eos_token_id", 1);
    if (family == "gpt2") add_gpt2(texts.size());
    else add_llama(texts.size());
  }

  gguf_test::GgufBytes file;

 private:
  void add(const std::string& name, const std::vector<std::size_t>& shape, float middle,
           float width) {
    std::size_t elems = 1;
    for (const std::size_t extent : shape) elems *= extent;
    std::vector<float> numbers(elems);
    const adacc::RandomKey key{1, 0, 0, ++tensors_};
    for (std::size_t i = 0; i < elems; ++i)
      numbers[i] = middle + width * (adacc::unit_float(adacc::random_word(key, i)) - 0.5F);
    file.floats(name, shape, numbers);
  }
  void add_llama(std::size_t vocab) {
    file.number("llama.attention.head_count_kv", kv_heads);
    file.number("llama.feed_forward_length", hidden);
    file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    add("token_embd.weight", {vocab, channels}, 0, 1);
    add("output_norm.weight", {channels}, 1, 0.1F);
    for (int l = 0; l < 2; ++l) {
      const std::string block = "blk." + std::to_string(l) + ".";
      const std::size_t keys = channels / heads * kv_heads;
      add(block + "attn_norm.weight", {channels}, 1, 0.1F);
      add(block + "attn_q.weight", {channels, channels}, 0, 0.5F);
      add(block + "attn_k.weight", {keys, channels}, 0, 0.5F);
      add(block + "attn_v.weight", {keys, channels}, 0, 0.5F);
      add(block + "attn_output.weight", {channels, channels}, 0, 0.5F);
      add(block + "ffn_norm.weight", {channels}, 1, 0.1F);
      add(block + "ffn_gate.weight", {hidden, channels}, 0, 0.5F);
      add(block + "ffn_up.weight", {hidden, channels}, 0, 0.5F);
      add(block + "ffn_down.weight", {channels, hidden}, 0, 0.5F);
    }
  }
  void linear(const std::string& name, std::size_t out, std::size_t in) {
    add(name + ".weight", {out, in}, 0, 0.5F);
    add(name + ".bias", {out}, 0, 0.1F);
  }
  void norm(const std::string& name) {
    add(name + ".weight", {channels}, 1, 0.1F);
    add(name + ".bias", {channels}, 0, 0.1F);
  }
  void add_gpt2(std::size_t vocab) {
    file.number("gpt2.feed_forward_length", 4 * channels);
    file.real("gpt2.attention.layer_norm_epsilon", 1e-5F);
    add("token_embd.weight", {vocab, channels}, 0, 1);
    add("position_embd.weight", {context, channels}, 0, 0.2F);
    norm("output_norm");
    for (int l = 0; l < 2; ++l) {
      const std::string block = "blk." + std::to_string(l) + ".";
      norm(block + "attn_norm");
      linear(block + "attn_qkv", 3 * channels, channels);
      linear(block + "attn_output", channels, channels);
      norm(block + "ffn_norm");
      linear(block + "ffn_up", 4 * channels, channels);
      linear(block + "ffn_down", channels, 4 * channels);
    }
  }

  std::uint32_t tensors_ = 0;
};

/// A network's parameters, read from a GGUF file.
template <class Model, class Network>
Error read(const std::string& path, const Network& network, adacc::Graph& graph,
           std::vector<float>& params) {
  const auto model = Model::open(path);
  if (!model) return model.error;
  auto made = adacc::make_graph(network(model->config()), adacc::Shape(1, 2));
  if (!made) return made.error;
  graph = std::move(*made);
  params.resize(graph.parameter_elems);
  return model->read(graph, adacc::View<float>(params.data(), adacc::Shape(params.size())));
}

Error write_llama(const std::string& folder, const std::string& gguf) {
  using namespace adacc;
  Graph graph;
  std::vector<float> params;
  if (const Error why = read<llama::MappedModel>(
          gguf, [](const llama::Config& config) { return llama::make(config); }, graph, params))
    return why;
  const auto config = llama::read_gguf_config(gguf);
  if (!config) return config.error;
  std::vector<NamedTensor> parts[2];
  const char* const names[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  std::string index;
  std::size_t count = 0;
  each_stored(graph, llama::Naming(*config),
              [&](const std::string& name, std::size_t offset, Shape shape) {
                const std::size_t part = count++ % 2;
                parts[part].push_back({name, View<const float>(&params[offset], shape)});
                index += (index.empty() ? "\"" : ", \"") + name + "\": \"" + names[part] + "\"";
              });
  for (std::size_t part = 0; part < 2; ++part)
    if (const Error why =
            write_safetensors(folder + "/" + names[part], parts[part], {{"format", "pt"}}))
      return why;
  if (const Error why = write_file(folder + "/model.safetensors.index.json",
                                   "{\"metadata\": {}, \"weight_map\": {" + index + "}}"))
    return why;
  return write_file(folder + "/config.json",
                    R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 96,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "eos_token_id": [1, 0], "vocab_size": )" +
                        std::to_string(config->vocab) + "}\n");
}

Error write_gpt2_folder(const std::string& folder, const std::string& gguf) {
  using namespace adacc;
  Graph graph;
  std::vector<float> params;
  if (const Error why = read<gpt::MappedModel>(
          gguf, [](const gpt::Config& config) { return gpt::make(config); }, graph, params))
    return why;
  const auto header = read_gguf_gpt2_config(gguf);
  if (!header) return header.error;
  return write_gpt2(folder, *header, graph, View<const float>(params.data(), Shape(params.size())));
}

/// The tokenizer of the GGUF file.
Error write_tokenizer(const std::string& folder) {
  const std::vector<std::string> texts = tokens();
  std::string vocabulary;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool escaped = texts[i] == "\"" || texts[i] == "\\";
    vocabulary += (i == 0 ? "\"" : ", \"") + std::string(escaped ? "\\" : "") + texts[i] +
                  "\": " + std::to_string(i);
  }
  return adacc::write_file(folder + "/tokenizer.json",
                           R"({"added_tokens": [{"id": 0, "content": "<|im_start|>"},
  {"id": 1, "content": "<|im_end|>"}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "model": {"type": "BPE", "vocab": {)" +
                               vocabulary + "}, \"merges\": []}}\n");
}

Error write(const std::string& family, const std::string& place) {
  const bool folder = adacc::is_folder(place);
  const std::string gguf = folder ? place + "/of_folder.gguf" : place;
  if (const Error why = adacc::write_file(gguf, Writer(family).file.file())) return why;
  if (!folder) return {};
  const Error why = family == "gpt2" ? write_gpt2_folder(place, gguf) : write_llama(place, gguf);
  std::remove(gguf.c_str());
  return why ? why : write_tokenizer(place);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Error why = write(argv[1], argv[2]);
  if (why) std::fprintf(stderr, "%s\n", why.text());
  return why ? 1 : 0;
}
