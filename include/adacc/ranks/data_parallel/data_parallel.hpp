// SPDX-License-Identifier: MIT
/// Training on several ranks at once: each takes some shards of every batch, and all make the same
/// update.
///
///     auto parallel = DataParallel<>::make(group, net, Shape(8, 64), {.budget_bytes = 20 * MiB},
///                                          {.shards = 4});
///     for (;;) {
///       for (int s = 0; s < parallel->shard_count(); ++s)
///         parallel->accumulate(x(parallel->first_shard() + s), y(parallel->first_shard() + s));
///       parallel->update(1e-3);
///     }
///
/// An update's batch is cut into shards. A shard's gradient does not depend on the rank: random numbers
/// follow from the shard's number. Gradients are added in pairs of shards, pairs of
/// pairs and so on (pairwise_sum.hpp), losses and norms in one order, too. So every possible number of ranks
/// gives the same bits, one rank included, and a run may go on from a checkpoint on another number of
/// ranks.
///
/// All ranks run one plan. Rank 0 makes the plan from the costs of the slowest rank, and the plan evolves as
/// in a Training (ranked_plan.hpp). A layer's gradients begin to be summed as soon as the last shard's
/// backward has completed them, while backward goes on.
///
/// Moments may be sharded (ZeRO, stage 1; Rajbhandari et al., SC20): every parameter has one rank, the
/// owner. The owner receives the summed gradient, keeps the moments, updates the parameter and sends it to
/// all, with no more traffic and the same bits. Gradients may be sharded, too (stage 2,
/// owned_gradients.hpp): a rank then holds the gradients of its own parameters, and of one layer; ranks take
/// shards by turns, and send each shard's gradients.
///
/// An event on one rank alone (an error, another budget or seed) is an error value
/// on all ranks: at once if found while ranks meet, within the group's limit otherwise.
///
/// Definitions are in set_up.hpp, state.hpp and save.hpp, included below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "../../cost/estimate.hpp"
#include "../../train/make.hpp"
#include "../collectives.hpp"
#include "../first_call.hpp"
#include "owned_gradients.hpp"
#include "rank_sums.hpp"
#include "ranked_plan.hpp"

namespace adacc { inline namespace v0_1 {

struct DataParallelOptions {
  /// Shards of an update, on all ranks together; 0: one for each rank. Each rank has a power of 2 of them,
  /// unless there is one rank. A rank with n shards keeps, beside gradients, one block of sums for each binary
  /// digit of n behind the first (pairwise_levels()).
  int shards = 0;
  int micro_batches = 1;       ///< in a shard: their gradients are added in place, in their order
  bool sharded_state = false;  ///< whether each rank keeps the moments of its own parameters alone
  /// Whether each rank keeps the gradients of its own parameters alone (implies sharded_state). Gradients of a
  /// step are then in the arena, a shard is one micro-batch, and ranks are as many as shards, or a power of 2.
  bool sharded_gradients = false;
  RankSumsOptions sums{};  ///< limits of messages under way at once
  /// For a context on a device: a group of the same ranks that reaches the memory of their devices (NcclGroup), whose
  /// messages begin behind the context's stream. Gradients and parameters go through it, all else through `group`.
  GroupRef device_group{};
  /// Trains under this plan rather than one that is made and evolves. Rank 0's counts for all ranks. Null:
  /// none.
  const Plan* plan = nullptr;
};

template <class T = float, class Context = Cpu, class Optimizer = AdamW>
class DataParallel {
 public:
  using Training = adacc::Training<T, Context, Optimizer>;
  using Options = TrainingOptions<Context, Optimizer>;
  using Outcome = TrainingOutcome;

  DataParallel() = default;

  /// A training of `network` on shards of shape `input`. Network and group must outlive the training. All
  /// ranks call make(), with the same options but for budgets, profiles and contexts: the smallest budget
  /// holds, and the costs of the slowest rank count. Costs are measured, and the plan evolves, as in
  /// Training (ranked_plan.hpp), unless DataParallelOptions::plan fixes the plan. A store is refused.
  template <class Network>
  static Result<DataParallel> make(GroupRef group, const Network& network, Shape input,
                                   Options options = {}, const DataParallelOptions& parallel = {}) {
    Result<Graph> graph =
        make_graph<Context>(network, input, detail::graph_options(options, dtype_of<T>));
    if (const Error why = share_error(group, graph.error)) return why;
    return make(group, make_dispatch<T, Context>(network), std::move(*graph), std::move(options),
                parallel);
  }
  template <class Network>
  static Result<DataParallel> make(GroupRef, const Network&& temporary, Shape, Options = {},
                                   const DataParallelOptions& = {}) = delete;

