// SPDX-License-Identifier: MIT
/// Blocks in a step under a budget: which run again in backward.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "blocks.hpp"
#include "budget_step.hpp"
#include "saved_store.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class BudgetBlocks : public BudgetStep, public BlockPlanner {
 public:
  void set_saved(std::weak_ptr<SavedStore> saved) { saved_ = std::move(saved); }

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
    if (recorded()) recorder_.begins_block();
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
  void runs_again(BlockNumber block, bool begins) noexcept override {
    const std::lock_guard lock(mutex_);
    remakes_ = begins;
    if (begins || !recorded()) return;
    if (block.step == step_) recorder_.ran_again(block.block);
    else recorder_.apart();
  }
  void forgets_block(BlockNumber block, bool is_over) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!recorded() || block.step != step_) return;
    if (is_over) recorder_.apart();
    else recorder_.forgets_block(block.block);
  }

 protected:
  using BudgetStep::BudgetStep;

  std::weak_ptr<SavedStore> saved_;

 private:
  /// Returns whether the beginning block runs again, as far as the known kind of steps says.
  bool follow_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers) {
    StepFollower::Block block = follower_->enter_block(inputs, numbers, recorded());
    if (!block.difference.empty()) diverge(std::move(block.difference));
    return block.again;
  }
};

}}}}  // namespace adacc::v0_1::torch::detail
