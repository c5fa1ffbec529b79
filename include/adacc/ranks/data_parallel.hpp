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
/// An update's batch is cut into shards, and what a shard's gradient is does not depend on which rank
/// makes it: random numbers follow from its number. Gradients are added in pairs of shards, pairs of
/// pairs and so on (pairwise_sum.hpp), losses and norms in one order, too; so every number of ranks
/// that the shards can be dealt to gives the same bits, one rank included, and a run may go on from its
/// checkpoint on another number of ranks.
///
/// All ranks run one plan, which rank 0 makes from the costs of the slowest one. A layer's gradients
/// begin to be summed as soon as the last shard's backward has completed them, while it goes on.
///
/// Moments may be sharded (ZeRO, stage 1; Rajbhandari et al., SC20): every parameter has one rank that
/// is sent its summed gradient, keeps its state, updates it and hands it out. That costs no more
/// traffic, and does not change a bit. So may gradients (stage 2, owned_gradients.hpp): then a rank holds
/// those of its own parameters, and of one layer; ranks take shards by turns, and each shard is sent.
///
/// What happens on one rank and not on the others (an error, another budget or seed) is an error value
/// on all of them: at once if it is found while ranks meet, within the group's limit otherwise.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../cost/evaluate.hpp"
#include "../io/plan_text.hpp"
#include "../io/profile_text.hpp"
#include "../train/make.hpp"
#include "../train/save.hpp"
#include "asked.hpp"
#include "collectives.hpp"
#include "owned_gradients.hpp"
#include "rank_sums.hpp"

namespace adacc { inline namespace v0_1 {

struct DataParallelOptions {
  /// Of an update, on all ranks together; 0: one for each. Each rank takes as many as a power of 2, or
  /// there is one rank; it then keeps as many sums of gradients beside as this has binary digits
  /// behind the first (RankSums, pairwise_levels()).
  int shards = 0;
  int micro_batches = 1;       ///< of a shard: their gradients are added in place, in their order
  bool sharded_state = false;  ///< whether each rank keeps the moments of its own parameters alone
  /// And their gradients, which implies that; these are in the steps' arena before. A shard is then one
  /// micro-batch, and ranks are as many as shards, or a power of 2.
  bool sharded_gradients = false;
  RankSumsOptions sums{};  ///< what is under way at once
  /// Trains under this plan, which rank 0's holds for all, instead of one that is made. Null: none.
  const Plan* plan = nullptr;
};

template <class T = float, class Context = Cpu, class Optimizer = AdamW>
class DataParallel {
  static_assert(
      !requires(const void* data) { Context::memory_fault("", data, std::size_t{}); },
      "adacc: a group sends the host's memory, and this context's is a device's");

 public:
  using Training = adacc::Training<T, Context, Optimizer>;
  using Options = TrainingOptions<Context, Optimizer>;
  using Outcome = TrainingOutcome;

  DataParallel() = default;

  /// A training of `network`, which must outlive it, as must the group, on shards of shape `input`. All
  /// ranks call it, with the same options but for budgets, profiles and contexts: the smallest budget
  /// holds, the costs of the slowest rank count. The plan does not evolve, and nothing is measured here:
  /// costs are those of Options::profile, or estimated. A store is refused.
  template <class Network>
  static Result<DataParallel> make(GroupRef group, const Network& network, Shape input,
                                   Options options = {}, const DataParallelOptions& parallel = {}) {
    const int workers = options.context.workers();
    Result<Graph> graph =
        make_graph<Context>(network, input,
                            {.scalar = dtype_of<T>,
                             .workers = options.workers > workers ? options.workers : workers,
                             .parts = options.parts,
                             .trained = options.trained});
    if (const Error why = share_error(group, graph.error)) return why;
    return make(group, make_dispatch<T, Context>(network), std::move(*graph), std::move(options),
                parallel);
  }
  template <class Network>
  static Result<DataParallel> make(GroupRef, const Network&& temporary, Shape, Options = {},
                                   const DataParallelOptions& = {}) = delete;

