// SPDX-License-Identifier: MIT
/// BERT encoders in the form of Hugging Face, sentence encoders among them: a folder with config.json and
/// model.safetensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../../models/bert.hpp"
#include "pretrained.hpp"

namespace adacc { inline namespace v0_1 { namespace bert {

/// The tensor names of a network that begins with encoder(config); `prefix` is "bert." in files of models with a
/// head.
class Naming {
 public:
  Naming(const Config& config, std::string prefix)
      : channels_(config.channels), prefix_(std::move(prefix)) {}

  std::vector<StoredAs> operator()(const ParameterPlace& at) const {
    const std::string kind = at.index == 0 ? "weight" : "bias";
    if (at.layer == 0) {
      const char* const tables[] = {"word", "position", "token_type"};
      return {{prefix_ + "embeddings." + tables[at.index] + "_embeddings.weight"}};
    }
    if (at.layer == 1) return {{prefix_ + "embeddings.LayerNorm." + kind}};
    const std::string block = prefix_ + "encoder.layer." + std::to_string(at.copy) + ".";
    switch (at.layer) {
      case 2:
        return {{block + "attention.self.query." + kind, channels_},
                {block + "attention.self.key." + kind, channels_},
                {block + "attention.self.value." + kind, channels_}};
      case 4: return {{block + "attention.output.dense." + kind}};
      case 5: return {{block + "attention.output.LayerNorm." + kind}};
      case 6: return {{block + "intermediate.dense." + kind}};
      case 8: return {{block + "output.dense." + kind}};
      case 9: return {{block + "output.LayerNorm." + kind}};
      default: return {};  // layers above the encoder
    }
  }

 private:
  std::size_t channels_;
  std::string prefix_;
};

/// The names in the style of `file`.
inline Naming naming_of(const SafeTensors& file, const Config& config) {
  const bool prefixed = file.find("bert.embeddings.word_embeddings.weight") != nullptr;
  return {config, prefixed ? "bert." : ""};
}

/// The parameters of encoder(config), in the order of its block.
inline ModelOutline outline_of(const Config& config) {
  const std::size_t c = config.channels, hidden = config.hidden;
  ModelOutline outline;
  outline.add(0, 0, {Shape(config.vocab, c), Shape(config.context, c), Shape(config.types, c)});
  outline.add(1, 0, {Shape(c), Shape(c)});
  for (int l = 0; l < config.layers; ++l) {
    outline.add(2, l, {Shape(3 * c, c), Shape(3 * c)});
    outline.add(4, l, {Shape(c, c), Shape(c)});
    outline.add(5, l, {Shape(c), Shape(c)});
    outline.add(6, l, {Shape(hidden, c), Shape(hidden)});
    outline.add(8, l, {Shape(c, hidden), Shape(c)});
    outline.add(9, l, {Shape(c), Shape(c)});
  }
  return outline;
}

/// Reads the shape of the model in the folder of `path`, and compares it with the tensors if there are any. Errors
/// say which settings are unsuitable, and `problems`, if given, gets a line for each.
inline Result<Config> read_config(const std::string& path,
                                  std::vector<std::string>* problems = nullptr) {
  return adacc::detail::or_no_memory("to read a config.json", [&]() -> Result<Config> {
    auto json = ModelConfig::open(path);
    if (!json) return json.error;
    json->expect("model_type", {"\"bert\""});
    json->expect("hidden_act", {"\"gelu\""});
    json->expect("position_embedding_type", {"\"absolute\""});
    json->expect("is_decoder", {"false"});  // attention would be causal
    json->expect("add_cross_attention", {"false"});
    Config config;
    config.layers = static_cast<int>(json->layers("num_hidden_layers"));
    config.heads = json->size("num_attention_heads");
    config.channels = json->size("hidden_size");
    config.hidden = json->size("intermediate_size");
    config.context = json->size("max_position_embeddings");
    config.vocab = json->size("vocab_size");
    config.types = json->size("type_vocab_size", 2);
    config.epsilon = static_cast<float>(json->number("layer_norm_eps", 1e-12));
    if (config.heads != 0 && config.channels % config.heads != 0)
      json->complain("num_attention_heads " + std::to_string(config.heads) +
                     " does not divide hidden_size " + std::to_string(config.channels));
    if (const Error why = json->error(problems)) return why;
    const auto expected = [&](const SafeTensors& file) {
      return expected_tensors(outline_of(config), naming_of(file, config));
    };
    if (const Error why = compare_with_tensors(
            path, "num_hidden_layers", static_cast<std::size_t>(config.layers), expected, problems))
      return why;
    return config;
  });
}

/// Reads the encoder at `path` (SafeTensors::open) into `params`, the block of a network with this graph, which
/// begins with encoder(config). Parameters of layers above the encoder stay unchanged. Errors and `problems` are
/// those of load_pretrained().
template <class Graph, class T>
Error read_parameters(const std::string& path, const Config& config, const Graph& graph,
                      View<T> params, std::vector<std::string>* problems = nullptr) {
  const auto wanted = [&](const SafeTensors& file) {
    return wanted_tensors(graph, params, naming_of(file, config));
  };
  return read_pretrained(path, wanted, problems);
}

}}}  // namespace adacc::v0_1::bert
