// SPDX-License-Identifier: MIT
/// A plan for a recorded step: a form for each storage, and the blocks to run again, for the least time with the
/// step's peak within a budget.
///
/// Two searches propose plans: one by the price of a byte (step_prices.hpp), and make_plan() in the record as a graph
/// (step_graph.hpp). Each plan is checked as the step would run it (step_memory.hpp). A plan above the budget is made
/// again with less, and the rest of the budget is spent on milder forms one by one.
///
/// With a store, plans for more bytes than the budget are made as well, as in plan/offload.hpp. Their storages go to
/// the store, those needed last first, until the budget is met, and the step is simulated in two lanes
/// (step_transfers.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "../../plan/make_plan.hpp"
#include "step_graph.hpp"
#include "step_memory.hpp"
#include "step_prices.hpp"
#include "step_transfers.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct StepPlan {
  StepChoice choice;
  StepPeak peak;
  double seconds = 0;  ///< added to the recorded step's; among them:
  double stall_seconds = 0;
  std::size_t sent_bytes = 0;  ///< to the store and back
};

struct StepPlans {
  StepPlan best;   ///< within the budget, if `fits`
  StepPlan least;  ///< the plan of least peak found
  bool fits = false;
};

/// A store for storages: speed, and room in bytes.
struct StepStore {
  LinkCost link;
  std::size_t room_bytes = static_cast<std::size_t>(-1);
};

namespace detail {

/// Looks for plans of one record.
class StepSearch {
 public:
  StepSearch(const StepMemory& memory, std::size_t budget, double seconds, const StepStore& store)
      : memory_(memory), transfers_(memory, store.link), store_bytes_(store.room_bytes),
        budget_(budget),
        deadline_(&steady_seconds, seconds), plans_{StepPlan{StepChoice(memory.record()), {}},
                                                    StepPlan{StepChoice(memory.record()), {}}} {}

  StepPlans run() {
    const StepRecord& record = memory_.record();
    consider(StepChoice(record));
    if (plans_.fits) return plans_;
    StepChoice smallest(record);
    memory_.make_smallest(smallest);
    StepChoice strongest(record);
    strongest.form = smallest.form;
    consider(strongest);
    const bool blocks =
        std::find(smallest.again.begin(), smallest.again.end(), 1) != smallest.again.end();
    consider(smallest);
    const StepChoice encoded = without_operators(smallest);
    consider(encoded);
    const bool stores = transfers_.link().exists();
    if (stores) send(StepChoice(record), strongest, smallest);
    const StepPlan first = plans_.best;
    const bool first_fits = plans_.fits;
    search_by_price();
    soften(deadline_.part(0.4));
    // From other plans, single changes lead elsewhere.
    const StepPlan priced = std::exchange(plans_.best, first);
    const bool priced_fits = std::exchange(plans_.fits, first_fits);
    if (blocks) {
      search(Again::any, 0.5, budget_);
      search(Again::all, 0.4, budget_);
    }
    search(Again::none, 0.5, budget_);
    if (stores) search_beyond(blocks);
    soften(deadline_);
    if (priced_fits && !(plans_.fits && plans_.best.seconds < priced.seconds))
      plans_.best = priced, plans_.fits = true;
    if (!plans_.fits) lessen(smallest);
    if (!plans_.fits) lessen(strongest);
    if (!plans_.fits) lessen(encoded);
    if (!plans_.fits) lessen(StepChoice(plans_.least.choice));
    if (!priced_fits) soften(deadline_);
    return plans_;
  }

 private:
  /// Looks for a plan within `budget`; beyond the step's own budget, sends the surplus away.
  void search(Again again, double share, std::size_t budget) {
    const Deadline own_deadline = deadline_.part(share);
    const StepGraph step(memory_, again);
    if (step.empty()) return;
    PlanRequest request;
    request.tolerance = 1e9;
    request.least_error = true;
    request.clock = deadline_.clock();
    request.budget_bytes = budget;
    for (int i = 0; i < 10 && !own_deadline.passed(); ++i) {
      request.deadline_seconds = std::max(0.02, 0.5 * own_deadline.left());
      const Result<PlanOutcome> found = make_plan(step.graph(), step.profile(), request);
      if (!found) return consider_smallest(step, request);
      const StepChoice choice = step.choice_of((*found).plan);
      if (transfers_.link().exists()) send(choice);
      const std::size_t peak = consider(choice);
      if (peak <= budget) return;
      const std::size_t less = std::max(peak - budget, request.budget_bytes / 200);
      if (less >= request.budget_bytes) return;
      request.budget_bytes -= less;
    }
  }

