// SPDX-License-Identifier: MIT
/// A block of forward that can run again in backward, and one that does so in a step that is recorded.
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

/// What it takes to run a block again as it ran: its inputs, saved as an operator would save them, random
/// numbers and autocast.
class Repetition {
 public:
  using Inputs = std::vector<at::Tensor>;
  /// Is given each tensor that the block saves, detached, in the order in which it saves them.
  using Collect = std::function<void(const at::Tensor&)>;
  /// Calls the block's function, under hooks that collect.
  using Again = std::function<void(const Inputs&, const Collect&)>;

  Repetition(const Inputs& inputs, Again again)
      : again_(std::move(again)), surroundings_(Surroundings::devices_of(inputs)) {
    for (const at::Tensor& input : inputs) {
      asks_gradient_.push_back(input.defined() && input.requires_grad());
      const ThreadValue<const char*> saving(saving_as(), block_role(input));
      // Detached, as nobody else keeps a leaf's accumulator for us.
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

/// A block of a recorded step. While it runs in forward a store sees all that it saves; at its end the
/// store drops the storages that are the block's alone, and in backward the block makes them again. So the record
/// has all of the block, and the step takes no more than with a checkpoint.
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

  /// The block saves a tensor of `storage` (null: it is kept as it is): its place in their order.
  std::size_t add(std::weak_ptr<SavedStorage> storage) {
    storages_.push_back(std::move(storage));
    return storages_.size() - 1;
  }

  /// Runs again if is_dropped() says so. Then refill(storage, value) says whether the storage takes the
  /// value's memory; if it does not, the value is held until backward has read its place.
  template <class IsDropped, class Refill>
  void run(const IsDropped& is_dropped, const Refill& refill) {
    const std::lock_guard lock(mutex_);
    if (!is_dropped()) return;
    held_.assign(storages_.size(), {});
    std::size_t place = 0;
    const Running running(planner_);
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
  /// Backward has read what was saved at `place`.
  void has_read(std::size_t place) {
    const std::lock_guard lock(mutex_);
    if (place < held_.size()) held_[place].reset();
  }

 private:
  struct Running {
    explicit Running(BlockPlanner& planner) : of(planner) { of.runs_again(true); }
    ~Running() { of.runs_again(false); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    BlockPlanner& of;
  };

  BlockPlanner& planner_;
  const BlockNumber number_;
  std::mutex mutex_;
  std::unique_ptr<Repetition> repetition_;
  std::vector<std::weak_ptr<SavedStorage>> storages_;  // by place
  std::vector<at::Tensor> held_;
};

/// That which runs on this thread; null: none.
inline std::shared_ptr<DroppedBlock>& dropped_block() {
  thread_local std::shared_ptr<DroppedBlock> mine;
  return mine;
}

}}}}  // namespace adacc::v0_1::torch::detail
