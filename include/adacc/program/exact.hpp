// SPDX-License-Identifier: MIT
/// Which activations have in backward the very bits computed by forward.
///
/// Retained activations do, and so do activations behind a lossless codec. A recomputed activation has the
/// error of every lossy activation it is made from. A layer with numbers saved in forward (aux, an output)
/// has to know: they may do harm beside an input other than the one they were computed from.
#pragma once

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// exact_in_backward() written to `exact`, of the right size. `kept(k)` says whether activation k comes
/// back exactly in spite of a lossy codec.
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

/// For each activation, whether a backward step reads the bits of forward. `plan` must have
/// passed examine(graph, plan).
constexpr Array<bool> exact_in_backward(const Graph& graph, const Plan& plan) {
  Array<bool> exact(graph.nodes.size());
  detail::mark_exact(
      graph, plan, [](int) { return false; }, exact);
  return exact;
}

}}  // namespace adacc::v0_1
