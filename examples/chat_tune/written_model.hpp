// SPDX-License-Identifier: MIT
/// A tuned model as files: GGUF, or a folder as the Hugging Face Hub has it.
#pragma once

#include <adacc/io/file.hpp>
#include <adacc/io/weights/gguf_encode.hpp>
#include <adacc/io/weights/gguf_model_write.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/pretrained.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "weights.hpp"

namespace chat_tune {

/// The names of types of matrices in GGUF files that are written.
inline std::vector<std::string> written_types() {
  std::vector<std::string> names;
  for (const auto& type : adacc::detail::gguf_types)
    if (adacc::is_written(type.type)) names.emplace_back(type.name);
  return names;
}
/// The type of a name among written_types().
inline adacc::GgufType written_type(const std::string& name) {
  return std::find_if(std::begin(adacc::detail::gguf_types), std::end(adacc::detail::gguf_types),
                      [&](const auto& type) { return name == type.name; })
      ->type;
}

/// The model with its adapters, if it has some, merged, over a copy of its file's metadata.
template <class T>
adacc::Error write_gguf_model(const std::string& path, const Weights& weights,
                              const adacc::Graph& graph, adacc::View<const T> params,
                              const adacc::AdapterShape& adapters, const std::string& type) {
  return weights.visit([&](const auto& mapped) -> adacc::Error {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(mapped.file())>, adacc::Gguf>)
      return adacc::write_gguf(path, mapped, graph, params, adapters, written_type(type));
    else
      return adacc::Error::say(
          "--out: a whole model as GGUF takes its tokenizer from a GGUF file, and --model is a "
          "folder: give the name of a folder");
  });
}

/// The configuration of the Hub for the written weights.
inline std::string config_json(const adacc::llama::Config& config) {
  return nlohmann::ordered_json{{"model_type", adacc::llama::name_of(config.family)},
                                {"hidden_act", "silu"},
                                {"num_hidden_layers", config.layers},
                                {"num_attention_heads", config.heads},
                                {"num_key_value_heads", config.kv_heads},
                                {"head_dim", config.head_size()},
                                {"hidden_size", config.channels},
                                {"intermediate_size", config.hidden},
                                {"max_position_embeddings", config.context},
                                {"vocab_size", config.vocab},
                                {"rms_norm_eps", static_cast<double>(config.epsilon)},
                                {"rope_theta", config.base},
                                {"tie_word_embeddings", config.tied_head}}
             .dump(2) +
         "\n";
}

/// Weights and configuration into an existing folder; adapters are merged, or there are none.
template <class T>
adacc::Error write_weights(const std::string& folder, const adacc::llama::Config& config,
                           const adacc::Graph& plain, adacc::View<const T> params) {
  if (const adacc::Error why = adacc::write_pretrained<T>(folder + "/model.safetensors", plain,
                                                          params, adacc::llama::Naming(config)))
    return why;
  return adacc::write_file(folder + "/config.json", config_json(config));
}
template <class T>
adacc::Error write_weights(const std::string& folder, const adacc::gpt::Config& config,
                           const adacc::Graph& plain, adacc::View<const T> params) {
  return adacc::write_gpt2(folder,
                           {config.context, config.vocab, static_cast<std::size_t>(config.layers),
                            config.heads, config.channels, config.vocab},
                           plain, params);
}

/// The model in a folder, which is made: weights in the type of `params`, and what else the folder that the model comes from has.
/// From a GGUF file there is no tokenizer.
template <class T>
adacc::Error write_folder(const std::string& folder, const Weights& weights,
                          const adacc::Graph& graph, adacc::View<const T> params) {
  using adacc::Error;
  namespace fs = std::filesystem;
  std::error_code wrong;
  const auto failed = [&](const std::string& path) {
    return Error::say("--out ", adacc::one_line(path, 80).c_str(), ": ", wrong.message().c_str());
  };
  if (!weights.folder().empty() && fs::equivalent(folder, weights.folder(), wrong))
    return Error::say("--out ", adacc::one_line(folder, 80).c_str(),
                      " would replace the model that is read");
  wrong.clear();
  if (fs::create_directories(folder, wrong); wrong) return failed(folder);
  const adacc::Graph plain = adacc::without_adapters(graph);
  if (const Error why = weights.visit([&](const auto& mapped) {
        return write_weights<T>(folder, mapped.config(), plain, params);
      }))
    return why;
  if (weights.folder().empty()) return {};
  for (const char* const name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "vocab.json", "merges.txt", "chat_template.jinja"}) {
    const fs::path from = fs::path(weights.folder()) / name, to = fs::path(folder) / name;
    if (!fs::exists(from, wrong)) continue;
    if (fs::copy_file(from, to, fs::copy_options::overwrite_existing, wrong); wrong)
      return failed(to.string());
  }
  return {};
}

}  // namespace chat_tune
