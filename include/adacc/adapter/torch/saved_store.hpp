// SPDX-License-Identifier: MIT
/// The place of saved tensors from forward to backward, behind the hooks of C++ and of Python.
///
/// **One entry for each storage and version.** Autograd saves q, k and v as three views of one storage, and a block's
/// input once for a norm and once for a sum. All of them share an entry, which is encoded once, and decoded once for
/// all readers at a time. So there are never more bytes than without hooks.
///
/// **Encoded when autograd is the only owner.** At first an entry holds the storage, as autograd would. Whenever
/// another tensor is saved or unpacked, the entries whose storage has no other owner are encoded. A storage that
/// lives anyway (a parameter without gradient, a batch, an output kept by the caller) is never encoded, nor are there
/// two copies; and a policy knows all savers.
///
/// **In place.** Under hooks, autograd does not notice later changes of a saved tensor. So the version is compared
/// here, as autograd would: reading a changed tensor in backward is an error. (No owner is left to change an encoded
/// storage.)
///
/// **On a device.** An entry belongs to the current stream of the first save. This stream encodes the storage, gives the
/// memory back, and decodes. Work of one stream is done in order, so nothing waits, and the memory in use is a function
/// of the order of calls. A reader on another stream waits on the device for the decoding. The memory of a storage saved
/// on several streams comes back behind all of these streams.
///
/// Everything is behind one mutex: autograd may unpack on other threads than the one that packed. Exceptions from
/// here (c10::Error, or those of a policy) leave through the calling operator or backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201
#include <torch/csrc/autograd/graph_task.h>
#endif

#include "module_name.hpp"
#include "operators.hpp"
#include "parameter.hpp"
#include "plain_tensor.hpp"
#include "policy.hpp"
#include "recipes.hpp"
#include "repetition.hpp"
#include "saved_statistics.hpp"
#include "saved_storage.hpp"
#include "storage_coder.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct SavedOptions {
  std::size_t least_bytes = 64 * KiB;  ///< smaller storages are kept as they are
  /// Outputs of casts (also of weights), GELU, SiLU, products by element and norms are dropped where the operator's
  /// inputs are saved anyway; the operator runs again in backward, with equal bits.
  bool again = false;
};

/// Kept by a saved variable in place of a tensor.
class SavedActivation {
  friend class SavedStore;
  std::shared_ptr<void> step_;                     // destroyed last
  std::shared_ptr<detail::DroppedBlock> block_;    // null: saved outside of blocks
  std::size_t place_ = 0;                          // in the block
  std::shared_ptr<detail::SavedStorage> storage_;  // null: as_is_
  mutable bool is_read_ = false;                   // counted in SavedStorage::unread no more
  at::Tensor as_is_;
  std::int64_t version_ = 0;
  std::int64_t offset_ = 0;
  std::vector<std::int64_t> sizes_, strides_;
};

class SavedStore {
 public:
  explicit SavedStore(ChoosingFunction policy, SavedOptions options = {})
      : options_(options), coder_(std::move(policy), nullptr) {}
  bool runs_operators_again() const { return options_.again; }
  /// `observer` chooses the form of each storage.
  SavedStore(std::shared_ptr<detail::SavedObserver> observer, SavedOptions options)
      : options_(options), coder_(ChoosingFunction(), std::move(observer)) {}

  /// Takes `tensor`, saved by an operator on this thread.
  SavedActivation pack(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    ++counts_.packed;
    SavedActivation packed = packed_as(tensor);
    if (observer_ == nullptr || detail::dropped_block() == nullptr) return packed;
    packed.block_ = detail::dropped_block();
    packed.place_ = packed.block_->add(packed.storage_);
    return packed;
  }

