// SPDX-License-Identifier: MIT
/// GPT-2 in the form of Hugging Face: a folder with config.json and model.safetensors.
///
/// The parameters are those of llm.c's file (llmc.hpp) under other names, with or without "transformer." in front,
/// and linear layers are (in, out) where ours are (out, in). The output head is the token embedding's matrix; masks
/// in older files are ignored.
#pragma once

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "llmc.hpp"
#include "pretrained.hpp"
#include "safetensors.hpp"
#include "write_safetensors.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

struct Gpt2Name {
  const char* name;  ///< behind the layer's name if there is one for each layer
  bool transposed;
};
/// A format's names for the groups of llm.c's file, in the file's order.
struct Gpt2Names {
  const char* layer;  ///< before a layer's number and a point
  Gpt2Name groups[llmc_groups];
};

inline constexpr Gpt2Names gpt2_names = {"h.",
                                         {{"wte.weight", false},
                                          {"wpe.weight", false},
                                          {"ln_1.weight", false},
                                          {"ln_1.bias", false},
                                          {"attn.c_attn.weight", true},
                                          {"attn.c_attn.bias", false},
                                          {"attn.c_proj.weight", true},
                                          {"attn.c_proj.bias", false},
                                          {"ln_2.weight", false},
                                          {"ln_2.bias", false},
                                          {"mlp.c_fc.weight", true},
                                          {"mlp.c_fc.bias", false},
                                          {"mlp.c_proj.weight", true},
                                          {"mlp.c_proj.bias", false},
                                          {"ln_f.weight", false},
                                          {"ln_f.bias", false}}};

/// Calls visit(group, name) for each of a model's parameters, in the order of llm.c's file.
template <class Visit>
void each_gpt2_name(std::size_t layers, const Gpt2Names& names, const Visit& visit) {
  for (std::size_t g = 0; g < llmc_groups; ++g) {
    const bool per_layer = llmc_group({}, g).per_layer;
    for (std::size_t l = 0; l < (per_layer ? layers : 1); ++l)
      visit(g, (per_layer ? names.layer + std::to_string(l) + "." : "") + names.groups[g].name);
  }
}

/// The prefix of the names in `file`.
inline const char* gpt2_prefix(const SafeTensors& file) {
  for (const char* const name : {"wte.weight", "wpe.weight", "ln_f.weight"})
    if (file.find(name) != nullptr) return "";
  return "transformer.";
}

/// The tensors that a model of this shape has in a file with these names.
inline std::vector<ExpectedTensor> gpt2_tensors(const LlmcHeader& header, const Gpt2Names& names,
                                                const std::string& prefix) {
  std::vector<ExpectedTensor> expected;
  each_gpt2_name(header.layers, names, [&](std::size_t g, const std::string& name) {
    const LlmcGroup group = llmc_group(header, g);
    // Linear layers alone are transposed by some, and are matrices beside the two tables.
    const bool matrix = g < 2 || gpt2_names.groups[g].transposed;
    const Shape shape = matrix ? Shape(group.rows, group.cols) : Shape(group.cols);
    expected.push_back({prefix + name, shape, names.groups[g].transposed});
  });
  return expected;
}

/// Calls visit(name, parameter, transposed) for each of a model's parameters. False if the parameters are not those
/// of a GPT-2 of `layers` layers.
template <class Graph, class Visit>
bool each_gpt2_parameter(const Graph& graph, std::size_t layers, const Visit& visit,
                         const Gpt2Names& names = gpt2_names) {
  const std::set<LlmcPlace> order = llmc_order(graph);
  if (order.size() != llmc_parameters(layers)) return false;
  auto place = order.begin();
  each_gpt2_name(layers, names, [&](std::size_t g, const std::string& name) {
    visit(name, graph.parameters[place->parameter], names.groups[g].transposed);
    ++place;
  });
  return true;
}

/// Complains of another epsilon than our layers have, and of heads that do not divide channels, by the names of
/// these members.
inline void expect_gpt2(ModelConfig& from, const LlmcHeader& header, const char* epsilon_name,
                        const char* heads_name, const char* channels_name) {
  const double epsilon = from.number(epsilon_name, 1e-5);
  if (epsilon > 0 && std::fabs(epsilon - 1e-5) > 1e-9)
    from.complain(std::string(epsilon_name) + " is " + one_line(from.raw(epsilon_name), 40) +
                  ", and has to be 1e-05");
  if (header.heads != 0 && header.channels % header.heads != 0)
    from.complain(std::string(heads_name) + " " + std::to_string(header.heads) +
                  " does not divide " + channels_name + " " + std::to_string(header.channels));
}

/// Reads the model at `path` (File::open) into `params`. prefix_of(file) stands before its names.
template <class File, class Graph, class T, class PrefixOf>
Error read_gpt2(const std::string& path, const Graph& graph, std::size_t layers, View<T> params,
                const Gpt2Names& names, const PrefixOf& prefix_of,
                std::vector<std::string>* problems) {
  return or_no_memory("to read the model", [&]() -> Error {
    bool fits = true;
    const auto look = [&](const std::string&, const auto& parameter, bool) {
      fits = fits && parameter.offset + parameter.shape.elems() <= params.size();
    };
    if (!each_gpt2_parameter(graph, layers, look))
      return Error::misuse("the graph is not that of a GPT-2 of ", layers, " layers");
    if (!fits)
      return Error::misuse("the block for parameters has ", params.size(),
                           " elements, too few for this model");
    const auto wanted_of = [&](const File& file) {
      const std::string prefix = prefix_of(file);
      std::vector<WantedTensor<T>> wanted;
      const auto want = [&](const std::string& name, const auto& parameter, bool transposed) {
        wanted.push_back({prefix + name, View<T>(params.data() + parameter.offset, parameter.shape),
                          transposed});
      };
      each_gpt2_parameter(graph, layers, want, names);
      return wanted;
    };
    return read_pretrained<File>(path, wanted_of, problems);
  });
}

}  // namespace detail

