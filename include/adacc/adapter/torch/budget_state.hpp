// SPDX-License-Identifier: MIT
/// A budget, as seen by hooks: saved tensors and readings are recorded, or get the planned form.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include "budget_blocks.hpp"
#include "parameter.hpp"
#include "possible_forms.hpp"
#include "roles.hpp"
#include "saved_store.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class BudgetState final : public BudgetBlocks,
                          public SavedObserver,
                          public std::enable_shared_from_this<BudgetState> {
 public:
  BudgetState(Budget wanted, BudgetOptions options) : BudgetBlocks(wanted, std::move(options)) {}

  /// A guard begins.
  void enter() {
    TORCH_CHECK(
        block_planner() == nullptr,
        "adacc: a budget within a budget: bytes are counted for the whole process, so there "
        "can be one; adacc::torch::SavedTensors may be inside");
    const std::lock_guard lock(mutex_);
    inside_ = true;
    if (begun_ && !step_token_.expired() && !reads_) return;  // forward goes on: a step of several
    if (begun_ && packed_) finish();
    begin(side_.live_bytes());
  }
  /// A guard ends: encodes the storages held by autograd alone. A step without saved tensors does not count.
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      inside_ = false;
      if (recorded()) recorder_.event();
      if (begun_ && !packed_) give_way();
      if (begun_ && !reads_ && step_token_.expired()) finish();  // autograd holds nothing of it
    }
    if (const auto store = saved_.lock()) store->settle_later();
  }

  // SavedObserver
  bool observes(const at::Tensor& tensor) override {
    const std::lock_guard lock(mutex_);
    if (side_.holds(tensor)) return true;  // the usual case
    if (!where_.is_settled()) choose(tensor.device());
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

  bool names_modules() override {
    const std::lock_guard lock(mutex_);
    return recording();
  }
  void saved(const at::Tensor& tensor, SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    where_.settle();
    entry.step = step_;
    const std::string saver = entry.what.savers.front();
    if (recorded()) recorder_.saved(tensor, entry);
    if (recording())
      return guess_.compare(entry.number, saver, side_.counted(tensor), follower_->missing());
    if (diverged_) return;
    const int input = follower_->number_of_input(tensor);
    if (input >= 0) feed_block(entry, tensor);
    const std::size_t bytes = side_.counted(tensor);
    const int known = input >= 0 ? input : follower_->number_of_output(saver, bytes);
    const int number = known >= 0 ? known : follower_->take_number();
    if (follower_->follow(number, known >= 0 ? nullptr : saver.c_str(), bytes, recorded())) {
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
    if (recorded(entry)) recorder_.saved_again(entry.number, std::string(saver()), recording());
  }

  bool defers() override {
    const std::lock_guard lock(mutex_);
    return recorded() && defers_;
  }
  void released(const SavedStorage& entry) override {
    const std::lock_guard lock(mutex_);
    if (recorded(entry)) recorder_.released(entry.number);
  }
  StepSource::Form least_form(const SavedStorage& entry, const SavedStorage& source,
                              StepSource::Form least) override {
    const std::lock_guard lock(mutex_);
    if (!begun_ || entry.step != step_ || entry.number < 0) return least;
    const StepRecord* const planned = recording() ? guess_.record() : &follower_->record();
    return planned != nullptr ? planned->least_form(entry.number, source.number, least) : least;
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
    // Without the mutex: a policy of Python waits for the interpreter, whose owner may wait for the mutex.
    const Keep keep = entry.is_weight ? Keep::as_is() : options_.policy(entry.what);
    if (!is_recording) return keep;
    PossibleForms forms = possible_forms(entry, x, keep);
    const Keep smallest = entry.loses_as_planned ? Keep() : forms.smallest(keep);
    const std::lock_guard lock(mutex_);
    const Keep guessed = guess_.form_of(entry, forms.codecs, forms.packed_bytes > 0, smallest);
    if (recorded(entry))
      recorder_.released(entry, std::move(forms.codecs), forms.packed_bytes,
                         entry.is_weight || !keep.untouched());
    return guessed;
  }

  void takes_form(const SavedStorage& entry, Keep asked, Keep taken) override {
    const std::lock_guard lock(mutex_);
    if (recorded(entry)) recorder_.takes_form(entry, asked, taken);
    if (begun_ && !recording() && entry.step == step_ && entry.number >= 0)
      each_declined(asked, taken, [&](Keep form) { declined_.push_back({entry.number, form}); });
  }
  void checks(const SavedStorage& entry, CheckedStorage checked) override {
    const std::lock_guard lock(mutex_);
    if (begun_ && entry.step == step_) checked.number = entry.number;
    checked_.add(std::move(checked));
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
    hold_until_backward_ends();
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
      if (begun_ && entry.step == step_) follower_->freed(entry.number);
      if (!recorded(entry)) return;
      recorder_.freed(entry);
    }
    // Without the mutex: lets_go() may be called.
    entry.kept.reset();
    entry.encoded = EncodedElements();
    settled();
  }

 private:
  /// The step lasts until the end of the backward under way. Operators that save nothing (casts of parameters) come
  /// last there, and their gradients may make the peak.
  void hold_until_backward_ends() {
    std::shared_ptr<std::shared_ptr<void>> held, token;  // no token goes behind the mutex
    {
      const std::lock_guard lock(mutex_);
      held = held_.lock();
      if (held != nullptr && *held != nullptr) return;
      token = std::make_shared<std::shared_ptr<void>>(step_token_.lock());
      held_ = token;
    }
    if (*token == nullptr) return;
    try {
      ::torch::autograd::Engine::get_default_engine().queue_callback(
          [self = shared_from_this(), token] {
            std::shared_ptr<void> last;
            const std::lock_guard lock(self->mutex_);
            last.swap(*token);
          });
    } catch (const c10::Error&) {}  // outside of a backward: an attribute of a node is read
  }

  std::weak_ptr<std::shared_ptr<void>> held_;  // the step's token; empty: that backward has ended
};

}}}}  // namespace adacc::v0_1::torch::detail
