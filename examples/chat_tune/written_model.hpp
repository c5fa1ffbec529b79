// SPDX-License-Identifier: MIT
/// A tuned model as files: GGUF, or a folder as the Hugging Face Hub has it.
#pragma once

#include <adacc/io/file.hpp>
#include <adacc/io/tokenizer/write_tokenizer.hpp>
#include <adacc/io/weights/gguf_encode.hpp>
#include <adacc/io/weights/gguf_model_write.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/pretrained.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model.hpp"

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

/// Whether a name is that of a GGUF file; other names are those of folders.
inline bool is_gguf(const std::string& name) { return name.ends_with(".gguf"); }

/// Why the model's tokenizer cannot go to a file or folder of this name; to be asked before a model is trained.
inline adacc::Error check_tokenizer(const std::string& name, const Model& model) {
  adacc::Error why;
  if (is_gguf(name) == model.weights.folder().empty()) return why;  // it is copied
  if (is_gguf(name)) {
    adacc::GgufWriter nowhere;
    why = adacc::add_gguf_tokenizer(nowhere, model.tokenizer, model.weights.sizes().vocab);
  } else {
    why = adacc::tokenizer_json(model.tokenizer).error;
  }
  return why ? adacc::Error::say("--out ", adacc::one_line(name, 80).c_str(), ": ", why.text())
             : why;
}

/// The model with its adapters, if it has some, merged: over a copy of its GGUF file's metadata, or with those of its folder.
template <class T>
adacc::Error write_gguf_model(const std::string& path, const Model& model,
                              const adacc::Graph& graph, adacc::View<const T> params,
                              const adacc::AdapterShape& adapters, const std::string& type) {
  return model.weights.visit([&](const auto& mapped) -> adacc::Error {
    if constexpr (is_in_gguf<decltype(mapped)>) {
      return adacc::write_gguf(path, mapped, graph, params, adapters, written_type(type));
    } else {
      const auto config = adacc::read_tokenizer_config(model.weights.folder());
      if (!config) return config.error;
      adacc::GgufWriter file;
      add_gguf_config(file, mapped.config());
      if (const adacc::Error why = adacc::add_gguf_tokenizer(
              file, model.tokenizer, mapped.config().vocab, config->chat_template))
        return why;
      return adacc::write_gguf(path, std::move(file), mapped.config(), graph, params, adapters,
                               written_type(type));
    }
  });
}

/// The weights into an existing folder; adapters are merged, or there are none.
template <class T>
adacc::Error write_weights(const std::string& folder, const adacc::llama::Config& config,
                           const adacc::Graph& plain, adacc::View<const T> params) {
  return adacc::write_pretrained<T>(folder + "/model.safetensors", plain, params,
                                    adacc::llama::Naming(config));
}
template <class T>
adacc::Error write_weights(const std::string& folder, const adacc::gpt::Config& config,
                           const adacc::Graph& plain, adacc::View<const T> params) {
  return adacc::write_gpt2_parameters(folder, static_cast<std::size_t>(config.layers), plain,
                                      params);
}

using Numbers = std::vector<std::pair<std::string, std::size_t>>;

/// The config.json of the weights, with `more` numbers.
inline adacc::Error write_config(const std::string& folder, const adacc::llama::Config& config,
                                 const Numbers& more) {
  nlohmann::ordered_json json{{"model_type", adacc::llama::name_of(config.family)},
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
                              {"tie_word_embeddings", config.tied_head}};
  for (const auto& [name, value] : more) json[name] = value;
  return adacc::write_file(folder + "/config.json", json.dump(2) + "\n");
}
inline adacc::Error write_config(const std::string& folder, const adacc::gpt::Config& config,
                                 const Numbers& more) {
  return adacc::write_gpt2_config(
      folder,
      {config.context, config.vocab, static_cast<std::size_t>(config.layers), config.heads,
       config.channels, config.vocab},
      more);
}

/// The configuration and the tokenizer of a GGUF file; config.json has the tokens at the ends of a text.
template <class Mapped>
adacc::Error write_settings(const Mapped& mapped, const adacc::Tokenizer& tokenizer,
                            const std::string& folder) {
  Numbers ends;
  for (const auto& [name, token] :
       {std::pair{"bos_token_id", tokenizer.bos()}, std::pair{"eos_token_id", tokenizer.eos()}})
    if (token >= 0) ends.emplace_back(name, static_cast<std::size_t>(token));
  if (const adacc::Error why = write_config(folder, mapped.config(), ends)) return why;
  std::string_view chat_template;
  const adacc::GgufValue* const value = mapped.file().value("tokenizer.chat_template");
  if (value != nullptr) static_cast<void>(value->text(chat_template));
  return adacc::write_tokenizer(folder, tokenizer, std::string(chat_template));
}

/// The model in a folder, which is made: weights in the type of `params`, and what else the model has: the files of its folder, or
/// the tokenizer of its GGUF file.
template <class T>
adacc::Error write_folder(const std::string& folder, const Model& model, const adacc::Graph& graph,
                          adacc::View<const T> params) {
  using adacc::Error;
  namespace fs = std::filesystem;
  const std::string& source = model.weights.folder();
  std::error_code wrong;
  const auto failed = [&](const std::string& path) {
    return Error::say("--out ", adacc::one_line(path, 80).c_str(), ": ", wrong.message().c_str());
  };
  if (!source.empty() && fs::equivalent(folder, source, wrong))
    return Error::say("--out ", adacc::one_line(folder, 80).c_str(),
                      " would replace the model that is read");
  wrong.clear();
  if (fs::create_directories(folder, wrong); wrong) return failed(folder);
  const adacc::Graph plain = adacc::without_adapters(graph);
  if (const Error why = model.weights.visit([&](const auto& mapped) -> Error {
        if (const Error bad = write_weights<T>(folder, mapped.config(), plain, params)) return bad;
        if constexpr (is_in_gguf<decltype(mapped)>)
          return write_settings(mapped, model.tokenizer, folder);
        else return {};
      }))
    return why;
  if (source.empty()) return {};
  for (const char* const name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "vocab.json", "merges.txt", "chat_template.jinja"}) {
    const fs::path from = fs::path(source) / name, to = fs::path(folder) / name;
    if (!fs::exists(from, wrong)) continue;
    if (fs::copy_file(from, to, fs::copy_options::overwrite_existing, wrong); wrong)
      return failed(to.string());
  }
  return {};
}

}  // namespace chat_tune
