// SPDX-License-Identifier: MIT
/// How many rows a device's head computes at a time: chosen for a budget, before a training is made.
///
///     net.loss.device_tile_rows = *choose_tile_rows<float>(net, shape, options);
///     auto training = Training<float, Cuda>::make(net, shape, options);
///
/// Each tile reads and writes the whole gradient of the head's weight, and the logits of a tile are memory of the step.
/// So a large tile is faster, unless the plan has to give up more for the memory. The choice follows from network, shape,
/// budget and estimated costs alone: it is the same on every machine. Another number of rows changes last digits of the
/// weight's gradient, so the number stays as it is while a training goes on, whatever becomes of the budget, and a
/// checkpoint's plan names it (io/plan_text.hpp).
#pragma once

#include <cstddef>
#include <utility>

#include "../cost/estimate.hpp"
#include "../plan/make_plan.hpp"
#include "make.hpp"
#include "total.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Seconds in which the tiles of the loss read and write gradients of matrices; the first one only writes.
inline double tile_seconds(const Graph& graph, double bytes_per_second) {
  if (graph.loss.tile_rows == 0) return 0;
  const std::size_t rows = graph.output().rows();
  const auto passes = static_cast<double>(2 * div_up(rows, graph.loss.tile_rows) - 1);
  double elems = 0;
  for (std::size_t p = 0; p < graph.loss.parameters.count; ++p) {
    const Parameter& parameter = graph.parameters[graph.loss.parameters.first + p];
    if (parameter.shape.rank() >= 2 && !parameter.frozen)
      elems += static_cast<double>(parameter.shape.elems());
  }
  return passes * elems * static_cast<double>(bytes_of(wide(graph.scalar))) / bytes_per_second;
}

}  // namespace detail

/// Rows of a tile for CrossEntropyHead::device_tile_rows of `network`, which is trained in T on inputs of shape `input`.
/// @param options  of the training: its budgets, tolerance and planner count. Without a budget, a tile is half of all rows,
///                 but 2048 to 8192 of them. Activations in a store do not count.
/// @param rates    of the device
/// Where no tile fits the budget, the smallest one: Training::make() then says what would fit. Errors are those of
/// make_graph().
template <class T, class Context, class Network, class Optimizer>
Result<std::size_t> choose_tile_rows(Network network, Shape input,
                                     const TrainingOptions<Context, Optimizer>& options,
                                     const EstimateRates& rates = device_rates) {
  using Twin = kernel<decltype(network.loss), Context>;
  const bool bounded = options.budget_bytes != 0 || options.total_bytes != 0;
  const Planner planner = options.planning.planner ? options.planning.planner : make_plan;
  std::size_t best = Twin::least_tile_rows;
  double fastest = 0;
  for (std::size_t rows = Twin::most_tile_rows; rows >= Twin::least_tile_rows; rows /= 2) {
    network.loss.device_tile_rows = rows;
    Result<Graph> graph =
        make_graph<Context>(network, input, detail::graph_options(options, dtype_of<T>));
    if (!graph) return graph.error;
    if (const Error why = detail::set_forms<T, Context>(*graph, options.graph)) return why;
    if (!bounded) {  // larger tiles would take memory for nothing
      const std::size_t half = div_up(graph->output().rows(), 2);
      while (rows > Twin::most_rows_by_rule && rows / 2 >= half) rows /= 2;
      return rows;
    }
    if (rows > Twin::least_tile_rows && rows / 2 >= graph->loss.tile_rows) continue;  // one tile
    // Where no larger tile fits, there is nothing to compare.
    if (rows == Twin::least_tile_rows && fastest == 0) return rows;
    PlanRequest request = detail::request_of(options, *graph);
    request.clock = {};  // a deadline would choose by chance
    if (options.total_bytes != 0) {
      const auto held = memory_beside_arena(*graph, options.optimizer, options.moment_store);
      if (!held) return held.error;
      if (options.total_bytes <= held->total()) continue;
      const std::size_t left = options.total_bytes - held->total();
      if (options.budget_bytes == 0 || left < request.budget_bytes) request.budget_bytes = left;
    }
    const CostProfile profile = estimated_profile(*graph, rates);
    const auto found = planner(*graph, profile, request);
    if (!found) continue;
    const double seconds = found->seconds + detail::tile_seconds(*graph, rates.bytes_per_second);
    if (fastest == 0 || seconds < fastest) best = rows, fastest = seconds;
    if (found->peak_bytes >= found->retain_peak_bytes) break;  // smaller tiles have nothing to give
  }
  return best;
}

}}  // namespace adacc::v0_1
