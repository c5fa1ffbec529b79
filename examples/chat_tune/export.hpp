// SPDX-License-Identifier: MIT
/// The command export: a model, its adapters merged, or the adapters alone.
#pragma once

#include <adacc/io/weights/gguf_model_write.hpp>
#include <adacc/train/merge_adapters.hpp>

#include <cstdio>
#include <string>
#include <utility>

#include "loaded.hpp"
#include "words.hpp"
#include "written_model.hpp"

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
    return loaded.model.weights.visit([&](const auto& mapped) {
      return adacc::write_gguf_adapters(command.out, mapped.config(), loaded.graph, params,
                                        loaded.adapters);
    });
  if (const Error why = check_tokenizer(command.out, loaded.model)) return why;
  return write_gguf_model(command.out, loaded.model, loaded.graph, params, loaded.adapters,
                          command.type);
}

inline int export_model(const ExportCommand& command) {
  if (command.adapters_alone && command.adapter.empty())
    return fail(Error::say("--adapters writes adapters alone: give them, with --adapter"));
  if (is_gguf(command.out)) {
    if (const Error why = export_gguf(command)) return fail(why);
    std::printf("written to %s\n", shown(command.out).c_str());
    return 0;
  }
  if (command.adapters_alone)
    return fail(Error::say("--adapters writes a GGUF file: let --out end with .gguf"));
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, true)) return fail(why);
  if (const Error why = check_tokenizer(command.out, loaded.model)) return fail(why);
  adacc::merge_adapters(loaded.graph, loaded.params.view(), loaded.adapters);
  if (const Error why = write_folder<float>(command.out, loaded.model, loaded.graph,
                                            std::as_const(loaded.params).view()))
    return fail(why);
  std::printf("written to %s: model.safetensors, config.json and the tokenizer's files\n",
              shown(command.out).c_str());
  return 0;
}

}  // namespace chat_tune
