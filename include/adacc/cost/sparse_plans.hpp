// SPDX-License-Identifier: MIT
/// Plans of few kept activations: some stay, or are compressed, and all others are recomputed.
///
/// Candidates to keep are activations not crossed by a residual sum, since anything read across one would also have to
/// be kept; every n-th candidate is kept. The best n is a trade-off (Chen et al., arXiv:1604.06174, keep about a
/// square root of the activations); here 1, 2, 4, ... are tried on the very schedule. These plans are not the
/// planner's: measurements come before any plan, and need a step that fits into little memory.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../program/plan.hpp"
#include "../program/schedule.hpp"
#include "evaluate.hpp"

namespace adacc { inline namespace v0_1 {

/// The activations across which no other is read, in order; never empty.
constexpr Array<int> checkpoint_sites(const Graph& graph) {
  Array<int> opened(graph.nodes.size() + 1);  // reads beginning here, less reads ending here
  for (int k = 0; k < graph.node_count(); ++k)
    graph.forward_reads(k, [&](int source) {  // the step's input is always available
      ++opened[static_cast<std::size_t>(source) + 1];
      --opened[static_cast<std::size_t>(k)];
    });
  Array<int> sites;
  int across = 0;
  for (int k = 0; k < graph.node_count(); ++k) {
    across += opened[static_cast<std::size_t>(k)];
    if (across == 0) sites.push_back(k);
  }
  return sites;
}

/// How such a plan keeps its activations.
enum class Kept : unsigned char {
  whole,    ///< retained: nothing is lost
  precise,  ///< compressed with the candidate of the most bytes
  coarse,   ///< compressed with the candidate of the fewest bytes
};

/// The policy of activation `id` if kept; retain without a candidate for keeping values.
constexpr Policy kept_policy(const Graph& graph, int id, Kept kept) {
  const Node& node = graph.node(id);
  Policy policy = retain();
  std::size_t best = 0;
  for (std::size_t i = 0; i < node.candidates.count && kept != Kept::whole; ++i) {
    const CodecInfo* codec = graph.candidates_of(node)[i];
    if (!codec->keeps_values) continue;
    const std::size_t bytes =
        codec->encoded_bytes(node.output.rows(), node.output.cols(), graph.scalar);
    const bool better = kept == Kept::coarse ? bytes < best : bytes > best;
    if (policy.codec() != nullptr && !better) continue;
    policy = compress(codec);
    best = bytes;
  }
  return policy;
}

/// Keeps every `stride`th of `sites`, from the first on, and recomputes the rest.
constexpr Plan checkpointed(const Graph& graph, const Array<int>& sites, std::size_t stride,
                            Kept kept) {
  Plan plan;
  plan.made_for = graph.fingerprint;
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) plan.policies.push_back(recompute());
  for (std::size_t i = 0; i < sites.size(); i += stride)
    plan.policies[static_cast<std::size_t>(sites[i])] = kept_policy(graph, sites[i], kept);
  return plan;
}

/// Among these plans, over strides of 1, 2, 4, ..., the plan with the fewest live bytes.
constexpr Plan smallest_sparse(const Graph& graph, Kept kept) {
  const Array<int> sites = checkpoint_sites(graph);
  Plan best;
  std::size_t least = 0;
  for (std::size_t stride = 1; stride <= sites.size(); stride *= 2) {
    Plan plan = checkpointed(graph, sites, stride, kept);
    const std::size_t bytes = live_bytes(make_schedule(graph, plan));
    if (best.policies.size() != 0 && bytes >= least) continue;
    best = static_cast<Plan&&>(plan);
    least = bytes;
  }
  return best;
}

}}  // namespace adacc::v0_1
