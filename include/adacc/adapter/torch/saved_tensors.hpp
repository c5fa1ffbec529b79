// SPDX-License-Identifier: MIT
/// SavedTensors: during its lifetime, tensors saved by libtorch's operators wait for backward in fewer bytes.
///
///     {
///       const adacc::torch::SavedTensors guard(adacc::torch::tolerated);
///       loss = model->forward(x);
///     }
///     loss.backward();  // decodes what each node reads
///
/// Parameters and their views are never touched, nor are small tensors or tensors with another owner. Guards nest:
/// the innermost one's policy holds. Backward may run anywhere, as often as the graph is retained, and through itself
/// (create_graph).
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "blocks.hpp"
#include "hooks.hpp"
#include "operators.hpp"
#include "recipes.hpp"
#include "saved_store.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

class StoreHooks final : public Hooks {
 public:
  explicit StoreHooks(std::shared_ptr<SavedStore> store) : store_(std::move(store)) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = store_->pack(tensor); }
  at::Tensor call_unpack_hook() override { return store_->unpack(packed_); }

 private:
  std::shared_ptr<SavedStore> store_;
  SavedActivation packed_;
};

}  // namespace detail

class SavedTensors {
 public:
  /// For the calling thread; the guard must end there, too. Throws c10::Error if another engine than libtorch's own
  /// is in place, as in Python processes.
  explicit SavedTensors(ChoosingFunction policy = int8, SavedOptions options = {})
      : SavedTensors(std::make_shared<SavedStore>(std::move(policy), options)) {}
  /// With a used store, whose statistics go on.
  explicit SavedTensors(std::shared_ptr<SavedStore> store)
      : store_(std::move(store)),
        hooks_([kept = store_] { return std::make_unique<detail::StoreHooks>(kept); }) {
    if (store_->runs_operators_again()) recipes_.emplace();
  }
  ~SavedTensors() { store_->settle_later(); }
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

  SavedStatistics statistics() const { return store_->statistics(); }
  /// Lives as long as a graph needs it; for reading the statistics after backward.
  const std::shared_ptr<SavedStore>& store() const { return store_; }

 private:
  std::shared_ptr<SavedStore> store_;
  RunningOperators operators_;
  std::optional<NotedRecipes> recipes_;
  HooksScope hooks_;
  detail::ThreadValue<detail::BlockPlanner*> blocks_{detail::block_planner(), nullptr};
};

}}}  // namespace adacc::v0_1::torch