  /// The same of a graph, with a dispatch table that can run it.
  static Result<DataParallel> make(GroupRef group, Dispatch<T, Context> dispatch, Graph graph,
                                   Options options = {}, const DataParallelOptions& parallel = {}) {
    set_updates(graph, parallel.sharded_gradients ? Updates::fused : Updates::announced);
    if (options.seed != 0) options.context.key.seed = options.seed;
    DataParallel made;
    made.state_ = std::make_unique<State>();
    State& state = *made.state_;
    state.group = group;
    state.shards = parallel.shards == 0 ? group.size() : parallel.shards;
    state.micro_batches = parallel.micro_batches;
    state.by_turns = parallel.sharded_gradients;
    state.sharded = parallel.sharded_state || state.by_turns;
    if (const Error why = share_error(group, check(state, graph, options))) return why;
    if (const Error why = agree(state, graph, options)) return why;
    state.deal(graph);
    if (state.by_turns)
      state.owned = OwnedGradients<T>(graph, state.owners, group.rank(),
                                      static_cast<std::size_t>(state.mine()));

    const Result<std::size_t> room = made.arena_room(graph, options, parallel);
    if (const Error why = share_error(group, room.error)) return why;
    Result<Plan> plan = made.common_plan(graph, dispatch, options, parallel, *room);
    if (const Error why = share_error(group, plan.error)) return why;

    Error why =
        made.take(std::move(dispatch), std::move(graph), std::move(*plan), options, parallel);
    why = share_error(group, why);
    if (why) return why;
    if ((why = made.check_parameters())) return why;
    return made;
  }

  /// This rank's shards of the `shards()` of an update, and micro-batches of each. They follow each other,
  /// unless gradients are sharded: then shard(i), its i-th, is as many behind the one before as there are
  /// ranks.
  int shards() const { return state_->shards; }
  int first_shard() const { return shard(0); }
  int shard_count() const { return state_->mine(); }
  int shard(int i) const { return state_->shard(i); }
  int micro_batches() const { return state_->micro_batches; }

  /// Forward and backward of this rank's next micro-batch; its mean loss. Behind the last one of them
  /// its gradients are under way to the other ranks. If this fails in the middle of a step, the update
  /// has failed, and update() tells all ranks so: go on to there, or let them run into their limit.
  Result<double> accumulate(AnyView input, AnyView targets) {
    State& state = *state_;
    if (state.broken) return state.broken;
    if (state.done == state.batches())
      return Error::misuse("all of this rank's ", state.batches(),
                           " micro-batches of the update are summed: update() first");
    state.announcing = state.by_turns || state.done + 1 == state.batches();
    // It draws the numbers of its place in the whole update.
    state.training.first_batch_ = state.number_of(state.done) - state.training.batches();
    const std::uint64_t begun = state.training.compiled().begun();
    const Result<double> loss = state.training.accumulate(input, targets);
    state.announcing = false;
    if (!loss) {
      if (state.training.compiled().begun() == begun) return loss.error;
      if (!state.failed) state.failed = loss.error;
    }
    state.losses[state.done] = loss ? *loss : 0;
    ++state.done;
    if (state.by_turns) {
      if (const Error why = state.owned.close_shard(state.training.context_, state.done - 1,
                                                    state.batches(), state.sums))
        return state.broken = why;
    } else if (state.done != state.batches() &&
               state.done % static_cast<std::size_t>(state.micro_batches) == 0) {
      state.close_shard();
    }
    state.sums.progress();
    return loss;
  }

  /// One update from the mean of all ranks' gradients; waits for these. Its outcome is the same on all
  /// ranks, and as in Training::update() nothing is updated if it is not finite. Nor is it if they
  /// disagree on the rate, or on what gradients are clipped to: then that is the error on all of them.
  Result<Outcome> update(double lr) {
    State& state = *state_;
    if (state.broken) return state.broken;
    if (state.done != state.batches())
      return Error::misuse("accumulate() summed ", state.done, " of this rank's ", state.batches(),
                           " micro-batches: all come before update()");
    if (const Error why = state.sums.finish()) return state.broken = why;
    if (const Error why = state.exchange(lr)) return state.broken = why;
    const Error failed = state.failed;
    state.done = 0;
    state.failed = {};
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

  /// Whether all ranks hold the same parameters and are at the same update; the error says on what they
  /// disagree. For those who change parameters themselves. All ranks call it.
  Error check_parameters() const {
    Agreement agreement;
    const State& state = *state_;
    detail::Mixer hash;
    const View<const T> params = std::as_const(state.training).params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &params[i], sizeof(T));
      hash.mix(bits);
    }
    agreement.add("number of updates", state.training.updates());
    agreement.add("values of the parameters (a hash of them)", hash.value());
    return agreement.check(state.group);
  }