  /// Trains a graph, with a dispatch table for the layers.
  static Result<DataParallel> make(GroupRef group, Dispatch<T, Context> dispatch, Graph graph,
                                   Options options = {}, const DataParallelOptions& parallel = {}) {
    set_updates(graph, parallel.sharded_gradients ? Updates::fused : Updates::announced);
    if (options.seed != 0) options.context.key.seed = options.seed;
    DataParallel training;
    training.state_ = std::make_unique<State>();
    State& state = *training.state_;
    state.group = group;
    state.shards = parallel.shards == 0 ? group.size() : parallel.shards;
    state.micro_batches = parallel.micro_batches;
    state.by_turns = parallel.sharded_gradients;
    state.sharded = parallel.sharded_state || state.by_turns;
    state.memory_group = parallel.device_group ? parallel.device_group : group;
    if constexpr (State::on_device)
      options.context.capture_steps = false;  // sums begin in the step
    if (const Error why =
            share_error(group, examine(state, graph, options, bool{parallel.device_group})))
      return why;
    if (const Error why = agree(state, graph, options)) return why;
    state.deal(graph);
    if (state.by_turns)
      state.owned = OwnedGradients<Wide<T>>(graph, state.owners, group.rank(),
                                            static_cast<std::size_t>(state.mine()));

    const Result<std::size_t> room = training.arena_room(graph, options, parallel);
    if (const Error why = share_error(group, room.error)) return why;
    Result<Common> common = training.common_plan(graph, dispatch, options, parallel, *room);
    if (const Error why = share_error(group, common.error)) return why;

    Error why = training.take(std::move(dispatch), std::move(graph), std::move(*common), options,
                              parallel, *room);
    why = share_error(group, why);
    if (why) return why;
    if ((why = training.check_parameters())) return why;
    return static_cast<DataParallel&&>(training);  // nvcc would copy it
  }

  /// Shards of an update, this rank's among them, and micro-batches of each. A rank's shards follow each
  /// other; if gradients are sharded, shard(i), the rank's i-th, and shard(i + 1) are group().size()
  /// apart.
  int shards() const { return state_->shards; }
  int first_shard() const { return shard(0); }
  int shard_count() const { return state_->mine(); }
  int shard(int i) const { return state_->shard(i); }
  int micro_batches() const { return state_->micro_batches; }

  /// accumulate() and update() of an update with one micro-batch on this rank.
  Result<Outcome> step(AnyView input, AnyView targets, double lr) {
    if (state_->batches() != 1)
      return Error::misuse("an update has ", state_->batches(),
                           " micro-batches of this rank: accumulate() each, then update()");
    if (const Result<double> loss = accumulate(input, targets); !loss && state_->done == 0)
      return loss.error;
    return update(lr);  // tells all ranks of an error
  }

  /// Forward and backward of this rank's next micro-batch; returns its mean loss. Behind the last
  /// micro-batch, gradients are under way to the other ranks. After an error in the middle of a step the update
  /// has failed, and update() tells all ranks: call update(), or the others run into their limit.
  Result<double> accumulate(AnyView input, AnyView targets) {
    State& state = *state_;
    if (const Error why = state.open_batch(State::Call::accumulate)) return why;
    const Result<double> loss = state.training.accumulate(input, targets);
    if (!loss && !state.training.ran_) return state.not_begun(loss.error);
    return state.close_batch(loss);
  }

  /// Begins accumulate() in slices. slice() runs the micro-batch; behind its end, update() or the next
  /// micro-batch follows. An error of slice() has ended the micro-batch, too.
  Error begin(AnyView input, AnyView targets) {
    State& state = *state_;
    if (const Error why = state.open_batch(State::Call::begin)) return why;
    if (const Error why = state.training.begin(input, targets)) return state.not_begun(why);
    state.in_slices = true;
    return {};
  }
  template <class Clock>
  Result<Slice> slice(Clock&& now, std::int64_t deadline) {
    State& state = *state_;
    if (!state.in_slices)
      return Error::misuse("no micro-batch is under way: begin() it before slice()");
    const Result<Slice> slice = state.training.slice(now, deadline);
    if (slice && !slice->ended) return state.sums.progress(), slice;
    state.in_slices = false;
    if (const Error why = state.training.settle()) return why;
    const Result<double> loss = state.close_batch(
        slice ? Result<double>(state.training.cursor().loss()) : Result<double>(slice.error));
    if (!loss) return loss.error;
    return slice;
  }

