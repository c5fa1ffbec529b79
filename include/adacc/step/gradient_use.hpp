// SPDX-License-Identifier: MIT
/// Whether a layer's backward is the first of a step to add to a parameter's gradient, and which layer takes the gradient
/// that it makes.
#pragma once

#include <cstddef>

#include "../model/graph.hpp"
#include "../program/program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

enum class GradientUse : unsigned char {
  added,  ///< a node that runs before has begun the gradient, or there is none
  begun,  ///< nobody has added to the gradient before
  shared  ///< the node begins the gradient, and adds to it as several of its parameters
};

/// Backward of node `k` (of the loss: node_count()) and the gradient of parameter `p`, which is the node's.
inline GradientUse use_of(const Graph& graph, std::size_t p, int k) {
  const Parameter& parameter = graph.parameters[p];
  if (parameter.frozen) return GradientUse::added;
  if (parameter.tied == nullptr) return GradientUse::begun;
  GradientUse use = GradientUse::begun;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& other = graph.parameters[i];
    if (i == p || other.frozen || other.tied == nullptr || other.offset != parameter.offset)
      continue;
    const int node = other.node < 0 ? graph.node_count() : other.node;
    if (node > k) return GradientUse::added;  // backward runs from the last node to the first
    if (node == k) use = i < p ? GradientUse::added : GradientUse::shared;
  }
  return use;
}

/// The backward that takes dx of backward `i` as its whole dy, and runs next; null if there is none. Plans do not
/// change it: they let other work run between the two, but none that changes dx.
inline const Instruction* taker_of_dx(const Graph& graph, const Schedule& schedule, std::size_t i) {
  const Instruction& from = schedule.instructions[i];
  if (from.op != Op::backward || from.dx < 0 || from.parts != 1) return nullptr;
  while (++i < schedule.instructions.size()) {
    const Instruction& next = schedule.instructions[i];
    if (next.op == Op::add_gradient && next.dx == from.dx) return nullptr;
    if (next.op != Op::backward) continue;
    const bool takes = next.dy == from.dx && next.parts == 1 &&
                       graph.input_of(from.node) == next.node && !graph.fuses_updates();
    return takes ? &next : nullptr;
  }
  return nullptr;
}
/// The backward before `i` whose dx it takes so; null if there is none.
inline const Instruction* maker_of_dy(const Graph& graph, const Schedule& schedule, std::size_t i) {
  const Instruction* const to = &schedule.instructions[i];
  while (i-- > 0)
    if (schedule.instructions[i].op == Op::backward)
      return taker_of_dx(graph, schedule, i) == to ? &schedule.instructions[i] : nullptr;
  return nullptr;
}

}}}  // namespace adacc::v0_1::detail
