// SPDX-License-Identifier: MIT
/// A budget's memory, and the store beside.
#pragma once

#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "budget_options.hpp"
#include "device_side.hpp"
#include "pinned_storages.hpp"
#include "sent_storages.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The device named by the options, or that of the first tensors saved; until then, the CPU.
class BudgetSide {
 public:
  /// `options` must outlive this object.
  explicit BudgetSide(const BudgetOptions& options) : is_pinned_(options.pinned_bytes > 0) {
    const int stores = (options.store_folder.empty() ? 0 : 1) + (options.store ? 1 : 0) +
                       (options.pinned_bytes > 0 ? 1 : 0);
    TORCH_CHECK(stores <= 1,
                "adacc: a budget has one store: a folder, pinned memory, or one of yours");
    if (!options.store_folder.empty())
      store_ = std::make_shared<StoredStorages>(options.store_folder);
    else if (options.store) store_ = std::make_shared<StoredStorages>(options.store);
    if (options.device) memory_ = DeviceSide(*options.device);
    if (options.device || store_ != nullptr) settle();
    if (is_pinned_) store_ = std::make_shared<PinnedStorages>(options.pinned_bytes);
  }

  const DeviceSide& memory() const { return memory_; }
  const std::shared_ptr<SentStorages>& store() const { return store_; }  ///< null: nothing is sent
  /// Whether the device is final.
  bool is_settled() const { return is_settled_; }

  /// The device is final from now on. Throws c10::Error if the store takes none of its tensors.
  void settle() {
    if (is_settled_) return;
    check();
    is_settled_ = true;
  }
  /// settle() for `device`. Returns the reason against budgets there; empty: there is none.
  std::string settle(c10::Device device) {
    is_settled_ = true;
    std::string why = DeviceSide::refusal(device);
    if (!why.empty()) return why;
    memory_ = DeviceSide(device);
    check();
    return why;
  }

 private:
  void check() const {
    TORCH_CHECK(
        store_ == nullptr || is_pinned_ || memory_.is_cpu(),
        "adacc: a folder or a store of yours takes tensors of the CPU, and the budget is of ",
        memory_.device(), ": pinned memory takes those");
    TORCH_CHECK(!is_pinned_ || !memory_.is_cpu(),
                "adacc: pinned memory takes tensors of a device, and the budget is of the CPU");
  }

  DeviceSide memory_;
  std::shared_ptr<SentStorages> store_;
  const bool is_pinned_;
  bool is_settled_ = false;
};

}}}}  // namespace adacc::v0_1::torch::detail
