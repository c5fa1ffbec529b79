// SPDX-License-Identifier: MIT
/// The step under way under a budget: recorded, run by a plan, or neither, from its beginning to its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "../../io/budget.hpp"
#include "budget_notes.hpp"
#include "budget_options.hpp"
#include "budget_report.hpp"
#include "budget_side.hpp"
#include "device_side.hpp"
#include "known_step.hpp"
#include "other_sizes.hpp"
#include "row_reports.hpp"
#include "saved_storage.hpp"
#include "step_follower.hpp"
#include "step_guess.hpp"
#include "step_kinds.hpp"
#include "step_recorder.hpp"
#include "step_travels.hpp"
#include "stopwatch.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// For the hooks (budget_state.hpp) and for blocks (budget_blocks.hpp), which call all functions behind the mutex.
class BudgetStep {
 public:
  BudgetStep(const BudgetStep&) = delete;
  BudgetStep& operator=(const BudgetStep&) = delete;

  BudgetReport report() const {
    const std::lock_guard lock(mutex_);
    BudgetReport mine = notes_.report();
    put_seconds_into(mine);
    return mine;
  }

 protected:
  BudgetStep(Budget wanted, BudgetOptions options)
      : wanted_(wanted), options_(std::move(options)),
        to_record_(std::max(1, options_.recorded_steps)) {
    notes_.report().device = side_.device().str();
    kinds_ = std::make_unique<StepKinds>(wanted_, options_, away_, side_);
    follower_.emplace(*kinds_, recorder_);
  }
  ~BudgetStep() {
    LeftBehind::take(checked_);
    const BudgetStep* mine = this;
    stepping().compare_exchange_strong(mine, nullptr);
  }

  /// Whether the step is of no known kind, so far.
  bool recording() const { return begun_ && follower_->current() == nullptr; }
  /// Whether the recorder has seen the whole step so far.
  bool recorded() const { return begun_ && recorded_ && !remakes_; }
  bool recorded(const SavedStorage& entry) const {
    return recorded() && entry.step == step_ && entry.number >= 0;
  }
  void stop_recording() {
    if (recorded()) most_ = std::max(most_, recorder_.most());
    recorded_ = false;
  }
  /// The number of the storage saved next.
  int next_number() const {
    return recorded() ? static_cast<int>(recorder_.record().storages.size()) : follower_->next();
  }

  /// Counts and plans the memory of `device` from now on. The step under way, begun elsewhere, is recorded again.
  void choose(c10::Device device) {
    if (const std::string why = where_.settle(device); !why.empty()) {
      notes_.report().elsewhere = "tensors on " + device.str() + " are kept as they are: " + why;
      return;
    }
    notes_.report().device = device.str();
    if (!begun_) return;
    live_ = most_ = side_.live_bytes();
    leave_room_for(live_);
    side_.lap();
    recorder_.begin(live_);
    to_record_ = std::max(to_record_, 2);
    refuse_capture();
  }

  void begin(std::size_t live) {
    leave_room_for(live);
    refuse_capture();
    read_reports();
    if (away_ != nullptr) {
      travels_.clear();
      away_->begin_step();
    }
    KnownStep* const known = to_record_ > 0 ? nullptr : kinds_->likely(notes_.report());
    if (known != nullptr && away_ != nullptr)
      away_->begin_step(known->plans->best.sent_bytes, known->travels.count());
    const BudgetStep* other = nullptr;
    if (!stepping().compare_exchange_strong(other, this))
      TORCH_CHECK(other == this,
                  "adacc: a step of another budget is not over: bytes are counted for the whole "
                  "process, so budgets take turns step by step (or is a loss of it kept without "
                  "backward?)");
    ++step_;
    step_token_.reset();
    packed_ = reads_ = diverged_ = refused_ = defers_ = remakes_ = false;
    why_.clear();
    declined_.clear();
    guess_.clear();
    follower_->begin(known);
    if (known == nullptr) guess_as_recorded();
    begun_ = recorded_ = true;
    live_ = most_ = live;
    start_ = steady_seconds();
    side_.lap();
    put_seconds_into(notes_.report());
    on_device_.reset();
    if (!side_.is_cpu() && !side_.is_captured()) on_device_.emplace(side_.device());
    mark_on_device();
    recorder_.begin(live);
  }

