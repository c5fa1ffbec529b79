// SPDX-License-Identifier: MIT
/// A budget in bytes for the peak of a libtorch training step.
///
///     adacc::torch::MemoryBudget budget("40%");  // of a plain step's peak; or "30MiB"
///     for (…) {
///       at::Tensor loss;
///       {
///         const adacc::torch::WithinBudget guard(budget);
///         loss = model->forward(x);
///       }
///       loss.backward();
///       …
///     }
///     std::puts(budget.report().text().c_str());
///
/// The first steps are recorded: which tensors are saved and read when, and the bytes in use all along; the peak of a
/// plain step is computed. The very first one runs in the smallest forms tolerated, and the others by a plan made from
/// the record before. The next step is planned (step_plan.hpp). Each saved tensor is retained, or kept in a form tolerated by
/// all readers, and each block of checkpoint() runs again, or does not: the fastest choice within the budget. The
/// record includes the bytes for gradients and workspaces in backward, so the budget bounds the step's peak.
///
/// Every planned step is measured. A step above the budget makes the next plan smaller.
///
/// **Kinds of steps.** Two steps are of one kind if the same operators save storages of equal sizes, and if
/// parameters have gradients from before in both or in neither. A step of an unknown kind keeps all further storages
/// in the smallest forms, and is recorded meanwhile. A share is a share of the plain peak of a step's own kind. A
/// budget that cannot be met is refused where a step of this kind saves the first tensors; steps of other kinds go
/// on.
///
/// With a store (BudgetOptions), storages may be sent there and fetched back, as they are or encoded, so a budget can
/// be met without loss: gradients keep their bits, and the peak holds at any speed of the store. Recorded steps send
/// all storages that may be sent. A failed transfer is thrown where the step waits for the transfer.
///
/// Bytes are counted by MemoryCount for the whole process, so steps of two budgets do not overlap. A step begins with
/// a guard. If one guard is around many steps, a step begins with the first tensor saved after the last step's
/// tensors are all gone: read by backward, or all of a known kind.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "../../io/budget.hpp"
#include "blocks.hpp"
#include "budget_options.hpp"
#include "budget_report.hpp"
#include "budget_state.hpp"
#include "memory_count.hpp"
#include "saved_tensors.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A budget, and all that was learned about the steps. Make one for a training.
class MemoryBudget {
 public:
  /// `budget` is a number with a unit of bytes ("30MiB", "4 GB"; io/budget.hpp), or a share of a plain step's peak
  /// ("40%"), at most 100%. Throws std::invalid_argument for any other text. Counts memory from here on.
  explicit MemoryBudget(const std::string& budget, BudgetOptions options = {})
      : MemoryBudget(parsed(budget), std::move(options)) {}
  explicit MemoryBudget(std::size_t bytes, BudgetOptions options = {})
      : MemoryBudget(parsed(std::to_string(bytes) + "B"), std::move(options)) {}

  /// The report after the last finished step.
  BudgetReport report() const { return state_->report(); }
  /// The store, which WithinBudget hands to hooks.
  const std::shared_ptr<SavedStore>& store() const { return store_; }
  const std::shared_ptr<detail::BudgetState>& state() const { return state_; }

 private:
  MemoryBudget(Budget wanted, BudgetOptions options) {
    const SavedOptions saved{options.least_bytes, options.again};
    MemoryCount::install();
    state_ = std::make_shared<detail::BudgetState>(wanted, std::move(options));
    store_ = std::make_shared<SavedStore>(state_, saved);
    state_->set_saved(store_);
  }

  static Budget parsed(const std::string& text) {
    const Result<Budget> budget = parse_budget(text);
    if (!budget) throw std::invalid_argument("adacc: " + std::string(budget.error.text()));
    if (budget->bytes == 0 && budget->share > 1)
      throw std::invalid_argument(
          "adacc: \"" + text +
          "\" is more than a plain step takes; a budget is at most 100% of its peak (everything is "
          "kept as it is then), or bytes, such as 4GiB");
    return *budget;
  }

  std::shared_ptr<detail::BudgetState> state_;
  std::shared_ptr<SavedStore> store_;
};

/// During its lifetime, `budget` decides about tensors saved by operators of this thread. Throws c10::Error within
/// another guard, and in Python processes. If the budget cannot be met (OnRefusal), the operator saving first throws;
/// the error names the least budget possible, and the reason. Backward may run inside or behind the guard.
class WithinBudget {
 public:
  explicit WithinBudget(const MemoryBudget& budget)
      : state_((budget.state()->enter(), budget.state())), saved_(budget.store()),
        planner_(detail::block_planner(), budget.state().get()) {}
  ~WithinBudget() { state_->leave(); }
  WithinBudget(const WithinBudget&) = delete;
  WithinBudget& operator=(const WithinBudget&) = delete;

 private:
  std::shared_ptr<detail::BudgetState> state_;
  SavedTensors saved_;
  detail::ThreadValue<detail::BlockPlanner*> planner_;
};

}}}  // namespace adacc::v0_1::torch