  /// One update from the mean of all ranks' gradients; waits for these. The outcome is the same on all
  /// ranks. Nothing is updated if the outcome is not finite (Training::update()), or if ranks
  /// disagree on the rate, clipping or the optimizer's numbers: an error on all ranks.
  Result<Outcome> update(double lr) {
    State& state = *state_;
    if (state.broken) return state.broken;
    if (state.in_slices) return state.under_way();
    if (state.done != state.batches())
      return Error::misuse("accumulate() summed ", state.done, " of this rank's ", state.batches(),
                           " micro-batches: all come before update()");
    if (const Error why = state.sums.finish()) return state.broken = why;
    const auto call = state.failed ? State::Call::failed_update : State::Call::update;
    if (const Error why = state.exchange(lr, call)) return state.broken = why;
    if (const Error why = state.mixed_calls()) return state.broken = why;
    const Error failed = state.failed;
    state.done = 0;
    state.agreed = false;
    state.failed = {};
    if (state.plan != nullptr) state.plan->next();
    if (state.anyone_failed()) {
      state.training.give_up();
      const Error why = share_error(state.group, failed);
      return why ? why : Error::say("another rank's step failed");
    }
    if (const Error why = state.disagreement()) return state.training.give_up(), why;
    const detail::SummedBatches all = state.sum_up();
    const Result<Outcome> outcome = state.training.update_from(lr, [&] { return all; });
    if (!outcome || !outcome->finite || !state.sharded) return outcome;
    if (const Error why = state.hand_out()) return state.broken = why;
    return outcome;
  }

  /// Training::evaluate() and infer() on this rank alone.
  Result<double> evaluate(AnyView input, AnyView targets) {
    if (state_->in_slices) return state_->under_way();
    return state_->training.evaluate(input, targets);
  }
  Error infer(AnyView input, View<T> output) {
    if (state_->in_slices) return state_->under_way();
    return state_->training.infer(input, output);
  }

  /// Sets the budget of the arena from the next update on, up or down: the smallest of all ranks
  /// counts. All ranks call set_budget(), between updates. If no plan fits, or a rank cannot hold the fitting
  /// plan, all ranks return an error and nothing changes: the error names the rank with the smallest budget,
  /// and the smallest possible one. The next update's boundary() has the change of plan.
  Error set_budget(std::size_t bytes) {
    State& state = *state_;
    if (state.broken) return state.broken;
    if (state.plan == nullptr)
      return Error::misuse("the plan is the caller's, and stays as it is on all ranks");
    if (state.done != 0 || state.in_slices)
      return Error::misuse("set_budget() comes between updates");
    const Error why = state.plan->set_budget(state.training, bytes);
    state.broken = state.plan->broken();
    return why;
  }

  /// Whether all ranks hold the same parameters and are at the same update; the error says where they
  /// disagree. For callers who change parameters themselves. All ranks call check_parameters().
  Error check_parameters() const {
    Agreement agreement;
    const State& state = *state_;
    detail::Mixer hash;
    const Error unread = state.training.read_parameters([&](View<const Wide<T>> params) {
      for (std::size_t i = 0; i < params.size(); ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &params[i], sizeof(Wide<T>));
        hash.mix(bits);
      }
      return Error();
    });
    if (const Error why = share_error(state.group, unread)) return why;
    agreement.add("number of updates", state.training.updates());
    agreement.add("values of the parameters (a hash of them)", hash.value());
    return agreement.examine(state.group);
  }

  /// Copies rank 0's parameters to all ranks, for example after rank 0 has read a file.
  Error broadcast_parameters() { return state_->broadcast_block(state_->training.params()); }

  /// Rank 0 writes a checkpoint (Training::save()); all ranks call save(). Sharded moments are
  /// gathered in memory that rank 0 takes meanwhile.
  Error save(const std::string& path, const std::string& notes = {});

