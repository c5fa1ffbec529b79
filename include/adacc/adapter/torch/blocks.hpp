// SPDX-License-Identifier: MIT
/// Decides on this thread whether the functions of checkpoint() run again in backward.
///
/// Within a budget (budget.hpp), the plan decides. If the plan keeps the tensors saved by a function, the function
/// runs as if there were no checkpoint. In a recorded step, the recorder watches the function run again. For nested
/// checkpoints, the outermost one is planned, and those inside are plain calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The fate of the tensors saved by a block.
enum class BlockRun : unsigned char {
  plain,     ///< kept, as if there were no block
  again,     ///< dropped: the block runs again in backward
  recorded,  ///< dropped and run again, with the saved tensors seen (DroppedBlock)
};

/// A recorded block.
struct BlockNumber {
  int step = 0, block = 0;
};

class BlockPlanner {
 public:
  virtual ~BlockPlanner() = default;
  /// A function of `inputs` begins.
  virtual BlockRun enter_block(const std::vector<at::Tensor>& inputs) = 0;
  virtual void leave_block() = 0;
  // For recorded blocks:
  /// The block beginning now.
  virtual BlockNumber recorded_block() = 0;
  /// The block runs again; called at the beginning (`begins`) and at the end.
  virtual void runs_again(BlockNumber block, bool begins) noexcept = 0;
  /// The inputs kept for running the block again are about to be freed, or, if `is_over`, have been.
  virtual void forgets_block(BlockNumber block, bool is_over) noexcept = 0;
};

/// Sets a variable of this thread until the destructor.
template <class T>
class ThreadValue {
 public:
  ThreadValue(T& variable, T value)
      : variable_(variable), before_(std::exchange(variable, value)) {}
  ~ThreadValue() { variable_ = before_; }
  ThreadValue(const ThreadValue&) = delete;
  ThreadValue& operator=(const ThreadValue&) = delete;

 private:
  T& variable_;
  T before_;
};

/// The planner of the innermost scope; null: every checkpoint() runs again.
inline BlockPlanner*& block_planner() {
  thread_local BlockPlanner* mine = nullptr;
  return mine;
}
/// Whether a planned block is running, in forward or again.
inline bool& within_block() {
  thread_local bool within = false;
  return within;
}

/// The role of `input`, an input of a block run again.
inline const char* block_role(const at::Tensor& input) {
  return input.defined() && input.requires_grad() ? "block_input" : "block_constant";
}
/// The block_role() of the tensor saved now; null: the tensor is no input of a block.
inline const char*& saving_as() {
  thread_local const char* role = nullptr;
  return role;
}

/// A planned block, from its beginning to its end.
class PlannedBlock {
 public:
  PlannedBlock(BlockPlanner& planner, const std::vector<at::Tensor>& inputs)
      : planner_(planner), run_(planner.enter_block(inputs)), within_(within_block(), true) {}
  ~PlannedBlock() { planner_.leave_block(); }
  PlannedBlock(const PlannedBlock&) = delete;
  PlannedBlock& operator=(const PlannedBlock&) = delete;

  BlockRun run() const { return run_; }
  BlockPlanner& planner() const { return planner_; }

 private:
  BlockPlanner& planner_;
  BlockRun run_;
  ThreadValue<bool> within_;
};

}}}}  // namespace adacc::v0_1::torch::detail
