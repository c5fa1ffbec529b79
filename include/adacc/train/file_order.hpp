// SPDX-License-Identifier: MIT
/// The order of a network's parameters in files: the order of layers, whichever parameters are
/// frozen. In memory, trained parameters come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../model/fingerprint.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Offsets of parameters in a file: in their order, whichever of them are frozen.
inline std::vector<std::size_t> offsets_in_files(const Graph& graph) {
  std::vector<std::size_t> offsets;
  std::size_t next = 0;
  for (const Parameter& parameter : graph.parameters) {
    std::size_t mine = next;
    if (parameter.owner) next += padded_elems(parameter.shape, graph.scalar);
    for (std::size_t i = 0; i < offsets.size() && !parameter.owner; ++i)
      if (graph.parameters[i].offset == parameter.offset) mine = offsets[i];
    offsets.push_back(mine);
  }
  return offsets;
}

/// Calls copy(offset in a file of `saved`, offset in the block of `graph`, elements) for every parameter
/// of `saved`. `graph` has the same parameters, perhaps at other offsets.
template <class Copy>
void each_parameter(const Graph& saved, const Graph& graph, const Copy& copy) {
  const std::vector<std::size_t> offsets = offsets_in_files(saved);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (saved.parameters[i].owner)
      copy(offsets[i], graph.parameters[i].offset, saved.parameters[i].shape.elems());
}

/// A hash of the layout of a block of parameters: layers, names, shapes and offsets.
inline std::uint64_t layout_of(const Graph& graph) {
  const std::vector<std::size_t> offsets = offsets_in_files(graph);
  Mixer all;
  const auto mix = [&](const char* text) {
    for (; *text != '\0'; ++text) all.mix(static_cast<unsigned char>(*text));
    all.mix(256);
  };
  for (std::size_t p = 0; p < offsets.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    mix(parameter.node < 0 ? graph.loss.name : graph.node(parameter.node).name);
    mix(parameter.name);
    all.mix(offsets[p]);
    all.mix(static_cast<std::uint64_t>(parameter.shape.rank()));
    for (int i = 0; i < parameter.shape.rank(); ++i) all.mix(parameter.shape[i]);
  }
  return all.value();
}

/// Calls write(View<const T>) with the parameters of `graph` in a file's order. Returns the call's error,
/// or why there is no memory for a copy.
template <class T, class Write>
Error write_in_file_order(const Graph& graph, View<const T> params, const Write& write) {
  if (graph.gradient_elems == graph.parameter_elems) return write(params);
  Result<Block<T>> all = Block<T>::make(graph.parameter_elems, "parameters in a file's order");
  if (!all) return all.error;
  each_parameter(graph, graph, [&](std::size_t in_file, std::size_t at, std::size_t n) {
    std::memcpy(all->data() + in_file, params.data() + at, n * sizeof(T));
  });
  return write(std::as_const(*all).view());
}

/// Calls read(View<T>) with memory for the parameters in a file's order, and copies them to `params`.
template <class T, class Read>
Error read_in_file_order(const Graph& graph, View<T> params, const Read& read) {
  if (graph.gradient_elems == graph.parameter_elems) return read(params);
  Result<Block<T>> all = Block<T>::make(graph.parameter_elems, "parameters in a file's order");
  if (!all) return all.error;
  if (const Error why = read(all->view())) return why;
  each_parameter(graph, graph, [&](std::size_t in_file, std::size_t at, std::size_t n) {
    std::memcpy(params.data() + at, all->data() + in_file, n * sizeof(T));
  });
  return {};
}

}}}  // namespace adacc::v0_1::detail
