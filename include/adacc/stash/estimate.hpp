// SPDX-License-Identifier: MIT
/// A cost profile of a stash without a measurement, and gradient errors for one with.
///
/// Times follow from the needs of callables (RecomputeNeeds) and from bytes moved, at the rates of
/// one core. On the machine itself, measure instead (stash/measure.hpp).
#pragma once

#include <cstddef>

#include "../cost/estimate.hpp"
#include "../cost/nearest_sources.hpp"
#include "../cost/profile.hpp"
#include "model.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Sets gradient errors: numbers from allow(), estimates if they are yet to be probed, and both as
/// carried by recomputed activations. In a stash of n equal layers, each is assumed to have an n-th
/// part of the gradient, and of the error.
template <class T, class Context>
constexpr void set_errors(const StashModel<T, Context>& model, const Graph& graph,
                          CostProfile& profile) {
  int layers = 1;
  for (int id = 0; id < model.activation_count(); ++id)
    if (graph.node(id).copy >= layers) layers = graph.node(id).copy + 1;
  for (int id = 0; id < model.activation_count(); ++id)
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const CodecInfo& codec = *profile.codecs[c];
      const double error = model.error_of(id, &codec);
      profile.codec_cost(id, static_cast<int>(c)).error =
          error >= 0 ? error : estimated_error(codec, graph.node(id).output, graph.scalar) / layers;
    }
  estimate_carried_errors(graph, profile);
}

/// Sets the rest of a step: `step_seconds`, everything retained, less forward of all activations. If
/// the seconds are unknown (0), backward takes twice as long as forward.
constexpr void set_rest(CostProfile& profile, double step_seconds) {
  double forward = 0;
  for (const NodeCost& cost : profile.nodes) forward += cost.forward;
  profile.rest = step_seconds > 0 ? step_seconds - forward : 2 * forward;
  if (!(profile.rest > 1e-9)) profile.rest = 1e-9;  // a step takes time
}

}  // namespace detail

/// An estimate for the stash of `model`. Fails if a callable comes without operations and moved
/// bytes, for then any estimate is a guess.
template <class T, class Context>
constexpr Result<CostProfile> estimated_profile(
    const StashModel<T, Context>& model,
    const EstimateRates& rates = default_rates(context_traits<Context>::own_memory)) {
  const Result<Graph> described = model.graph();
  if (!described) return described.error;
  const Graph& graph = *described;
  CostProfile profile = estimated_profile(graph, rates);
  for (int id = 0; id < model.activation_count(); ++id) {
    if (model.recompute_of(id).call == nullptr || graph.maker_of(id) != id) continue;
    const RecomputeNeeds& needs = model.needs_of(id);
    if (needs.operations == 0 && needs.moved_bytes == 0)
      return Error::misuse("an estimate of what it costs to recompute ", ActivationName(graph, id),
                           " needs RecomputeNeeds::operations, or moved_bytes, of its callable; "
                           "measure_stash() can do without");
    double moved = needs.moved_bytes;
    if (moved == 0) {
      for (const int source : graph.sources(id))
        moved += static_cast<double>(graph.node(source).output_bytes);
      for (int k = id; k < graph.node_count() && graph.maker_of(k) == id; ++k)
        moved += static_cast<double>(graph.node(k).output_bytes);
    }
    profile.nodes[static_cast<std::size_t>(id)].forward =
        moved / rates.bytes_per_second + needs.operations / rates.operations_of(graph.scalar);
  }
  for (NodeCost& cost : profile.nodes) cost.backward = 0;  // the trainer's own, in the rest
  detail::set_rest(profile, 0);
  detail::set_errors(model, graph, profile);
  return profile;
}

}}  // namespace adacc::v0_1
