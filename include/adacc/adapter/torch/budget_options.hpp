// SPDX-License-Identifier: MIT
/// The options of a budget for libtorch training steps (budget.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "../../core/bytes.hpp"
#include "../../cost/link.hpp"
#include "../../store/store.hpp"
#include "policy.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The treatment of a step if no plan brings the step within its budget.
enum class OnRefusal : unsigned char {
  raise,  ///< c10::Error where the step saves the first tensors
  least,  ///< run under the plan of least peak found
};

struct BudgetOptions {
  /// The device whose memory the budget is of; tensors elsewhere are kept as they are. None: that of the first tensors
  /// saved; two steps are recorded then, or more.
  std::optional<c10::Device> device;
  /// The budget is of all bytes of tensors on the device, those in use when a step begins included.
  bool of_device = false;
  /// The smallest form of each storage in a plan; milder ones may be planned, too. With `lossless`, gradients keep
  /// their bits.
  ChoosingFunction policy = tolerated;
  std::size_t least_bytes = 64 * KiB;  ///< smaller storages are kept as they are
  /// Plans may drop outputs of casts (also of weights), GELU, SiLU, products by element and norms where the operator's
  /// inputs are saved anyway; the operator runs again in backward, with equal bits.
  bool again = true;
  int recorded_steps = 2;  ///< the last counts: a first step has caches to fill
  OnRefusal on_refusal = OnRefusal::raise;
  double planning_seconds = 2;  ///< limit of a search for a plan
  /// A folder on a disk, for an unnamed file of sent storages; empty: none.
  std::string store_folder;
  /// Or a store of yours, which must outlive the budget and all graphs of its steps.
  StoreRef store;
  /// Or, for tensors of a device, pinned memory of the host; 0: none.
  std::size_t pinned_bytes = 0;
  /// The speed of the store, if known; otherwise measured.
  LinkCost link;
};

}}}  // namespace adacc::v0_1::torch