  /// The last tensor of step `step` is gone. In forward, others may come (a checkpointed block whose inputs need no
  /// gradient saves them for a moment), unless all of a known kind were saved: a graph without backward.
  void over(int step) noexcept {
    const std::lock_guard lock(mutex_);
    if (step != step_ || !begun_) return;
    const bool is_forward = inside_ && !reads_;
    if (!is_forward || (!recording() && !diverged_ && follower_->is_whole())) finish();
  }

  void finish() {
    const double seconds = steady_seconds() - start_;
    if (!refused_) {
      ++notes_.report().steps;
      const bool known = !recording() && !diverged_;
      if (known && recorded() && !(follower_->is_whole() && follower_->has_same_gradients()))
        diverge(follower_->count_in_words());
      if (recording()) finish_recorded(seconds);
      else finish_planned(seconds);
    }
    give_way();
  }
  /// Refuses a step of a kind that cannot be within the budget.
  [[noreturn]] void refuse() {
    refused_ = true;
    notes_.refused(follower_->current()->refusal);
    stop_recording();
    TORCH_CHECK(false, follower_->current()->refusal);
  }

  /// Lets a step of another budget begin.
  void give_way() {
    begun_ = false;
    const BudgetStep* mine = this;
    stepping().compare_exchange_strong(mine, nullptr);
  }

  /// Looks for a plan for a step whose storage `number` has `bytes`, unlike the same storage in `like`.
  void guess(const StepRecord& like, int number, const std::string& saver, std::size_t bytes) {
    if (away_ != nullptr || number >= static_cast<int>(like.storages.size())) return;
    const std::vector<const KnownStep*> all =
        of_same_savers(kinds_->all(), like, number, saver, follower_->missing());
    guess_.take(guessed_step(all, kinds_->wanted(), number, bytes, recorder_));
  }

  /// The step is of no known kind. If the recorder has seen all of the step, recording goes on; otherwise the step
  /// counts as diverged.
  void diverge(std::string why) {
    why_ = std::move(why);
    if (!recorded()) {
      diverged_ = true;
      return;
    }
    recorder_.name_modules(follower_->record());
    follower_->lose();
    if (away_ == nullptr || step_token_.expired()) return;
    away_->grow();
    travels_.leave_all();
  }

  const Budget wanted_;
  const BudgetOptions options_;
  mutable std::mutex mutex_;
  BudgetNotes notes_;
  BudgetSide where_{options_};
  const std::shared_ptr<SentStorages>& away_ = where_.store();  // null: nothing is sent
  const DeviceSide& side_ = where_.memory();
  StepRecorder recorder_{side_};
  std::unique_ptr<StepKinds> kinds_;
  int to_record_;

  // The step under way.
  bool inside_ = false;  // of a guard
  bool begun_ = false, packed_ = false, reads_ = false, diverged_ = false, refused_ = false;
  bool recorded_ = false;
  bool defers_ = false;   // a recorded block is running
  bool remakes_ = false;  // a recorded block runs again
  int step_ = 0;
  std::weak_ptr<void> step_token_;
  std::size_t live_ = 0, most_ = 0;
  std::size_t beside_ = 0;  // in use as steps begin, as far as the budget is of a whole device
  double start_ = 0;
  std::optional<Stopwatch>
      on_device_;  // of this step, or of the one before: both ends of a planned one
  std::optional<StepFollower> follower_;  // from the constructor on
  StepTravels travels_{recorder_};
  StepGuess guess_;
  std::string why_;
  std::vector<Declined> declined_;  // by values of this step, which has a plan
  CheckedStorages checked_;         // by a device, in this step and earlier ones

