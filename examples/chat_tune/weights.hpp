// SPDX-License-Identifier: MIT
/// The weights of a language model where its files have them: a GGUF file, or a folder as the Hugging Face Hub has it.
#pragma once

#include <adacc/io/file.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/io/weights/gpt_mapped.hpp>
#include <adacc/io/weights/llama_mapped.hpp>
#include <adacc/io/weights/pretrained.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace chat_tune {

/// What a folder has to have: one file of each line, the last one with the file beside it.
inline std::string missing_files(const std::string& folder) {
  const auto has = [&](const char* name) { return adacc::is_there(folder + "/" + name); };
  std::string missing;
  const auto want = [&](bool there, const char* names) {
    if (!there) missing += (missing.empty() ? "no " : ", no ") + std::string(names);
  };
  want(has("config.json"), "config.json");
  want(has("model.safetensors") || has("model.safetensors.index.json"),
       "model.safetensors (or model.safetensors.index.json with its files)");
  want(has("tokenizer.json") || (has("vocab.json") && has("merges.txt")),
       "tokenizer.json (or vocab.json with merges.txt)");
  return missing;
}

/// Sizes that all models have.
struct Sizes {
  std::string family;  ///< as the model's file calls it
  std::size_t layers = 0, heads = 0, kv_heads = 0, channels = 0, vocab = 0, context = 0;

  static Sizes of(const adacc::llama::Config& config) {
    return {adacc::llama::name_of(config.family),
            static_cast<std::size_t>(config.layers),
            config.heads,
            config.kv_heads,
            config.channels,
            config.vocab,
            config.context};
  }
  static Sizes of(const adacc::gpt::Config& config) {
    return {"gpt2",          static_cast<std::size_t>(config.layers),
            config.heads,    config.heads,
            config.channels, config.vocab,
            config.context};
  }
};

template <class Mapped>
inline constexpr bool is_in_gguf =
    std::is_same_v<typename std::remove_cvref_t<Mapped>::File, adacc::Gguf>;

class Weights {
 public:
  using Mapped = std::variant<adacc::llama::MappedModel, adacc::llama::MappedFolder,
                              adacc::gpt::MappedModel, adacc::gpt::MappedFolder>;

  /// `problems` gets a line for each setting or tensor that is not as it should be.
  static adacc::Result<Weights> open(const std::string& path, adacc::WeightForm form,
                                     adacc::WeightPages pages, std::vector<std::string>& problems) {
    using namespace adacc;
    const bool folder = is_folder(path);
    if (!folder && (path.ends_with(".safetensors") || path.ends_with(".json")))
      return Error::say("--model ", one_line(path, 80).c_str(),
                        ": is one of the files of a model: give their folder, or a GGUF file");
    if (folder)
      if (const std::string missing = missing_files(path); !missing.empty())
        return Error::say(one_line(path, 80).c_str(), ": the folder has ", missing.c_str());
    Result<Gguf> file = folder ? Result<Gguf>(Gguf()) : Gguf::open(path);
    if (!file) return file.error;
    const auto family =
        folder ? family_in_folder(path) : Result<std::string>(std::string(file->architecture()));
    if (!family) return family.error;
    const bool gpt = *family == "gpt2";
    if (!gpt && std::none_of(std::begin(llama::families), std::end(llama::families),
                             [&](llama::Family one) { return *family == llama::name_of(one); }))
      return Error::say(
          one_line(path, 80).c_str(), ": ",
          folder ? "its config.json has the model_type \"" : "is of the architecture \"",
          one_line(*family, 40).c_str(), "\": llama, qwen2, qwen3 and gpt2 are possible");
    Weights made;
    made.folder_ = folder ? path : std::string();
    const auto map = [&]<class Model>(Model*) -> Error {
      const auto take = [&](Result<Model> mapped) {
        if (mapped) made.mapped_ = std::move(*mapped);
        return mapped.error;
      };
      if constexpr (is_in_gguf<Model>)
        return take(Model::open(path, std::move(*file), &problems, form, pages));
      else return take(Model::open(path, &problems, form, pages));
    };
    const Error why = gpt ? (folder ? map(static_cast<gpt::MappedFolder*>(nullptr))
                                    : map(static_cast<gpt::MappedModel*>(nullptr)))
                          : (folder ? map(static_cast<llama::MappedFolder*>(nullptr))
                                    : map(static_cast<llama::MappedModel*>(nullptr)));
    if (why) return why;
    return made;
  }

  /// Calls visit(mapped) with the class of adacc that has the weights.
  template <class Visit>
  auto visit(const Visit& call) const {
    return std::visit(call, mapped_);
  }
  Sizes sizes() const {
    return visit([](const auto& mapped) { return Sizes::of(mapped.config()); });
  }
  const adacc::StoredParameters& stored() const {
    return *visit([](const auto& mapped) { return &mapped.stored(); });
  }
  std::size_t encoded_bytes() const {
    return visit([](const auto& mapped) { return mapped.encoded_bytes(); });
  }
  /// Reads the parameters in the block of `graph`, adapters aside.
  template <class T>
  adacc::Error read(const adacc::Graph& graph, adacc::View<T> params) const {
    const adacc::Graph plain = adacc::without_adapters(graph);
    return visit([&](const auto& mapped) { return mapped.read(plain, params); });
  }
  /// Gives back the pages of the files that were read, metadata among them.
  void forget_pages() const {
    visit([](const auto& mapped) { mapped.file().forget_pages(); });
  }
  /// Empty: the weights are in a GGUF file.
  const std::string& folder() const { return folder_; }

 private:
  static adacc::Result<std::string> family_in_folder(const std::string& path) {
    const auto config = adacc::ModelConfig::open(path);
    if (!config) return config.error;
    const std::string type = config->raw("model_type");
    return type.size() > 1 && type.front() == '"' ? type.substr(1, type.size() - 2) : type;
  }

  Mapped mapped_;
  std::string folder_;
};

}  // namespace chat_tune
