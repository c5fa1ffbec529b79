// SPDX-License-Identifier: MIT
/// How the ranks of a DataParallel agree on what they train, on one plan and on memory for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../cost/evaluate.hpp"
#include "../io/plan_text.hpp"
#include "../io/profile_text.hpp"
#include "asked.hpp"
#include "data_parallel.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::check(const State& state, const Graph& graph,
                                                 const Options& options) {
  const auto ranks = static_cast<std::size_t>(state.group.size());
  if (graph.nodes.empty()) return Error::say("the graph has no layers");
  if (!graph.has_loss) return Error::say("data parallel training needs a network with a loss");
  if (!(options.clip >= 0))
    return Error::say(
        "the norm that gradients are clipped to must be 0 (off) or more, and not NaN");
  if (options.updates != Updates::separate)
    return Error::say(
        "gradients of several ranks are summed before the update: let updates be separate "
        "(Updates::separate)");
  if (options.store)
    return Error::say("data parallel training keeps activations in the arena: lend it no store");
  if (options.parameters != ParameterForm::full || graph.parameter_form != ParameterForm::full)
    return Error::say(
        "data parallel training sums and gathers parameters in full: let them be held so, or "
        "train on one rank with Training");
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
  agreement.add("norm that gradients are clipped to", std::to_string(options.clip));
  agreement.add("whose norm that is",
                options.clip_by == ClipBy::previous ? "the step before's" : "the step's own");
  agreement.add("tolerance", std::to_string(options.tolerance));
  return agreement.check(state.group);
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
Result<Plan> DataParallel<T, Context, Optimizer>::common_plan(const Graph& graph,
                                                              const Dispatch<T, Context>& dispatch,
                                                              const Options& options,
                                                              const DataParallelOptions& parallel,
                                                              std::size_t room) const {
  const GroupRef group = state_->group;
  std::vector<std::uint64_t> all;
  if (const Error why = all_gather(group, std::uint64_t{room}, all)) return why;
  std::size_t budget = room;
  for (const std::uint64_t other : all)
    if (other < budget) budget = static_cast<std::size_t>(other);
  const ProfileSource source{"a rank", options.model, 0};
  const CostProfile mine = profile_of(options, graph);
  const double seconds = evaluate(graph, mine, retain_all(graph)).seconds;
  std::vector<std::uint64_t> times;
  // Nanoseconds are compared alike everywhere.
  if (const Error why = all_gather(group, static_cast<std::uint64_t>(seconds * 1e9), times))
    return why;
  std::size_t slowest = 0;
  for (std::size_t r = 1; r < times.size(); ++r)
    if (times[r] > times[slowest]) slowest = r;
  std::string costs;
  if (group.rank() == static_cast<int>(slowest)) costs = profile_text(graph, mine, source);
  if (const Error why = broadcast(group, costs, static_cast<int>(slowest))) return why;
  Error failed;
  std::string text;
  if (group.rank() == 0) {
    PlanRequest request = detail::request_of(options, graph);
    request.budget_bytes = budget;
    Result<CostProfile> profile = parse_profile(costs, graph, source);
    if (!profile) failed = Error::say("the costs of rank ", slowest, ": ", profile.error.text());
    else if (parallel.plan != nullptr) text = plan_text(graph, *parallel.plan);
    else {
      const Planner planner = options.planner == nullptr ? make_plan : options.planner;
      const Result<PlanOutcome> outcome = planner(graph, *profile, request);
      if (outcome) text = plan_text(graph, outcome->plan);
      failed = outcome.error;
    }
  }
  if (const Error why = share_error(group, failed)) return why;
  if (const Error why = broadcast(group, text)) return why;
  return parse_plan(text, graph, codecs_of_table(dispatch), graph.fingerprint);
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::take(Dispatch<T, Context> dispatch, Graph graph,
                                                Plan plan, const Options& options,
                                                const DataParallelOptions& parallel) {
  State& state = *state_;
  Result<Program> program = make_program(std::move(graph), std::move(plan));
  if (!program) return program.error;
  auto training =
      Training::make(std::move(dispatch), std::move(*program), options.context, options.optimizer,
                     options.arena_bytes, 0, {}, {}, state.is_mine.data());
  if (!training) return training.error;
  state.training = std::move(*training);
  state.training.clip = options.clip;
  state.training.clip_by = options.clip_by;
  state.training.model = options.model;
  if (state.by_turns) {
    if (const Error why = state.owned.allocate()) return why;
    const UpdateTable& table = state.training.table();
    for (std::size_t o = 0; o < table.owners(); ++o)
      state.training.given_to_.push_back(state.owned.gradient(table.owner(o)));
    state.training.given_out_ = true;
  }
  if (const Error why = state.training.compiled().lend_updates(state)) return why;
  const std::size_t elems = state.graph().gradient_elems, count = state.owners.size();
  const int levels = pairwise_levels(static_cast<std::size_t>(state.mine()));
  state.kept.resize(state.by_turns ? 0 : static_cast<std::size_t>(levels));
  for (Block<T>& block : state.kept) {
    auto made = Block<T>::make(elems, "sums of shards");
    if (!made) return made.error;
    block = std::move(*made);
  }
  state.losses.resize(state.batches());
  state.head = 1 + detail::count_of_asked(options.optimizer);
  state.mine_to_all.resize(state.head + count + state.losses.size());
  state.all.resize(state.mine_to_all.size() * static_cast<std::size_t>(state.group.size()));
  auto sums = RankSums<T>::make(state.group, count, parallel.sums);
  if (!sums) return sums.error;
  state.sums = std::move(*sums);
  // What ranks tell each other takes tickets, too.
  return state.group.prepare(2 * state.group.size());
}

}}  // namespace adacc::v0_1