  /// Rank 0's parameters become everybody's: after it has read them from a file, say.
  Error broadcast_parameters() { return broadcast(state_->group, raw(state_->training.params())); }

  /// Rank 0 writes a checkpoint, as Training::save() does; all ranks call it. Sharded moments are
  /// gathered, for which rank 0 takes the memory of all of them meanwhile.
  Error save(const std::string& path, const std::string& notes = {}) {
    State& state = *state_;
    if (state.broken) return state.broken;
    if (!state.sharded) {
      const bool writes = state.group.rank() == 0;
      return share_error(state.group, writes ? state.training.save(path, notes) : Error());
    }
    Result<AllState> all = state.all_state();
    if (const Error why = share_error(state.group, all.error)) return why;
    if (const Error why = state.move_states(*all, true)) return state.broken = why;
    const bool writes = state.group.rank() == 0;
    const auto state_of_all = [&](const auto& put) {
      return put(std::as_const(all->memory).view());
    };
    return share_error(
        state.group,
        writes ? state.training.write(path, notes, all->table, state_of_all) : Error());
  }

  /// Goes on where the training that saved `path` was, bit for bit if its batches were cut into the same
  /// shards, on however many ranks, and under its plan. Rank 0 reads the file; all ranks call it.
  Error load(const std::string& path) {
    State& state = *state_;
    if (state.broken) return state.broken;
    const bool reads = state.group.rank() == 0;
    Result<AllState> all = state.all_state();
    if (const Error why = share_error(state.group, all.error)) return why;
    std::string plan;
    std::uint64_t numbers[4] = {};
    Error why;
    if (reads) {
      const Bytes memory = state.sharded ? all->memory.view() : state.moments();
      const auto info = state.training.read(path, Restore::numbers, all->table, memory);
      why = info.error;
      if (info) {
        plan = info->graph == state.graph().fingerprint ? info->plan : std::string();
        numbers[0] = info->updates;
        numbers[1] = info->data_position;
        numbers[2] = info->key.seed;
        std::memcpy(&numbers[3], &state.training.previous_norm_, sizeof(double));
      }
    }
    if ((why = share_error(state.group, why))) return why;
    const Bytes four(reinterpret_cast<std::byte*>(numbers), Shape(sizeof numbers));
    if ((why = broadcast(state.group, four))) return state.broken = why;
    if ((why = broadcast(state.group, plan))) return state.broken = why;
    if ((why = broadcast_parameters())) return state.broken = why;
    why = state.sharded ? state.move_states(*all, false) : broadcast(state.group, state.moments());
    if (why) return state.broken = why;
    state.training.updates_ = numbers[0];
    state.training.data_position = numbers[1];
    state.training.context_.key.seed = numbers[2];
    std::memcpy(&state.training.previous_norm_, &numbers[3], sizeof(double));
    state.training.give_up();
    state.done = 0;
    return plan.empty() ? Error() : share_error(state.group, take_plan(plan));
  }

  Training& training() { return state_->training; }
  const Training& training() const { return state_->training; }
  GroupRef group() const { return state_->group; }

  /// What this rank holds, in bytes; with sharded moments more on one rank than on another.
  TrainingMemoryUse memory_use() const {
    TrainingMemoryUse use = state_->training.memory_use();
    use.sums = state_->sums.place_bytes();
    if (state_->by_turns) {
      use.gradients = state_->owned.gradient_bytes();
      use.sums += state_->owned.sums_bytes();
    }
    for (const Block<T>& block : state_->kept) use.sums += block.size() * sizeof(T);
    return use;
  }
  /// The rank that keeps the state of parameter i (into Graph::parameters) and updates it; -1: all do.
  int owner_of(std::size_t i) const { return state_->owners[i]; }

