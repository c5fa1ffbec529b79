// SPDX-License-Identifier: MIT
/// A model with its adapters, to be run or written.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/model/graph.hpp>
#include <adacc/train/merge_adapters.hpp>

#include <string>
#include <utility>

#include "model.hpp"
#include "words.hpp"

namespace chat_tune {

/// The parameters of a model with its adapters, and the network of both. Weights stay in the file, or are decoded.
struct Loaded {
  Model model;
  Network network;
  adacc::AdapterShape adapters{1, 1};
  adacc::Graph graph;
  adacc::Block<float> params;

  /// Without `adapter` adapters are there, and zero.
  Error open(const ModelOptions& options, const std::string& adapter, bool decoded) {
    using namespace adacc;
    if (!adapter.empty()) {
      const auto shape = read_adapter_shape(adapter);
      if (!shape) return shape.error;
      adapters = *shape;
    }
    auto opened = Model::open(options);
    if (!opened) return opened.error;
    model = std::move(*opened);
    network = network_of(model, adapters);
    auto made =
        graph_of(network, Shape(1, 2), {.stored = decoded ? nullptr : &model.weights.stored()});
    if (!made) return made.error;
    graph = std::move(*made);
    auto block = Block<float>::make(graph.parameter_elems, "weights");
    if (!block) return block.error;
    params = std::move(*block);
    if (const Error why = model.weights.read(graph, params.view())) return why;
    return adapter.empty() ? Error() : read_adapters(adapter, graph, params.view());
  }
};

}  // namespace chat_tune
