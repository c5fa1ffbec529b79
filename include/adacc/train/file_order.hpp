// SPDX-License-Identifier: MIT
/// The order in which files have a network's parameters: that of its layers, whichever of them are
/// frozen, while in memory those that are trained come first.
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

/// Where parameters lie in a file: in their order, whichever of them are frozen.
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
/// of `saved`. The parameters of `graph` are these, wherever they lie.
template <class Copy>
void each_parameter(const Graph& saved, const Graph& graph, const Copy& copy) {
  const std::vector<std::size_t> offsets = offsets_in_files(saved);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (saved.parameters[i].owner)
      copy(offsets[i], graph.parameters[i].offset, saved.parameters[i].shape.elems());
}

/// A hash of what a block of parameters holds where: layers, names, shapes and offsets.
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

/// write(View<const T>) of the parameters of `graph`, held in whatever form, in a file's order; its error,
/// or why there is no memory for that.
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

/// The other way: read(View<T>) gets them in a file's order.
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
