// SPDX-License-Identifier: MIT
/// Training::make() of a network and a shape: graph, costs, plan and program in one call.
#pragma once

#include <utility>

#include "../core/extremes.hpp"
#include "../core/no_memory.hpp"
#include "../core/thread_stack.hpp"
#include "../cost/estimate.hpp"
#include "../cost/measure_drag.hpp"
#include "../plan/make_plan.hpp"
#include "evolving.hpp"
#include "total.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Measures the link to `store` at the sizes of the activations of `graph`, from memory of the context.
/// `taken`: set to the bytes of this memory.
template <class Context>
Result<LinkCost> measured_link(Context context, StoreRef store, const Graph& graph, ClockRef clock,
                               std::size_t& taken) {
  if (!clock)
    return Error::misuse(
        "a store is lent, and nothing says how fast it is: set PlanningOptions::link, or lend a "
        "clock to measure it with");
  const LinkMeasurement how{.clock = clock};
  using Block = typename TrainingMemory<Context>::template Block<std::byte>;
  auto memory = Block::make(link_memory_bytes(store, graph, how), "measuring the store", huge_page);
  if (!memory) return memory.error;
  taken = memory->size();
  // A device's kernels are not slowed down by transfers that the host can time.
  if constexpr (!context_traits<Context>::own_memory)
    return measure_link(context, store, memory->view(), graph, how);
  else return measure_link(store, memory->view(), graph, how);
}

/// Sets how updates of `graph` are made, and the form of its parameters.
template <class T, class Context>
Error set_forms(Graph& graph, const GraphOptions& how) {
  if (how.updates != Updates::separate) set_updates(graph, how.updates);
  if (const ParameterForm form = held_form<T, Context>(how.parameters);
      form != ParameterForm::full) {
    if (graph.stored_bytes != 0)
      return Error::say("beside parameters in a file the others are held in full, and not in ",
                        name_of(form), ": leave GraphOptions::parameters as it is");
    set_parameters(graph, form);
  }
  return {};
}

/// The request to a planner, without a store.
template <class Options>
PlanRequest request_of(const Options& options, const Graph& graph) {
  PlanRequest request;
  request.budget_bytes = options.budget_bytes;
  if (request.budget_bytes == 0)
    request.budget_bytes = adacc::peak_bytes(graph, plan_from_types(graph));
  request.tolerance = options.tolerance;
  request.gap = options.planning.gap;
  request.most_runs = options.planning.most_runs;
  request.clock = options.clock;
  request.deadline_seconds = options.planning.deadline_seconds;
  request.prices = options.planning.planner.prices();
  return request;
}

}  // namespace detail

template <class T, class Context, class Optimizer>
template <class Network>
Result<Training<T, Context, Optimizer>> Training<T, Context, Optimizer>::make(
    const Network& network, Shape input, Options options) {
  Result<Graph> graph =
      make_graph<Context>(network, input, detail::graph_options(options, dtype_of<T>));
  if (!graph) return graph.error;
  return detail::or_no_memory("to set up the training", [&] {
    return make(make_dispatch<T, Context>(network), std::move(*graph), std::move(options));
  });
}

template <class T, class Context, class Optimizer>
Result<Training<T, Context, Optimizer>> Training<T, Context, Optimizer>::make(
    Dispatch<T, Context> dispatch, Graph graph, Options options) {
  return detail::or_no_memory("to set up the training", [&] {
    return set_up(std::move(dispatch), std::move(graph), std::move(options));
  });
}

template <class T, class Context, class Optimizer>
Result<Training<T, Context, Optimizer>> Training<T, Context, Optimizer>::set_up(
    Dispatch<T, Context> dispatch,
    Graph graph,  // moved on; NOLINT(performance-unnecessary-value-param)
    Options options) {
  if (const Error why = detail::check_stack<Context>()) return why;
  if (const Error why = detail::check_clip(options.clip.norm)) return why;
  if (graph.nodes.empty()) return graph_mistake(graph);
  const PlanningOptions& planning = options.planning;
  if (const Error why = detail::set_forms<T, Context>(graph, options.graph)) return why;
  if (graph.fuses_updates() && options.clip.before_all()) return detail::clip_before_all();
  if (options.seed != 0) options.context.key.seed = options.seed;
  std::size_t set_up_bytes = 0;
  PlanRequest request = detail::request_of(options, graph);
  if (const Error why = examine(request)) return why;
  if (planning.profile_at_start && !options.clock)
    return Error::misuse("profile_at_start has a profile measured, and takes a clock");
  if (!planning.store && (planning.link.exists() || planning.most_written_bytes != 0))
    return Error::misuse(
        "planning.link and most_written_bytes are of a store, and none is lent: set "
        "planning.store");
  if (!options.moment_store.store && options.moment_store.window.bytes != 0)
    return Error::misuse(
        "moment_store.window is for moments in a store, and none is lent: set moment_store.store");
  if (planning.store) {
    request.link = planning.link;
    if (!request.link.exists()) {
      const Result<LinkCost> link = detail::measured_link<Context>(
          options.context, planning.store, graph, options.clock, set_up_bytes);
      if (!link) return link.error;
      request.link = *link;
    }
    const std::size_t room = planning.store.bytes(), most = planning.most_written_bytes;
    request.most_written_bytes = most != 0 && most < room ? most : room;
  }
  CostProfile profile =
      planning.profile.nodes.empty() ? estimated_profile(graph) : planning.profile;
  const Deadline deadline(request.clock, request.deadline_seconds);
  if (options.total_bytes != 0) {
    auto held = memory_beside_arena(graph, options.optimizer, options.moment_store);
    if (!held) return held.error;
    if (planning.evolving)
      held->watched =
          detail::WatchedBlobs<T, Context>::bytes(graph, plan_from_types(graph), dispatch);
    const auto left = arena_budget(options.total_bytes, *held, graph, profile, request);
    if (!left) return left.error;
    if (*left < options.arena_bytes)
      return Error::say("a total of ", shown(options.total_bytes), " leaves ", shown(*left),
                        " for the arena, of which those who borrow it need ",
                        shown(options.arena_bytes));
    if (options.budget_bytes == 0 || *left < request.budget_bytes) request.budget_bytes = *left;
  }
  const Planner planner = planning.planner ? planning.planner : make_plan;
  if (request.clock) request.deadline_seconds = deadline.left();
  // Before anything is measured, so an impossible budget is an error at once.
  Result<Evolution> evolution =
      Evolution::start(std::move(graph), std::move(profile), request, planner, planning.evolution);
  if (!evolution) return evolution.error;
  evolution->set_deadline(planning.deadline_seconds);
  Result<Program> program = make_program(evolution->graph(), evolution->plan());
  if (!program) return program.error;
  auto keeper =
      std::make_unique<detail::EvolvingPlan<T, Context, Optimizer>>(std::move(*evolution), options);
  std::size_t first_arena = 0;
  if (keeper->to_be_measured()) {
    first_arena = measuring_bytes(keeper->evolution().graph());
    if (first_arena > request.budget_bytes) first_arena = request.budget_bytes;
  }
  Result<Training> training =
      make(std::move(dispatch), std::move(*program), options.context, options.optimizer,
           options.arena_bytes, first_arena, planning.store, options.moment_store);
  if (!training) return training;
  training->keeper_ = std::move(keeper);
  if (planning.evolving)
    if (const Error why = training->take_watched()) return why;
  training->set_up_bytes_ = set_up_bytes;
  training->clip = options.clip;
  training->model = options.model;
  return training;
}

}}  // namespace adacc::v0_1