  explicit operator bool() const { return state_ != nullptr; }

 private:
  /// The state of all parameters, as a file has it.
  struct AllState {
    UpdateTable table;
    Block<std::byte> memory;  ///< on rank 0, if it is sharded
  };

  static Bytes raw(View<T> values) {
    return {static_cast<std::byte*>(static_cast<void*>(values.data())),
            Shape(values.size() * sizeof(T))};
  }

  /// All of it; the steps hold on to its place.
  struct State {
    GroupRef group;
    int shards = 1, micro_batches = 1;
    bool sharded = false;
    bool by_turns = false;  ///< ranks take shards by turns, and gradients are sharded
    Array<int> owners;      ///< by parameter
    Array<bool> is_mine;    ///< by parameter: whether this rank updates it
    Training training;
    RankSums<T> sums;
    OwnedGradients<T> owned;         ///< if gradients are sharded
    Array<Block<T>> kept;            ///< else: sums of 1, 2, 4, ... of this rank's shards
    Array<double> losses;            ///< of this rank's micro-batches, in their order
    Array<double> mine_to_all, all;  ///< what ranks tell each other before an update
    std::size_t head = 1;            ///< of these: whether it failed, and what it is asked for
    std::size_t done = 0;            ///< micro-batches of this update
    bool announcing = false;         ///< the step that runs is this rank's last one
    Error failed;                    ///< why the update will fail
    Error broken;                    ///< why nothing goes on

    const Graph& graph() const { return training.compiled().graph(); }
    int mine() const { return shards / group.size(); }
    /// This rank's i-th shard.
    int shard(int i) const {
      return by_turns ? group.rank() + i * group.size() : group.rank() * mine() + i;
    }
    /// Of this rank's i-th micro-batch, among those of the whole update.
    std::size_t number_of(std::size_t i) const {
      const auto micro = static_cast<std::size_t>(micro_batches);
      return static_cast<std::size_t>(shard(static_cast<int>(i / micro))) * micro + i % micro;
    }
    std::size_t batches() const {
      return static_cast<std::size_t>(mine()) * static_cast<std::size_t>(micro_batches);
    }
    Bytes moments() { return {training.state_.data(), Shape(training.state_.size())}; }

    /// Which rank updates what: the largest parameters first, each to the rank that has least.
    void deal(const Graph& of) {
      const std::size_t count = of.parameters.size();
      owners.resize(count);
      is_mine.resize(count);
      for (std::size_t i = 0; i < count; ++i) owners[i] = -1, is_mine[i] = true;
      if (!sharded) return;
      Array<std::size_t> load(static_cast<std::size_t>(group.size()));
      for (;;) {
        std::size_t largest = count;
        for (std::size_t i = 0; i < count; ++i) {
          const Parameter& p = of.parameters[i];
          if (owners[i] >= 0 || !p.owner || p.frozen) continue;
          if (largest == count || p.shape.elems() > of.parameters[largest].shape.elems())
            largest = i;
        }
        if (largest == count) break;
        std::size_t least = 0;
        for (std::size_t r = 1; r < load.size(); ++r)
          if (load[r] < load[least]) least = r;
        load[least] += of.parameters[largest].shape.elems();
        owners[largest] = static_cast<int>(least);
        is_mine[largest] = static_cast<int>(least) == group.rank();
      }
    }

    /// Told by the step which gradients are complete. Those of the last shard join what is kept of the
    /// others, and go.
    void operator()(Context& context, const CompleteGradients<T>& complete) {
      if (!announcing) return;
      if (by_turns)  // an error stays: who waits for sums next hears of it
        return static_cast<void>(owned.take(complete, owners, group.rank(), sums));
      const View<T> range = complete.range();
      const auto offset = static_cast<std::size_t>(range.data() - training.gradients().data());
      const auto last = static_cast<std::size_t>(mine()) - 1;
      for (std::size_t level = 0; level < kept.size(); ++level)
        if ((last >> level & 1) != 0)
          context.accumulate(View<const T>(kept[level].data() + offset, range.shape()), range);
      if (!sharded) return sums.sum(range);
      for (std::size_t i = complete.size(); i-- > 0;)
        sums.sum(padded(complete.parameter_number(i), complete.gradient(i).data()),
                 owners[complete.parameter_number(i)]);
    }

