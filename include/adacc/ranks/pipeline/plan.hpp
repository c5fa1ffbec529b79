// SPDX-License-Identifier: MIT
/// One plan of a pipeline for all its ranks, from measured costs.
///
/// From estimated costs, rank 0 chooses a stage for each rank to measure, one that fits there. All
/// measurements become one profile and a speed of each rank (cost/combine.hpp). From these rank 0 makes the plan,
/// and sends it to all, with the fingerprint of the network. Ranks may differ in memory, speed
/// and link. An error on one rank is an error on all.
///
///     PipelineRequest request;
///     request.micro_batches = 8;
///     request.stages.resize(group.size());
///     request.stages[group.rank()].memory_bytes = 8 * GiB;     // each rank fills in its own
///     auto planned = plan_pipeline(group, make_dispatch<float, Cpu>(network), graph, request, context,
///                                  AdamW{}, {.clock = steady_seconds, .input = x, .targets = y});
///     auto stage = Pipeline<>::make(network, graph, planned->plan, 8, context, group);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../../cost/combine.hpp"
#include "../../cost/estimate.hpp"
#include "../../io/pipeline_text.hpp"
#include "../../plan/pipeline/planner.hpp"
#include "../../step/dispatch.hpp"
#include "../asked.hpp"
#include "../collectives.hpp"
#include "measure_stage.hpp"