  /// Looks for the lowest price whose plan is within the budget: of bytes held at the plain step's peak, and at the events
  /// where plans of this price have theirs.
  void search_by_price() {
    StepPrices prices(memory_);
    int event = memory_.peak(StepChoice(memory_.record())).event;
    for (int i = 0; i < 4 && !prices.has(event) && !deadline_.passed(); ++i) {
      prices.add(event);
      event = search_by(prices);
    }
  }
  /// Returns the peak's event of the plan just above the budget. Of this plan, the last part stays that is within the
  /// budget, too: equal layers change their forms at one price.
  int search_by(const StepPrices& prices) {
    const auto fits = [&](const StepChoice& choice) { return consider(choice) <= budget_; };
    StepChoice above(memory_.record()), within = above;
    double low = 0, high = 1e-13;
    for (; high < 1 && !deadline_.passed() && !fits(within = prices.at(high)); high *= 8)
      low = high, above = within;
    for (int i = 0; i < 16 && high < 1 && !deadline_.passed(); ++i) {
      const double middle = low > 0 ? std::sqrt(low * high) : high / 8;
      StepChoice choice = prices.at(middle);
      if (fits(choice)) high = middle, within = std::move(choice);
      else low = middle, above = std::move(choice);
    }
    std::size_t first = 0, last = memory_.record().storages.size();
    while (first < last && high < 1 && !deadline_.passed()) {
      const std::size_t middle = (first + last) / 2;
      if (fits(joined(within, above, middle))) last = middle;
      else first = middle + 1;
    }
    return memory_.peak(above).event;
  }
  /// One choice for the storages and blocks in front of storage `end`, another for those behind.
  StepChoice joined(const StepChoice& one, StepChoice other, std::size_t end) const {
    std::copy_n(one.form.begin(), end, other.form.begin());
    for (std::size_t b = 0; b < other.again.size(); ++b)
      if (static_cast<std::size_t>(memory_.record().blocks[b].first) < end)
        other.again[b] = one.again[b];
    return other;
  }

  void consider_smallest(const StepGraph& step, PlanRequest request) {
    const Result<std::size_t> least = smallest_peak(step.graph(), step.profile(), request);
    if (!least) return;
    request.budget_bytes = *least;
    const Result<PlanOutcome> found = make_plan(step.graph(), step.profile(), request);
    if (found) consider(step.choice_of((*found).plan));
  }

  /// Plans for more than the budget, up to the peak of a plain step.
  void search_beyond(bool blocks) {
    const std::size_t most = memory_.record().peak();
    for (const std::size_t part : {16U, 8U, 4U, 2U}) {
      const std::size_t budget = budget_ + (most - std::min(most, budget_)) / part;
      search(blocks ? Again::any : Again::none, 0.3, budget);
    }
  }

  template <class... Choices>
  void send(const Choices&... choices) {
    (send_away(choices), ...);
  }
  /// Sends storages present at the peak, those needed last first, until the step fits.
  void send_away(StepChoice choice) {
    const int count = static_cast<int>(memory_.record().storages.size());
    std::size_t room = store_bytes_;
    for (StepPeak peak = memory_.peak(choice); peak.bytes > budget_; peak = memory_.peak(choice)) {
      int chosen = -1, use = -1;
      for (int id = 0; id < count; ++id) {
        if (choice.travel[static_cast<std::size_t>(id)].sent || !memory_.may_be_sent(id, choice) ||
            memory_.released(id, choice) >= peak.event || transfers_.store_bytes(id, choice) > room)
          continue;
        const int next_use = memory_.first_use(id, choice);
        if (next_use >= peak.event && next_use > use) chosen = id, use = next_use;
      }
      if (chosen < 0 || deadline_.passed()) break;
      room -= transfers_.store_bytes(chosen, choice);
      choice.travel[static_cast<std::size_t>(chosen)].sent = true;
      transfers_.at_once(choice);
    }
    consider(choice);
  }

  /// Returns the peak of the choice.
  std::size_t consider(StepChoice choice) {
    StepPlan plan{choice, {}};
    if (choice.sends()) {
      transfers_.at_once(choice);
      if (memory_.peak(choice).bytes <= budget_) transfers_.spread(choice, budget_);
      const StepCourse course = transfers_.course(choice);
      if (course.sent_bytes > store_bytes_) return static_cast<std::size_t>(-1);
      plan = {choice, {}, course.seconds, course.stall_seconds, course.sent_bytes};
    } else {
      plan.seconds = memory_.seconds(choice);
    }
    plan.peak = memory_.peak(choice);
    if (none_ || plan.peak.bytes < plans_.least.peak.bytes) plans_.least = plan;
    none_ = false;
    if (plan.peak.bytes <= budget_ && (!plans_.fits || plan.seconds < plans_.best.seconds))
      plans_.best = plan, plans_.fits = true;
    return plan.peak.bytes;
  }

