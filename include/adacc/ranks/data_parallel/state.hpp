// SPDX-License-Identifier: MIT
/// A rank's state for the updates of a DataParallel, its sums, and its messages to others.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "../asked.hpp"
#include "data_parallel.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
struct DataParallel<T, Context, Optimizer>::State {
  using Call = detail::RankCall;

  static constexpr bool on_device = context_traits<Context>::own_memory;
  using Kept = typename TrainingMemory<Context>::template Block<Wide<T>>;

  GroupRef group;
  GroupRef memory_group;  ///< reaches gradients and parameters
  int shards = 1, micro_batches = 1;
  bool sharded = false;
  bool by_turns = false;  ///< ranks take shards by turns, and gradients are sharded
  Array<int> owners;      ///< by parameter
  Array<bool> is_mine;    ///< by parameter: whether updated by this rank
  Share training;
  detail::RankedPlan<T, Context, Optimizer>* plan =
      nullptr;  ///< the training's; null: the caller's
  RankSums<Wide<T>, Context> sums;
  OwnedGradients<Wide<T>> owned;   ///< if gradients are sharded
  Array<Kept> kept;                ///< else: sums of 1, 2, 4, ... of this rank's shards
  Array<double> losses;            ///< by micro-batch of this rank
  Array<double> calls;             ///< by rank: its first call of this update
  Array<double> mine_to_all, all;  ///< numbers exchanged before an update
  std::size_t head = 1;            ///< the first of them: failure, values asked for, plan
  std::size_t done = 0;            ///< micro-batches of this update
  bool in_slices = false;          ///< begin() began a micro-batch that has not ended
  bool announcing = false;         ///< gradients of the running step are summed over ranks
  double summing = 0;              ///< seconds that the running step spent on such sums
  std::size_t to_come = 0;         ///< announcements of the running step still to come
  bool fresh = true;               ///< nothing was summed since make() or load()
  bool agreed = false;             ///< ranks agreed on their calls of this update, if they are to
  Error failed;                    ///< why the update will fail
  Error broken;                    ///< why nothing goes on

  /// Sums go on after an error: other ranks sum, too, and learn of the error behind the sums.
  static constexpr bool even_if_failed = true;

  const Graph& graph() const { return training.compiled_step().graph(); }
  int mine() const { return shards / group.size(); }
  /// This rank's i-th shard.
  int shard(int i) const {
    return by_turns ? group.rank() + i * group.size() : group.rank() * mine() + i;
  }
  /// The number of this rank's i-th micro-batch in the whole update.
  std::size_t number_of(std::size_t i) const {
    const auto micro = static_cast<std::size_t>(micro_batches);
    return static_cast<std::size_t>(shard(static_cast<int>(i / micro))) * micro + i % micro;
  }
  std::size_t batches() const {
    return static_cast<std::size_t>(mine()) * static_cast<std::size_t>(micro_batches);
  }
  Bytes moments() { return training.updater_.state(); }

  static Error under_way() {
    return Error::misuse("a micro-batch is under way in slices: let slice() end it first");
  }

  /// Before a micro-batch, which `call` begins.
  Error open_batch(Call call) {
    if (broken) return broken;
    if (in_slices) return under_way();
    if (done == batches())
      return Error::misuse("all of this rank's ", batches(),
                           " micro-batches of the update are summed: update() first");
    if (meets())
      if (const Error why = detail::meet_in_call(group, call, calls)) return broken = why;
    fresh = false;
    agreed = true;
    announcing = by_turns || done + 1 == batches();
    // Random numbers follow from the batch's number in the whole update.
    training.first_batch_ = number_of(done) - training.batches();
    summing = 0;
    to_come = 0;
    if (on_device)
      for (const Instruction& inst : training.compiled_step().program().schedule.instructions)
        to_come += inst.op == Op::update;
    return {};
  }
  /// After a micro-batch that could not begin because of `why`.
  Error not_begun(const Error& why) {
    announcing = false;
    if (plan != nullptr) broken = plan->broken();
    return why;
  }
  /// Behind a micro-batch that ran.
  Result<double> close_batch(const Result<double>& loss) {
    announcing = false;
    if (!loss && !failed) failed = loss.error;
    // Waiting for other ranks is no time of the step.
    if (loss && training.seconds_ > 0) training.seconds_ -= summing;
    if (loss && plan != nullptr) plan->note_codecs(training);
    // Divided by the number of all targets, as gradients are; the update divides by the counted share.
    losses[done] = loss ? training.compiled_step().loss() : 0;
    ++done;
    if (by_turns) {
      if (const Error why = owned.close_shard(training.context_, done - 1, batches(), sums))
        return broken = why;
    } else if (done != batches() && done % static_cast<std::size_t>(micro_batches) == 0) {
      close_shard();
    }
    sums.progress();
    return loss;
  }

