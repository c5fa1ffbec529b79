// SPDX-License-Identifier: MIT
/// Plans with transfers to a store, made from plans that need more memory than there is.
///
/// A planner without the store plans for more bytes than the budget. Activations kept by its plan may then
/// travel, as far as the budget takes (program/passes/transfers.hpp), and the step is played in two lanes,
/// computation and link (cost/link.hpp). A search finds the best number of bytes beyond the budget:
/// with few, much is compressed and recomputed and little is sent; with many, the link is the limit.
///
/// The bound. Let a plan within the budget B send S bytes. Without sending, the plan would need at most
/// B + S bytes. So the plan computes for at least L(B + S) seconds, the bound proven by the planner for
/// this budget, plus the computation lost to transfers of S bytes in both directions; and the plan keeps
/// the link busy with these transfers. L falls with S, and the time of transfers rises. So a bound
/// for all plans is the least, over the intervals between the budgets planned for, of the larger of
/// both. (Layouts may take some bytes more than are live, which the bound leaves out.)
///
/// If there is a store and the best plan sends nothing, a note says why.
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

/// `plan` with every activation kept by the planner's own choice sent away, as far as `room_bytes` takes.
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
  /// Every argument must outlive the planner.
  OffloadPlanner(const Graph& graph, const CostProfile& profile, const PlanRequest& request,
                 Proposals& proposals)
      : graph_(graph), profile_(profile), request_(request), arena_(graph, profile),
        proposals_(proposals) {}

  /// Proposes the two plans with least memory: everything retained and sent away, and the smallest plan
  /// without a store, sent away.
  [[gnu::cold]] void propose_smallest() {
    arena_.propose_smallest(request_, proposals_);
    proposals_.forget_least_bytes();
    const Plan smallest = proposals_.smallest().plan;
    for (const Plan& plan : {plan_from_types(graph_), smallest})
      if (!plan.policies.empty() && !proposals_.time().look())
        proposals_.offer_smallest({sent_away(graph_, plan, 0), 0, 0}, name);
  }

  /// Proposes plans, and raises the bound. Retaining everything must be over the budget.
  [[gnu::cold]] void search() {
    const std::size_t budget = request_.budget_bytes;
    const std::size_t most = proposals_.retain_arena_bytes();
    // The largest first: close to the smallest arena, a search without a store takes long, and by then
    // plans slower than the best one known are of no interest.
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

  /// Notes for the caller, who lent a store, why the best plan does not use it, though retaining everything
  /// does not fit.
  [[gnu::cold]] void note_unused() {
    if (proposals_.found() && proposals_.best().cost.written_bytes == 0 &&
        proposals_.retain_arena_bytes() > request_.budget_bytes)
      proposals_.note(why_nothing_is_sent());
  }

  /// Partial plans looked at by searches without a store.
  std::size_t extensions() const { return arena_.extensions(); }

 private:
  struct Trial {
    std::size_t bytes = 0;      ///< the budget planned for
    double seconds = infinite;  ///< the best plan's, with bytes beyond the real budget sent away
    double least = 0;           ///< the bound for this budget without a store
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
    without.most_runs = 1;
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

  /// Seconds of a step under `plan` with as much sent as the budget takes; infinite if no such plan fits.
  [[gnu::cold]] double send(const Plan& plan) {
    const std::size_t budget = request_.budget_bytes;
    std::size_t room = budget / alignment * alignment;
    // A layout may take more than the live bytes: the room is then reduced by as much.
    for (int tries = 0; tries < OffloadTuning::send_tries && room > 0 && !proposals_.time().look();
         ++tries) {
      const Proposal& sent = proposals_.offer(sent_away(graph_, plan, room), name);
      if (proposals_.meets(sent)) {
        if (sent.cost.written_bytes > 0) lower(sending_, sent.cost.seconds);
        return sent.cost.seconds;
      }
      if (sent.arena_bytes == static_cast<std::size_t>(-1) || sent.arena_bytes <= budget)
        return infinite;
      // Start below the live bytes: with a room nearly as large, the same activations would stay.
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
      // The interval from these bytes to the next ones planned for. With fewer bytes no plan is faster.
      if (i + 1 == trials_.size()) compute = trials_[i].least;
      const double sent = static_cast<double>(trials_[i].bytes - request_.budget_bytes);
      const double dragged = compute + 2 * sent * request_.link.begin_per_byte;
      const double link =
          profile_.rest + sent / request_.link.write_rate + sent / request_.link.read_rate;
      lower(least, larger(dragged, link));
      raise(compute, trials_[i].least);
    }
    // The interval below the fewest bytes planned for before time was up.
    if (trials_[0].bytes > request_.budget_bytes) lower(least, larger(compute, profile_.rest));
    return least;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const PlanRequest& request_;
  ArenaPlanner arena_;
  Proposals& proposals_;
  Array<Trial> trials_;        ///< by bytes
  double sending_ = infinite;  ///< seconds of the fastest plan found with transfers
};

}}}  // namespace adacc::v0_1::detail
