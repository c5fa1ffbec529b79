// SPDX-License-Identifier: MIT
/// The last backward stage at which some plan may run a callable again.
#pragma once

#include <cstddef>

#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// By activation, for the first activation of each callable: the last stage (the lowest number) whose reads may need
/// the callable, under any plan. -1: none does. The first `activations` nodes of `graph` are activations, the others
/// stages.
inline Array<int> last_runs(const Graph& graph, int activations) {
  Array<int> last;
  for (int id = 0; id < activations; ++id) last.push_back(-1);
  const auto lower = [&](int id, int stage) {
    int& of = last[static_cast<std::size_t>(graph.maker_of(id))];
    if (of < 0 || (stage >= 0 && stage < of)) of = stage;
  };
  for (int k = activations; k < graph.node_count(); ++k)
    for (const int id : graph.backward_reads(k)) lower(id, k - activations);
  for (int id = activations - 1; id >= 0; --id)
    if (graph.maker_of(id) == id && graph.node(id).recomputable)
      for (const int source : graph.sources(id)) lower(source, last[static_cast<std::size_t>(id)]);
  return last;
}

}}}  // namespace adacc::v0_1::detail