/// Whether `path` looks like a model in this format rather than in llm.c's: a folder, a safetensors file, or an index
/// of such files.
inline bool is_gpt2_safetensors(const std::string& path) {
  return is_folder(path) || path.ends_with(".safetensors") || path.ends_with(".json");
}

/// Reads the shape of the model at `path` from the config.json in its folder, and compares it with the tensors if
/// there are any. Errors say which settings are unsuitable, and `problems`, if given, gets a line for each.
inline Result<LlmcHeader> read_gpt2_config(const std::string& path,
                                           std::vector<std::string>* problems = nullptr) {
  return detail::or_no_memory("to read a config.json", [&]() -> Result<LlmcHeader> {
    auto json = ModelConfig::open(path);
    if (!json) return json.error;
    json->expect("model_type", {"\"gpt2\""});
    if (!json->has("model_type")) json->complain("model_type is missing, and has to be \"gpt2\"");
    json->expect("activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""});
    json->expect("scale_attn_weights", {"true"});
    json->expect("scale_attn_by_inverse_layer_idx", {"false"});
    json->expect("is_causal", {"true"});
    json->expect("add_cross_attention", {"false"});
    json->expect("tie_word_embeddings", {"true"});
    LlmcHeader header;
    header.layers = json->layers("n_layer");
    header.heads = json->size("n_head");
    header.channels = json->size("n_embd");
    header.max_seq_len = json->size("n_positions");
    header.vocab_size = header.padded_vocab_size = json->size("vocab_size");
    if (json->has("n_inner") && json->size("n_inner") != 4 * header.channels)
      json->complain("n_inner is " + one_line(json->raw("n_inner"), 40) +
                     ", and has to be 4 n_embd");
    detail::expect_gpt2(*json, header, "layer_norm_epsilon", "n_head", "n_embd");
    if (const Error why = json->error(problems)) return why;
    const auto expected = [&](const SafeTensors& file) {
      return detail::gpt2_tensors(header, detail::gpt2_names, detail::gpt2_prefix(file));
    };
    if (const Error why = compare_with_tensors(path, "n_layer", header.layers, expected, problems))
      return why;
    return header;
  });
}

/// Reads the model at `path` (SafeTensors::open) into `params`, the block of a model with this graph, of `layers`
/// layers. Errors and `problems` are those of load_pretrained().
template <class Graph, class T>
Error read_gpt2_parameters(const std::string& path, const Graph& graph, std::size_t layers,
                           View<T> params, std::vector<std::string>* problems = nullptr) {
  return detail::read_gpt2<SafeTensors>(path, graph, layers, params, detail::gpt2_names,
                                        detail::gpt2_prefix, problems);
}

/// Writes model.safetensors into an existing folder.
template <class Graph, class T>
Error write_gpt2_parameters(const std::string& folder, std::size_t layers, const Graph& graph,
                            View<const T> params) {
  std::vector<std::vector<T>> turned;
  turned.reserve(4 * layers);
  std::vector<NamedTensor> tensors;
  const auto add = [&](const std::string& name, const auto& parameter, bool transposed) {
    const T* data = params.data() + parameter.offset;
    const std::size_t rows = parameter.shape.rows(), cols = parameter.shape.cols();
    if (!transposed) {
      tensors.push_back({name, View<const T>(data, parameter.shape)});
      return;
    }
    std::vector<T>& matrix = turned.emplace_back(rows * cols);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) matrix[c * rows + r] = data[r * cols + c];
    tensors.push_back({name, View<const T>(matrix.data(), Shape(cols, rows))});
  };
  if (!detail::each_gpt2_parameter(graph, layers, add))
    return Error::misuse("the graph is not that of a GPT-2 of ", layers, " layers");
  return write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
}

/// Writes config.json into an existing folder. `more` are numbers beside those of the shape, such as eos_token_id.
inline Error write_gpt2_config(const std::string& folder, const LlmcHeader& shape,
                               const std::vector<std::pair<std::string, std::size_t>>& more = {}) {
  const auto number = [](std::size_t value) { return std::to_string(value); };
  std::string others;
  for (const auto& [name, value] : more) others += ",\n  \"" + name + "\": " + number(value);
  return write_file(folder + "/config.json",
                    "{\n  \"model_type\": \"gpt2\",\n  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                    "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n"
                    "  \"n_layer\": " +
                        number(shape.layers) + ",\n  \"n_head\": " + number(shape.heads) +
                        ",\n  \"n_embd\": " + number(shape.channels) +
                        ",\n  \"n_positions\": " + number(shape.max_seq_len) +
                        ",\n  \"vocab_size\": " + number(shape.vocab_size) +
                        ",\n  \"tie_word_embeddings\": true" + others + "\n}\n");
}

/// Writes both.
template <class Graph, class T>
Error write_gpt2(const std::string& folder, const LlmcHeader& shape, const Graph& graph,
                 View<const T> params) {
  if (Error why = write_gpt2_parameters(folder, shape.layers, graph, params)) return why;
  return write_gpt2_config(folder, shape);
}

}}  // namespace adacc::v0_1
