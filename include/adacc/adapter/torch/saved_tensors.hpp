// SPDX-License-Identifier: MIT
/// SavedTensors: while one lives, what libtorch's operators save for backward waits in fewer bytes.
///
///     {
///       const adacc::torch::SavedTensors guard(adacc::torch::tolerated);
///       loss = model->forward(x);
///     }
///     loss.backward();  // decodes what each node reads
///
/// Parameters and their views are never touched, nor is anything small or anything that somebody else
/// holds on to. Guards nest: the innermost one's policy holds. Backward may run anywhere, as often as
/// the graph is retained, and through itself (create_graph).
#pragma once

#include <memory>
#include <utility>

#include "blocks.hpp"
#include "hooks.hpp"
#include "operators.hpp"
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
  Packed packed_;
};

}  // namespace detail

class SavedTensors {
 public:
  /// For the calling thread, on which it must end, too. Throws c10::Error if another engine than
  /// libtorch's own is in place, as in Python processes.
  explicit SavedTensors(Policy policy = int8, SavedOptions options = {})
      : SavedTensors(std::make_shared<SavedStore>(std::move(policy), options)) {}
  /// The same with a store that has served before, whose statistics go on.
  explicit SavedTensors(std::shared_ptr<SavedStore> store)
      : store_(std::move(store)),
        hooks_([kept = store_] { return std::make_unique<detail::StoreHooks>(kept); }) {}
  ~SavedTensors() { store_->settle_later(); }
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

  SavedStatistics statistics() const { return store_->statistics(); }
  /// Lives for as long as a graph needs it; to look at the statistics once backward is over.
  const std::shared_ptr<SavedStore>& store() const { return store_; }

 private:
  std::shared_ptr<SavedStore> store_;
  RunningOperators operators_;
  HooksScope hooks_;
  detail::ThreadValue<detail::BlockPlanner*> blocks_{detail::block_planner(), nullptr};
};

}}}  // namespace adacc::v0_1::torch
