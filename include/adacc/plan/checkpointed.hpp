/// Plans that keep little and lose nothing: some activations stay, all others are recomputed.
///
/// A residual sum that reaches across an activation would have to be kept beside it, so what is
/// kept are cuts: activations that everything after them is made from. Which share of the cuts to
/// keep is a trade (Chen et al., arXiv:1604.06174, keep about a square root of them); here the
/// shares 1, 1/2, 1/4, ... are tried on the very schedule. These plans are not the planner's: they
/// give measurements, which come before any plan, a step that fits into little memory.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../step/schedule.hpp"
#include "evaluate.hpp"
#include "plan.hpp"

namespace adacc {

/// The activations that no residual sum reaches across, in order; never empty.
constexpr Array<int> cuts_of(const Graph& graph) {
  Array<int> opened(graph.nodes.size() +
                    1);  // sums that begin to reach across, less those that end
  for (int k = 0; k < graph.node_count(); ++k)
    for (std::size_t i = 0; i < graph.node(k).add_count; ++i) {
      const int source = graph.add_source(graph.node(k), i);
      if (source < 0) continue;  // the step's input is the caller's, and always there
      ++opened[static_cast<std::size_t>(source) + 1];
      --opened[static_cast<std::size_t>(k)];
    }
  Array<int> cuts;
  int across = 0;
  for (int k = 0; k < graph.node_count(); ++k) {
    across += opened[static_cast<std::size_t>(k)];
    if (across == 0) cuts.push_back(k);
  }
  return cuts;
}

/// The candidate of activation `id` that takes the fewest bytes and keeps values; null without any.
constexpr const CodecInfo* smallest_codec(const Graph& graph, int id) {
  const Node& node = graph.node(id);
  const CodecInfo* smallest = nullptr;
  std::size_t least = 0;
  for (std::size_t i = 0; i < node.candidate_count; ++i) {
    const CodecInfo* codec = graph.candidates_of(node)[i];
    if (!codec->keeps_values) continue;
    const std::size_t bytes =
        codec->encoded_bytes(node.output.rows(), node.output.cols(), graph.scalar);
    if (smallest != nullptr && bytes >= least) continue;
    smallest = codec;
    least = bytes;
  }
  return smallest;
}

/// Keeps every `stride`th of `cuts`, from the first on, and recomputes the rest. Where `compressed`
/// the kept ones go through their smallest codec.
constexpr Plan checkpointed(const Graph& graph, const Array<int>& cuts, std::size_t stride,
                            bool compressed) {
  Plan plan;
  for (std::size_t k = 0; k < graph.nodes.size(); ++k)
    plan.policies.push_back({PolicyKind::recompute, nullptr});
  for (std::size_t i = 0; i < cuts.size(); i += stride) {
    const CodecInfo* codec = compressed ? smallest_codec(graph, cuts[i]) : nullptr;
    plan.policies[static_cast<std::size_t>(cuts[i])] = codec == nullptr
                                                           ? Policy{PolicyKind::retain, nullptr}
                                                           : Policy{PolicyKind::compress, codec};
  }
  return plan;
}

/// The one of them, over strides that are powers of 2, with the fewest live bytes.
constexpr Plan smallest_checkpointed(const Graph& graph, bool compressed) {
  const Array<int> cuts = cuts_of(graph);
  Plan best;
  std::size_t least = 0;
  for (std::size_t stride = 1; stride <= cuts.size(); stride *= 2) {
    Plan plan = checkpointed(graph, cuts, stride, compressed);
    const std::size_t bytes = live_bytes(make_schedule(graph, plan));
    if (best.policies.size() != 0 && bytes >= least) continue;
    best = static_cast<Plan&&>(plan);
    least = bytes;
  }
  return best;
}

}  // namespace adacc
