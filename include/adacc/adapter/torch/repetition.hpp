// SPDX-License-Identifier: MIT
/// A block of forward that can run again in backward, and one that does so in a recorded step.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "blocks.hpp"
#include "surroundings.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Everything for running a block again unchanged: the inputs, saved as an operator would save them, random numbers
/// and autocast.
class Repetition {
 public:
  using Inputs = std::vector<at::Tensor>;
  /// Receives each tensor saved by the block, detached, in the order of saving.
  using Collect = std::function<void(const at::Tensor&)>;
  /// Calls the block's function, under collecting hooks.
  using Again = std::function<void(const Inputs&, const Collect&)>;

  Repetition(const Inputs& inputs, Again again)
      : again_(std::move(again)), surroundings_(Surroundings::devices_of(inputs)) {
    for (const at::Tensor& input : inputs) {
      asks_gradient_.push_back(input.defined() && input.requires_grad());
      const ThreadValue<const char*> saving(saving_as(), block_role(input));
      // Detached, because no other owner keeps a leaf's accumulator alive.
      inputs_.emplace_back(input.defined() ? input.detach() : input, /*is_output=*/false);
    }
  }

  void run(const Collect& collect) {
    Inputs inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const at::Tensor input = inputs_[i].unpack();
      inputs.push_back(input.defined() ? input.detach().requires_grad_(asks_gradient_[i]) : input);
    }
    const ThreadValue<BlockPlanner*> unplanned(block_planner(), nullptr);
    const ThreadValue<bool> as_it_was(within_block(), within_block_);
    const InSurroundings there(surroundings_);
    const at::AutoGradMode with_grad(true);
    again_(inputs, collect);
  }

 private:
  Again again_;
  std::vector<::torch::autograd::SavedVariable> inputs_;  // through the hooks outside
  std::vector<bool> asks_gradient_;
  Surroundings surroundings_;
  bool within_block_ = within_block();
};

struct SavedStorage;

/// A block of a recorded step. During forward, a store sees all tensors saved by the block. At the end, the store
/// drops the storages of this block alone, and in backward the block makes them again. So the record has the whole
/// block, and the step takes no more bytes than with a checkpoint.
class DroppedBlock {
 public:
  DroppedBlock(BlockPlanner& planner, const Repetition::Inputs& inputs, Repetition::Again again)
      : planner_(planner), number_(planner.recorded_block()),
        repetition_(std::make_unique<Repetition>(inputs, std::move(again))) {}
  ~DroppedBlock() {
    planner_.forgets_block(number_, /*is_over=*/false);
    repetition_.reset();
    held_.clear();
    planner_.forgets_block(number_, /*is_over=*/true);
  }
  DroppedBlock(const DroppedBlock&) = delete;
  DroppedBlock& operator=(const DroppedBlock&) = delete;

  /// The block saves a tensor of `storage` (null: retained). Returns the place in the order of saving.
  std::size_t add(std::weak_ptr<SavedStorage> storage) {
    storages_.push_back(std::move(storage));
    return storages_.size() - 1;
  }

  /// Runs again if is_dropped(). Then refill(storage, value) returns whether the storage takes the value's memory;
  /// otherwise the value is held until backward has read the place.
  template <class IsDropped, class Refill>
  void run(const IsDropped& is_dropped, const Refill& refill) {
    const std::lock_guard lock(mutex_);
    if (!is_dropped()) return;
    held_.assign(storages_.size(), {});
    std::size_t place = 0;
    const Running running(planner_, number_);
    repetition_->run([&](const at::Tensor& value) {
      TORCH_CHECK(place < storages_.size(),
                  "adacc: checkpoint: when its function was called again it saved more than the ",
                  storages_.size(), " tensors that it had saved: it must do the same each time");
      const auto storage = storages_[place].lock();
      if (storage != nullptr && !refill(*storage, value)) held_[place] = value;
      ++place;
    });
    TORCH_CHECK(place == storages_.size(),
                "adacc: checkpoint: when its function was called again it saved ", place,
                " tensors where it had saved ", storages_.size(),
                ": it must do the same each time");
  }
  /// Backward has read the tensor saved at `place`.
  void has_read(std::size_t place) {
    const std::lock_guard lock(mutex_);
    if (place < held_.size()) held_[place].reset();
  }

 private:
  struct Running {
    Running(BlockPlanner& planner, BlockNumber block) : of(planner), number(block) {
      of.runs_again(number, true);
    }
    ~Running() { of.runs_again(number, false); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    BlockPlanner& of;
    const BlockNumber number;
  };

  BlockPlanner& planner_;
  const BlockNumber number_;
  std::mutex mutex_;
  std::unique_ptr<Repetition> repetition_;
  std::vector<std::weak_ptr<SavedStorage>> storages_;  // by place
  std::vector<at::Tensor> held_;
};

/// The dropped block running on this thread; null: none.
inline std::shared_ptr<DroppedBlock>& dropped_block() {
  thread_local std::shared_ptr<DroppedBlock> mine;
  return mine;
}

}}}}  // namespace adacc::v0_1::torch::detail
