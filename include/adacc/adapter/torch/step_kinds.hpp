// SPDX-License-Identifier: MIT
/// The kinds of steps seen under a budget, and their plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "../../io/budget.hpp"
#include "budget_options.hpp"
#include "budget_report.hpp"
#include "form_times.hpp"
#include "known_step.hpp"
#include "other_sizes.hpp"
#include "row_reports.hpp"
#include "sent_storages.hpp"
#include "step_plan.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StepKinds {
 public:
  /// Plans for steps on `side` send storages to `away`, unless null. `options` and `side` must outlive this object.
  StepKinds(const Budget& wanted, const BudgetOptions& options, std::shared_ptr<SentStorages> away,
            const DeviceSide& side)
      : wanted_(wanted), options_(options), side_(side), away_(std::move(away)), times_(side) {
    store_.link = options.link;
  }

  const Budget& wanted() const { return wanted_; }
  /// Steps are planned for another budget from now on.
  void want(const Budget& budget) {
    wanted_ = budget;
    for (const auto& known : known_) {
      if (known->plans == nullptr) continue;
      known->plans.reset();
      known->refusal.clear();
      known->wanted = true;
      known->most = 0;
    }
  }

  const KnownSteps& all() const { return known_; }

  /// Before likely() makes plans: the times of these kinds become the device's, and the host waits for their steps.
  void settle_times() {
    for (const auto& known : known_)
      if (known->wanted && known->plans == nullptr) known->settle_times();
  }
  /// The form of `checked`, and forms of fewer bytes, are out for this storage in all kinds of steps with the storage. Its
  /// module is noted, if known.
  void decline(CheckedStorage& checked) {
    for (const auto& known : known_) {
      if (checked.number < 0 || checked.number >= count_of(*known)) continue;
      const auto place = static_cast<std::size_t>(checked.number);
      const StepStorage& storage = known->step.record.storages[place];
      if (storage.name != checked.saver || storage.decoded_bytes() != side_.counted(checked.bytes))
        continue;
      if (checked.module.empty()) checked.module = storage.module;
      std::vector<Declined> declined{{checked.number, checked.form}};
      bool stronger = false;
      for (const Keep& form : known->step.elements[place].forms) {
        if (stronger && !form.runs_again()) declined.push_back({checked.number, form});
        stronger = stronger || form.codec() == checked.form.codec();
      }
      known->decline(declined);
    }
  }

  /// Whether likely() makes no plan, and finds one.
  bool is_planned() const {
    bool any = false;
    for (const auto& known : known_) {
      if (known->wanted && known->plans == nullptr) return false;
      any = any || known->plans != nullptr;
    }
    return any;
  }
  /// The probable kind of the next step; null: no kind is known.
  KnownStep* likely(BudgetReport& report) {
    if (known_.empty()) return nullptr;
    for (const auto& known : known_)
      if (known->wanted && known->plans == nullptr) make_plan(*known, report);
    if (known_[last_]->usable()) return known_[last_].get();
    KnownStep* any = known_[last_]->plans != nullptr ? known_[last_].get() : nullptr;
    for (const auto& known : known_)
      if (known->usable() || (any == nullptr && known->plans != nullptr)) any = known.get();
    return any;
  }

  /// Plans for steps of kind `known`, whose budget is set first.
  std::unique_ptr<StepPlans> plans_for(KnownStep& known) {
    measure_store(known);
    if (known.memory == nullptr) {
      known.settle_times();
      times_.measure(known.step);
      known.memory = std::make_unique<StepMemory>(known.step.record);
    }
    known.budget = wanted_.of(known.step.record.peak());
    const std::size_t budget = known.budget > known.surplus ? known.budget - known.surplus : 1;
    std::unique_ptr<StepPlans> plans;
    // Steps of different lengths may share one search.
    if (away_ == nullptr && known.surplus == 0) plans = plans_of_others(known_, known, budget);
    if (plans == nullptr)
      plans = std::make_unique<StepPlans>(
          plan_step(*known.memory, budget, options_.planning_seconds, store_));
    return plans;
  }

  /// Keeps the record of a step that has just ended.
  void keep(RecordedStep step) {
    const double off = how_far_off(known_, step.record, side_);
    std::size_t place = 0;
    while (place < known_.size() && !alike(known_[place]->step.record, step.record)) ++place;
    const bool again = place < known_.size();
    if (!again && known_.size() == most_known) place = oldest_++ % most_known;
    if (place == known_.size()) known_.emplace_back();
    const auto before = std::exchange(known_[place], std::make_unique<KnownStep>());
    known_[place]->step = std::move(step);
    if (again) known_[place]->take_over(*before);
    known_[place]->off = off;
    known_[place]->wanted = again || unused_ < most_unused;
    last_ = place;
  }

  /// A step ran by a plan.
  void used() { unused_ = 0; }

  /// A kind with a plan, other than `current` and the same before storage `number`, for which `fits`(kind); null: none.
  template <class Fits>
  KnownStep* in_place_of(const KnownStep& current, int number, const Fits& fits) {
    KnownStep* better = nullptr;
    for (std::size_t i = 0; i < known_.size(); ++i) {
      KnownStep& other = *known_[i];
      if (&other == &current || other.plans == nullptr || !fits(other) ||
          !same_beginning(other.step.record, current.step.record, number) ||
          (better != nullptr && !other.usable()))
        continue;
      better = &other;
      last_ = i;
      if (other.usable()) break;
    }
    return better;
  }

 private:
  static constexpr std::size_t most_known = 64;
  /// This many kinds in a row are planned without a second step of any of them.
  static constexpr int most_unused = 4;

  void make_plan(KnownStep& known, BudgetReport& report) {
    const double start = steady_seconds();
    std::unique_ptr<StepPlans> plans = plans_for(known);
    // A corrected budget may have no plan: then the smallest one is tried.
    if (!plans->fits && !known.corrected && options_.on_refusal == OnRefusal::raise)
      known.refusal = refusal(known, *plans);
    if (!plans->fits) plans->best = plans->least;
    known.travels = TravelPlan(*known.memory, plans->best.choice);
    known.plans = std::move(plans);
    ++unused_;
    report.planning_seconds = steady_seconds() - start;
    describe(known, report);
  }

  /// Measures the store's speed, before the first plan.
  void measure_store(const KnownStep& known) {
    if (away_ == nullptr) return;
    store_.room_bytes = away_->room_bytes();
    if (store_.link.exists()) return;
    std::size_t longest = 0;
    for (const StepStorage& storage : known.step.record.storages)
      if (storage.may_travel) longest = std::max(longest, storage.bytes);
    store_.link = away_->measure(longest);
  }

  Budget wanted_;
  const BudgetOptions& options_;
  const DeviceSide& side_;
  const std::shared_ptr<SentStorages> away_;
  StepStore store_;
  FormTimes times_;
  KnownSteps known_;
  std::size_t last_ = 0, oldest_ = 0;
  int unused_ = 0;  // plans since a step last ran by one
};

}}}}  // namespace adacc::v0_1::torch::detail
