// SPDX-License-Identifier: MIT
/// How the ranks of a DataParallel agree on network and options, on one plan, and take memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../core/extremes.hpp"
#include "../../io/evolution_text.hpp"
#include "../../io/plan_text.hpp"
#include "../asked.hpp"
#include "data_parallel.hpp"
#include "slowest_costs.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::examine(const State& state, const Graph& graph,
                                                   const Options& options, bool has_device_group) {
  const auto ranks = static_cast<std::size_t>(state.group.size());
  if (has_device_group && !State::on_device)
    return Error::say("a device_group is for a context of a device, and this one is the host's");
  if (State::on_device && ranks > 1 && !has_device_group)
    return Error::say(
        "gradients are in the memory of a device: lend a group of the same ranks that reaches it "
        "(DataParallelOptions::device_group)");
  if (state.memory_group.size() != state.group.size() ||
      state.memory_group.rank() != state.group.rank())
    return Error::say("the device_group has rank ", state.memory_group.rank(), " of ",
                      state.memory_group.size(), ", and the group has rank ", state.group.rank(),
                      " of ", ranks);
  if (State::on_device && state.sharded)
    return Error::say(
        "moments and gradients are sharded in the host's memory alone: on a device, each rank "
        "keeps "
        "them all");
  if (graph.nodes.empty()) return graph_mistake(graph);
  if (!graph.has_loss) return Error::say("data parallel training needs a network with a loss");
  if (const Error why = detail::check_clip(options.clip.norm)) return why;
  if (options.graph.updates != Updates::separate)
    return Error::say(
        "gradients of several ranks are summed before the update: let updates be separate "
        "(Updates::separate)");
  if (options.planning.store)
    return Error::say("data parallel training keeps activations in the arena: lend it no store");
  if (options.graph.parameters != ParameterForm::full ||
      graph.parameter_form != ParameterForm::full || graph.stored_bytes != 0)
    return Error::say(
        "data parallel training sums and gathers parameters in full: let them be held so, none of "
        "them in a file, or train on one rank with Training");
  if (options.moment_store.store)
    return Error::say(
        "data parallel training keeps the optimizer's state in memory: lend it no moment_store "
        "(sharded_state divides that among the ranks)");
  if (state.shards < 1 || state.micro_batches < 1 ||
      static_cast<std::int64_t>(state.shards) * state.micro_batches > 65536)
    return Error::say("an update of ", state.shards, " shards of ", state.micro_batches,
                      " micro-batches is none: it has 1 to 65536 of them in all");
  if (state.by_turns && state.micro_batches != 1)
    return Error::say("gradients are sharded shard by shard: let each be one micro-batch, and ",
                      "the update have ", state.shards * state.micro_batches,
                      " of them instead of ", state.shards, " of ", state.micro_batches);
  const auto shards = static_cast<std::size_t>(state.shards);
  const auto possible = [&](std::size_t r) {
    return state.by_turns ? pairwise_rounds(shards, r) : pairwise_divides(shards, r);
  };
  if (possible(ranks)) return {};
  Error why = Error::say(
      shards, " shards cannot be dealt to ", ranks,
      state.by_turns ? " ranks whose gradients are sharded: these are a power of 2, or as many; "
                       "possible are"
                     : " ranks: each takes equally many, 1, 2, 4 or another power of 2; "
                       "possible are");
  for (std::size_t r = 1; r <= shards; ++r)
    if (possible(r)) {
      why.append(r == 1 ? " " : ", ");
      why.append(r);
    }
  why.append(" ranks");
  return why;
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::agree(const State& state, const Graph& graph,
                                                 const Options& options) {
  Agreement agreement;
  agreement.add("model", options.model);
  agreement.add("type of numbers", std::string(name_of(graph.scalar)));
  detail::agree_on_level<Context>(agreement, graph.scalar);
  agreement.add("number of parameters", graph.parameter_elems);
  agreement.add("layout of the parameters", detail::layout_of(graph));
  agreement.add("number of trained parameters", graph.gradient_elems);
  agreement.add("bytes of the activations", graph.fingerprint.bytes);
  agreement.add("structure of the graph", graph.fingerprint.structure);
  agreement.add("seed", options.context.key.seed);
  agreement.add("shards of an update", static_cast<std::uint64_t>(state.shards));
  agreement.add("micro-batches of a shard", static_cast<std::uint64_t>(state.micro_batches));
  agreement.add("sharding of moments", state.sharded ? "on" : "off");
  agreement.add("sharding of gradients", state.by_turns ? "on" : "off");
  const auto table = UpdateTable::make(options.optimizer, graph.parameters, wide(graph.scalar));
  detail::agree_on(agreement, options.optimizer,
                   table ? table->text() : std::string(table.error.text()));
  agreement.add("norm that gradients are clipped to", detail::shortest(options.clip.norm));
  agreement.add("whose norm that is",
                options.clip.by == ClipBy::previous ? "the step before's" : "the step's own");
  agreement.add("tolerance", detail::shortest(options.tolerance));
  agreement.add("watching of codecs and errors (PlanningOptions::evolving)",
                options.planning.evolving ? "on" : "off");
  agreement.add("watching of times", options.planning.watch_times ? "on" : "off");
  agreement.add("clock", options.clock ? "lent" : "not lent");
  agreement.add("profile at the start", options.planning.profile_at_start ? "on" : "off");
  const EvolutionOptions& when = options.planning.evolution;
  for (const std::uint64_t updates : {when.check_every, when.first_probe, when.probe_every})
    agreement.add("updates between looks at a plan that evolves", updates);
  return agreement.examine(state.group);
}

template <class T, class Context, class Optimizer>
Result<std::size_t> DataParallel<T, Context, Optimizer>::arena_room(
    const Graph& graph, const Options& options, const DataParallelOptions& parallel) const {
  const State& state = *state_;
  const PlanRequest request = detail::request_of(options, graph);
  if (options.total_bytes == 0) return request.budget_bytes;
  const auto table = UpdateTable::make(options.optimizer, graph.parameters, wide(graph.scalar),
                                       state.is_mine.data());
  if (!table) return table.error;
  const std::size_t scalar = bytes_of(wide(graph.scalar));
  TrainingMemoryUse held{graph.parameter_elems * scalar, graph.gradient_elems * scalar,
                         table->bytes(), 0};
  held.sums = rank_sums_bytes(state.group.size(), parallel.sums);
  if (state.by_turns) {
    held.gradients = state.owned.gradient_bytes();
    held.sums += state.owned.sums_bytes();
  } else {
    const int levels = pairwise_levels(static_cast<std::size_t>(state.mine()));
    held.sums += static_cast<std::size_t>(levels) * held.gradients;
  }
  const auto left =
      arena_budget(options.total_bytes, held, graph, profile_of(options, graph), request);
  if (!left) return left.error;
  const bool less = options.budget_bytes == 0 || *left < request.budget_bytes;
  return less ? *left : request.budget_bytes;
}

template <class T, class Context, class Optimizer>
Result<typename DataParallel<T, Context, Optimizer>::Common>
DataParallel<T, Context, Optimizer>::common_plan(const Graph& graph,
                                                 const Dispatch<T, Context>& dispatch,
                                                 const Options& options,
                                                 const DataParallelOptions& parallel,
                                                 std::size_t room) const {
  const GroupRef group = state_->group;
  const bool plans = group.rank() == 0;
  Common common;
  std::string plan;
  if (plans && parallel.plan != nullptr) plan = plan_text(graph, *parallel.plan);
  if (const Error why = broadcast(group, plan)) return why;
  const auto read_plan = [&]() -> Result<Plan> {
    return parse_plan(plan, graph, codecs_of_table(dispatch), graph.fingerprint);
  };
  if (!plan.empty()) {
    Result<Plan> given = read_plan();
    if (!given) return given.error;
    common.plan = std::move(*given);
    return static_cast<Common&&>(common);  // nvcc would copy it
  }
  std::vector<std::uint64_t> all;
  if (const Error why = all_gather(group, std::uint64_t{room}, all)) return why;
  PlanRequest request = detail::request_of(options, graph);
  request.budget_bytes = room;
  for (const std::uint64_t other : all)
    if (other < request.budget_bytes) request.budget_bytes = static_cast<std::size_t>(other);
  const std::uint64_t brought = options.planning.profile.nodes.empty() ? 0 : 1;
  if (const Error why = all_gather(group, brought, all)) return why;
  bool known = true;
  for (const std::uint64_t one : all) known = known && one != 0;
  Result<CostProfile> costs =
      slowest_costs(group, graph, profile_of(options, graph), options.model);
  if (!costs) return costs.error;

  const PlanningOptions& planning = options.planning;
  const Planner planner = planning.planner ? planning.planner : make_plan;
  const auto nothing_beside = [](const auto&) {};
  Result<Evolution> evolution{Evolution()};
  std::string evolved;
  if (plans) {
    evolution = Evolution::start(graph, std::move(*costs), request, planner, planning.evolution);
    if (evolution) {
      plan = plan_text(graph, evolution->plan());
      evolved = evolution_text(*evolution, nothing_beside);
    }
  }
  if (const Error why = share_error(group, evolution.error)) return why;
  if (const Error why = broadcast(group, plan)) return why;
  if (const Error why = broadcast(group, evolved)) return why;
  if (!plans) {
    Result<Plan> theirs = read_plan();
    if (!theirs) return theirs.error;
    evolution = parse_evolution(evolved, graph, std::move(*theirs), request, planner,
                                planning.evolution, nothing_beside);
    if (!evolution) return evolution.error;
  }
  common.plan = evolution->plan();
  common.keeper = std::make_unique<detail::RankedPlan<T, Context, Optimizer>>(
      group, std::move(*evolution), options, known, room);
  return static_cast<Common&&>(common);  // nvcc would copy it
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::take(Dispatch<T, Context> dispatch, Graph graph,
                                                Common common, const Options& options,
                                                const DataParallelOptions& parallel,
                                                std::size_t room) {
  State& state = *state_;
  std::size_t first_arena = 0;
  if (common.keeper != nullptr && common.keeper->to_be_measured()) {
    first_arena = measuring_bytes(graph);
    detail::lower(first_arena, room);
  }
  Result<Program> program = make_program(std::move(graph), std::move(common.plan));
  if (!program) return program.error;
  if (common.keeper != nullptr && program->peak_bytes() > room)
    return Error::say("the plan of all ranks takes ", shown(program->peak_bytes()),
                      " here, where there are ", shown(room));
  auto training =
      Share::make(std::move(dispatch), std::move(*program), options.context, options.optimizer,
                  options.arena_bytes, first_arena, {}, {}, state.is_mine.data());
  if (!training) return training.error;
  state.training = Share(std::move(*training));
  state.plan = common.keeper.get();
  state.training.keeper_ = std::move(common.keeper);
  state.training.clip = options.clip;
  state.training.model = options.model;
  if (state.by_turns) {
    if (const Error why = state.owned.allocate()) return why;
    const UpdateTable& table = state.training.table();
    Array<Wide<T>*> places;
    for (std::size_t o = 0; o < table.owners(); ++o)
      places.push_back(state.owned.gradient(table.owner(o)));
    state.training.updater_.lend_gradients(std::move(places));
  }
  if (const Error why = state.training.compiled_step().lend_updates(state)) return why;
  const std::size_t elems = state.graph().gradient_elems, count = state.owners.size();
  const int levels = pairwise_levels(static_cast<std::size_t>(state.mine()));
  state.kept.resize(state.by_turns ? 0 : static_cast<std::size_t>(levels));
  for (typename State::Kept& block : state.kept) {
    auto sums = State::Kept::make(elems, "sums of shards");
    if (!sums) return sums.error;
    block = std::move(*sums);
  }
  state.losses.resize(state.batches());
  state.calls.resize(static_cast<std::size_t>(state.group.size()));
  state.head = 2 + detail::count_of_asked(options.optimizer);
  state.mine_to_all.resize(state.head + count + state.losses.size() +
                           5);  // declined counts, targets
  state.all.resize(state.mine_to_all.size() * static_cast<std::size_t>(state.group.size()));
  auto sums = RankSums<Wide<T>, Context>::make(state.memory_group, count, parallel.sums,
                                               RankSumsMemory<Context>(state.training.context_));
  if (!sums) return sums.error;
  state.sums = std::move(*sums);
  // Messages before an update take tickets, too.
  return state.group.prepare(2 * state.group.size());
}

}}  // namespace adacc::v0_1
