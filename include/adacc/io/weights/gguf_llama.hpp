// SPDX-License-Identifier: MIT
/// Decoders in the style of Llama from GGUF files: Llama 2 and 3, TinyLlama, SmolLM2, Qwen2 and Qwen3.
///
/// A file of the architecture llama has the rows of queries and keys in another order than Hugging Face: the two halves of a head,
/// which are rotated with one another, take turns. Rows are put back when they are read. Files of qwen2 and qwen3 have them in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gguf.hpp"
#include "gguf_config.hpp"
#include "gguf_stored.hpp"
#include "llama.hpp"
#include "mapped.hpp"

namespace adacc { inline namespace v0_1 { namespace llama {

inline constexpr Names gguf_names{
    "output.weight",      "token_embd.weight", "output_norm.weight", "blk.",
    "attn_norm.weight",   "attn_q.weight",     "attn_k.weight",      "attn_v.weight",
    "attn_output.weight", "ffn_norm.weight",   "ffn_gate.weight",    "ffn_up.weight",
    "ffn_down.weight",    "attn_q.bias",       "attn_k.bias",        "attn_v.bias",
    "attn_q_norm.weight", "attn_k_norm.weight"};

/// Turns a matrix whose heads of `size` rows have their halves in turns (row 2 j + h of the file is row j of
/// half h) into one that has them one below the other.
template <class T>
void part_halves(View<T> rows, std::size_t size) {
  const std::size_t cols = rows.cols();
  std::vector<T> head(size * cols);
  for (T* at = rows.data(); at != rows.data() + rows.size(); at += head.size()) {
    std::copy(at, at + head.size(), head.begin());
    for (std::size_t i = 0; i < size; ++i)
      std::copy_n(head.data() + i * cols, cols, at + (i % 2 * (size / 2) + i / 2) * cols);
  }
}

/// The shape of the model in a GGUF file of architecture "llama", "qwen2" or "qwen3", whose tensors are compared with it; errors
/// say what is not as it should be, and `problems`, if given, gets a line for each such thing. Scaled
/// positions, heads of a size of their own, experts, and other tensors that the network has no place for, a
/// Llama's biases for one, are refused.
inline Result<Config> read_gguf_config(const Gguf& file,
                                       std::vector<std::string>* problems = nullptr) {
  return adacc::detail::or_no_memory("to read a GGUF file", [&]() -> Result<Config> {
    Config config;
    for (const Family family : families)
      if (file.architecture() == name_of(family)) config.family = family;
    const std::string architecture = name_of(config.family);
    const auto key = [&](const char* rest) { return architecture + "." + rest; };
    ModelConfig from = gguf_config(file, {"llama", "qwen2", "qwen3"});
    if (const Error why = from.error(problems)) return why;  // the other keys are not there
    from.expect(key("rope.scaling.type"), {"\"none\""});
    from.expect(key("rope.scaling.factor"), {"1"});
    from.expect(key("rope.scale_linear"), {"1"});
    from.expect(key("attention.causal"), {"true"});
    from.expect(key("attention.sliding_window"), {"0"});
    from.expect(key("expert_count"), {"0"});
    const std::string heads = key("attention.head_count"),
                      kv_heads = key("attention.head_count_kv");
    const std::string channels = key("embedding_length"), layers = key("block_count");
    config.layers = static_cast<int>(from.layers(layers));
    config.heads = from.size(heads);
    config.kv_heads = from.size(kv_heads, config.heads);
    config.channels = from.size(channels);
    if (config.family == Family::qwen3)
      config.head_channels = from.size(key("attention.key_length"), config.head_size());
    config.hidden = from.size(key("feed_forward_length"));
    config.context = from.size(key("context_length"));
    config.vocab = from.size(key("vocab_size"), gguf_vocabulary(file));
    config.epsilon = static_cast<float>(from.number(key("attention.layer_norm_rms_epsilon"), 1e-6));
    config.base = from.number(key("rope.freq_base"), 10000);
    config.tied_head = file.find(gguf_names.head) == nullptr;
    if (divide(config, from, heads.c_str(), kv_heads.c_str(), channels.c_str())) {
      const std::size_t size = config.head_size();
      const std::string wanted = std::to_string(size);
      if (size % 2 != 0)
        from.complain("heads have " + wanted + " channels, of which no two halves are rotated");
      for (const char* const rest :
           {"rope.dimension_count", "attention.key_length", "attention.value_length"})
        from.expect(key(rest), {wanted.c_str()});
    }
    if (const Error why = from.error(problems)) return why;
    const auto expected = [&](const Gguf&) {
      return expected_tensors(outline_of(config), Naming(config, gguf_names));
    };
    if (const Error why = compare_with_gguf(
            file, layers.c_str(), static_cast<std::size_t>(config.layers), expected, problems))
      return why;
    return config;
  });
}
inline Result<Config> read_gguf_config(const std::string& path,
                                       std::vector<std::string>* problems = nullptr) {
  const auto file = Gguf::open(path);
  if (!file) return file.error;
  return read_gguf_config(*file, problems);
}

/// Rows of a head, whose halves take turns in the file; 0 for tensors in the order of the network.
inline std::size_t turns_of(const Config& config, const std::string& name) {
  const bool turns = name.ends_with(gguf_names.queries) || name.ends_with(gguf_names.keys);
  return turns && config.family == Family::llama ? config.head_size() : 0;
}

/// Reads the GGUF file at `path` into `params`, the block of make(config). Errors and `problems` as in
/// load_pretrained().
template <class Graph, class T>
Error read_gguf_parameters(const std::string& path, const Config& config, const Graph& graph,
                           View<T> params, std::vector<std::string>* problems = nullptr) {
  const Naming naming(config, gguf_names);
  const auto wanted = [&](const Gguf&) { return wanted_tensors(graph, params, naming); };
  if (const Error why = read_pretrained<Gguf>(path, wanted, problems)) return why;
  const auto part = [&](const std::string& name, std::size_t offset, Shape shape) {
    const std::size_t size = turns_of(config, name);
    if (size != 0) part_halves(View<T>(params.data() + offset, shape), size);
  };
  each_stored(graph, naming, part);
  return {};
}

/// For writers of GGUF files (gguf_model_write.hpp).
constexpr const char* gguf_architecture(const Config& config) { return name_of(config.family); }
inline Naming gguf_naming(const Config& config) { return Naming(config, gguf_names); }

/// The metadata of a network's sizes, into a GgufWriter.
template <class Writer>
void add_gguf_config(Writer& file, const Config& config) {
  const std::string architecture = name_of(config.family);
  const auto number = [&](const char* rest, std::size_t value) {
    file.number(architecture + "." + rest, static_cast<std::uint32_t>(value));
  };
  file.text("general.architecture", architecture);
  number("block_count", static_cast<std::size_t>(config.layers));
  number("context_length", config.context);
  number("embedding_length", config.channels);
  number("feed_forward_length", config.hidden);
  number("attention.head_count", config.heads);
  number("attention.head_count_kv", config.kv_heads);
  number("attention.key_length", config.head_size());
  number("attention.value_length", config.head_size());
  number("rope.dimension_count", config.head_size());
  number("vocab_size", config.vocab);
  file.real(architecture + ".attention.layer_norm_rms_epsilon", config.epsilon);
  file.real(architecture + ".rope.freq_base", static_cast<float>(config.base));
}

namespace detail {

/// A model in a GGUF file, for Mapped.
struct InGguf {
  using File = Gguf;
  using Config = llama::Config;
  static auto read_config(const std::string&, const Gguf& file,
                          std::vector<std::string>* problems) {
    return read_gguf_config(file, problems);
  }
  static ModelOutline outline(const Config& config) { return outline_of(config); }
  static Naming naming(const Config& config, const Gguf&) { return gguf_naming(config); }
  static std::size_t turns(const Config& config, const std::string& name) {
    return turns_of(config, name);
  }
  static constexpr bool is_turned(const StoredParameters::Place&) { return false; }
  template <class Graph, class T>
  static Error read(const std::string& path, const Config& config, const Graph& graph,
                    View<T> params) {
    return read_gguf_parameters(path, config, graph, params);
  }
};

}  // namespace detail

/// A model whose frozen weights stay in a mapped GGUF file, in its form:
///
///     const auto model = llama::MappedModel::open("SmolLM2-135M-Instruct.Q4_1.gguf");
///     const auto net = llama::make_lora(model->config(), {.rank = 8});
///     auto training = Training<>::make(net, Shape(4, 512), {.graph = {.stored = &model->stored()}});
///     Error why = model->read(training->compiled_step().graph(), training->params());
using MappedModel = Mapped<detail::InGguf>;

}}}  // namespace adacc::v0_1::llama
