// SPDX-License-Identifier: MIT
/// A GPT-2 whose frozen weights stay in a mapped GGUF file or in safetensors, or are encoded when it is opened.
///
/// Safetensors have linear layers as (in, out): these matrices become copies in memory, in the type of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../models/gpt.hpp"
#include "gguf_gpt2.hpp"
#include "gpt2.hpp"
#include "mapped.hpp"

namespace adacc { inline namespace v0_1 { namespace gpt {

namespace detail {

using adacc::detail::Gpt2Names;

/// Layers with parameters, in the order of the groups of names: two groups each.
inline constexpr int layers_with_parameters[] = {0, 1, 2, 4, 5, 6, 8, 9};

/// The group of a parameter's name; as many as there are: adapters and the head have none.
constexpr std::size_t group_of(const ParameterPlace& at) {
  std::size_t group = 0;
  for (const int layer : layers_with_parameters) {
    if (layer == at.layer && at.index < 2) return group + static_cast<std::size_t>(at.index);
    group += 2;
  }
  return adacc::detail::llmc_groups;
}

}  // namespace detail

/// The tensors of make(config), and of make_lora(config, …), whose adapters no file has, in files with these names.
class Naming {
 public:
  Naming(const detail::Gpt2Names& names, std::string prefix, std::string head)
      : names_(&names), prefix_(static_cast<std::string&&>(prefix)),
        head_(static_cast<std::string&&>(head)) {}

  std::vector<StoredAs> operator()(const ParameterPlace& at) const {
    if (at.layer == -1) return {{head_}};
    const std::size_t group = detail::group_of(at);
    if (group == adacc::detail::llmc_groups) return {};
    const bool in_block = adacc::detail::llmc_group({}, group).per_layer;
    return {{prefix_ + (in_block ? names_->layer + std::to_string(at.copy) + "." : "") +
             names_->groups[group].name}};
  }

 private:
  const detail::Gpt2Names* names_;
  std::string prefix_, head_;
};

/// The parameters of make(config), in the order of its block.
inline ModelOutline outline_of(const Config& config) {
  const std::size_t c = config.channels;
  ModelOutline outline;
  outline.add(0, 0, {Shape(config.vocab, c), Shape(config.context, c)});
  for (int l = 0; l < config.layers; ++l) {
    outline.add(1, l, {Shape(c), Shape(c)});
    outline.add(2, l, {Shape(3 * c, c), Shape(3 * c)});
    outline.add(4, l, {Shape(c, c), Shape(c)});
    outline.add(5, l, {Shape(c), Shape(c)});
    outline.add(6, l, {Shape(4 * c, c), Shape(4 * c)});
    outline.add(8, l, {Shape(c, 4 * c), Shape(c)});
  }
  outline.add(9, 0, {Shape(c), Shape(c)});
  return outline;
}

/// The sizes of a model that a reader found.
inline Result<Config> config_of(const Result<LlmcHeader>& found) {
  if (!found) return found.error;
  Config config;
  config.layers = static_cast<int>(found->layers);
  config.heads = found->heads;
  config.channels = found->channels;
  config.context = found->max_seq_len;
  config.vocab = found->vocab_size;
  return config;
}

/// For writers of GGUF files (gguf_model_write.hpp).
constexpr const char* gguf_architecture(const Config&) { return "gpt2"; }
inline Naming gguf_naming(const Config&) {
  return {adacc::detail::gguf_gpt2_names, "", "output.weight"};
}
constexpr std::size_t turns_of(const Config&, const std::string&) { return 0; }

/// The metadata of a network's sizes, into a GgufWriter.
template <class Writer>
void add_gguf_config(Writer& file, const Config& config) {
  const auto number = [&](const char* rest, std::size_t value) {
    file.number(std::string("gpt2.") + rest, static_cast<std::uint32_t>(value));
  };
  file.text("general.architecture", "gpt2");
  number("block_count", static_cast<std::size_t>(config.layers));
  number("context_length", config.context);
  number("embedding_length", config.channels);
  number("feed_forward_length", 4 * config.channels);
  number("attention.head_count", config.heads);
  number("vocab_size", config.vocab);
  file.real("gpt2.attention.layer_norm_epsilon", 1e-5F);
}

namespace detail {

/// A model in a GGUF file, for Mapped.
struct InGguf {
  using File = Gguf;
  using Config = gpt::Config;
  static Result<Config> read_config(const std::string&, const Gguf& file,
                                    std::vector<std::string>* problems) {
    return config_of(read_gguf_gpt2_config(file, problems));
  }
  static ModelOutline outline(const Config& config) { return outline_of(config); }
  static Naming naming(const Config& config, const Gguf&) { return gguf_naming(config); }
  static std::size_t turns(const Config&, const std::string&) { return 0; }
  static constexpr bool is_turned(const StoredParameters::Place&) { return false; }
  template <class Graph, class T>
  static Error read(const std::string& path, const Config& config, const Graph& graph,
                    View<T> params) {
    return read_pretrained<Gguf>(
        path, [&](const Gguf& file) { return wanted_tensors(graph, params, naming(config, file)); },
        nullptr);
  }
};

/// A model in a folder, for Mapped.
struct InFolder {
  using File = SafeTensors;
  using Config = gpt::Config;
  static Result<Config> read_config(const std::string& path, const SafeTensors&,
                                    std::vector<std::string>* problems) {
    return config_of(read_gpt2_config(path, problems));
  }
  static ModelOutline outline(const Config& config) { return outline_of(config); }
  static Naming naming(const Config&, const SafeTensors& file) {
    return {adacc::detail::gpt2_names, adacc::detail::gpt2_prefix(file), "lm_head.weight"};
  }
  static std::size_t turns(const Config&, const std::string&) { return 0; }
  static constexpr bool is_turned(const StoredParameters::Place& at) {
    const std::size_t group = group_of({at.layer, at.copy, at.index});
    return group != adacc::detail::llmc_groups &&
           adacc::detail::gpt2_names.groups[group].transposed;
  }
  template <class Graph, class T>
  static Error read(const std::string& path, const Config& config, const Graph& graph,
                    View<T> params) {
    const auto wanted_of = [&](const SafeTensors& file) {
      std::vector<WantedTensor<T>> wanted;
      const Naming names = naming(config, file);
      bool turned = false;
      const auto note_turned = [&](const ParameterPlace& at) {
        turned = is_turned({at.layer, at.copy, at.index});
        return names(at);
      };
      each_stored(graph, note_turned,
                  [&](const std::string& name, std::size_t offset, Shape shape) {
                    wanted.push_back({name, View<T>(params.data() + offset, shape), turned});
                  });
      return wanted;
    };
    return read_pretrained<SafeTensors>(path, wanted_of, nullptr);
  }
};

}  // namespace detail

/// As llama::MappedModel (gguf_llama.hpp) and llama::MappedFolder (llama_mapped.hpp), of a GPT-2.
using MappedModel = Mapped<detail::InGguf>;
using MappedFolder = Mapped<detail::InFolder>;

}}}  // namespace adacc::v0_1::gpt