  /// Deals parameters to ranks: the largest first, each to the rank with fewest elements.
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
        if (largest == count || p.shape.elems() > of.parameters[largest].shape.elems()) largest = i;
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

  /// Called by the step with complete gradients. Gradients of the last shard join the sums of the
  /// others, and are sent.
  void operator()(Context& context, const CompleteGradients<Wide<T>>& complete) {
    if (!announcing) return;
    const ClockRef clock = training.clock();
    const double start = clock ? clock() : 0;
    announce(context, complete);
    // The device still computes, and the host would wait: meanwhile the host sees to the messages.
    if (on_device && --to_come == 0) static_cast<void>(sums.finish());
    if (clock) summing += clock() - start;
  }
  void announce(Context& context, const CompleteGradients<Wide<T>>& complete) {
    if (by_turns)  // an error stays: returned by the next wait for sums
      return static_cast<void>(owned.take(complete, owners, group.rank(), sums));
    const View<Wide<T>> range = complete.range();
    const auto offset = static_cast<std::size_t>(range.data() - training.gradients().data());
    const auto last = static_cast<std::size_t>(mine()) - 1;
    for (std::size_t level = 0; level < kept.size(); ++level)
      if ((last >> level & 1) != 0)
        context.accumulate(View<const Wide<T>>(kept[level].data() + offset, range.shape()), range);
    if (!sharded) return sums.sum(range);
    for (std::size_t i = complete.size(); i-- > 0;)
      sums.sum(padded(complete.parameter_number(i), complete.gradient(i).data()),
               owners[complete.parameter_number(i)]);
  }

  /// Whether ranks meet before this update: at the first, and where their plan takes a look. All have the same answer.
  bool meets() const { return !agreed && (fresh || (plan != nullptr && plan->meets(training))); }

  /// Elsewhere, the others may be in an update, and wait for this rank's sums. So a rank in load() joins the update
  /// with sums of no meaning. Behind these all ranks know who called what: an error unless all are in load().
  Error join_in_load() {
    const Program& program = training.compiled_step().program();
    Wide<T>* const gradients = graph().fuses_updates()
                                   ? reinterpret_cast<Wide<T>*>(training.arena().data())
                                   : training.gradients().data();
    for (; done < batches(); ++done) {
      if (!by_turns && done + 1 != batches()) continue;
      for (const Instruction& inst : program.schedule.instructions)
        if (inst.op == Op::update)
          announce(training.context_,
                   CompleteGradients<Wide<T>>(graph(), static_cast<std::size_t>(inst.gradient),
                                              gradients, program.layout.offsets.data()));
      if (by_turns)
        if (const Error why = owned.close_shard(training.context_, done, batches(), sums))
          return why;
    }
    if (const Error why = sums.finish()) return why;
    if (const Error why = exchange(0, Call::load)) return why;
    return mixed_calls();
  }

  /// A parameter, or its gradient, with the padding behind.
  View<Wide<T>> padded(std::size_t parameter, Wide<T>* data) const {
    return {data, Shape(padded_elems(graph().parameters[parameter].shape, graph().scalar))};
  }

  /// Keeps the gradients of a shard that is not the last, added to the sums of shards before in the order of
  /// pairwise_sum.hpp.
  void close_shard() {
    const std::size_t shard = (done - 1) / static_cast<std::size_t>(micro_batches);
    const View<Wide<T>> gradients = training.gradients();
    std::size_t level = 0;
    for (; (shard >> level & 1) != 0; ++level)
      training.context_.accumulate(std::as_const(kept[level]).view(), gradients);
    if constexpr (on_device)
      training.context_.copy("sums of shards", View<const Wide<T>>(gradients), kept[level].view());
    else if (!gradients.empty())
      std::memcpy(kept[level].data(), gradients.data(), gradients.size() * sizeof(Wide<T>));
    training.context_.fill(gradients, Wide<T>{});
  }

