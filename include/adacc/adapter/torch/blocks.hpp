// SPDX-License-Identifier: MIT
/// Who decides on this thread whether the functions of checkpoint() run again in backward.
///
/// Within a budget (budget.hpp) that is its plan's affair: a function is run as if there were no
/// checkpoint where the plan keeps what it saves, and in a step that is recorded it runs again under the
/// eyes of the recorder. Of checkpoints within one another the outermost is planned, and those inside are plain
/// calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// What becomes of the tensors that a block saves.
enum class BlockRun : unsigned char {
  plain,     ///< they wait, as if there were no block
  again,     ///< nothing of them waits, and the block runs again in backward
  recorded,  ///< the same, but they are seen (DroppedBlock)
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
  // Of blocks that are recorded:
  /// That which begins.
  virtual BlockNumber recorded_block() = 0;
  /// It runs again, from `begins` to its end.
  virtual void runs_again(bool begins) noexcept = 0;
  /// What it takes to run again is about to be freed, or, if `is_over`, has been.
  virtual void forgets_block(BlockNumber block, bool is_over) noexcept = 0;
};

/// Sets a variable of this thread until its end.
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

/// That of the innermost scope; null: checkpoints are what they say.
inline BlockPlanner*& block_planner() {
  thread_local BlockPlanner* mine = nullptr;
  return mine;
}
/// Whether a planned block is running, in forward or again.
inline bool& within_block() {
  thread_local bool within = false;
  return within;
}

/// As what `input` is an input of a block that runs again.
inline const char* block_role(const at::Tensor& input) {
  return input.defined() && input.requires_grad() ? "block_input" : "block_constant";
}
/// The block_role() of what is saved now; null: no input of a block is.
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
