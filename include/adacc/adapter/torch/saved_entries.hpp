// SPDX-License-Identifier: MIT
/// SavedEntries: the storages of saved tensors, found by their address; and those that wait to be encoded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include "elements.hpp"
#include "module_name.hpp"
#include "operators.hpp"
#include "plain_tensor.hpp"
#include "policy.hpp"
#include "roles.hpp"
#include "saved_storage.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Notes for `entry` the operator, or the checkpoint, that saves `tensor` now.
inline void add_saver(SavedStorage& entry, const at::Tensor& tensor) {
  std::string role = role_of(tensor);
  // A block's input is noted as the block begins, and saved if the block is to run again.
  for (std::size_t i = 0; saving_as() != nullptr && i < entry.what.savers.size(); ++i)
    if (entry.what.savers[i] == saver() && entry.what.roles[i] == role) return;
  entry.what.savers.emplace_back(saver());
  entry.what.roles.push_back(std::move(role));
  entry.calls.push_back(RunningOperators::innermost_call());
}

/// A block begins with `tensor`, of the storage of `entry`, for an input. A block that runs once in this step may run again
/// in one that is planned from this step: it counts as a saver of the input all the same.
inline void feed_block(SavedStorage& entry, const at::Tensor& tensor) {
  entry.feeds_block = true;
  if (saving_as() != nullptr) return;  // the block saves the tensor now
  const ThreadValue<const char*> saving(saving_as(), block_role(tensor));
  add_saver(entry, tensor);
}

class SavedEntries {
 public:
  /// The entry of the storage `impl`; null if there is none.
  SavedEntry find(const c10::StorageImpl* impl) const {
    const auto found = entries_.find(impl);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  /// The entry of which `tensor` is a view, if any; `offset` becomes the offset in the entry's storage.
  SavedEntry share(const at::Tensor& tensor, std::int64_t& offset) {
    const c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
    SavedEntry entry = find(impl);
    if (entry == nullptr || entry->what.type != tensor.scalar_type()) return nullptr;
    const auto [low, end] = extent(tensor);
    if (entry->kept && entry->identity.lock().get() == impl) {
      if (entry->saved_version != static_cast<std::uint32_t>(tensor._version())) return nullptr;
      offset += static_cast<std::int64_t>(entry->kept_first);
      if (entry->waiting) {
        entry->first = std::min(entry->first, low);
        entry->end = std::max(entry->end, end);
        add_saver(*entry, tensor);
        if (entry->stream) record_on(*entry->kept, current_stream(tensor.device()));
      }
    } else if (tensor._version() == 0 && entry->decoded.lock().get() == impl) {
      offset += static_cast<std::int64_t>(entry->first);  // backward saves an unpacked tensor
    } else {
      return nullptr;
    }
    return entry;
  }

  /// An entry for the storage of `tensor`, which has none.
  SavedEntry enter(const at::Tensor& tensor, const std::shared_ptr<SavedObserver>& observer) {
    auto entry = std::make_shared<SavedStorage>();
    entry->what.type = tensor.scalar_type();
    entry->what.sizes = tensor.sizes().vec();
    add_saver(*entry, tensor);
    if (observer == nullptr || observer->names_modules()) entry->what.module = module_name();
    if (const auto& node = tensor.grad_fn()) entry->what.producer = node->name();
    std::tie(entry->first, entry->end) = extent(tensor);
    entry->columns =
        codec_columns(tensor, tensor.storage().nbytes() / c10::elementSize(entry->what.type));
    entry->kept = tensor.storage();
    if (!tensor.is_cpu()) {
      entry->stream = current_stream(tensor.device());
      record_on(*entry->kept, *entry->stream);
    }
    entry->identity = tensor.storage().getWeakStorageImpl();
    entry->version = ::torch::autograd::impl::version_counter(tensor);
    entry->saved_version = entry->version.current_version();
    if (observer != nullptr) {
      observer->saved(tensor, *entry);
      entry->observer = observer;
    }
    remember(tensor.storage(), entry);
    wait(entry);
    return entry;
  }

  /// `storage` is memory of `entry`, too.
  void remember(const at::Storage& storage, const SavedEntry& entry) {
    if (entries_.size() > most_entries_) {  // some of dead graphs
      std::erase_if(entries_, [](const auto& pair) { return pair.second.expired(); });
      most_entries_ = 2 * entries_.size() + 256;
    }
    entries_[storage.unsafeGetStorageImpl()] = entry;
  }

  /// `entry` waits until autograd alone holds its storage.
  void wait(const SavedEntry& entry) { waiting_.push_back(entry); }
  /// Calls `done` for each entry that waits; an entry waits no more if the call returns true.
  template <class Function>
  void leave_waiting_if(const Function& done) {
    std::erase_if(waiting_, [&](const std::weak_ptr<SavedStorage>& one) {
      const SavedEntry entry = one.lock();
      return entry == nullptr || !(entry->waiting || entry->in_place) || done(entry);
    });
  }

 private:
  /// The elements of the storage from the first to behind the last that a strided tensor reaches.
  static std::pair<std::size_t, std::size_t> extent(const at::Tensor& tensor) {
    const auto first = static_cast<std::size_t>(tensor.storage_offset());
    std::size_t end = first + 1;
    for (std::int64_t d = 0; d < tensor.dim(); ++d)
      end += static_cast<std::size_t>((tensor.size(d) - 1) * tensor.stride(d));
    return {first, end};
  }

  std::unordered_map<const c10::StorageImpl*, std::weak_ptr<SavedStorage>> entries_;
  std::size_t most_entries_ = 256;
  std::vector<std::weak_ptr<SavedStorage>> waiting_;
};

}}}}  // namespace adacc::v0_1::torch::detail
