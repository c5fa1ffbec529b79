// SPDX-License-Identifier: MIT
/// The check of positions, of packed documents (KernelCall::positions) and of continued sequences (KernelCall::carried),
/// before a step reads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Why `positions` are none of the tokens of an input of shape (batch, time, ...). Each sequence begins at 0; behind
/// position p comes p + 1, or 0, where a document begins.
template <class Context>
Error check_documents(View<const std::int32_t> positions, Shape input) {
  if constexpr (context_traits<Context>::own_memory) {
    return Error::misuse(
        "documents packed into sequences (positions of the context) are kept apart on threads of "
        "the host alone: on a "
        "device, let each sequence be one document");
  } else {
    const std::size_t time = input.rank() < 2 ? 0 : input[1];
    if (positions.size() != (time == 0 ? 0 : input[0] * time))
      return Error::misuse("the context has ", positions.size(),
                           " positions of packed documents, and the input of shape ", input,
                           " has another number of tokens (batch times time)");
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::int32_t before = i % time == 0 ? -1 : positions[i - 1];
      if (positions[i] != 0 && positions[i] != before + 1)
        return Error::misuse("the position ", positions[i], " of token ", i % time, " of sequence ",
                             i / time, " of the batch follows ", before,
                             ": a document begins with 0, and each token adds 1");
    }
    return {};
  }
}

/// Why a pass cannot continue sequences from `state`: it is no pass of Mode::infer, or the state has no room for it.
template <class Context>
Error check_carried(const CarriedState& state, const Graph& graph, bool infers) {
  if (context_traits<Context>::own_memory || !infers)
    return Error::misuse(
        "sequences are continued (carried state of the context) by passes of Mode::infer on "
        "threads of the host "
        "alone");
  if (state.nodes != graph.nodes.size() || graph.input.rank() != 2)
    return Error::misuse("the carried state of the context is of a network with ", state.nodes,
                         " layers, and this one has ", graph.nodes.size());
  if (state.first > state.room || state.room - state.first < graph.input[1])
    return Error::misuse("the carried state of the context has room for ", state.room,
                         " positions: ", graph.input[1], " more do not fit behind the first ",
                         state.first);
  return {};
}

/// A carried state that is refused is taken out of the context.
template <class Context>
Error check_positions(Context& context, const Graph& graph, bool infers) {
  if (context.carried == nullptr) return check_documents<Context>(context.positions, graph.input);
  const Error why = !context.positions.empty()
                        ? Error::misuse(
                              "sequences that are continued (carried state of the context) "
                              "are one document each: they have no positions of their own")
                        : check_carried<Context>(*context.carried, graph, infers);
  if (why) context.carried = nullptr;
  return why;
}

}}}  // namespace adacc::v0_1::detail
