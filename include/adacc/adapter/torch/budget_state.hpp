// SPDX-License-Identifier: MIT
/// A budget, as seen by hooks: follows a training step, records it or runs it by a plan, and reports.
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
#include "blocks.hpp"
#include "budget_notes.hpp"
#include "budget_options.hpp"
#include "budget_report.hpp"
#include "device_side.hpp"
#include "known_step.hpp"
#include "other_sizes.hpp"
#include "parameter.hpp"
#include "pinned_storages.hpp"
#include "possible_forms.hpp"
#include "saved_store.hpp"
#include "sent_storages.hpp"
#include "step_follower.hpp"
#include "step_guess.hpp"
#include "step_kinds.hpp"
#include "step_recorder.hpp"
#include "step_travels.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// A budget, as seen by hooks.
class BudgetState final : public SavedObserver,
                          public BlockPlanner,
                          public std::enable_shared_from_this<BudgetState> {
 public:
  BudgetState(Budget wanted, BudgetOptions options)
      : wanted_(wanted), options_(std::move(options)),
        to_record_(std::max(1, options_.recorded_steps)) {
    const int stores = (options_.store_folder.empty() ? 0 : 1) + (options_.store ? 1 : 0) +
                       (options_.pinned_bytes > 0 ? 1 : 0);
    TORCH_CHECK(stores <= 1,
                "adacc: a budget has one store: a folder, pinned memory, or one of yours");
    if (!options_.store_folder.empty())
      away_ = std::make_shared<StoredStorages>(options_.store_folder);
    else if (options_.store) away_ = std::make_shared<StoredStorages>(options_.store);
    if (options_.device) side_ = DeviceSide(*options_.device);
    is_chosen_ = options_.device.has_value() || away_ != nullptr;
    is_pinned_ = options_.pinned_bytes > 0;
    if (is_chosen_) check_side();
    if (is_pinned_) away_ = std::make_shared<PinnedStorages>(options_.pinned_bytes);
    notes_.report().device = side_.device().str();
    kinds_ = std::make_unique<StepKinds>(wanted_, options_, away_, side_);
    follower_.emplace(*kinds_, recorder_);
  }
  ~BudgetState() override {
    const BudgetState* mine = this;
    stepping().compare_exchange_strong(mine, nullptr);
  }

  void set_saved(std::weak_ptr<SavedStore> saved) { saved_ = std::move(saved); }

  /// A guard begins.
  void enter() {
    TORCH_CHECK(
        block_planner() == nullptr,
        "adacc: a budget within a budget: bytes are counted for the whole process, so there "
        "can be one; adacc::torch::SavedTensors may be inside");
    const std::lock_guard lock(mutex_);
    if (begun_ && !step_token_.expired() && !reads_) return;  // forward goes on: a step of several
    if (begun_ && packed_) finish();
    begin(side_.live_bytes());
  }
  /// A guard ends: encodes the storages held by autograd alone. A step without saved tensors does not count.
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      if (recorded()) recorder_.event();
      if (begun_ && !packed_) give_way();
    }
    if (const auto store = saved_.lock()) store->settle_later();
  }

  BudgetReport report() const {
    const std::lock_guard lock(mutex_);
    return notes_.report();
  }

  // SavedObserver
  bool observes(const at::Tensor& tensor) override {
    const std::lock_guard lock(mutex_);
    if (side_.holds(tensor)) return true;  // the usual case
    if (!is_chosen_) choose(tensor.device());
    if (side_.holds(tensor)) return true;
    if (notes_.report().elsewhere.empty() && tensor.storage().nbytes() >= options_.least_bytes)
      notes_.report().elsewhere = "tensors on " + tensor.device().str() +
                                  " are kept as they are: the budget is of " + side_.device().str();
    return false;
  }
  std::shared_ptr<void> packing() override {
    const std::lock_guard lock(mutex_);
    if (!begun_) begin(side_.lap().least);
    std::shared_ptr<void> token = step_token_.lock();
    if (token == nullptr) {
      token = std::shared_ptr<void>(
          static_cast<void*>(this),
          [self = shared_from_this(), step = step_](void*) { self->over(step); });
      step_token_ = token;
      packed_ = true;
    }
    if (recorded()) recorder_.held_event();
    return token;
  }

  void saved(const at::Tensor& tensor, SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (!is_chosen_) check_side();
    is_chosen_ = true;
    entry.step = step_;
    const std::string& saver = entry.what.savers.front();
    if (recorded()) recorder_.saved(tensor, entry);
    if (recording())
      return guess_.compare(entry.number, saver, side_.counted(tensor), follower_->missing());
    if (diverged_) return;
    const int input = follower_->number_of_input(tensor);
    if (input >= 0) entry.feeds_block = true;
    const int number = input >= 0 ? input : follower_->take_number();
    const std::size_t bytes = side_.counted(tensor);
    if (follower_->follow(number, input >= 0 ? nullptr : saver.c_str(), bytes, recorded())) {
      entry.number = number;
      if (!follower_->current()->refusal.empty()) refuse();
      return;
    }
    const StepRecord& mistaken_for = follower_->record();
    diverge("saved " + described(tensor, saver) + " as storage " + std::to_string(number) +
            ", and " + expected(mistaken_for, number));
    if (recording()) guess(mistaken_for, number, saver, bytes);
  }

  void saved_again(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (recorded(entry)) recorder_.saved_again(entry.number, std::string(saver()));
  }

  bool defers() override {
    const std::lock_guard lock(mutex_);
    return recorded() && defers_;
  }
  void released(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (recorded(entry)) recorder_.released(entry.number);
  }
  bool drops(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    return recorded(entry) && recorder_.makes_again(entry.number);
  }

  void saved_parameter(const at::Tensor& tensor) override {
    const std::lock_guard lock(mutex_);
    if (!begun_ || (follower_->missing() >= 0 && !recorded())) return;
    const at::Tensor parameter = parameter_of(tensor);
    if (!parameter.defined() || parameter.grad().defined()) return;
    if (follower_->missing() < 0) follower_->misses(next_number());
    if (recorded()) recorder_.misses_gradient(parameter);
  }

  Keep form_of(const SavedStorage& entry, const void* x) override {
    bool is_recording = false;
    {
      const std::lock_guard lock(mutex_);
      if (entry.step != step_) return Keep::as_is();  // of a step that is over
      is_recording = recording();
      if (!is_recording && entry.number >= 0) {
        if (away_ != nullptr) travels_.at(follower_->current()->travels, entry.number, false);
        if (recorded()) recorder_.released(entry, follower_->current()->step);
        return follower_->form_of(entry.number);
      }
    }
    // Without the mutex: a policy may be Python's, and who waits for it may have the interpreter.
    const Keep keep = entry.is_weight ? Keep::as_is() : options_.policy(entry.what);
    if (!is_recording) return keep;
    PossibleForms forms = possible_forms(entry, x, keep);
    const std::lock_guard lock(mutex_);
    const Keep guessed =
        guess_.form_of(entry, forms.codecs, forms.packed_bytes > 0, forms.smallest(keep));
    if (recorded(entry))
      recorder_.released(entry, std::move(forms.codecs), forms.packed_bytes,
                         entry.is_weight || !keep.untouched());
    return guessed;
  }

  void takes_form(const SavedStorage& entry, Keep asked, Keep taken) override {
    const std::lock_guard lock(mutex_);
    if (recorded(entry)) recorder_.takes_form(entry, asked, taken);
  }
  void settled() noexcept override {
    const std::lock_guard lock(mutex_);
    if (recorded()) recorder_.apart();
  }
  bool watches(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    return recorded(entry);
  }
  void lets_go(int step, int number) noexcept override {
    const std::lock_guard lock(mutex_);
    if (recorded() && step == step_) recorder_.lets_go(number);
  }

  std::shared_ptr<SentStorage> send(const SavedStorage& entry, const at::Storage& memory) override {
    const std::lock_guard lock(mutex_);
    if (away_ == nullptr || diverged_ || entry.step != step_ || entry.number < 0) return nullptr;
    // A recorded step sends all that it can.
    const TravelPlan* const plan = recording() ? nullptr : &follower_->current()->travels;
    if (plan != nullptr && !plan->sends(entry.number)) return nullptr;
    return travels_.send(plan, *away_, entry.number, memory, entry.stream);
  }
  void comes_back(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (!begun_ || !recorded_ || entry.step != step_ || entry.number < 0) return;
    recorder_.comes_back(entry.number);
    if (recorded()) recorder_.apart();
  }

  void reads(const SavedStorage* entry, bool last) override {
    const std::lock_guard lock(mutex_);
    reads_ = true;
    if (begun_ && !recording()) {
      if (away_ != nullptr && entry != nullptr && entry->step == step_ && entry->number >= 0)
        travels_.at(follower_->current()->travels, entry->number, true);
      // The step is of a known kind, and needs no second record.
      if (follower_->is_whole()) stop_recording();
    }
    if (!recorded()) return;
    if (entry != nullptr && recorded(*entry)) recorder_.reads(*entry, last);
    else recorder_.reads_other();
  }

  bool decodes_in_place(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (!recording() || guess_ || !recorded(entry) || entry.feeds_block || entry.stream)
      return false;
    recorder_.decodes_in_place(entry.number);
    return true;
  }
  void encodes_again(const SavedStorage& entry, bool is_over) override {
    const std::lock_guard lock(mutex_);
    if (!recorded(entry)) return;
    if (is_over) recorder_.was_encoded_again(entry.number);
    else recorder_.encodes_again();
  }

  void freed(SavedStorage& entry) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (!recorded(entry)) return;
      recorder_.freed(entry);
    }
    // Without the mutex: lets_go() may be called.
    entry.kept.reset();
    entry.encoded = EncodedElements();
    settled();
  }

  // BlockPlanner
  BlockRun enter_block(const std::vector<at::Tensor>& given) override {
    std::vector<at::Tensor> inputs;
    std::vector<int> numbers;
    const auto store = saved_.lock();
    int step = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!begun_) begin(side_.lap().least);
      step = step_;
    }
    for (const at::Tensor& input : given) {
      if (!input.defined() || !store->takes(input)) continue;
      inputs.push_back(input);
      numbers.push_back(store->give_to_block(input, step));
    }
    BlockRun run = BlockRun::again;
    {
      const std::lock_guard lock(mutex_);
      if (!recording() && !diverged_ && !follow_block(inputs, numbers)) run = BlockRun::plain;
      if (recording())
        run = guess_.runs_again(recorder_.record().blocks.size()) ? BlockRun::recorded
                                                                  : BlockRun::plain;
      // A block run again is not seen; the plan that runs the block again knows the block.
      if (run == BlockRun::again) stop_recording();
      if (recorded()) recorder_.enter_block(inputs, numbers, run == BlockRun::recorded);
      if (!recording() && !diverged_ && !follower_->current()->refusal.empty()) refuse();
    }
    store->settle();
    const std::lock_guard lock(mutex_);
    defers_ = run == BlockRun::recorded;  // so does a block that runs again unrecorded
    return run;
  }

  void leave_block() override {
    {
      const std::lock_guard lock(mutex_);
      if (recorded()) recorder_.leave_block();
      defers_ = false;
      if (begun_ && !recording() && !diverged_)
        if (std::string why = follower_->leave_block(); !why.empty()) diverge(std::move(why));
    }
    if (const auto store = saved_.lock()) store->settle_later();
  }

  BlockNumber recorded_block() override {
    const std::lock_guard lock(mutex_);
    return {step_, static_cast<int>(recorder_.record().blocks.size()) - 1};
  }
  void runs_again(bool begins) noexcept override {
    const std::lock_guard lock(mutex_);
    remakes_ = begins;
    if (!begins && recorded()) recorder_.apart();
  }
  void forgets_block(BlockNumber block, bool is_over) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!recorded() || block.step != step_) return;
    if (is_over) recorder_.apart();
    else recorder_.forgets_block(block.block);
  }

 private:
  static std::atomic<const BudgetState*>& stepping() {
    static std::atomic<const BudgetState*> mine = nullptr;
    return mine;
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

  void check_side() const {
    TORCH_CHECK(
        away_ == nullptr || is_pinned_ || side_.is_cpu(),
        "adacc: a folder or a store of yours takes tensors of the CPU, and the budget is of ",
        side_.device(), ": pinned memory takes those");
    TORCH_CHECK(!is_pinned_ || !side_.is_cpu(),
                "adacc: pinned memory takes tensors of a device, and the budget is of the CPU");
  }

  /// Counts and plans the memory of `device` from now on. The step under way, begun elsewhere, is recorded again.
  void choose(c10::Device device) {
    is_chosen_ = true;
    if (const std::string why = DeviceSide::refusal(device); !why.empty()) {
      notes_.report().elsewhere = "tensors on " + device.str() + " are kept as they are: " + why;
      return;
    }
    side_ = DeviceSide(device);
    check_side();
    notes_.report().device = device.str();
    if (!begun_) return;
    live_ = most_ = side_.live_bytes();
    leave_room_for(live_);
    side_.lap();
    recorder_.begin(live_);
    to_record_ = std::max(to_record_, 2);
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

  void begin(std::size_t live) {
    leave_room_for(live);
    if (away_ != nullptr) {
      travels_.clear();
      away_->begin_step();
    }
    KnownStep* const known = to_record_ > 0 ? nullptr : kinds_->likely(notes_.report());
    if (known != nullptr && away_ != nullptr)
      away_->begin_step(known->plans->best.sent_bytes, known->travels.count());
    const BudgetState* other = nullptr;
    if (!stepping().compare_exchange_strong(other, this))
      TORCH_CHECK(other == this,
                  "adacc: a step of another budget is not over: bytes are counted for the whole "
                  "process, so budgets take turns step by step (or is a loss of it kept without "
                  "backward?)");
    ++step_;
    step_token_.reset();
    packed_ = reads_ = diverged_ = refused_ = defers_ = remakes_ = false;
    why_.clear();
    guess_.clear();
    follower_->begin(known);
    if (known == nullptr) guess_as_recorded();
    begun_ = recorded_ = true;
    live_ = most_ = live;
    start_ = steady_seconds();
    side_.lap();
    recorder_.begin(live);
  }

  /// The last tensor of step `step` is gone.
  void over(int step) noexcept {
    const std::lock_guard lock(mutex_);
    if (step != step_ || !begun_) return;
    finish();
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
    const BudgetState* mine = this;
    stepping().compare_exchange_strong(mine, nullptr);
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
    if (notes_.planned(known, bytes, seconds)) known.plan_for_less(bytes);
  }

  // A step of known savers and unknown sizes.

  /// Looks for a plan for a step whose storage `number` has `bytes`, unlike the same storage in `like`.
  void guess(const StepRecord& like, int number, const std::string& saver, std::size_t bytes) {
    if (away_ != nullptr || number >= static_cast<int>(like.storages.size())) return;
    const std::vector<const KnownStep*> all =
        of_same_savers(kinds_->all(), like, number, saver, follower_->missing());
    guess_.take(guessed_step(all, kinds_->wanted(), number, bytes, recorder_));
  }
  /// Of the first recordings, all but the very first run by a plan for the record before, if one is within the
  /// budget. A plan that sends storages is left for planned steps.
  void guess_as_recorded() {
    if (to_record_ == 0 || kinds_->all().size() != 1 || notes_.report().diverged > 0 ||
        away_ != nullptr)
      return;
    KnownStep& before = *kinds_->all().front();
    const std::unique_ptr<StepPlans> plans = kinds_->plans_for(before);
    if (!plans->fits) return;
    StepPlan plan = plans->best;
    plan.choice = before.memory->resolved(plan.choice);
    guess_.take(std::make_unique<GuessedStep>(GuessedStep{before.step.record, std::move(plan)}));
  }

  /// Returns whether the beginning block runs again, as far as the known kind of steps says.
  bool follow_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers) {
    StepFollower::Block block = follower_->enter_block(inputs, numbers, recorded());
    if (!block.difference.empty()) diverge(std::move(block.difference));
    return block.again;
  }

  /// The step is of no known kind. If the recorder has seen all of the step, recording goes on; otherwise the step
  /// counts as diverged.
  void diverge(std::string why) {
    why_ = std::move(why);
    if (!recorded()) {
      diverged_ = true;
      return;
    }
    follower_->lose();
    if (away_ == nullptr || step_token_.expired()) return;
    away_->grow();
    travels_.leave_all();
  }

  const Budget wanted_;
  const BudgetOptions options_;
  std::weak_ptr<SavedStore> saved_;
  mutable std::mutex mutex_;
  BudgetNotes notes_;
  std::shared_ptr<SentStorages> away_;  // null: nothing is sent
  DeviceSide side_;
  bool is_chosen_ = false;  // side_ is final
  bool is_pinned_ = false;  // away_ is pinned memory
  StepRecorder recorder_{side_};
  std::unique_ptr<StepKinds> kinds_;
  int to_record_;

  // The step under way.
  bool begun_ = false, packed_ = false, reads_ = false, diverged_ = false, refused_ = false;
  bool recorded_ = false;
  bool defers_ = false;   // a recorded block is running
  bool remakes_ = false;  // a recorded block runs again
  int step_ = 0;
  std::weak_ptr<void> step_token_;
  std::size_t live_ = 0, most_ = 0;
  std::size_t beside_ = 0;  // in use as steps begin, as far as the budget is of a whole device
  double start_ = 0;
  std::optional<StepFollower> follower_;  // from the constructor on
  StepTravels travels_{recorder_};
  StepGuess guess_;
  std::string why_;
};

}}}}  // namespace adacc::v0_1::torch::detail
