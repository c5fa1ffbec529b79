// SPDX-License-Identifier: MIT
/// Adapters merged into the weights beside them.
#pragma once

#include <cstring>

#include "../core/view.hpp"
#include "../io/weights/adapters.hpp"
#include "../layer/lora_linear.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

/// Adds each adapter of `graph`, whose block is `params`, to the weight of its layer: without adapters the network then
/// computes the same.
template <class T>
void merge_adapters(const Graph& graph, View<T> params, const AdapterShape& shape) {
  for (const Node& node : graph.nodes) {
    if (std::strcmp(node.name, LoraLinear::name) != 0) continue;
    const Parameter* const first = graph.parameters.data() + node.parameters.first;
    LoraLinear layer{.out = node.output.cols(), .rank = shape.rank, .alpha = shape.alpha};
    layer.bias = node.parameters.count == 4;
    layer.merge<T>({params.data(), first, node.parameters.count},
                   {params.data() + first->offset, first->shape});
  }
}

}}  // namespace adacc::v0_1
