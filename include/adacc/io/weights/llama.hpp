// SPDX-License-Identifier: MIT
/// Decoders in the style of Llama, in the form of Hugging Face: Llama, SmolLM, Qwen2 and Qwen3 in a folder with config.json and
/// model.safetensors, or an index of several files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../../core/read_number.hpp"
#include "../../models/llama.hpp"
#include "pretrained.hpp"

namespace adacc { inline namespace v0_1 { namespace llama {

/// As a model's configuration calls it.
constexpr const char* name_of(Family family) {
  switch (family) {
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
    default: return "llama";
  }
}
inline constexpr Family families[] = {Family::llama, Family::qwen2, Family::qwen3};

/// A format's names of the tensors; names in a block stand behind `block`, the block's number and a point.
struct Names {
  const char *head, *table, *norm, *block;
  const char *input_norm, *queries, *keys, *values, *attention_out;
  const char *mlp_norm, *gate, *up, *down;
  const char *query_bias, *key_bias, *value_bias;
  const char *query_norm, *key_norm;
};
inline constexpr Names hugging_face_names{
    "lm_head.weight",          "model.embed_tokens.weight",
    "model.norm.weight",       "model.layers.",
    "input_layernorm.weight",  "self_attn.q_proj.weight",
    "self_attn.k_proj.weight", "self_attn.v_proj.weight",
    "self_attn.o_proj.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",    "mlp.up_proj.weight",
    "mlp.down_proj.weight",    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",   "self_attn.v_proj.bias",
    "self_attn.q_norm.weight", "self_attn.k_norm.weight"};

/// The names of make(config), and of make_lora(config, …), whose adapters no file has.
class Naming {
 public:
  explicit Naming(const Config& config, const Names& names = hugging_face_names)
      : config_(config), names_(names) {}

  std::vector<StoredAs> operator()(const ParameterPlace& at) const {
    const std::size_t size = config_.head_size();
    const std::size_t queries = config_.heads * size, keys = config_.kv_heads * size;
    const std::string block = names_.block + std::to_string(at.copy) + ".";
    if (at.layer == 2 && at.index == 1 && config_.biases())
      return {{block + names_.query_bias, queries},
              {block + names_.key_bias, keys},
              {block + names_.value_bias, keys}};
    if (at.layer == 3 && config_.head_norms())
      return {{block + (at.index == 0 ? names_.query_norm : names_.key_norm)}};
    if (at.index != 0) return {};
    switch (at.layer) {
      case -1: return {{names_.head}};
      case 0: return {{names_.table}};
      case 1: return {{block + names_.input_norm}};
      case 2:
        return {{block + names_.queries, queries},
                {block + names_.keys, keys},
                {block + names_.values, keys}};
      case 5: return {{block + names_.attention_out}};
      case 6: return {{block + names_.mlp_norm}};
      case 7: return {{block + names_.gate, config_.hidden}, {block + names_.up, config_.hidden}};
      case 9: return {{block + names_.down}};
      case 10: return {{names_.norm}};
      default: return {};
    }
  }

