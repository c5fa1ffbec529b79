// SPDX-License-Identifier: MIT
/// A budget, as seen by hooks: follows a training step, records it or runs it by a plan, and reports.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "../../io/budget.hpp"
#include "blocks.hpp"
#include "budget_options.hpp"
#include "budget_report.hpp"
#include "known_step.hpp"
#include "lossless.hpp"
#include "memory_count.hpp"
#include "other_sizes.hpp"
#include "parameter.hpp"
#include "saved_store.hpp"
#include "sent_storages.hpp"
#include "step_kinds.hpp"
#include "step_recorder.hpp"
#include "step_travels.hpp"
#include "threads.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// A budget, as seen by hooks.
class BudgetState final : public SavedObserver,
                          public BlockPlanner,
                          public std::enable_shared_from_this<BudgetState> {
 public:
  BudgetState(Budget wanted, BudgetOptions options)
      : wanted_(wanted), options_(std::move(options)),
        to_record_(std::max(1, options_.recorded_steps)) {
    TORCH_CHECK(options_.store_folder.empty() || !options_.store,
                "adacc: a budget has one store: a folder, or one of yours");
    if (!options_.store_folder.empty())
      away_ = std::make_shared<SentStorages>(options_.store_folder);
    else if (options_.store) away_ = std::make_shared<SentStorages>(options_.store);
    kinds_ = std::make_unique<StepKinds>(wanted_, options_, away_);
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
    begin(MemoryCount::live_bytes());
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
    return report_;
  }

  // SavedObserver
  std::shared_ptr<void> packing() override {
    const std::lock_guard lock(mutex_);
    if (!begun_) begin(MemoryCount::lap().least);
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
    entry.step = step_;
    const std::string& saver = entry.what.savers.front();
    if (recorded()) recorder_.saved(tensor, entry);
    if (recording()) return compare_with_guess(entry.number, saver, tensor.storage().nbytes());
    if (diverged_) return;
    const int pending = inputs_.number_of(tensor);
    if (pending >= 0) entry.feeds_block = true;
    const int number = pending >= 0 ? pending : next_++;
    if (follow(number, pending >= 0 ? nullptr : saver.c_str(), tensor.storage().nbytes())) {
      entry.number = number;
      if (!current_->refusal.empty()) refuse();
    } else {
      const StepRecord& mistaken_for = current_->step.record;
      diverge("saved " + described(tensor, saver) + " as storage " + std::to_string(number) +
              ", and " + expected(mistaken_for, number));
      if (recording()) guess(mistaken_for, number, saver, tensor.storage().nbytes());
    }
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
    if (!begun_ || (missing_ >= 0 && !recorded())) return;
    const at::Tensor parameter = parameter_of(tensor);
    if (!parameter.defined() || parameter.grad().defined()) return;
    if (missing_ < 0) missing_ = next_number();
    if (recorded()) recorder_.misses_gradient(parameter);
  }

  Keep form_of(const SavedStorage& entry, const void* x) override {
    bool is_recording = false;
    {
      const std::lock_guard lock(mutex_);
      if (entry.step != step_) return Keep::as_is();  // of a step that is over
      is_recording = recording();
      if (!is_recording && entry.number >= 0) {
        if (away_ != nullptr) travels_.at(current_->travels, entry.number, false);
        if (recorded()) recorder_.released(entry, current_->step);
        return planned_form(entry.number);
      }
    }
    // Without the mutex: a policy may be Python's, and who waits for it may have the interpreter.
    const Keep keep = options_.policy(entry.what);
    if (!is_recording) return keep;
    std::size_t packed = 0;
    const std::size_t count = entry.end - entry.first;
    if (!keep.untouched()) {
      Threads threads;
      Cpu cpu{ExecutorRef(threads)};
      const LosslessForm form = lossless_form(cpu, x, count, entry.elem_bytes(),
                                              c10::isIntegralType(entry.what.type, true),
                                              c10::isSignedType(entry.what.type));
      if (form.bits != 0 && form.bytes(count) < entry.bytes()) packed = form.bytes(count);
    }
    // A look at some rows: the rest is for the step that encodes.
    constexpr std::size_t rows = 256;
    std::vector<Keep> forms = forms_up_to(keep, [&](const Keep& form) {
      return packed > 0 || EncodedElements::stands(*form.codec(), entry.what.type, x,
                                                   std::min(count, rows * entry.columns),
                                                   entry.columns, entry.demands());
    });
    leave_smaller(forms, entry.bytes(), [&](const Keep& form) {
      return EncodedElements::bytes_under(*form.codec(), entry.what.type, count, entry.columns);
    });
    const std::lock_guard lock(mutex_);
    const Keep guessed =
        guessed_form(entry, forms, packed > 0, forms.empty() ? keep : forms.back());
    if (recorded(entry)) recorder_.released(entry, std::move(forms), packed);
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
    const TravelPlan* const plan = recording() ? nullptr : &current_->travels;
    if (plan != nullptr && !plan->sends(entry.number)) return nullptr;
    return travels_.send(plan, *away_, entry.number, memory);
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
        travels_.at(current_->travels, entry->number, true);
      // The step is of a known kind, and needs no second record.
      if (next_ == count_of(*current_)) stop_recording();
    }
    if (!recorded()) return;
    if (entry != nullptr && recorded(*entry)) recorder_.reads(*entry, last);
    else recorder_.reads_other();
  }

  bool decodes_in_place(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (!recording() || guess_ != nullptr || !recorded(entry) || entry.feeds_block) return false;
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
      if (!begun_) begin(MemoryCount::lap().least);
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
      if (recording()) run = guesses_again() ? BlockRun::recorded : BlockRun::plain;
      // A block run again is not seen; the plan that runs the block again knows the block.
      if (run == BlockRun::again) stop_recording();
      if (recorded()) recorder_.enter_block(inputs, numbers, run == BlockRun::recorded);
      if (!recording() && !diverged_ && !current_->refusal.empty()) refuse();
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
      if (begun_ && !recording() && !diverged_ && known_block_ != nullptr) {
        if (again_) next_ = known_block_->end;
        else if (next_ != known_block_->end) diverge("saved less in a block than was recorded");
        known_block_ = nullptr;
      }
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
  bool recording() const { return begun_ && current_ == nullptr; }
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
    return recorded() ? static_cast<int>(recorder_.record().storages.size()) : next_;
  }

  void begin(std::size_t live) {
    if (away_ != nullptr) {
      travels_.clear();
      away_->begin_step();
    }
    KnownStep* const known = to_record_ > 0 ? nullptr : kinds_->likely(report_);
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
    inputs_.clear();
    packed_ = reads_ = diverged_ = refused_ = defers_ = remakes_ = false;
    next_ = next_block_ = 0;
    missing_ = -1;
    known_block_ = nullptr;
    why_.clear();
    guess_.reset();
    current_ = known;
    if (known != nullptr) choice_ = known->plans->best.choice;
    else guess_as_recorded();
    begun_ = recorded_ = true;
    live_ = most_ = live;
    start_ = steady_seconds();
    MemoryCount::lap();
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
      ++report_.steps;
      if (!recording() && !diverged_ && recorded() && !(whole() && same_gradients()))
        diverge("saved " + std::to_string(next_) + " storages where " +
                std::to_string(count_of(*current_)) + " were recorded");
      if (recording()) finish_recorded(seconds);
      else finish_planned(seconds);
    }
    give_way();
  }
  /// Whether all recorded storages of this kind were saved.
  bool whole() const { return next_ == count_of(*current_); }
  bool same_gradients() const { return missing_ == current_->step.record.before_missing_gradient; }

  /// Refuses a step of a kind that cannot be within the budget.
  [[noreturn]] void refuse() {
    refused_ = true;
    ++report_.refused;
    refusal_noted_ = true;
    report_.note = "a step was refused: " + current_->refusal;
    stop_recording();
    TORCH_CHECK(false, current_->refusal);
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
    if (!has_backward) {
      report_.note = "a step ended without backward, so it was not recorded";
      return;
    }
    const bool was_guessed = guess_ != nullptr && to_record_ == 0;
    ++(was_guessed ? report_.planned : report_.recorded);
    report_.plain_bytes = step.record.peak();
    report_.plain_seconds = step.record.seconds;
    const std::size_t bytes = recorder_.most() - std::min(recorder_.most(), live_);
    if (to_record_ > 0) --to_record_;
    if (was_guessed) note_guessed(bytes, wanted_.of(report_.plain_bytes));
    else note_recorded(bytes, wanted_.of(report_.plain_bytes));
    kinds_->keep(std::move(step));
  }
  /// Reports a step of unknown sizes, run by a plan.
  void note_guessed(std::size_t bytes, std::size_t budget) {
    kinds_->used();
    report_.budget_bytes = budget;
    report_.planned_bytes = guess_->plan.peak.bytes;
    report_.measured_bytes = bytes;
    if (bytes <= budget) return refusal_noted_ ? note("") : void();
    ++report_.corrections;
    note("step " + std::to_string(report_.steps) + ", of sizes that were not known, took " +
         BudgetReport::in_words(bytes) + " of a budget of " + BudgetReport::in_words(budget));
  }
  void note_recorded(std::size_t bytes, std::size_t budget) {
    report_.recorded_bytes = bytes;
    std::string text;
    if (!why_.empty()) text = why_ + ": it was recorded as one of another kind";
    if (report_.recorded_bytes > budget) {
      ++report_.recorded_over;
      text += std::string(text.empty() ? "was recorded" : ",") +
              (guess_ != nullptr ? " by a plan for the step before, and took "
                                 : " in the smallest forms and could not fit: it took ") +
              BudgetReport::in_words(report_.recorded_bytes) + " of a budget of " +
              BudgetReport::in_words(budget);
    }
    if (!text.empty()) note("step " + std::to_string(report_.steps) + " " + text);
    else if (refusal_noted_) note("");
  }
  void note(std::string text) {
    report_.note = std::move(text);
    refusal_noted_ = false;
  }

  void finish_planned(double seconds) {
    if (!diverged_ && !whole())
      diverge("saved " + std::to_string(next_) + " storages where " +
              std::to_string(count_of(*current_)) + " were recorded");
    const std::size_t most = std::max({most_, recorder_.most(), MemoryCount::lap().most});
    const std::size_t bytes = most > live_ ? most - live_ : 0;
    if (diverged_) {
      ++report_.diverged;
      to_record_ = 1;
      return note("step " + std::to_string(report_.steps) + " " + why_ +
                  ": the next one is recorded");
    }
    KnownStep& known = *current_;
    ++report_.planned;
    kinds_->used();
    if (refusal_noted_) note("");
    describe(known, report_);
    known.most = std::max(known.most, bytes);
    report_.measured_bytes = bytes;
    report_.most_bytes = known.most;
    report_.measured_seconds = seconds;
    if (away_ != nullptr) note_transfers(seconds);
    if (bytes <= known.budget) return;
    if (!known.plans->fits && known.surplus == 0) {  // the least, as asked by BudgetOptions
      ++report_.refused;
      note("step " + std::to_string(report_.steps) + " ran in the least there is, " +
           BudgetReport::in_words(bytes) + " of a budget of " +
           BudgetReport::in_words(known.budget));
      refusal_noted_ = true;
    } else if (known.plans->fits) {
      ++report_.corrections;
      known.surplus = std::max(known.surplus, bytes - known.plans->best.peak.bytes);
      known.plans.reset();
      known.wanted = true;
      known.most = 0;
      report_.note = "step " + std::to_string(report_.steps) + " took " +
                     BudgetReport::in_words(bytes) + ", so less is planned with";
    } else {
      report_.note = "step " + std::to_string(report_.steps) + " took " +
                     BudgetReport::in_words(bytes) + ", and there is no smaller plan";
    }
  }

  void note_transfers(double seconds) {
    const SentStatistics sent = away_->statistics();
    report_.written_bytes = sent.written_bytes;
    report_.read_bytes = sent.read_bytes;
    report_.stall_seconds = sent.stall_seconds;
    if (sent.stall_seconds < 0.2 * seconds) return;
    report_.note = "step " + std::to_string(report_.steps) + " waited for " +
                   std::to_string(static_cast<int>(1e3 * sent.stall_seconds)) + " of its " +
                   std::to_string(static_cast<int>(1e3 * seconds)) + " ms: " + away_->name() +
                   " is slow for this budget";
  }

  // A planned step under way.

  /// Whether the next saved tensor may be storage `number` of a known step. If so, this step becomes the current one.
  bool follow(int number, const char* saver, std::size_t bytes) {
    const auto fits = [&](const KnownStep& known) {
      if (number >= count_of(known)) return false;
      const StepStorage& storage = known.step.record.storages[static_cast<std::size_t>(number)];
      return misses_gradient(missing_, number) ==
                 misses_gradient(known.step.record.before_missing_gradient, number) &&
             storage.bytes == bytes && (saver == nullptr || storage.name == saver);
    };
    if (fits(*current_)) return true;
    if (known_block_ != nullptr || next_block_ > 0) return false;
    KnownStep* const better = kinds_->in_place_of(*current_, number, fits);
    if (better == nullptr) return false;
    go_on_as(*better, number);
    return true;
  }

  /// Goes on as a step of kind `known`, after `number` storages.
  void go_on_as(KnownStep& known, int number) {
    current_ = &known;
    choice_ = known.plans->best.choice;
    if (!recorded()) return;
    bool differs = false;
    for (int i = 0; i < number; ++i) {
      const StepStorage& mine = recorder_.record().storages[static_cast<std::size_t>(i)];
      int& form = choice_.form[static_cast<std::size_t>(i)];
      if (mine.released < 0 || form == recorder_.taken(i)) continue;
      differs = true;
      form = recorder_.taken(i);
    }
    if (differs && known.memory->peak(choice_).bytes > known.budget)
      known.memory->make_smallest(choice_, number);
  }

  // A step of known savers and unknown sizes.

  /// Looks for a plan for a step whose storage `number` has `bytes`, unlike the same storage in `like`.
  void guess(const StepRecord& like, int number, const std::string& saver, std::size_t bytes) {
    if (away_ != nullptr || number >= static_cast<int>(like.storages.size())) return;
    const std::vector<const KnownStep*> all =
        of_same_savers(kinds_->all(), like, number, saver, missing_);
    guess_ = guessed_step(all, wanted_, number, bytes, recorder_);
  }
  /// Of the first recordings, all but the very first run by a plan for the record before, if one is within the
  /// budget. A plan that sends storages is left for planned steps.
  void guess_as_recorded() {
    if (to_record_ == 0 || kinds_->all().size() != 1 || report_.diverged > 0 || away_ != nullptr)
      return;
    KnownStep& before = *kinds_->all().front();
    const std::unique_ptr<StepPlans> plans = kinds_->plans_for(before);
    if (plans->fits)
      guess_ = std::make_unique<GuessedStep>(GuessedStep{before.step.record, plans->best});
  }
  /// Compares the saved tensor with the guess. If they differ, all later tensors take the smallest forms.
  void compare_with_guess(int number, const std::string& saver, std::size_t bytes) {
    if (guess_ == nullptr) return;
    const std::vector<StepStorage>& all = guess_->record.storages;
    const auto place = static_cast<std::size_t>(number);
    if (place >= all.size() || all[place].bytes != bytes || all[place].name != saver ||
        misses_gradient(missing_, number) !=
            misses_gradient(guess_->record.before_missing_gradient, number))
      guess_.reset();
  }
  Keep guessed_form(const SavedStorage& entry, const std::vector<Keep>& forms, bool packs,
                    Keep smallest) const {
    if (guess_ == nullptr || entry.number < 0 || packs) return smallest;
    const auto place = static_cast<std::size_t>(entry.number);
    const int form = guess_->plan.choice.form[place];
    if (form < 0) return Keep::as_is();
    const CodecInfo* const codec =
        guess_->record.storages[place].forms[static_cast<std::size_t>(form)].codec;
    for (const Keep& one : forms)
      if (one.codec()->info == codec) return one;
    return smallest;
  }
  /// Whether the beginning block runs again.
  bool guesses_again() const {
    const std::size_t block = recorder_.record().blocks.size();
    return guess_ == nullptr || block >= guess_->plan.choice.again.size() ||
           guess_->plan.choice.again[block] != 0;
  }

  bool follow_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers) {
    const std::vector<StepBlock>& blocks = current_->step.record.blocks;
    const auto place = static_cast<std::size_t>(next_block_);
    const auto elsewhere = [&] {
      diverge("called checkpoint() elsewhere than was recorded");
      return true;
    };
    if (place >= blocks.size()) return elsewhere();
    const std::vector<int>& recorded = blocks[place].inputs;
    std::vector<int> mine;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      int number = numbers[i] >= 0 ? numbers[i] : inputs_.number_of(inputs[i]);
      if (number < 0) {
        // An earlier block, which runs again and saves nothing, may have saved the input.
        const bool before = mine.size() < recorded.size() && recorded[mine.size()] < next_;
        number = before ? recorded[mine.size()] : next_++;
        inputs_.add(number, inputs[i]);
        const KnownStep* const mistaken_for = current_;
        if (!follow(number, nullptr, inputs[i].storage().nbytes())) {
          diverge("gave a block an input of sizes " + sizes_of(inputs[i]) + ", and " +
                  expected(current_->step.record, number));
          return true;
        }
        if (current_ != mistaken_for) return follow_block(inputs, numbers);
      }
      if (std::find(mine.begin(), mine.end(), number) == mine.end()) mine.push_back(number);
    }
    if (blocks[place].first != next_ || recorded != mine) return elsewhere();
    ++next_block_;
    known_block_ = &blocks[place];
    again_ = choice_.again[place] != 0;
    return again_;
  }

  /// The step is of no known kind. If the recorder has seen all of the step, recording goes on; otherwise the step
  /// counts as diverged.
  void diverge(std::string why) {
    why_ = std::move(why);
    known_block_ = nullptr;
    if (!recorded()) {
      diverged_ = true;
      return;
    }
    current_ = nullptr;
    if (away_ == nullptr || step_token_.expired()) return;
    away_->grow();
    travels_.leave_all();
  }

  Keep planned_form(int number) const {
    const auto place = static_cast<std::size_t>(number);
    const StepStorage& storage = current_->step.record.storages[place];
    if (storage.packed.bytes > 0) return {};
    const int form = choice_.form[place];
    return form < 0 ? Keep::as_is()
                    : current_->step.elements[place].forms[static_cast<std::size_t>(form)];
  }

  const Budget wanted_;
  const BudgetOptions options_;
  std::weak_ptr<SavedStore> saved_;
  mutable std::mutex mutex_;
  BudgetReport report_;
  std::shared_ptr<SentStorages> away_;  // null: nothing is sent
  StepRecorder recorder_;
  std::unique_ptr<StepKinds> kinds_;
  int to_record_;
  bool refusal_noted_ = false;  // the report's note is about a refusal

  // The step under way.
  bool begun_ = false, packed_ = false, reads_ = false, diverged_ = false, refused_ = false;
  bool recorded_ = false;
  bool defers_ = false;   // a recorded block is running
  bool remakes_ = false;  // a recorded block runs again
  int step_ = 0;
  std::weak_ptr<void> step_token_;
  std::size_t live_ = 0, most_ = 0;
  double start_ = 0;
  KnownStep* current_ = nullptr;  // null: a step of no known kind
  StepChoice choice_{StepRecord{}};
  int next_ = 0, next_block_ = 0;
  int missing_ = -1;  // StepRecord::before_missing_gradient of this step
  const StepBlock* known_block_ = nullptr;
  bool again_ = false;
  BlockInputs inputs_;
  StepTravels travels_{recorder_};
  std::unique_ptr<GuessedStep> guess_;  // for a step of unknown sizes; null: the smallest forms
  std::string why_;
};

}}}}  // namespace adacc::v0_1::torch::detail
