// SPDX-License-Identifier: MIT
/// Plans that send activations to a store: on top of a plan that needs more memory than there is.
///
/// A planner that knows nothing of the store plans for more bytes than the budget. What that plan
/// keeps may then travel, as far as staying within the budget takes (program/passes/transfers.hpp), and the
/// step is played in two lanes, computation and link (cost/link.hpp). How many bytes more is searched:
/// with few, much is compressed and recomputed and little is sent; with many, the link is the limit.
///
/// The bound. Let a plan within the budget B send S bytes. Without sending, it would need at most
/// B + S, so it computes for at least L(B + S) seconds, L being what the planner proved for that
/// budget, and for what transfers of S bytes in both directions take of computation, and keeps the link
/// busy with them. L falls with S, the rest rises: over the intervals between the budgets that were
/// planned for, the least of the larger of both bounds every plan. (Layouts may cost a plan some bytes
/// over its live ones, which this leaves out.)
///
/// If the best plan sends nothing, though there is a store, a note says why.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/extremes.hpp"
#include "../core/number_text.hpp"
#include "../program/program.hpp"
#include "proposals.hpp"
#include "request.hpp"
#include "tuning.hpp"
#include "without_store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// `plan` with everything that the planner was free to keep sent away as far as `room_bytes` takes.
[[gnu::cold]] constexpr Plan sent_away(const Graph& graph, Plan plan, std::size_t room_bytes) {
  for (int k = 0; k < graph.node_count(); ++k) {
    Policy& policy = plan.policies[static_cast<std::size_t>(k)];
    if (graph.node(k).policy.planned() && policy.keeps())
      policy = keep(Form{policy.codec(), Place::store});
  }
  plan.room_bytes = room_bytes;
  return plan;
}

class OffloadPlanner {
  static constexpr const char* name = "offload";

 public:
  /// All that is passed must outlive it.
  OffloadPlanner(const Graph& graph, const CostProfile& profile, const PlanRequest& request,
                 Proposals& proposals)
      : graph_(graph), profile_(profile), request_(request), arena_(graph, profile),
        proposals_(proposals) {}

  /// Proposes what takes least: everything retained and sent away, and the same of the smallest plan
  /// that does without a store.
  [[gnu::cold]] void propose_smallest() {
    arena_.propose_smallest(request_, proposals_);
    proposals_.forget_least_bytes();
    const Plan smallest = proposals_.smallest().plan;
    for (const Plan& plan : {plan_from_types(graph_), smallest})
      if (!plan.policies.empty() && !proposals_.time().look())
        proposals_.offer_smallest({sent_away(graph_, plan, 0), 0, 0}, name);
  }

  /// Proposes plans, and raises the bound. Retaining everything must not fit the budget.
  [[gnu::cold]] void search() {
    const std::size_t budget = request_.budget_bytes;
    const std::size_t most = proposals_.retain_arena_bytes();
    // The largest first: close to the smallest arena a search without a store takes long, and plans
    // that are slower than one that is known are of no interest.
    for (const std::size_t part : OffloadTuning::parts) try_budget(budget + (most - budget) / part);
    try_budget(budget);
    // Between the neighbours of the best so far.
    for (int round = 0; round < OffloadTuning::rounds && !proposals_.time().look(); ++round) {
      const std::size_t best = best_trial();
      const std::size_t low = best == 0 ? 0 : best - 1;
      const std::size_t high = best + 1 < trials_.size() ? best + 1 : best;
      const std::size_t between[] = {middle(low, best), middle(best, high)};
      for (const std::size_t bytes : between) try_budget(bytes);
    }
    if (!trials_.empty()) proposals_.raise_bound(bound(), name);
  }

  /// There is a store: if the best plan does without, though retaining everything does not fit, whoever
  /// lent it wants to know why.
  [[gnu::cold]] void note_unused() {
    if (proposals_.found() && proposals_.best().cost.written_bytes == 0 &&
        proposals_.retain_arena_bytes() > request_.budget_bytes)
      proposals_.note(why_nothing_is_sent());
  }

  /// Partial plans that its searches without a store looked at.
  std::size_t extensions() const { return arena_.extensions(); }

 private:
  struct Trial {
    std::size_t bytes = 0;      ///< that were planned for
    double seconds = infinite;  ///< of the best plan with what is beyond the budget sent away
    double least = 0;           ///< proven for these bytes without a store
  };

