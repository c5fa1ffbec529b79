// SPDX-License-Identifier: MIT
/// The command export: a model with its adapters merged, or the adapters alone.
#pragma once

#include <adacc/io/file.hpp>
#include <adacc/io/weights/gguf_model_write.hpp>
#include <adacc/train/merge_adapters.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "loaded.hpp"
#include "words.hpp"

namespace chat_tune {

struct ExportCommand {
  ModelOptions model;
  std::string adapter, out, type = "F16";
  bool adapters_alone = false;
};

/// A GGUF file of the model with its adapters merged, or of the adapters alone.
inline Error export_gguf(const ExportCommand& command) {
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, false)) return why;
  const adacc::View<const float> params = std::as_const(loaded.params).view();
  if (command.adapters_alone)
    return adacc::write_gguf_adapters(command.out, loaded.model.config, loaded.graph, params,
                                             loaded.adapters);
  return adacc::write_gguf(command.out, loaded.model.mapped, loaded.graph, params,
                                  loaded.adapters, written_type(command.type));
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

inline int export_model(const ExportCommand& command) {
  if (command.out.ends_with(".gguf")) {
    if (const Error why = export_gguf(command)) return fail(why);
    std::printf("written to %s\n", shown(command.out).c_str());
    return 0;
  }
  if (command.adapters_alone)
    return fail(Error::say("--adapters writes a GGUF file: let --out end with .gguf"));
  std::error_code wrong;
  std::filesystem::create_directories(command.out, wrong);
  if (wrong)
    return fail(Error::say("--out ", shown(command.out).c_str(), ": ", wrong.message().c_str()));
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, true)) return fail(why);
  adacc::merge_adapters(loaded.graph, loaded.params.view(), loaded.adapters);
  const adacc::Graph plain = adacc::without_adapters(loaded.graph);
  if (const Error why = adacc::write_pretrained<float>(command.out + "/model.safetensors", plain,
                                                       std::as_const(loaded.params).view(),
                                                       adacc::llama::Naming(loaded.model.config)))
    return fail(why);
  if (const Error why =
          adacc::write_file(command.out + "/config.json", config_json(loaded.model.config)))
    return fail(why);
  std::printf("written to %s: model.safetensors and config.json\n", shown(command.out).c_str());
  return 0;
}

}  // namespace chat_tune
