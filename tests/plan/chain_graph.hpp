// SPDX-License-Identifier: MIT
/// Equal layers in a row, and what their steps cost.
#pragma once

#include <adacc/cost/profile.hpp>
#include <adacc/model/graph.hpp>

namespace chain_graph {

constexpr double forward = 1e-3;  ///< seconds

/// Layers whose backward reads `reads`.
inline adacc::Graph make(int layers, adacc::Reads reads) {
  adacc::Graph graph;
  graph.input = adacc::Shape(16, 16);
  graph.loss.name = "loss";
  for (int k = 0; k < layers; ++k) {
    adacc::Node node;
    node.name = "layer";
    node.layer = k;
    node.input = node.output = graph.input;
    node.output_bytes = node.output.elems() * adacc::bytes_of(graph.scalar);
    node.reads = reads;
    const int from = k - 1;
    graph.append(node, {&from, 1});
  }
  return graph;
}

inline adacc::CostProfile even_profile(const adacc::Graph& graph) {
  adacc::CostProfile profile = adacc::empty_profile(graph);
  for (adacc::NodeCost& cost : profile.nodes) cost = {forward, 2 * forward, 0, 0};
  return profile;
}

}  // namespace chain_graph
