// SPDX-License-Identifier: MIT
/// Adapters (layer/lora_linear.hpp) in a file of their own: the network stays unchanged, and the learned part is a
/// few megabytes.
///
/// A file is in the safetensors format. Tensors have the names of the network's parameters
/// (model/trained_by_name.hpp), "block.0.lora_linear.lora_a"; the metadata has rank and alpha.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "../../core/error.hpp"
#include "../../core/no_memory.hpp"
#include "../../core/number_text.hpp"
#include "../../core/read_number.hpp"
#include "../../core/view.hpp"
#include "../../model/graph.hpp"
#include "../../model/trained_by_name.hpp"
#include "../file.hpp"
#include "pretrained.hpp"
#include "safetensors.hpp"
#include "write_safetensors.hpp"

namespace adacc { inline namespace v0_1 {

/// The rank and alpha common to all adapters of a network.
struct AdapterShape {
  std::size_t rank = 0;
  float alpha = 0;
};

/// Whether the parameter is one of the two by which LoraLinear extends a linear layer.
inline bool is_of_adapter(const ParameterSpec& parameter) {
  return std::strncmp(parameter.name, "lora_", 5) == 0;
}

/// A graph without adapters: only the other parameters, at their old offsets.
inline Graph without_adapters(const Graph& graph) {
  Graph plain = graph;
  plain.parameters.clear();
  for (const Parameter& parameter : graph.parameters)
    if (!is_of_adapter(parameter)) plain.parameters.push_back(parameter);
  return plain;
}

/// Writes the adapters among the parameters of `graph`, whose block is `params`.
template <class T>
Error write_adapters(const std::string& path, const Graph& graph, View<const T> params,
                     const AdapterShape& shape) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& parameter = graph.parameters[i];
    if (is_of_adapter(parameter))
      tensors.push_back({parameter_name(graph, i),
                         View<const T>(params.data() + parameter.offset, parameter.shape)});
  }
  return write_safetensors(
      path, tensors,
      {{"rank", std::to_string(shape.rank)}, {"alpha", NumberText::shortest(shape.alpha).c_str()}});
}

/// The rank and alpha of the adapters in a file: enough to build their network.
inline Result<AdapterShape> read_adapter_shape(const std::string& path) {
  return detail::or_no_memory("to read adapters", [&]() -> Result<AdapterShape> {
    const auto file = SafeTensors::open(path);
    if (!file) return file.error;
    AdapterShape shape;
    const auto number = [&](const char* name, auto& value) {
      const auto found = file->metadata().find(name);
      return found != file->metadata().end() && read_number(found->second, value);
    };
    if (!number("rank", shape.rank) || !number("alpha", shape.alpha) || shape.rank == 0 ||
        !std::isfinite(shape.alpha))
      return Error::say(one_line(path, 100).c_str(),
                        ": its metadata has no rank and alpha: it is no file of adapters as they "
                        "are saved here");
    return shape;
  });
}

/// Reads a file of adapters into the parameters of `graph`, which must have exactly these adapters. If a name or a
/// shape differs, nothing is read; the error says as many problems as fit, and `problems`, if given, gets a line for
/// each. Numbers that are not finite are refused, too.
template <class T>
Error read_adapters(const std::string& path, const Graph& graph, View<T> params,
                    std::vector<std::string>* problems = nullptr) {
  return detail::or_no_memory("to read adapters", [&]() -> Error {
    const auto file = SafeTensors::open(path);
    if (!file) return file.error;
    std::vector<WantedTensor<T>> wanted;
    std::map<std::string, bool> known;
    for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
      const Parameter& parameter = graph.parameters[i];
      if (!is_of_adapter(parameter)) continue;
      wanted.push_back(
          {parameter_name(graph, i), View<T>(params.data() + parameter.offset, parameter.shape)});
      known[wanted.back().name] = true;
    }
    std::vector<std::string> found = problems_of(*file, wanted);
    for (const StoredTensor& tensor : *file)
      if (known.count(tensor.name) == 0)
        found.push_back("\"" + one_line(tensor.name, 80) + "\" is no adapter of this network");
    if (problems != nullptr) *problems = found;
    if (!found.empty()) {
      std::string all;
      for (const std::string& problem : found) all += (all.empty() ? "" : "; ") + problem;
      return Error::say(one_line(path, 80).c_str(), ": ", found.size(),
                        found.size() == 1 ? " tensor is" : " tensors are",
                        " not as this network has them: ", all.c_str());
    }
    if (const Error why = load_pretrained(*file, wanted))
      return Error::say(one_line(path, 80).c_str(), ": ", why.text());
    return {};
  });
}

}}  // namespace adacc::v0_1
