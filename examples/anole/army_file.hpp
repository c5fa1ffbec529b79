// SPDX-License-Identifier: MIT
/// An army in a file, in the safetensors format: trained once, used on many devices.
#pragma once

#include <adacc/io/weights/safetensors.hpp>
#include <adacc/io/weights/weights_header.hpp>
#include <adacc/io/weights/write_safetensors.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "army.hpp"

namespace anole {

namespace detail {

/// visit(name of a network, its weights) for all of them.
template <class AnyArmy, class Visit>
adacc::Error for_each_network(AnyArmy& army, const Visit& visit) {
  for (std::size_t k = 0; k < army.compacts.size(); ++k)
    if (const adacc::Error why = visit("compact" + std::to_string(k), army.compacts[k])) return why;
  if (const adacc::Error why = visit(std::string("selector"), army.selector)) return why;
  return visit(std::string("large"), army.large);
}

}  // namespace detail

inline adacc::Error save_army(const std::string& path, const Army& army) {
  using namespace adacc;
  std::vector<NamedTensor> tensors;
  const Error why =
      detail::for_each_network(army, [&](const std::string& name, const Weights& weights) {
        const Net net = weights.sizes.net();
        const auto graph = graph_of(net, 1, false);
        if (!graph) return graph.error;
        for (NamedTensor& tensor :
             named_parameters(*graph, {weights.values.data(), Shape(weights.values.size())})) {
          tensor.name = name + "." + tensor.name;
          tensors.push_back(std::move(tensor));
        }
        return Error{};
      });
  if (why) return why;
  std::vector<float> shares(army.shares.begin(), army.shares.end());
  tensors.emplace_back("shares", View<const float>(shares.data(), Shape(shares.size())));
  return write_safetensors(path, std::move(tensors));
}

/// Reads what `army` has the sizes for; refuses a file with others.
inline adacc::Error load_army(const std::string& path, Army& army) {
  using namespace adacc;
  const auto file = SafeTensors::open(path);
  if (!file) return file.error;
  const auto read = [&](const std::string& name, const Shape& shape, float* to) {
    std::vector<std::size_t> wanted;
    for (int i = 0; i < shape.rank(); ++i) wanted.push_back(shape[i]);
    const StoredTensor* const tensor = file->find(name);
    if (tensor == nullptr)
      return Error::say(one_line(path).c_str(), ": has no tensor ", name.c_str(), " ",
                        text_of(wanted).c_str(), "; it is not an army of this kind");
    if (tensor->type != StoredType::f32 || tensor->shape != wanted)
      return Error::say(one_line(path).c_str(), ": ", name.c_str(), " is ",
                        text_of(tensor->shape).c_str(), " of ", name_of(tensor->type),
                        "; these models have ", text_of(wanted).c_str(), " of F32");
    std::memcpy(to, tensor->bytes.data(), tensor->bytes.size());
    return Error{};
  };
  const StoredTensor* const shares = file->find("shares");
  if (shares != nullptr && shares->elems() != army.compacts.size())
    return Error::say(one_line(path).c_str(), ": has ", shares->elems(),
                      " compact models; --models says ", army.compacts.size());
  std::vector<float> read_shares(army.compacts.size());
  if (const Error why = read("shares", Shape(read_shares.size()), read_shares.data())) return why;
  army.shares.assign(read_shares.begin(), read_shares.end());
  return detail::for_each_network(army, [&](const std::string& name, Weights& weights) {
    const Net net = weights.sizes.net();
    const auto graph = graph_of(net, 1, false);
    if (!graph) return graph.error;
    weights.values.assign(graph->parameter_elems, 0.0F);
    for (std::size_t i = 0; i < graph->parameters.size(); ++i) {
      const Parameter& parameter = graph->parameters[i];
      if (const Error why = read(name + "." + parameter_name(*graph, i), parameter.shape,
                                 weights.values.data() + parameter.offset))
        return why;
    }
    return Error{};
  });
}

}  // namespace anole
