// SPDX-License-Identifier: MIT
/// The nearest encoded activations from which another one may be recomputed.
///
/// The error of a codec reaches a recomputed activation from sources that the codec encodes, directly or through
/// recomputed sources. Behind the nearest encoded one others may follow, but their errors do not add up on the way:
/// the output of a layer is about as far off, relative to its size, as the input.
#pragma once

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// Whether a plan may compress activation `id` with `codec`: listed by the graph, or fixed by a type.
constexpr bool may_use(const Graph& graph, int id, const CodecInfo* codec) {
  const Node& node = graph.node(id);
  return graph.candidates_of(node).contains(codec) || node.policy.codec() == codec;
}

struct NearestSources {
  Array<int> encoded;  ///< activations that may be encoded, each once
  Array<int> between;  ///< recomputed ones between `encoded` and the activation, each once
};

/// The nearest activations before `k` that may go through `codec` and keep values.
constexpr NearestSources nearest_sources(const Graph& graph, int k, const CodecInfo* codec) {
  NearestSources found;
  if (!codec->keeps_values) return found;
  const auto reach = [&](int id) {
    Array<int>& list = may_use(graph, id, codec) ? found.encoded : found.between;
    if (&list == &found.between && !graph.node(id).recomputable) return;  // retained
    for (const int known : list)
      if (known == id) return;
    list.push_back(id);
  };
  graph.forward_reads(k, reach);
  // The list grows meanwhile. NOLINTNEXTLINE(modernize-loop-convert)
  for (std::size_t i = 0; i < found.between.size(); ++i)
    graph.forward_reads(found.between[i], reach);
  return found;
}

/// Estimates each carried error of `profile` from the codecs' own errors: the sum over the nearest activations that
/// may be encoded.
constexpr void estimate_carried_errors(const Graph& graph, CostProfile& profile) {
  for (int k = 0; k < graph.node_count(); ++k)
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const int column = static_cast<int>(c);
      double carried = 0;
      for (const int source : nearest_sources(graph, k, profile.codecs[c]).encoded)
        carried += profile.codec_cost(source, column).error;
      profile.codec_cost(k, column).carried_error = carried;
    }
}

}}  // namespace adacc::v0_1