  /// Exchanges head (call, values of update(), plan), norms of summed gradients, losses, declined
  /// counts and targets of all ranks.
  Error exchange(double rate, Call call) {
    const Graph& of = graph();
    std::size_t next = 0;
    mine_to_all[next++] = static_cast<double>(call);
    detail::each_asked(rate, training.clip, training.optimizer,
                       [&](const char*, const char*, double value) {
                         if (next + 1 < head) mine_to_all[next++] = value;
                       });
    mine_to_all[next++] = detail::number_of(training.plan());
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const Parameter& p = of.parameters[i];
      const bool trained = p.owner && !p.frozen;
      double norm = 0;
      if (trained && is_mine[i])
        norm = training.memory_.norm(training.context_,
                                     View<Wide<T>>(gradient(i), Shape(p.shape.elems())));
      mine_to_all[next++] = norm;
      // Gradients for another rank's parameters are of no more use here.
      if (trained && !is_mine[i] && !by_turns)
        training.context_.fill(View<Wide<T>>(gradient(i), Shape(p.shape.elems())), Wide<T>{});
    }
    for (const double loss : losses) mine_to_all[next++] = loss;
    const DeclinedCounts& declined = training.declined_;
    for (const std::size_t count : {declined.exactly, declined.milder, declined.over_bound})
      mine_to_all[next++] = static_cast<double>(count);
    const TargetCount& targets = training.targets();
    mine_to_all[next++] = static_cast<double>(targets.counted);
    mine_to_all[next++] = static_cast<double>(targets.all);
    return all_gather(group, bytes(mine_to_all), bytes(all));
  }

  /// The gradient of parameter i, a trained one.
  Wide<T>* gradient(std::size_t i) {
    if (by_turns) return owned.gradient(i);
    return training.gradients().data() + graph().parameters[i].offset;
  }

  static Bytes bytes(Array<double>& numbers) {
    return {reinterpret_cast<std::byte*>(numbers.data()), Shape(numbers.size() * sizeof(double))};
  }
  double told(std::size_t rank, std::size_t i) const { return all[rank * mine_to_all.size() + i]; }

  Call call_of(std::size_t rank) const {
    return static_cast<Call>(static_cast<int>(told(rank, 0)));
  }
  bool anyone_failed() const {
    for (std::size_t r = 0; r < static_cast<std::size_t>(group.size()); ++r)
      if (call_of(r) == Call::failed_update) return true;
    return false;
  }
  /// The error of ranks in update() while others are in load().
  Error mixed_calls() const {
    return detail::mixed_calls("call", static_cast<std::size_t>(group.size()),
                               [&](std::size_t rank) { return call_of(rank); });
  }

  /// The first value that differs between ranks in any bit, with the rank.
  Error disagreement() const {
    for (std::size_t i = 1; i < head; ++i)
      for (std::size_t r = 1; r < static_cast<std::size_t>(group.size()); ++r) {
        const double first = told(0, i), other = told(r, i);
        if (std::memcmp(&first, &other, sizeof(double)) == 0) continue;
        if (i + 1 == head)
          return Error::say("the ranks disagree on the plan that they train under: rank ", r,
                            " has another one than rank 0");
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
    // Losses are added in the order of shards.
    const auto ranks = static_cast<std::size_t>(group.size());
    for (std::size_t n = 0; n < ranks * losses.size(); ++n) {
      const std::size_t rank = by_turns ? n % ranks : n / losses.size(),
                        i = by_turns ? n / ranks : n % losses.size();
      of_all.losses += told(rank, head + owners.size() + i);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t at = head + owners.size() + losses.size();
      const auto count = [&](std::size_t i) {
        return static_cast<std::size_t>(told(rank, at + i));
      };
      of_all.declined = of_all.declined + DeclinedCounts{count(0), count(1), count(2)};
      of_all.targets = of_all.targets + TargetCount{count(3), count(4)};
    }
    of_all.norm = std::sqrt(squares);
    of_all.batches = batches() * static_cast<std::size_t>(group.size());
    return of_all;
  }

  /// Copies rank 0's block to all ranks, by way of the host's memory.
  template <class U>
  Error broadcast_block(View<U> block) {
    const auto whole = [](const U* data, std::size_t elems) {
      return sent_memory({reinterpret_cast<const std::byte*>(data), Shape(elems * sizeof(U))});
    };
    if (group.rank() == 0)
      return training.memory_.read(View<const U>(block), [&](View<const U> from) {
        return broadcast(group, whole(from.data(), from.size()));
      });
    return training.memory_.write(
        block, [&](View<U> to) { return broadcast(group, whole(to.data(), to.size())); });
  }

  /// Sends each updated parameter from its owner to all ranks.
  Error hand_out() {
    if (const Error why = sums.prepare()) return why;
    for (std::size_t i = 0; i < owners.size(); ++i)
      if (owners[i] >= 0)
        sums.spread(padded(i, training.params().data() + graph().parameters[i].offset), owners[i]);
    return sums.finish();
  }
};

}}  // namespace adacc::v0_1
