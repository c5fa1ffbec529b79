// SPDX-License-Identifier: MIT
/// Whether a dispatch table can run a program.
#pragma once

#include <cstddef>

#include "../core/error.hpp"
#include "../program/program.hpp"
#include "dispatch.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, class Context>
Error check_program(const Dispatch<T, Context>& dispatch, const Program& program) {
  if (program.graph.scalar != dtype_of<T>)
    return Error::misuse("the program computes in ", name_of(program.graph.scalar),
                         ", and this Step in ", name_of(dtype_of<T>));
  if (program.graph.has_outside())
    return Error::misuse("the program's steps are run by the caller (Stash), not by a Step");
  for (const Node& node : program.graph.nodes)
    if (static_cast<std::size_t>(node.layer) >= dispatch.layers.size())
      return Error::misuse("the program has a layer ", node.layer, ", and the network only ",
                           dispatch.layers.size(), " layers: it was made for another network");
  for (const Node& node : program.graph.nodes) {
    const auto& layer = dispatch.layers[static_cast<std::size_t>(node.layer)];
    if ((node.adds_residual && !layer.adds_residual) ||
        (node.adds_gradient && !layer.adds_gradient))
      return Error::misuse("the program was made for another context: there ", node.name,
                           " adds residual sums to its results, and in this Step it does not");
    if (layer.signature == nullptr) continue;
    if (const Error why = differences(*layer.signature, layer.functor, program.graph, node))
      return Error::misuse("the program was made for another network: as layer ", node.layer,
                           " it has ", why.text());
  }
  if (!Context::runs_parts && program.graph.parts > 1)
    return Error::misuse("the program's layers are cut into ", program.graph.parts,
                         " parts, and this context runs layers whole (runs_parts)");
  if (program.graph.has_loss && dispatch.loss.loss == nullptr)
    return Error::misuse(
        "the program ends with a loss, and the network has none: it was made for "
        "another network");
  for (const Policy& policy : program.plan.policies)
    if (policy.codec() != nullptr && dispatch.find(policy.codec()) == nullptr)
      return Error::misuse("the plan uses the codec ", policy.codec()->name,
                           ", which no type of the network names: add it to the dispatch table");
  return {};
}

}}}  // namespace adacc::v0_1::detail
