// SPDX-License-Identifier: MIT
/// Storages out of a step's memory for a while, as budgets see them: in a store (sent_storages.hpp), or, those of a
/// device, in pinned memory of the host (pinned_storages.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "../../cost/link.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Transfers to and from the store in a step.
struct SentStatistics {
  std::size_t written_bytes = 0, read_bytes = 0;
  double stall_seconds = 0;  ///< time the host waited for transfers
};

namespace detail {

/// A storage that was sent.
class SentStorage {
 public:
  virtual ~SentStorage() = default;
  /// Lets the memory go, once written. Returns whether the memory went.
  virtual bool leave() = 0;
  /// Begins to read the storage back, if away. Returns whether it does.
  virtual bool come_back() = 0;
  /// Returns the storage.
  virtual at::Storage take() = 0;
};

class SentStorages {
 public:
  virtual ~SentStorages() = default;
  /// Bytes that plans may send.
  virtual std::size_t room_bytes() const = 0;
  /// The store's name in messages.
  virtual std::string name() const = 0;
  /// The store's speed with storages of about `bytes` bytes. Nothing may wait in the store.
  virtual LinkCost measure(std::size_t bytes) = 0;
  /// Begins a step that sends `count` storages of `bytes` bytes in all, or, without a plan, as many as there is room
  /// for. Storages still in the store come back first.
  virtual void begin_step(std::size_t bytes = 0, int count = 0) = 0;
  /// The step goes on without a plan.
  virtual void grow() = 0;
  /// Begins to write `memory`, which nothing else may use; null if there is no room, or if a store can't read the
  /// memory. Memory of a device belongs to work of `stream`.
  virtual std::shared_ptr<SentStorage> send(const at::Storage& memory,
                                            const std::optional<c10::Stream>& stream) = 0;
  virtual SentStatistics statistics() const = 0;
};

}  // namespace detail

}}}  // namespace adacc::v0_1::torch