 private:
  Config config_;
  Names names_;
};

/// The parameters of make(config), in the order of its block.
inline ModelOutline outline_of(const Config& config) {
  const std::size_t c = config.channels, queries = config.heads * config.head_size();
  const std::size_t projected = queries + 2 * config.kv_heads * config.head_size();
  const Shape norm(c);
  ModelOutline outline;
  outline.add(0, 0, {Shape(config.vocab, c)});
  for (int l = 0; l < config.layers; ++l) {
    outline.add(1, l, {norm});
    if (config.biases()) outline.add(2, l, {Shape(projected, c), Shape(projected)});
    else outline.add(2, l, {Shape(projected, c)});
    const Shape head(config.head_size());
    if (config.head_norms()) outline.add(3, l, {head, head});
    outline.add(5, l, {Shape(c, queries)});
    outline.add(6, l, {norm});
    outline.add(7, l, {Shape(2 * config.hidden, c)});
    outline.add(9, l, {Shape(c, config.hidden)});
  }
  outline.add(10, 0, {norm});
  if (!config.tied_head) outline.add(-1, 0, {Shape(config.vocab, c)});
  return outline;
}

/// Whether heads divide channels and one another; if not, and all were given, `from` gets a complaint.
inline bool divide(const Config& config, ModelConfig& from, const char* heads, const char* kv_heads,
                   const char* channels) {
  if (config.heads == 0 || config.kv_heads == 0) return false;
  const bool own_size = config.head_channels != 0;
  if ((own_size || config.channels % config.heads == 0) && config.heads % config.kv_heads == 0)
    return true;
  from.complain(std::string(kv_heads) + " " + std::to_string(config.kv_heads) + ", " + heads + " " +
                std::to_string(config.heads) + " and " + channels + " " +
                std::to_string(config.channels) + " do not divide one another");
  return false;
}

/// The shape of the model in the folder of `path`; errors name a setting that is not supported, and
/// `problems`, if given, gets a line for each of them. Tensors, if given, are compared with the shape.
/// Scaled positions (rope_scaling), partly rotated heads, sliding windows, biases but Qwen2's, and heads of a size of their own but
/// Qwen3's are refused.
inline Result<Config> read_config(const std::string& path,
                                  std::vector<std::string>* problems = nullptr) {
  return adacc::detail::or_no_memory("to read a config.json", [&]() -> Result<Config> {
    auto json = ModelConfig::open(path);
    if (!json) return json.error;
    json->expect("model_type", {"\"llama\"", "\"qwen2\"", "\"qwen3\""});
    json->expect("hidden_act", {"\"silu\""});
    json->expect("is_causal", {"true"});
    json->expect("attention_bias", {"false"});
    json->expect("mlp_bias", {"false"});
    json->expect("rope_scaling", {});
    json->expect("partial_rotary_factor", {"1.0", "1"});
    json->expect("tie_word_embeddings", {"false", "true"});
    json->expect("use_sliding_window", {"false"});
    const std::string kinds = json->raw("layer_types");
    JsonReader each(kinds);
    std::string kind;
    if (json->has("layer_types") &&
        !each.array([&] { return each.string(kind) && kind == "full_attention"; }))
      json->complain("layer_types is " + one_line(kinds, 60) +
                     ", and has to be full_attention for all layers");
    Config config;
    for (const Family family : families)
      if (json->raw("model_type") == std::string("\"") + name_of(family) + "\"")
        config.family = family;
    config.layers = static_cast<int>(json->layers("num_hidden_layers"));
    config.heads = json->size("num_attention_heads");
    config.kv_heads = json->size("num_key_value_heads", config.heads);
    config.channels = json->size("hidden_size");
    config.hidden = json->size("intermediate_size");
    config.context = json->size("max_position_embeddings");
    config.vocab = json->size("vocab_size");
    config.epsilon = static_cast<float>(json->number("rms_norm_eps", 1e-6));
    config.base = json->number("rope_theta", 10000);
    config.tied_head = json->raw("tie_word_embeddings") == "true";
    if (json->has("rope_parameters")) {  // newer configurations have the base here
      const std::string text = json->raw("rope_parameters");
      JsonReader rope(text);
      std::string base, type = "default", old_type = type, rotated = "1";
      double part = 0, theta = config.base;
      if (!rope.object([&](const std::string& name) {
            return name == "rope_theta"              ? rope.number(base)
                   : name == "rope_type"             ? rope.string(type)
                   : name == "type"                  ? rope.string(old_type)
                   : name == "partial_rotary_factor" ? rope.number(rotated)
                                                     : rope.skip();
          }) ||
          type != "default" || old_type != type || !read_number(rotated, part) || part != 1 ||
          (!base.empty() && (!read_number(base, theta) || !ModelConfig::is_number(theta))))
        json->complain(
            "rope_parameters is " + one_line(text, 60) +
            ", and has to have rope_type default, a rope_theta above 0, and no part of a "
            "head that is not rotated");
      else config.base = theta;
    }
    if (config.family == Family::qwen3)
      config.head_channels = json->size("head_dim", 128);  // as transformers has it
    if (divide(config, *json, "num_attention_heads", "num_key_value_heads", "hidden_size") &&
        config.family != Family::qwen3 && json->has("head_dim") &&
        json->size("head_dim") != config.channels / config.heads)
      json->complain("head_dim is " + json->raw("head_dim") +
                     ", and has to be hidden_size / heads");
    if (const Error why = json->error(problems)) return why;
    const auto expected = [&](const SafeTensors&) {
      return expected_tensors(outline_of(config), Naming(config));
    };
    if (const Error why = compare_with_tensors(
            path, "num_hidden_layers", static_cast<std::size_t>(config.layers), expected, problems))
      return why;
    return config;
  });
}

/// Reads the model at `path` (SafeTensors::open) into `params`, the block of make(config). Errors and `problems` are
/// those of load_pretrained().
template <class Graph, class T>
Error read_parameters(const std::string& path, const Config& config, const Graph& graph,
                      View<T> params, std::vector<std::string>* problems = nullptr) {
  const auto wanted = [&](const SafeTensors&) {
    return wanted_tensors(graph, params, Naming(config));
  };
  return read_pretrained(path, wanted, problems);
}

}}}  // namespace adacc::v0_1::llama