  /// Goes on from the checkpoint at `path`, bit for bit if batches are cut into the same shards, on any number
  /// of ranks. The saved plan holds; but if a fixed plan was saved and the present one evolves, the present one
  /// holds. Rank 0 reads the file; all ranks call load(). If some ranks train on instead, all ranks get an error, at
  /// the end of the update at the latest.
  Error load(const std::string& path);

  /// This rank's trainer. boundary() is the same on all ranks; call set_budget() and load() of DataParallel.
  Training& training() { return state_->training; }
  const Training& training() const { return state_->training; }
  GroupRef group() const { return state_->group; }

  std::uint64_t updates() const { return state_->training.updates(); }
  std::size_t batches() const { return state_->done; }  ///< on this rank, since the last update
  const Plan& plan() const { return state_->training.plan(); }
  std::size_t peak_bytes() const { return state_->training.peak_bytes(); }

  /// Bytes of memory on this rank; with sharded moments more on one rank than on another.
  TrainingMemoryUse memory_use() const {
    TrainingMemoryUse use = state_->training.memory_use();
    use.sums = state_->sums.place_bytes();
    if (state_->by_turns) {
      use.gradients = state_->owned.gradient_bytes();
      use.sums += state_->owned.sums_bytes();
    }
    for (const auto& block : state_->kept) use.sums += block.size() * sizeof(Wide<T>);
    return use;
  }
  /// The rank that keeps the state of parameter i (into Graph::parameters) and updates the parameter; -1: all do.
  int owner_of(std::size_t i) const { return state_->owners[i]; }

  explicit operator bool() const { return state_ != nullptr; }

 private:
  /// The state of all parameters, in the order of a checkpoint.
  struct AllState {
    UpdateTable table;
    Block<std::byte> memory;  ///< on rank 0, if state is sharded
  };

  /// The training of one rank; opens protected members of Training to DataParallel alone.
  struct Share : Training {
    Share() = default;
    explicit Share(Training&& training) : Training(std::move(training)) {}

    using Training::clock;
    using Training::context_;
    using Training::declined_;
    using Training::first_batch_;
    using Training::give_up;
    using Training::keeper_;
    using Training::make;
    using Training::memory_;
    using Training::ran_;
    using Training::read;
    using Training::seconds_;
    using Training::settle;
    using Training::update_from;
    using Training::updater_;
    using Training::updates_;
    using Training::write;
  };

  /// All members; their address is constant, since steps refer to them.
  struct State;

  static Error examine(const State& state, const Graph& graph, const Options& options,
                       bool has_device_group);
  static Error agree(const State& state, const Graph& graph, const Options& options);

  /// Bytes that this rank has for the arena.
  Result<std::size_t> arena_room(const Graph& graph, const Options& options,
                                 const DataParallelOptions& parallel) const;

  static CostProfile profile_of(const Options& options, const Graph& graph) {
    const CostProfile& known = options.planning.profile;
    return known.nodes.empty() ? estimated_profile(graph) : known;
  }

  /// The program of all ranks; without a keeper the plan is the caller's.
  struct Common {
    Plan plan;
    std::unique_ptr<detail::RankedPlan<T, Context, Optimizer>> keeper;
  };
  /// Rank 0's plan, made from the costs of the rank on which retaining everything takes longest. `room`:
  /// bytes that this rank has for the arena.
  Result<Common> common_plan(const Graph& graph, const Dispatch<T, Context>& dispatch,
                             const Options& options, const DataParallelOptions& parallel,
                             std::size_t room) const;

  static Array<const CodecInfo*> codecs_of_table(const Dispatch<T, Context>& dispatch) {
    Array<const CodecInfo*> codecs;
    for (const CodecDispatch<T, Context>& codec : dispatch.codecs) codecs.push_back(codec.info);
    return codecs;
  }

  /// Takes all memory.
  Error take(Dispatch<T, Context> dispatch, Graph graph, Common common, const Options& options,
             const DataParallelOptions& parallel, std::size_t room);

  /// Memory for all ranks' state on the rank that reads or writes a file, if the state is sharded.
  Result<AllState> all_state() const;
  /// Moves each parameter's state from its owner to rank 0, or back.
  Error move_states(AllState& whole, bool to_file);
  /// Goes on under the plan of a checkpoint, with its `evolution` if the plan evolved.
  Error take_plan(const std::string& text, const std::string& evolution);

  std::unique_ptr<State> state_;
};

}}  // namespace adacc::v0_1

#include "save.hpp"
#include "set_up.hpp"
#include "state.hpp"
