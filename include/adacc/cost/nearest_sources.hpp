// SPDX-License-Identifier: MIT
/// From which encoded activations another one may be made again: the nearest behind it.
///
/// What a recomputed activation has of a codec's error came from those of its sources that the codec
/// encodes, or through sources that are recomputed themselves. Behind the nearest that may be
/// encoded others may follow, but their errors do not add up on the way: what comes out of a layer
/// is about as far off, relative to its size, as what went in.
#pragma once

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// Whether a plan may compress activation `id` with `codec`: the graph lists it, or a type fixes
/// it.
constexpr bool may_use(const Graph& graph, int id, const CodecInfo* codec) {
  const Node& node = graph.node(id);
  return graph.candidates_of(node).contains(codec) || node.policy.codec() == codec;
}

struct NearestSources {
  Array<int> encoded;  ///< those that may be encoded, each once
  Array<int> between;  ///< those that are recomputed between them and the activation, each once
};

/// The nearest activations behind `k` that may go through `codec` and keep their values.
constexpr NearestSources nearest_sources(const Graph& graph, int k, const CodecInfo* codec) {
  NearestSources found;
  if (!codec->keeps_values) return found;
  const auto reach = [&](int id) {
    Array<int>& list = may_use(graph, id, codec) ? found.encoded : found.between;
    if (&list == &found.between && !graph.node(id).recomputable) return;  // kept as it is
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

/// Estimates every carried error of `profile` from the codecs' own: their sum over the nearest
/// activations that may be encoded.
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
