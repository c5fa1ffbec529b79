// SPDX-License-Identifier: MIT
/// Which activations have in backward the very bits that forward computed.
///
/// Retained ones have, and so have those behind a lossless codec. A recomputed one has the error of
/// whatever lossy activation it is made from. A layer that saved something in forward (aux, its
/// output) needs to know: beside another input than it was computed from, it may do harm.
#pragma once

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The same in `exact`, which has room for it, if `kept(k)` says which of those with a lossy codec come back
/// as they were all the same.
template <class Kept>
constexpr void mark_exact(const Graph& graph, const Plan& plan, const Kept& kept,
                          Array<bool>& exact) {
  for (int k = 0; k < graph.node_count(); ++k) {
    const Policy& policy = plan[k];
    bool same = policy.recomputes() || policy.form().lossless() || kept(k);
    if (policy.recomputes())
      graph.forward_reads(
          k, [&](int source) { same = same && exact[static_cast<std::size_t>(source)]; });
    exact[static_cast<std::size_t>(k)] = same;
  }
}

}  // namespace detail

/// For each activation, whether a backward step reads it as it was in forward. `plan` must have
/// passed examine(graph, plan).
constexpr Array<bool> exact_in_backward(const Graph& graph, const Plan& plan) {
  Array<bool> exact(graph.nodes.size());
  detail::mark_exact(
      graph, plan, [](int) { return false; }, exact);
  return exact;
}

}}  // namespace adacc::v0_1