  std::size_t middle(std::size_t a, std::size_t b) const {
    return trials_[a].bytes + (trials_[b].bytes - trials_[a].bytes) / 2;
  }
  std::size_t best_trial() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < trials_.size(); ++i)
      if (trials_[i].seconds < trials_[best].seconds) best = i;
    return best;
  }

  [[gnu::cold]] void try_budget(std::size_t bytes) {
    for (const Trial& trial : trials_)
      if (trial.bytes == bytes) return;
    if (proposals_.time().look()) return;
    Trial trial;
    trial.bytes = bytes;
    PlanRequest without = request_;
    without.link = {};
    without.most_written_bytes = 0;
    without.budget_bytes = bytes;
    without.deadline_seconds = proposals_.deadline().left() / OffloadTuning::share;
    Proposals found(graph_, profile_, without);
    found.lend_shared_time(proposals_.time());
    arena_.search_below(proposals_.found() ? proposals_.best().cost.seconds : infinite, without,
                        found);
    trial.least = found.bound_seconds();
    if (found.found()) {
      lower(trial.least, found.best().cost.seconds);
      trial.seconds = bytes == request_.budget_bytes
                          ? proposals_.offer(found.best().plan, found.best().by).cost.seconds
                          : send(found.best().plan);
    }
    trials_.push_back(trial);
    sort(trials_, [](const Trial& a, const Trial& b) { return a.bytes < b.bytes; });
  }

  /// Seconds of a step under `plan` with as much sent as the budget takes; infinite, if that does not do.
  [[gnu::cold]] double send(const Plan& plan) {
    const std::size_t budget = request_.budget_bytes;
    std::size_t room = budget / alignment * alignment;
    // A layout may take more than the bytes that live: the room is then smaller by as much.
    for (int tries = 0; tries < OffloadTuning::send_tries && room > 0 && !proposals_.time().look();
         ++tries) {
      const Proposal& sent = proposals_.offer(sent_away(graph_, plan, room), name);
      if (proposals_.meets(sent)) {
        if (sent.cost.written_bytes > 0) lower(sending_, sent.cost.seconds);
        return sent.cost.seconds;
      }
      if (sent.arena_bytes == static_cast<std::size_t>(-1) || sent.arena_bytes <= budget)
        return infinite;
      // Below what lives now: a room that is nearly as large would hold the same.
      lower(room, sent.cost.live_bytes);
      const std::size_t beyond = align_up(sent.arena_bytes - budget);
      room = beyond < room ? room - beyond : 0;
    }
    return infinite;
  }

  [[gnu::cold]] Error why_nothing_is_sent() const {
    const LinkCost& link = request_.link;
    if (sending_ < infinite) {
      return Error::say("nothing is sent to the store, which writes ",
                        NumberText::fixed(link.write_rate / 1e6, 1), " and reads ",
                        NumberText::fixed(link.read_rate / 1e6, 1),
                        " MB/s: the fastest plan found that sends something takes ",
                        NumberText::fixed(sending_ / proposals_.best().cost.seconds, 2),
                        " times as long as this one");
    }
    if (request_.most_written_bytes != 0)
      return Error::say(
          "nothing is sent to the store: no plan was found that sends something, but "
          "at most the ",
          shown(request_.most_written_bytes), " that a step may write");
    return Error::say(
        "nothing is sent to the store: no plan was found that sends something, and fits");
  }

  [[gnu::cold]] double bound() const {
    double least = infinite, compute = 0;
    for (std::size_t i = trials_.size(); i-- > 0;) {
      // Between these bytes and the next ones planned for. With fewer bytes no plan is faster.
      if (i + 1 == trials_.size()) compute = trials_[i].least;
      const double sent = static_cast<double>(trials_[i].bytes - request_.budget_bytes);
      const double dragged = compute + 2 * sent * request_.link.begin_per_byte;
      const double link =
          profile_.rest + sent / request_.link.write_rate + sent / request_.link.read_rate;
      lower(least, larger(dragged, link));
      raise(compute, trials_[i].least);
    }
    // With fewer bytes than any that there was time to plan for.
    if (trials_[0].bytes > request_.budget_bytes) lower(least, larger(compute, profile_.rest));
    return least;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const PlanRequest& request_;
  ArenaPlanner arena_;
  Proposals& proposals_;
  Array<Trial> trials_;        ///< by bytes
  double sending_ = infinite;  ///< seconds of the fastest plan found that sends something
};

}}}  // namespace adacc::v0_1::detail