  /// `choice` without operators that run again.
  StepChoice without_operators(StepChoice choice) const {
    const std::vector<StepStorage>& storages = memory_.record().storages;
    for (std::size_t id = 0; id < storages.size(); ++id)
      if (int& form = choice.form[id];
          form >= 0 && storages[id].forms[static_cast<std::size_t>(form)].runs_again())
        --form;
    return choice;
  }

  /// Retains the sources of storage `id` if the operator is to run again. False: they are, or it is not.
  bool retain_sources(std::size_t id, StepChoice& choice) const {
    const StepStorage& storage = memory_.record().storages[id];
    const int form = choice.form[id];
    bool any = false;
    if (form < 0 || !storage.forms[static_cast<std::size_t>(form)].runs_again()) return any;
    for (const StepSource& source : storage.sources) {
      const auto place = static_cast<std::size_t>(source.storage);
      any |= std::exchange(choice.form[place], -1) >= 0;
      any |= std::exchange(choice.travel[place].sent, false);
    }
    return any;
  }

  /// Lowers the peak by single changes, as long as one does: a storage read at the peak takes fewer bytes retained
  /// than decoded beside a form.
  void lessen(StepChoice choice) {
    const StepRecord& record = memory_.record();
    std::size_t peak = consider(choice);
    const auto keep_if_lower = [&](const StepChoice& other) {
      const std::size_t bytes = consider(other);
      if (bytes >= peak) return false;
      choice = other, peak = bytes;
      return true;
    };
    for (bool lower = true; lower && !plans_.fits && !deadline_.passed();) {
      lower = false;
      for (std::size_t b = 0; b < choice.again.size() && !deadline_.passed(); ++b) {
        if (!memory_.repeats(static_cast<int>(b))) continue;
        StepChoice other = choice;
        other.again[b] ^= 1;
        lower |= keep_if_lower(other);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline_.passed(); ++id) {
        const auto strongest = static_cast<int>(record.storages[id].forms.size()) - 1;
        if (strongest < 0) continue;
        const bool again = !record.storages[id].sources.empty();
        for (int form = again ? 0 : strongest; form <= strongest; ++form) {
          StepChoice other = choice;
          other.form[id] = choice.form[id] == form ? -1 : form;
          lower |= keep_if_lower(other);
          if (retain_sources(id, other)) lower |= keep_if_lower(other);
        }
      }
    }
  }

  /// Spends the rest of the budget: blocks that need not run again, storages that stay, milder forms.
  void soften(const Deadline& deadline) {
    const StepRecord& record = memory_.record();
    for (bool better = plans_.fits; better && !deadline.passed();) {
      const double before = plans_.best.seconds;
      for (std::size_t b = 0; b < record.blocks.size() && !deadline.passed(); ++b) {
        if (plans_.best.choice.again[b] == 0) continue;
        StepChoice choice = plans_.best.choice;
        choice.again[b] = 0;
        consider(choice);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline.passed(); ++id) {
        if (!plans_.best.choice.travel[id].sent) continue;
        StepChoice choice = plans_.best.choice;
        choice.travel[id].sent = false;
        consider(choice);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline.passed(); ++id) {
        const StepStorage& storage = record.storages[id];
        if (storage.released < 0 || storage.packed.bytes > 0) continue;
        for (int form = -1; form < static_cast<int>(storage.forms.size()); ++form) {
          if (form == plans_.best.choice.form[id]) continue;
          StepChoice choice = plans_.best.choice;
          choice.form[id] = form;
          if (choice.sends() || memory_.seconds(choice) < plans_.best.seconds) consider(choice);
          if (retain_sources(id, choice) &&
              (choice.sends() || memory_.seconds(choice) < plans_.best.seconds))
            consider(choice);
        }
      }
      better = plans_.best.seconds < before;
    }
  }

  const StepMemory& memory_;
  const StepTransfers transfers_;
  const std::size_t store_bytes_;
  const std::size_t budget_;
  const Deadline deadline_;
  StepPlans plans_;
  bool none_ = true;
};

}  // namespace detail

/// The fastest plan found within `seconds` whose peak is at most `budget` bytes, and the plan of least peak. Without
/// a link in `store`, nothing is sent.
inline StepPlans plan_step(const StepMemory& memory, std::size_t budget, double seconds = 2,
                           const StepStore& store = {}) {
  return detail::StepSearch(memory, budget, seconds, store).run();
}

}}}  // namespace adacc::v0_1::torch