 private:
  SavedActivation packed_as(const at::Tensor& tensor) {
    SavedActivation packed;
    if (observer_ != nullptr) packed.step_ = observer_->packing();
    coder_.encode_released();
    const bool weight = reaches(tensor) && is_weight(tensor);
    std::size_t* const reason = !reaches(tensor)                   ? &counts_.others
                                : weight && !is_made_again(tensor) ? &counts_.parameters
                                : is_small(tensor)                 ? &counts_.small
                                                                   : nullptr;
    if (reason != nullptr) {
      ++*reason;
      if (reason == &counts_.others && lacks_kernels(tensor)) {
        TORCH_WARN_ONCE("adacc: tensors on ", tensor.device().type(),
                        " devices pass as they are: this process has no kernels for them. A wheel "
                        "has them if nvcc was there when "
                        "it was built, or ADACC_KERNELS named a file of them; C++ calls "
                        "CudaKernels::install()");
      }
      if (observer_ != nullptr && reason == &counts_.parameters) observer_->saved_parameter(tensor);
      packed.as_is_ = tensor.detach();  // never `tensor`: a saved output would own itself
      packed.version_ = packed.as_is_._version();
      return packed;
    }
    packed.sizes_ = tensor.sizes().vec();
    packed.strides_ = tensor.strides().vec();
    packed.offset_ = tensor.storage_offset();
    if (weight && observer_ != nullptr) observer_->saved_parameter(tensor);
    packed.storage_ = entry_of(tensor, packed.offset_);
    if (weight) packed.storage_->is_weight = true;
    ++packed.storage_->unread;
    if (detail::saving_as() != nullptr) packed.storage_->feeds_block = true;
    return packed;
  }
  /// The entry of the storage of `tensor`; `offset` becomes the offset in that storage.
  detail::SavedEntry entry_of(const at::Tensor& tensor, std::int64_t& offset) {
    if (detail::SavedEntry entry = coder_.entries().share(tensor, offset)) {
      ++counts_.shared;
      if (observer_ != nullptr) observer_->saved_again(*entry);
      return entry;
    }
    ++counts_.storages;
    detail::SavedEntry entry = coder_.entries().enter(tensor, observer_);
    if (options_.again) entry->recipe = NotedRecipes::of(tensor);
    if (entry->recipe != nullptr) entry->what.made_by = entry->recipe->name;
    return entry;
  }

 public:
  /// The tensor again: the saved values if nothing was lost, otherwise those decoded by the codec. Throws if the
  /// tensor was changed in place since.
  at::Tensor unpack(const SavedActivation& packed) {
    const at::Tensor tensor = unpacked(packed);
    if (packed.block_ != nullptr) packed.block_->has_read(packed.place_);
    return tensor;
  }

 private:
  at::Tensor unpacked(const SavedActivation& packed) {
    std::unique_lock lock(mutex_);
    ++counts_.unpacked;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    const bool last = packed.storage_ != nullptr && is_last(packed);
    if (observer_ != nullptr) observer_->reads(packed.storage_.get(), last);
    if (packed.storage_ == nullptr) return retained(packed);
    detail::SavedStorage& storage = *packed.storage_;
    if (storage.dropped) {
      lock.unlock();
      make_again(packed);
      lock.lock();
    }
    coder_.encode_released(&storage);
    if (storage.sent != nullptr) {
      coder_.fetch(packed.storage_);
      if (storage.stream && storage.kept) detail::read_elsewhere(storage);
    }
    // Below these keys, set_ counts as no change of the tensor.
    const at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor tensor = at::empty({0}, storage.options());
    const bool in_place = observer_ != nullptr && !last && observer_->decodes_in_place(storage);
    if (!storage.kept && (last || in_place)) {
      coder_.decode_in_place(packed.storage_, last);
      if (storage.stream) detail::read_elsewhere(storage);
    }
    if (last) storage.in_place = false;
    if (storage.kept) {
      detail::check_version(storage.changed(), storage.what.type, packed.sizes_);
      const auto first = static_cast<std::int64_t>(storage.kept_first);
      return tensor.set_(*storage.kept, packed.offset_ - first, packed.sizes_, packed.strides_);
    }
    const at::Storage decoded = coder_.decode(packed.storage_);
    if (storage.stream) detail::read_elsewhere(storage);
    const auto first = static_cast<std::int64_t>(storage.first);
    return tensor.set_(decoded, packed.offset_ - first, packed.sizes_, packed.strides_);
  }
  static at::Tensor retained(const SavedActivation& packed) {
    const at::Tensor& tensor = packed.as_is_;
    // Not every tensor has sizes to ask for.
    const bool changed = tensor._version() != packed.version_;
    detail::check_version(changed, tensor.scalar_type(),
                          changed && is_plain(tensor) ? tensor.sizes() : c10::IntArrayRef());
    return tensor;
  }