    /// A parameter, or what mirrors it, with the padding behind it.
    View<T> padded(std::size_t parameter, T* data) const {
      return {data, Shape(padded_elems(graph().parameters[parameter].shape, graph().scalar))};
    }

    /// Puts the gradients of a shard that is not the last one away, beneath those of the shards before
    /// it that it is the pair of.
    void close_shard() {
      const std::size_t shard = (done - 1) / static_cast<std::size_t>(micro_batches);
      const View<T> gradients = training.gradients();
      std::size_t level = 0;
      for (; (shard >> level & 1) != 0; ++level)
        training.context_.accumulate(std::as_const(kept[level]).view(), gradients);
      if (!gradients.empty())
        std::memcpy(kept[level].data(), gradients.data(), gradients.size() * sizeof(T));
      training.context_.fill(gradients, T{});
    }

    /// Everybody's losses, and the norms of the gradients that each has summed; before them whether it
    /// failed, and what an update is called with.
    Error exchange(double rate) {
      const Graph& of = graph();
      std::size_t next = 0;
      mine_to_all[next++] = failed ? 1 : 0;
      detail::each_asked(rate, training.clip, training.clip_by, training.optimizer,
                         [&](const char*, const char*, double value) {
                           if (next < head) mine_to_all[next++] = value;
                         });
      for (std::size_t i = 0; i < owners.size(); ++i) {
        const Parameter& p = of.parameters[i];
        const bool trained = p.owner && !p.frozen;
        double norm = 0;
        if (trained && is_mine[i])
          norm = gradient_norm(training.context_, View<T>(gradient(i), Shape(p.shape.elems())));
        mine_to_all[next++] = norm;
        // What another rank updates is its, and not wanted here any more.
        if (trained && !is_mine[i] && !by_turns)
          training.context_.fill(View<T>(gradient(i), Shape(p.shape.elems())), T{});
      }
      for (const double loss : losses) mine_to_all[next++] = loss;
      return all_gather(group, bytes(mine_to_all), bytes(all));
    }

    /// Of parameter i, which is trained: its gradient's place.
    T* gradient(std::size_t i) {
      if (by_turns) return owned.gradient(i);
      return training.gradients().data() + graph().parameters[i].offset;
    }

    static Bytes bytes(Array<double>& numbers) {
      return {reinterpret_cast<std::byte*>(numbers.data()), Shape(numbers.size() * sizeof(double))};
    }
    double told(std::size_t rank, std::size_t i) const {
      return all[rank * mine_to_all.size() + i];
    }

    bool anyone_failed() const {
      for (std::size_t r = 0; r < static_cast<std::size_t>(group.size()); ++r)
        if (told(r, 0) != 0) return true;
      return false;
    }

    /// The first thing that was not asked of all ranks alike, to the last bit, and of whom.
    Error disagreement() const {
      for (std::size_t i = 1; i < head; ++i)
        for (std::size_t r = 1; r < static_cast<std::size_t>(group.size()); ++r) {
          const double first = told(0, i), other = told(r, i);
          if (std::memcmp(&first, &other, sizeof(double)) == 0) continue;
          return detail::disagreement_of(training.optimizer, i - 1, first, static_cast<int>(r),
                                         other);
        }
      return {};
    }

    detail::SummedBatches sum_up() const {
      detail::SummedBatches of_all;
      double squares = 0;
      for (std::size_t i = 0; i < owners.size(); ++i) {
        const auto rank = static_cast<std::size_t>(owners[i] < 0 ? group.rank() : owners[i]);
        const double norm = told(rank, head + i);
        squares += norm * norm;
      }
      // In the order of shards.
      const auto ranks = static_cast<std::size_t>(group.size());
      for (std::size_t n = 0; n < ranks * losses.size(); ++n) {
        const std::size_t rank = by_turns ? n % ranks : n / losses.size(),
                          i = by_turns ? n / ranks : n % losses.size();
        of_all.losses += told(rank, head + owners.size() + i);
      }
      of_all.norm = std::sqrt(squares);
      of_all.batches = batches() * static_cast<std::size_t>(group.size());
      return of_all;
    }

