// SPDX-License-Identifier: MIT
/// The common part of readers of pretrained models: config.json, and which tensors of a file are a network's
/// parameters.
///
/// A file has separate matrices for queries, keys and values, or for a gate and the gated values, where a network
/// here has one linear layer: a parameter is then several tensors, one below the other.
#pragma once

#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../core/bfloat16.hpp"
#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../../core/read_number.hpp"
#include "../../core/view.hpp"
#include "../file.hpp"
#include "../file_format.hpp"
#include "../mapped_file.hpp"
#include "json_reader.hpp"
#include "safetensors.hpp"
#include "write_safetensors.hpp"

namespace adacc { inline namespace v0_1 {

/// The config.json of a model of Hugging Face: the members, and all problems with the requested ones. A
/// quantization_config is a problem for every reader.
class ModelConfig {
 public:
  /// `path` is the model's folder, or a file in it.
  static Result<ModelConfig> open(const std::string& path) {
    ModelConfig config;
    config.path_ = folder_of(path) + "config.json";
    const auto file = MappedFile::open(config.path_, "the config.json of a pretrained model");
    if (!file) return file.error;
    const void* text = file->bytes().data();
    JsonReader json(std::string_view(static_cast<const char*>(text), file->bytes().size()));
    const auto member = [&](const std::string& name) { return json.value(config.members_[name]); };
    if (!json.object(member) || !json.end()) return file->fault(json.fault().text());
    // The tensors of a quantized model are no weights without their scales.
    config.expect("quantization_config", {});
    return config;
  }

  /// The members of another file, as JSON writes them.
  static ModelConfig of(const std::string& path, std::map<std::string, std::string> members) {
    ModelConfig config;
    config.path_ = path;
    config.members_ = static_cast<std::map<std::string, std::string>&&>(members);
    return config;
  }

  /// Whether it has the member, and not null.
  bool has(const std::string& name) const { return raw(name) != "null"; }

  /// A whole number from 1 to `most`. If the member is missing: `otherwise`, unless this is 0.
  std::size_t size(const std::string& name, std::size_t otherwise = 0, std::size_t most = INT_MAX) {
    if (!has(name) && otherwise != 0) return otherwise;
    std::uint64_t value = 0;
    const std::string text = raw(name);
    JsonReader json(text);
    if (!json.whole_number(value) || !json.end() || value == 0 || value > most)
      say(name, "a whole number from 1 to " + std::to_string(most));
    return static_cast<std::size_t>(value);
  }
  /// The number of repetitions of a block.
  std::size_t layers(const std::string& name) { return size(name, 0, most_model_layers); }

  /// A number above 0 and finite, also as a float.
  double number(const std::string& name, double otherwise) {
    if (!has(name)) return otherwise;
    std::string text = raw(name), digits;
    JsonReader json(text);
    double value = 0;
    if (!json.number(digits) || !json.end() || !read_number(digits, value) || !is_number(value))
      say(name, "a number above 0");
    return value;
  }

  /// Whether a float of this value is above 0 and finite.
  static bool is_number(double value) {
    return static_cast<float>(value) > 0 && std::isfinite(static_cast<float>(value));
  }

  /// A member may be missing; otherwise the value must be one of `accepted`, in JSON's form.
  void expect(const std::string& name, std::initializer_list<const char*> accepted) {
    if (!has(name)) return;
    std::string list;
    for (const char* const one : accepted) {
      if (raw(name) == one) return;
      list += (list.empty() ? "" : " or ") + std::string(one);
    }
    say(name, list.empty() ? "null" : list);
  }

  /// The value of a member in JSON's form; "null" if there is none.
  std::string raw(const std::string& name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? "null" : found->second;
  }

  void complain(const std::string& problem) { problems_.push_back(problem); }
  /// One line for each problem.
  const std::vector<std::string>& problems() const { return problems_; }
  /// An error of as many problems as fit, and all problems in `list` if given; no error without a problem.
  Error error(std::vector<std::string>* list = nullptr) const {
    if (list != nullptr) *list = problems_;
    if (problems_.empty()) return {};
    std::string all;
    for (const std::string& problem : problems_) all += (all.empty() ? "" : "; ") + problem;
    return Error::say(one_line(path_, 80).c_str(), ": ", all.c_str());
  }