 private:
  /// As a step begins: a form with a failure on the device is out of later plans. To make a plan, the host waits for the
  /// step before anyway. Otherwise missing reports are read later.
  void read_reports() {
    if (checked_.empty() || side_.is_captured()) return;
    if (to_record_ <= 0 || may_guess()) kinds_->settle_times();
    checked_.read([&](CheckedStorage& one, const RowsFound& found) {
      BudgetReport& report = notes_.report();
      report.exact_rows += found.kept;
      if (found.stands) return;
      ++report.uncertified;
      kinds_->decline(one);
      report.failed_form = "in a step before step " + std::to_string(report.steps + 1) + ", " +
                           one.in_words(found) +
                           ": gradients of that step may be off by more than is tolerated";
    });
  }
  /// A step without a plan is timed and planned, so the host waits, and a capture would come to nothing.
  void refuse_capture() const {
    TORCH_CHECK(
        !side_.is_captured() || (to_record_ <= 0 && kinds_->is_planned()),
        "adacc: a graph is captured of the work on ", side_.device(),
        ", and a budget's first steps (", std::max(1, options_.recorded_steps) + 1,
        ") are recorded, timed and planned, for which the host waits: run them before the capture");
  }
  /// `live` bytes are in use as a step begins. Plans are made again only if that matters.
  void leave_room_for(std::size_t live) {
    if (!options_.of_device || wanted_.bytes == 0) return;
    TORCH_CHECK(static_cast<double>(live) < wanted_.bytes, "adacc: a budget of all of ",
                BudgetReport::in_words(wanted_.of(0)), " of ", side_.device(), ", where ",
                BudgetReport::in_words(live), " are in use before a step begins");
    const std::size_t unit = std::max<std::size_t>(1, wanted_.of(0) / 1024);
    const std::size_t beside = div_up(live, unit) * unit;
    if (beside <= beside_ && beside_ <= beside + 16 * unit) return;
    beside_ = beside;
    kinds_->want({std::max(1.0, wanted_.bytes - static_cast<double>(beside)), 1});
  }

  bool may_guess() const {
    return to_record_ > 0 && kinds_->all().size() == 1 && notes_.report().diverged == 0 &&
           away_ == nullptr;
  }
  /// Of the first recordings, all but the very first run by a plan for the record before, if one is within the
  /// budget. A plan that sends storages is left for planned steps.
  void guess_as_recorded() {
    if (!may_guess()) return;
    KnownStep& before = *kinds_->all().front();
    const std::unique_ptr<StepPlans> plans = kinds_->plans_for(before);
    if (!plans->fits) return;
    StepPlan plan = plans->best;
    plan.choice = before.memory->resolved(plan.choice);
    guess_.take(std::make_unique<GuessedStep>(GuessedStep{before.step.record, std::move(plan)}));
  }

  void finish_recorded(double seconds) {
    const bool has_backward = recorder_.reads();
    RecordedStep step = recorder_.end(seconds);
    if (!has_backward) return notes_.without_backward();
    BudgetReport& report = notes_.report();
    report.plain_bytes = step.record.peak();
    report.plain_seconds = step.record.seconds;
    const std::size_t bytes = recorder_.most() - std::min(recorder_.most(), live_);
    const std::size_t budget = kinds_->wanted().of(report.plain_bytes);
    if (guess_ && to_record_ == 0) {
      kinds_->used();
      notes_.guessed(guess_.planned_bytes(), bytes, budget);
    } else {
      notes_.recorded(bytes, budget, static_cast<bool>(guess_), why_);
    }
    if (to_record_ > 0) --to_record_;
    kinds_->keep(std::move(step));
  }

  void finish_planned(double seconds) {
    if (!diverged_ && !follower_->is_whole()) diverge(follower_->count_in_words());
    const std::size_t most = std::max({most_, recorder_.most(), side_.lap().most});
    const std::size_t bytes = most > live_ ? most - live_ : 0;
    if (diverged_) {
      to_record_ = 1;
      return notes_.diverged(why_);
    }
    KnownStep& known = *follower_->current();
    kinds_->used();
    known.most = std::max(known.most, bytes);
    if (away_ != nullptr) notes_.transferred(away_->statistics(), seconds, away_->name());
    mark_on_device();
    if (notes_.planned(known, bytes, seconds)) known.plan_for_less(bytes, declined_);
    else if (bytes > known.budget && !declined_.empty()) known.plan_without(declined_);
  }

  void mark_on_device() noexcept {
    if (!on_device_) return;
    try {
      on_device_->mark();
    } catch (...) {  // the host's seconds have to do
      on_device_.reset();
    }
  }
  /// A planned step's seconds on the device, if the step is done by now. Nothing waits.
  void put_seconds_into(BudgetReport& report) const {
    if (!on_device_ || on_device_->marks() != 2 || side_.is_captured() || !on_device_->has_ended())
      return;
    if (const std::vector<double> laps = on_device_->laps(); !laps.empty())
      report.measured_seconds = laps.front();
  }

  static std::atomic<const BudgetStep*>& stepping() {
    static std::atomic<const BudgetStep*> mine = nullptr;
    return mine;
  }
};

}}}}  // namespace adacc::v0_1::torch::detail