namespace adacc { inline namespace v0_1 {

struct PlannedPipeline {
  PipelineOutcome plan;
  /// The costs behind the plan: of a machine of speed 1, with estimated gradient errors.
  CostProfile profile;
  /// The machines of the plan: by rank, with measured speeds and links.
  Array<StageMachine> machines;
  Array<int> measured;  ///< by rank: number of nodes measured
  double seconds = 0;   ///< spent on measuring here; 0 without a clock
};

/// Copies rank 0's plan, or why there is none, to all ranks. All call share_plan() with the same graph, of a
/// micro-batch. `outcome` of other ranks is ignored.
inline Result<PipelineOutcome> share_plan(GroupRef group, const Graph& graph, int micro_batches,
                                          const Result<PipelineOutcome>& outcome) {
  const bool plans = group.rank() == 0;
  if (const Error why = share_error(group, plans ? outcome.error : Error())) return why;
  std::string text = plans ? pipeline_text(graph, *outcome, micro_batches) : std::string();
  if (const Error why = broadcast(group, text)) return why;
  Result<PipelineOutcome> read = parse_pipeline(text, graph);
  if (const Error why = share_error(group, read.error)) return why;
  return read;
}

/// Fills in the bytes of parameters, gradients and the optimizer's state of `graph`.
template <class Optimizer>
Error count_state(PipelineRequest& request, const Graph& graph, const Optimizer& optimizer) {
  const Dtype scalar = wide(graph.scalar);
  const Result<UpdateTable> table = UpdateTable::make(optimizer, graph.parameters, scalar);
  if (!table) return table.error;
  request.bytes_per_frozen = static_cast<double>(bytes_of(scalar));
  request.bytes_per_trained = 2 * request.bytes_per_frozen;
  request.moment_bytes.clear();
  request.moment_bytes.resize(graph.parameters.size());
  for (std::size_t o = 0; o < table->owners(); ++o)
    for (std::size_t s = 0; s < table->states(); ++s) {
      const StateSpec spec = detail::state_of(optimizer, s, graph.parameters[table->owner(o)]);
      request.moment_bytes[table->owner(o)] += align_up(state_bytes(spec.form, spec.elems, scalar));
    }
  return {};
}

namespace detail {

/// Gathers the costs of all ranks, in the order of ranks. Numbers are sent in their form in memory.
inline Error gather_costs(GroupRef group, const Graph& graph, const StageCosts& stage,
                          Array<StageCosts>& all) {
  const CostProfile empty = empty_profile(graph);
  const CostProfile& costs = stage.nodes.costs.nodes.empty() ? empty : stage.nodes.costs;
  std::vector<double> numbers{static_cast<double>(stage.nodes.first),
                              static_cast<double>(stage.nodes.last), stage.update_seconds,
                              static_cast<double>(stage.trained_elems), costs.loss};
  for (const NodeCost& cost : costs.nodes)
    for (const double number : {cost.forward, cost.backward, cost.add, cost.add_gradient})
      numbers.push_back(number);
  for (const CodecCost& cost : costs.codec_costs)
    for (const double number : {cost.encode, cost.decode}) numbers.push_back(number);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<double> gathered(numbers.size() * ranks);
  const std::size_t bytes = numbers.size() * sizeof(double);
  if (const Error why =
          all_gather(group, {reinterpret_cast<const std::byte*>(numbers.data()), Shape(bytes)},
                     {reinterpret_cast<std::byte*>(gathered.data()), Shape(bytes * ranks)}))
    return why;
  const double* at = gathered.data();
  for (std::size_t r = 0; r < ranks; ++r) {
    StageCosts other;
    other.nodes.first = static_cast<int>(*at++);
    other.nodes.last = static_cast<int>(*at++);
    other.update_seconds = *at++;
    other.trained_elems = static_cast<std::size_t>(*at++);
    other.nodes.costs = empty;
    other.nodes.costs.loss = *at++;
    for (NodeCost& cost : other.nodes.costs.nodes)
      for (double* number : {&cost.forward, &cost.backward, &cost.add, &cost.add_gradient})
        *number = *at++;
    for (CodecCost& cost : other.nodes.costs.codec_costs)
      for (double* number : {&cost.encode, &cost.decode}) *number = *at++;
    all.push_back(std::move(other));
  }
  return {};
}

/// Copies each rank's own entry of `machines` to all ranks.
inline Error gather_machines(GroupRef group, Array<StageMachine>& machines) {
  const StageMachine machine = machines[static_cast<std::size_t>(group.rank())];
  return all_gather(
      group, {reinterpret_cast<const std::byte*>(&machine), Shape(sizeof machine)},
      {reinterpret_cast<std::byte*>(machines.data()), Shape(machines.size() * sizeof machine)});
}

/// Sets the profile, the machines' speeds and the time of updates from all ranks' measurements.
inline void take_costs(const Graph& graph, const Array<StageCosts>& all, PipelineRequest& request,
                       PlannedPipeline& planned) {
  Array<MeasuredNodes> nodes;
  for (const StageCosts& costs : all) nodes.push_back(costs.nodes);
  CombinedCosts combined = combine_costs(graph, nodes, planned.profile);
  planned.profile = std::move(combined.profile);
  double seconds = 0, elems = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    planned.measured[r] = all[r].nodes.last - all[r].nodes.first + 1;
    if (planned.measured[r] > 0) request.stages[r].speed = combined.speeds[r];
    if (all[r].update_seconds <= 0) continue;
    seconds += all[r].update_seconds * combined.speeds[r];
    elems += static_cast<double>(all[r].trained_elems);
  }
  if (elems > 0) request.seconds_per_trained = seconds / elems;
}

/// Adds the facts that all ranks must agree on before anything is measured.
inline void agree_on_pipeline(Agreement& agreement, const Graph& graph,
                              const PipelineRequest& request, const RandomKey& key, bool measures) {
  agreement.add("structure of the graph", graph.fingerprint.structure);
  agreement.add("bytes of the activations", graph.fingerprint.bytes);
  agreement.add("number of parameters", graph.parameter_elems);
  agreement.add("seed", key.seed);
  agreement.add("number of micro-batches", static_cast<std::uint64_t>(request.micro_batches));
  agreement.add("tolerance", shortest(request.tolerance));
  agreement.add("measuring of costs", measures ? "on" : "off");
}

}  // namespace detail

/// Plans a pipeline with a stage for each rank of `group`, from `graph`, of a micro-batch. All ranks call
/// plan_pipeline(), with the same arguments but for contexts, clocks and request.stages. Each rank fills in its
/// own entry of request.stages alone. If the entry has no link, the link is measured. Speeds are
/// measured, except of a rank without room for measuring. Bytes of parameters, gradients and
/// moments follow from graph and optimizer. Gradient errors of codecs are estimated. A rank without room
/// to measure its stage measures half of the stage, or less. Nodes measured by no rank are estimated, with
/// estimates scaled to the measured nodes. Other ranks wait while rank 0 plans: let the group's limit leave
/// time for planning.
template <class T, class Context, class Optimizer>
Result<PlannedPipeline> plan_pipeline(GroupRef group, const Dispatch<T, Context>& dispatch,
                                      const Graph& graph, PipelineRequest request,
                                      const Context& context, const Optimizer& optimizer,
                                      const StageMeasuring& how = {}) {
  const auto ranks = static_cast<std::size_t>(group.size()),
             me = static_cast<std::size_t>(group.rank());
  Error why;
  if (request.stages.size() != ranks)
    why = Error::misuse("a pipeline of ", request.stages.size(),
                        " stages was asked for, and there are ", ranks, " ranks: each runs one");
  else if (!graph.has_loss) why = Error::misuse("a pipeline is of a network with a loss");
  else why = count_state(request, graph, optimizer);
  if ((why = share_error(group, why))) return why;
  Agreement agreement;
  detail::agree_on_pipeline(agreement, graph, request, context.key, static_cast<bool>(how.clock));
  detail::agree_on(agreement, optimizer, std::string(optimizer.name));
  if ((why = agreement.examine(group))) return why;
  if ((why = detail::gather_machines(group, request.stages))) return why;

  PlannedPipeline planned;
  planned.profile = estimated_profile(graph);
  planned.measured.resize(ranks);
  const auto plan = [&] {
    return share_plan(group, graph, request.micro_batches,
                      group.rank() == 0 ? plan_pipeline(graph, planned.profile, request)
                                        : Result<PipelineOutcome>(PipelineOutcome()));
  };
  Result<PipelineOutcome> found = plan();
  if (!found) return found.error;
  if (how.clock) {
    const double start = how.clock();
    const StageOutcome& stage = found->stages[me];
    StageMachine& machine = request.stages[me];
    const Result<StageCosts> costs = measure_stage(
        context, dispatch, graph, stage.first, stage.last, machine.memory_bytes, optimizer, how);
    if ((why = share_error(group, costs.error))) return why;
    Array<StageCosts> all;
    if ((why = detail::gather_costs(group, graph, *costs, all))) return why;
    Array<std::size_t> messages(ranks);
    for (std::size_t r = 0; r + 1 < ranks; ++r)
      if (request.stages[r].link_rate == 0)
        messages[r] = graph.node(found->stages[r].last).output.elems() * sizeof(T);
    why = measure_links(group, messages, how.clock, machine);
    if ((why = share_error(group, why))) return why;
    if ((why = detail::gather_machines(group, request.stages))) return why;
    detail::take_costs(graph, all, request, planned);
    planned.seconds = how.clock() - start;
    found = plan();
    if (!found) return found.error;
  }
  planned.plan = std::move(*found);
  planned.machines = request.stages;
  return planned;
}

}}  // namespace adacc::v0_1