    /// The parameters that were updated here or there.
    Error hand_out() {
      if (const Error why = sums.prepare()) return why;
      for (std::size_t i = 0; i < owners.size(); ++i)
        if (owners[i] >= 0)
          sums.spread(padded(i, training.params().data() + graph().parameters[i].offset),
                      owners[i]);
      return sums.finish();
    }

    /// Room for all ranks' state where a file is read or written, if it is not all there.
    Result<AllState> all_state() {
      AllState made;
      auto table = UpdateTable::make(training.optimizer, graph().parameters, dtype_of<T>);
      if (!table) return table.error;
      made.table = std::move(*table);
      if (!sharded || group.rank() != 0) return made;
      auto memory = Block<std::byte>::make(made.table.bytes(), "the state of all ranks");
      if (!memory) return memory.error;
      made.memory = std::move(*memory);
      return made;
    }

    /// Each parameter's state, from its owner to rank 0 or back.
    Error move_states(AllState& whole, bool to_file) {
      std::size_t here = 0;  // among those that this rank owns
      for (std::size_t o = 0; o < whole.table.owners(); ++o) {
        const std::size_t parameter = whole.table.owner(o);
        const int owner = owners[parameter];
        for (std::size_t s = 0; s < whole.table.states(); ++s) {
          const StateSpec spec =
              detail::state_of(training.optimizer, s, graph().parameters[parameter]);
          const Shape shape(align_up(state_bytes(spec.form, spec.elems, dtype_of<T>)));
          Bytes mine, file;
          if (owner == group.rank()) {
            const std::size_t at = training.table_.begin(s, here);
            mine = {training.state_.data() + at, shape};
          }
          if (group.rank() == 0) file = {whole.memory.data() + whole.table.begin(s, o), shape};
          const Bytes from = to_file ? mine : file, to = to_file ? file : mine;
          if (const Error why = transfer(group, from, to_file ? owner : 0, to, to_file ? 0 : owner))
            return why;
        }
        if (owner == group.rank()) ++here;
      }
      return {};
    }
  };

  static Error check(const State& state, const Graph& graph, const Options& options) {
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

  static Error agree(const State& state, const Graph& graph, const Options& options) {
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

  /// What this rank has for the arena.
  Result<std::size_t> arena_room(const Graph& graph, const Options& options,
                                 const DataParallelOptions& parallel) const {
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

  static CostProfile profile_of(const Options& options, const Graph& graph) {
    return options.profile.nodes.empty() ? estimated_profile(graph) : options.profile;
  }

  /// Rank 0's plan, made from the costs of the rank on which retaining everything takes longest.
  Result<Plan> common_plan(const Graph& graph, const Dispatch<T, Context>& dispatch,
                           const Options& options, const DataParallelOptions& parallel,
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

  static Array<const CodecInfo*> codecs_of_table(const Dispatch<T, Context>& dispatch) {
    Array<const CodecInfo*> codecs;
    for (const CodecDispatch<T, Context>& codec : dispatch.codecs) codecs.push_back(codec.info);
    return codecs;
  }

  /// The memory for all of it.
  Error take(Dispatch<T, Context> dispatch, Graph graph, Plan plan, const Options& options,
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

  /// Goes on under the plan of a checkpoint.
  Error take_plan(const std::string& text) {
    State& state = *state_;
    const auto& dispatch = state.training.compiled().dispatch();
    Result<Plan> plan =
        parse_plan(text, state.graph(), codecs_of_table(dispatch), state.graph().fingerprint);
    if (!plan) return plan.error;
    Result<Program> program = make_program(state.graph(), std::move(*plan));
    if (!program) return program.error;
    if (const Error why = state.training.switch_to(std::move(*program))) return why;
    return state.training.compiled().lend_updates(state);
  }

  std::unique_ptr<State> state_;
};

}}  // namespace adacc::v0_1