 private:
  void say(const std::string& name, const std::string& wanted) {
    complain(std::string(name) + " is " + (has(name) ? one_line(raw(name), 40) : "missing") +
             ", and has to be " + wanted);
  }

  std::string path_;
  std::map<std::string, std::string> members_;
  std::vector<std::string> problems_;
};

/// The place of a parameter in a network: the layer (-1: the loss), the copy of a repeated block, and the index among
/// the layer's parameters.
struct ParameterPlace {
  int layer = 0, copy = 0, index = 0;
};

/// A tensor with some rows of a parameter, or all rows left.
struct StoredAs {
  std::string name;
  std::size_t rows = 0;  ///< 0: all rows left
};

/// The parameters of a network described by a config.json, without a graph: for each_stored().
struct ModelOutline {
  struct Node {
    int layer, copy;
  };
  struct Parameter {
    int node;
    Shape shape;
    std::size_t offset = 0;
    bool owner = true;
  };
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;

  /// Adds the parameters of a layer; -1: of the loss.
  void add(int layer, int copy, std::initializer_list<Shape> shapes) {
    const int node = layer < 0 ? -1 : static_cast<int>(nodes.size());
    if (layer >= 0) nodes.push_back({layer, copy});
    for (const Shape& shape : shapes) parameters.push_back({node, shape});
  }
};

/// Calls visit(parameter, place) for each parameter of `graph`, whose number among all is `parameter`.
template <class Graph, class Visit>
void each_place(const Graph& graph, const Visit& visit) {
  int index = 0;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const auto& parameter = graph.parameters[i];
    index = i > 0 && graph.parameters[i - 1].node == parameter.node ? index + 1 : 0;
    ParameterPlace place{-1, 0, index};
    if (parameter.node >= 0) {
      const auto& node = graph.nodes[static_cast<std::size_t>(parameter.node)];
      place.layer = node.layer;
      place.copy = node.copy;
    }
    visit(i, place);
  }
}

/// Calls visit(parameter, name, first row, shape) for each tensor of a file that has rows of a parameter of `graph`, whose
/// number among all is `parameter`. `naming(place)` lists the tensors of a parameter from its first row on; an empty list
/// stands for a parameter outside of the file. The rows of a vector are its elements.
template <class Graph, class Naming, class Visit>
void each_piece(const Graph& graph, const Naming& naming, const Visit& visit) {
  each_place(graph, [&](std::size_t i, const ParameterPlace& place) {
    const auto& parameter = graph.parameters[i];
    const bool vector = parameter.shape.rank() == 1;
    const std::size_t all = parameter.shape[0], cols = parameter.shape.cols();
    std::size_t row = 0;
    for (const StoredAs& stored : naming(place)) {
      const std::size_t left = row < all ? all - row : 0;
      const std::size_t rows = stored.rows == 0 || stored.rows > left ? left : stored.rows;
      visit(i, stored.name, row, vector ? Shape(rows) : Shape(rows, cols));
      row += rows;
    }
  });
}

/// Calls visit(name, offset, shape) for those in the block of parameters; `offset` is their first element there.
template <class Graph, class Naming, class Visit>
void each_stored(const Graph& graph, const Naming& naming, const Visit& visit) {
  each_piece(graph, naming,
             [&](std::size_t i, const std::string& name, std::size_t row, Shape shape) {
               const auto& parameter = graph.parameters[i];
               if (!parameter.owner) return;
               visit(name, parameter.offset + row * (shape.rank() == 1 ? 1 : shape.cols()), shape);
             });
}

/// The tensors needed by a network from a file, for load_pretrained().
template <class T, class Graph, class Naming>
std::vector<WantedTensor<T>> wanted_tensors(const Graph& graph, View<T> params,
                                            const Naming& naming) {
  std::vector<WantedTensor<T>> wanted;
  each_stored(graph, naming, [&](const std::string& name, std::size_t offset, Shape shape) {
    wanted.push_back({name, View<T>(params.data() + offset, shape)});
  });
  return wanted;
}

/// The tensors expected by an outline, before there is a network.
template <class Naming>
std::vector<ExpectedTensor> expected_tensors(const ModelOutline& outline, const Naming& naming) {
  std::vector<ExpectedTensor> expected;
  each_stored(outline, naming, [&](const std::string& name, std::size_t, Shape shape) {
    expected.push_back({name, shape});
  });
  return expected;
}

/// Compares what a configuration says, so many layers among it, with the tensors of the file at `path`, of
/// which expected_of(file) lists what there should be: nothing as large as a few words say is made before it is
/// known to be there.
template <class File, class ExpectedOf>
Error compare_with_file(const File& file, const std::string& path, const char* layers_name,
                        std::size_t layers, const ExpectedOf& expected_of,
                        std::vector<std::string>* problems) {
  std::vector<std::string> found;
  std::size_t count = 1;
  if (layers > file.size()) {
    found.push_back(std::string(layers_name) + " is " + std::to_string(layers) +
                    ", and the file has no more than " + std::to_string(file.size()) + " tensors");
  } else {
    const std::vector<ExpectedTensor> expected = expected_of(file);
    count = expected.size();
    found = problems_of(file, expected);
  }
  if (problems != nullptr) *problems = found;
  if (found.empty()) return {};
  return Error::say(one_line(path, 80).c_str(), ": ",
                    layers > file.size() ? found[0].c_str() : error_of(found, count).text());
}

/// Compares with the model at `path` (SafeTensors::place_of). A model without tensors is fine.
template <class ExpectedOf>
Error compare_with_tensors(const std::string& path, const char* layers_name, std::size_t layers,
                           const ExpectedOf& expected_of, std::vector<std::string>* problems) {
  const std::string place = SafeTensors::place_of(path);
  if (place.empty()) return {};
  const auto file = SafeTensors::open(place);
  if (!file) return file.error;
  return compare_with_file(*file, path, layers_name, layers, expected_of, problems);
}

/// load_tensors(), and refuses numbers that are not finite. After an error parameters are as they were,
/// but if a number was one of these. `problems`, if given, gets a line for each tensor that is missing
/// or of another shape.
template <class File, class T>
Error load_pretrained(const File& file, const std::vector<WantedTensor<T>>& wanted,
                      std::vector<std::string>* problems = nullptr) {
  if (problems != nullptr) *problems = problems_of(file, wanted);
  if (const Error why = load_tensors(file, wanted)) return why;
  const auto is_finite = [](T value) {
    if constexpr (std::is_same_v<T, bfloat16>) return std::isfinite(to_float(value));
    else return std::isfinite(value);
  };
  for (const WantedTensor<T>& tensor : wanted)
    for (std::size_t i = 0; i < tensor.to.size(); ++i)
      if (!is_finite(tensor.to[i]))
        return Error::say("\"", tensor.name.c_str(), "\" has NaN or an infinity at element ", i);
  return {};
}

/// Reads the tensors listed by wanted_of(file) from the file at `path` (File::open).
template <class File = SafeTensors, class WantedOf>
Error read_pretrained(const std::string& path, const WantedOf& wanted_of,
                      std::vector<std::string>* problems) {
  return detail::or_no_memory("to read the model", [&]() -> Error {
    const auto file = File::open(path);
    if (!file) return file.error;
    if (const Error why = load_pretrained(*file, wanted_of(*file), problems))
      return Error::say(one_line(path, 80).c_str(), ": ", why.text());
    return {};
  });
}

/// Writes the parameters to a file for load_pretrained() with the same naming.
template <class T, class Graph, class Naming>
Error write_pretrained(const std::string& path, const Graph& graph, View<const T> params,
                       const Naming& naming) {
  std::vector<NamedTensor> tensors;
  each_stored(graph, naming, [&](const std::string& name, std::size_t offset, Shape shape) {
    tensors.push_back({name, View<const T>(params.data() + offset, shape)});
  });
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

}}  // namespace adacc::v0_1