  /// Whether `packed`, unpacked now, is the last tensor of its storage to be unpacked: others were before, and
  /// backward will not run again.
  static bool is_last(const SavedActivation& packed) {
    if (at::GradMode::is_enabled() || keeps_graph()) return false;
    detail::SavedStorage& storage = *packed.storage_;
    if (!std::exchange(packed.is_read_, true)) --storage.unread;
    return storage.unread == 0 && !storage.feeds_block;
  }
  /// Whether the graph may be used after this backward; libtorch before 2.1 does not tell.
  static bool keeps_graph() {
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201
    return ::torch::autograd::get_current_graph_task_keep_graph();
#else
    return true;
#endif
  }

  /// Runs the block that saved `packed`, for all dropped storages of the block.
  void make_again(const SavedActivation& packed) {
    const auto is_dropped = [&] {
      const std::lock_guard lock(mutex_);
      return packed.storage_->dropped;
    };
    packed.block_->run(is_dropped, [&](detail::SavedStorage& storage, const at::Tensor& value) {
      const std::lock_guard lock(mutex_);
      if (!storage.dropped) return storage.kept.has_value();
      storage.dropped = false;
      storage.kept = value.storage();
      storage.identity = value.storage().getWeakStorageImpl();
      storage.version = ::torch::autograd::impl::version_counter(value);
      storage.saved_version = storage.version.current_version();
      return true;
    });
  }

 public:
  /// Encodes storages held by autograd alone. Called by pack and unpack; worth an extra call where forward has ended
  /// and backward does not follow at once.
  void settle() {
    const std::lock_guard lock(mutex_);
    coder_.encode_released();
  }
  /// settle() without exceptions: the next unpack throws a failure.
  void settle_later() noexcept {
    try {
      settle();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  /// On a device, by the reports known so far.
  SavedStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    coder_.read_reports();
    return counts_;
  }

  /// The raw and encoded bytes of statistics(), by module; modules without a name are one.
  std::vector<ModuleBytes> modules() const {
    const std::lock_guard lock(mutex_);
    return coder_.modules();
  }

  /// Whether `tensor` may be encoded, if no parameter.
  bool takes(const at::Tensor& tensor) const { return reaches(tensor) && !is_small(tensor); }
  /// A block of step `step` of the observer begins with `tensor` for an input. Returns the observer's number of the
  /// storage, if saved in this step; otherwise -1.
  int give_to_block(const at::Tensor& tensor, int step) {
    const std::lock_guard lock(mutex_);
    const detail::SavedEntry entry = coder_.entries().find(tensor.storage().unsafeGetStorageImpl());
    if (entry == nullptr || entry->step != step) return -1;
    detail::feed_block(*entry, tensor);
    return entry->number;
  }

 private:
  bool is_small(const at::Tensor& tensor) const {
    return tensor.storage().nbytes() < options_.least_bytes || tensor.numel() == 0;
  }

  /// Whether the elements can be encoded where they are.
  bool reaches(const at::Tensor& tensor) const {
    if (!is_plain(tensor)) return false;
    if (observer_ != nullptr && !observer_->observes(tensor)) return false;
    return tensor.is_cpu() || device_kernels(tensor.device().type()) != nullptr;
  }
  bool lacks_kernels(const at::Tensor& tensor) const {
    return is_plain(tensor) && !tensor.is_cpu() && !is_small(tensor) &&
           device_kernels(tensor.device().type()) == nullptr;
  }

  static bool is_weight(const at::Tensor& tensor) {
    return is_parameter(tensor) || RunningOperators::is_weight(tensor);
  }

  /// Whether an operator makes `tensor`, a weight, of parameters alone.
  bool is_made_again(const at::Tensor& tensor) const {
    if (!options_.again || is_small(tensor)) return false;
    const auto recipe = NotedRecipes::of(tensor);
    return recipe != nullptr && recipe->of_parameters();
  }

  const SavedOptions options_;
  mutable std::mutex mutex_;
  mutable detail::StorageCoder coder_;
  SavedStatistics& counts_ = coder_.counts();
  const std::shared_ptr<detail::SavedObserver>& observer_ = coder_.observer();  // may be null
  std::exception_ptr failure_;
};

}}}  // namespace adacc::v0_1::torch
