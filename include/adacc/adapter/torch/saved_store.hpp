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
/// **On a device.** An entry belongs to the stream that was current when its storage was saved first: there the storage
/// is encoded, its memory is given back, and it is decoded. Work of one stream is done in order, so nothing waits, and
/// the memory in use is a function of the order of calls. A reader on another stream waits, on the device, for the
/// decoding; a storage saved on several streams is given back once all of them have come that far.
///
/// Everything is behind one mutex: autograd may unpack on other threads than the one that packed. Exceptions from
/// here (c10::Error, or those of a policy) leave through the calling operator or backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201
#include <torch/csrc/autograd/graph_task.h>
#endif

#include "elements.hpp"
#include "module_name.hpp"
#include "operators.hpp"
#include "parameter.hpp"
#include "plain_tensor.hpp"
#include "policy.hpp"
#include "repetition.hpp"
#include "roles.hpp"
#include "sent_storages.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct SavedOptions {
  std::size_t least_bytes = 64 * KiB;  ///< smaller storages are kept as they are
};

/// Counts since the store was made.
struct SavedStatistics {
  std::size_t packed = 0, unpacked = 0;
  // SavedActivation tensors:
  std::size_t parameters = 0;  ///< and their views
  std::size_t small = 0;
  std::size_t others = 0;    ///< not dense, or on a device without kernels (device_codec.hpp)
  std::size_t shared = 0;    ///< views of a storage already saved
  std::size_t storages = 0;  ///< the rest: entries made
  // Storages left to autograd alone:
  std::size_t encoded = 0, decoded = 0;
  std::size_t declined = 0;  ///< forms with too large an error; a milder form was tried
  std::size_t unlike_rows =
      0;  ///< among `encoded`: by a codec's for_unlike_rows, after the codec was declined
  std::size_t raw_bytes = 0;      ///< bytes before encoding, those kept as they are included
  std::size_t encoded_bytes = 0;  ///< bytes since
  std::size_t opaque_bytes = 0;   ///< in both counts: operators' workspaces, which no codec takes
};

namespace detail {

using StorageImpl = c10::intrusive_ptr<c10::StorageImpl>;
using WeakStorageImpl = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct SavedStorage;

/// Follows the tensors given to a store and read from it, and chooses their forms (budget.hpp). All functions but
/// freed() are called behind the store's mutex.
class SavedObserver {
 public:
  virtual ~SavedObserver() = default;
  /// A tensor is packed: called first. The returned value lives as long as the packed tensor.
  virtual std::shared_ptr<void> packing() = 0;
  /// `tensor` is the first tensor saved of `storage`, which gets a number here.
  virtual void saved(const at::Tensor& tensor, SavedStorage& storage) = 0;
  virtual void saved_again(const SavedStorage& storage) = 0;
  /// Whether storages held by autograd alone are noted (released()), and encoded later.
  virtual bool defers() = 0;
  virtual void released(const SavedStorage& storage) = 0;
  /// Whether `storage`, after a form was asked for, is dropped instead, because the block makes the storage again.
  virtual bool drops(const SavedStorage& storage) = 0;
  /// The packed `tensor` is a parameter, or was computed from parameters alone.
  virtual void saved_parameter(const at::Tensor& tensor) = 0;
  /// Autograd alone holds `storage`, whose saved elements begin at `x`.
  virtual Keep form_of(const SavedStorage& storage, const void* x) = 0;
  /// The form of the storage from now on: `taken`, or retained if nothing is encoded. Forms from `asked` up to
  /// `taken` were declined.
  virtual void takes_form(const SavedStorage& storage, Keep asked, Keep taken) = 0;
  /// The store has finished encoding or decoding.
  virtual void settled() noexcept = 0;
  /// Whether lets_go() is wanted for `storage`.
  virtual bool watches(const SavedStorage& storage) = 0;
  /// Called before the decoded elements of storage `number` of step `step` are freed; on any thread, and without the
  /// store's mutex.
  virtual void lets_go(int step, int number) noexcept = 0;
  /// Sends `storage` to a store, if so planned: `memory` has all bytes. Null: the storage stays.
  virtual std::shared_ptr<SentStorage> send(const SavedStorage& storage,
                                            const at::Storage& memory) = 0;
  /// `storage`, which was sent, is in memory again.
  virtual void comes_back(const SavedStorage& storage) = 0;
  /// A tensor is unpacked: of `storage`, or null for a retained tensor. If `last`, no other tensor of `storage` is
  /// left to unpack, so the decoded elements take the form's place for good.
  virtual void reads(const SavedStorage* storage, bool last) = 0;
  /// Whether decoded elements of `storage` take the form's place also before other readings, and are encoded again
  /// once nothing reads them: fewer bytes, for more time.
  virtual bool decodes_in_place(const SavedStorage& storage) = 0;
  /// `storage` is about to be encoded again, or, if `is_over`, has been.
  virtual void encodes_again(const SavedStorage& storage, bool is_over) = 0;
  /// The last owner of `storage` is gone; empty the storage.
  virtual void freed(SavedStorage& storage) noexcept = 0;
};

/// One storage at one version, shared by all savers of the storage or of a view.
struct SavedStorage {
  SavedStorage() = default;
  ~SavedStorage() {
    if (observer != nullptr) observer->freed(*this);
  }
  SavedStorage(const SavedStorage&) = delete;
  SavedStorage& operator=(const SavedStorage&) = delete;

  SavedTensor what;
  std::size_t first = 0, end = 0;  ///< the saved elements
  std::size_t columns = 0;
  std::optional<at::Storage> kept;    ///< until encoded, and again from the last unpacking on
  std::size_t kept_first = 0;         ///< the first element in `kept`
  std::optional<c10::Stream> stream;  ///< of a storage on a device
  EncodedElements encoded;
  Keep form;                                ///< that of `encoded`
  std::shared_ptr<SentStorage> sent;        ///< the bytes of `kept` or `encoded`, if in a store
  WeakStorageImpl identity{StorageImpl()};  ///< reserves the address
  WeakStorageImpl decoded{StorageImpl()};   ///< while read
  c10::VariableVersion version{0};
  std::uint32_t saved_version = 0;
  std::size_t unread = 0;    ///< tensors never unpacked
  bool waiting = true;       ///< the policy has not been asked yet
  bool in_place = false;     ///< `kept` are decoded elements, to be encoded again
  bool dropped = false;      ///< no bytes are left: a block makes the storage again
  bool feeds_block = false;  ///< the input of a block, which may read the storage again
  std::shared_ptr<SavedObserver> observer;
  int step = 0, number = -1;  ///< the observer's

  std::size_t elem_bytes() const { return c10::elementSize(what.type); }
  /// Requirements on the encoding, from all savers.
  ElementDemands demands() const {
    const Demands all = tolerance_of(what).demands;
    const auto inner = what.sizes.empty() ? 0 : static_cast<std::size_t>(what.sizes.back());
    const bool fits = inner > 0 && inner >= all.rows && columns % inner == 0;
    return {true, all, fits ? inner : columns};
  }
  std::size_t bytes() const { return (end - first) * elem_bytes(); }
  bool changed() const { return version.current_version() != saved_version; }
  at::TensorOptions options() const {
    return at::TensorOptions().dtype(what.type).device(stream ? stream->device()
                                                              : c10::Device(at::kCPU));
  }
};

inline void check_version(bool changed, const c10::ScalarType type, c10::IntArrayRef sizes) {
  TORCH_CHECK(!changed,
              "adacc: one of the variables needed for gradient computation has been modified "
              "by an inplace operation after it was saved: a ",
              type, " tensor of sizes ", sizes);
}

}  // namespace detail

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
      : policy_(std::move(policy)), options_(options) {}
  /// `observer` chooses the form of each storage.
  SavedStore(std::shared_ptr<detail::SavedObserver> observer, SavedOptions options)
      : options_(options), observer_(std::move(observer)) {}

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
    encode_released();
    std::size_t* const reason = !reaches(tensor)    ? &counts_.others
                                : is_weight(tensor) ? &counts_.parameters
                                : is_small(tensor)  ? &counts_.small
                                                    : nullptr;
    if (reason != nullptr) {
      ++*reason;
      if (observer_ != nullptr && reason == &counts_.parameters) observer_->saved_parameter(tensor);
      packed.as_is_ = tensor.detach();  // never `tensor`: a saved output would own itself
      packed.version_ = packed.as_is_._version();
      return packed;
    }
    packed.sizes_ = tensor.sizes().vec();
    packed.strides_ = tensor.strides().vec();
    packed.offset_ = tensor.storage_offset();
    packed.storage_ = share(tensor, packed.offset_);
    if (packed.storage_ == nullptr) packed.storage_ = enter(tensor);
    ++packed.storage_->unread;
    if (detail::saving_as() != nullptr) packed.storage_->feeds_block = true;
    return packed;
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
    if (packed.storage_ == nullptr) {
      const at::Tensor& mine = packed.as_is_;
      // Not every tensor has sizes to ask for.
      const bool changed = mine._version() != packed.version_;
      detail::check_version(changed, mine.scalar_type(),
                            changed && is_plain(mine) ? mine.sizes() : c10::IntArrayRef());
      return mine;
    }
    detail::SavedStorage& mine = *packed.storage_;
    if (mine.dropped) {
      lock.unlock();
      make_again(packed);
      lock.lock();
    }
    encode_released(&mine);
    if (mine.sent != nullptr) fetch(packed.storage_);
    // Below these keys, set_ counts as no change of the tensor.
    const at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor tensor = at::empty({0}, mine.options());
    const bool in_place = observer_ != nullptr && !last && observer_->decodes_in_place(mine);
    if (!mine.kept && !mine.stream && (last || in_place)) decode_in_place(packed.storage_, last);
    if (last) mine.in_place = false;
    if (mine.kept) {
      detail::check_version(mine.changed(), mine.what.type, packed.sizes_);
      return tensor.set_(*mine.kept, packed.offset_ - static_cast<std::int64_t>(mine.kept_first),
                         packed.sizes_, packed.strides_);
    }
    const at::Storage storage = decode(packed.storage_);
    if (mine.stream) read_elsewhere(storage, *mine.stream);
    return tensor.set_(storage, packed.offset_ - static_cast<std::int64_t>(mine.first),
                       packed.sizes_, packed.strides_);
  }

  /// Whether `packed`, unpacked now, is the last tensor of its storage to be unpacked: others were before, and
  /// backward will not run again.
  static bool is_last(const SavedActivation& packed) {
    if (at::GradMode::is_enabled() || keeps_graph()) return false;
    detail::SavedStorage& mine = *packed.storage_;
    if (!std::exchange(packed.is_read_, true)) --mine.unread;
    return mine.unread == 0 && !mine.feeds_block;
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
    encode_released();
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

  SavedStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  /// The raw and encoded bytes of statistics(), by module; modules without a name are one.
  std::vector<ModuleBytes> modules() const {
    const std::lock_guard lock(mutex_);
    return modules_;
  }

  /// Whether `tensor` may be encoded, if no parameter.
  bool takes(const at::Tensor& tensor) const { return reaches(tensor) && !is_small(tensor); }
  /// A block of step `step` of the observer begins with `tensor` for an input. Returns the observer's number of the
  /// storage, if saved in this step; otherwise -1.
  int give_to_block(const at::Tensor& tensor, int step) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == entries_.end()) return -1;
    const Entry entry = found->second.lock();
    if (entry == nullptr || entry->step != step) return -1;
    entry->feeds_block = true;
    return entry->number;
  }

 private:
  using Entry = std::shared_ptr<detail::SavedStorage>;

  bool is_small(const at::Tensor& tensor) const {
    return tensor.storage().nbytes() < options_.least_bytes || tensor.numel() == 0;
  }

  /// Whether the elements can be encoded where they are. An observer sees tensors on the CPU alone.
  bool reaches(const at::Tensor& tensor) const {
    if (!is_plain(tensor)) return false;
    return tensor.is_cpu() ||
           (observer_ == nullptr && device_kernels(tensor.device().type()) != nullptr);
  }

  static c10::Stream current_stream(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  /// The memory of `storage` is given to nobody else before `stream` has done its work so far, which reads it.
  static void record_on(const at::Storage& storage, c10::Stream stream) {
    c10::impl::VirtualGuardImpl(stream.device_type())
        .recordDataPtrOnStream(storage.data_ptr(), stream);
  }
  /// The current stream reads `storage`, decoded on `on`.
  static void read_elsewhere(const at::Storage& storage, c10::Stream on) {
    const c10::Stream reader = current_stream(on.device());
    if (reader == on) return;
    c10::Event decoded(on.device_type());
    decoded.record(on);
    decoded.block(reader);
    record_on(storage, reader);
  }

  static bool is_weight(const at::Tensor& tensor) {
    return is_parameter(tensor) || RunningOperators::is_weight(tensor);
  }
  static void add_saver(SavedTensor& what, const at::Tensor& tensor) {
    what.savers.emplace_back(detail::saver());
    what.roles.push_back(detail::role_of(tensor));
  }

  /// The entry of which `tensor` is a view, if any; `offset` becomes the offset in the entry's storage.
  Entry share(const at::Tensor& tensor, std::int64_t& offset) {
    const c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
    const auto found = entries_.find(impl);
    if (found == entries_.end()) return nullptr;
    Entry entry = found->second.lock();
    if (entry == nullptr || entry->what.type != tensor.scalar_type()) return nullptr;
    const auto [low, end] = extent(tensor);
    if (entry->kept && entry->identity.lock().get() == impl) {
      if (entry->saved_version != static_cast<std::uint32_t>(tensor._version())) return nullptr;
      offset += static_cast<std::int64_t>(entry->kept_first);
      if (entry->waiting) {
        entry->first = std::min(entry->first, low);
        entry->end = std::max(entry->end, end);
        add_saver(entry->what, tensor);
        if (entry->stream) record_on(*entry->kept, current_stream(tensor.device()));
      }
    } else if (tensor._version() == 0 && entry->decoded.lock().get() == impl) {
      offset += static_cast<std::int64_t>(entry->first);  // backward saves an unpacked tensor
    } else {
      return nullptr;
    }
    ++counts_.shared;
    if (observer_ != nullptr) observer_->saved_again(*entry);
    return entry;
  }

  Entry enter(const at::Tensor& tensor) {
    auto entry = std::make_shared<detail::SavedStorage>();
    entry->what.type = tensor.scalar_type();
    entry->what.sizes = tensor.sizes().vec();
    add_saver(entry->what, tensor);
    entry->what.module = detail::module_name();
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
    ++counts_.storages;
    if (observer_ != nullptr) {
      observer_->saved(tensor, *entry);
      entry->observer = observer_;
    }
    remember(tensor.storage().unsafeGetStorageImpl(), entry);
    waiting_.push_back(entry);
    return entry;
  }

  /// The elements of the storage from the first to behind the last that a strided tensor reaches.
  static std::pair<std::size_t, std::size_t> extent(const at::Tensor& tensor) {
    const auto first = static_cast<std::size_t>(tensor.storage_offset());
    std::size_t end = first + 1;
    for (std::int64_t d = 0; d < tensor.dim(); ++d)
      end += static_cast<std::size_t>((tensor.size(d) - 1) * tensor.stride(d));
    return {first, end};
  }

  void remember(const c10::StorageImpl* impl, const Entry& entry) {
    if (entries_.size() > most_entries_) {  // some of dead graphs
      std::erase_if(entries_, [](const auto& pair) { return pair.second.expired(); });
      most_entries_ = 2 * entries_.size() + 256;
    }
    entries_[impl] = entry;
  }

  /// A storage held by autograd alone, and the form asked for.
  struct Released {
    Entry entry;
    Keep asked;
    std::size_t bytes;  ///< of the form; 0 without a codec
  };

  /// Encodes the storages held by autograd alone, smaller forms first: for a moment, a form lies beside the elements.
  /// `unpacking` is not encoded again yet.
  void encode_released(const detail::SavedStorage* unpacking = nullptr) {
    std::vector<Released> released;
    std::vector<Entry> again;
    std::exception_ptr
        why;  // the first exception: a policy is asked once about a storage, which is retained then
    const auto attempt = [&why](const auto& call) {
      try {
        call();
      } catch (...) {
        if (!why) why = std::current_exception();
      }
    };
    const bool defers = observer_ != nullptr && observer_->defers();
    std::erase_if(waiting_, [&](const std::weak_ptr<detail::SavedStorage>& one) {
      const Entry entry = one.lock();
      if (entry == nullptr || !(entry->waiting || entry->in_place)) return true;
      if (entry->kept->use_count() > 1) return false;
      if (entry->in_place) {
        if (entry.get() == unpacking) return false;
        again.push_back(entry);
        return true;
      }
      if (defers) {
        observer_->released(*entry);
        return false;
      }
      if (why) return false;
      entry->waiting = false;
      attempt([&] { released.push_back(ask(entry)); });
      return true;
    });
    std::stable_sort(released.begin(), released.end(),
                     [](const Released& a, const Released& b) { return a.bytes < b.bytes; });
    for (const Entry& entry : again) attempt([&] { encode_again(*entry); });
    for (const Released& one : released) attempt([&] { encode(*one.entry, one.asked); });
    if (observer_ != nullptr && !(released.empty() && again.empty())) observer_->settled();
    if (why) std::rethrow_exception(why);
  }

  /// Whether the memory of `entry` is unchanged. Another owner may have called resize_ for fewer bytes; reading is
  /// libtorch's affair then.
  static bool is_whole(const detail::SavedStorage& entry) {
    return entry.kept->nbytes() >= entry.end * entry.elem_bytes() && !entry.changed();
  }
  static const std::byte* elements_of(const detail::SavedStorage& entry) {
    return static_cast<const std::byte*>(static_cast<const void*>(entry.kept->data())) +
           entry.first * entry.elem_bytes();
  }

  Released ask(const Entry& entry) {
    counts_.raw_bytes += entry->bytes();
    entry->what.bytes = entry->bytes();
    if (!is_whole(*entry)) return {entry, Keep::as_is(), 0};
    const Keep asked = observer_ != nullptr ? observer_->form_of(*entry, elements_of(*entry))
                                            : policy_(entry->what);
    if (asked.codec() == nullptr) return {entry, asked, 0};
    return {entry, asked,
            EncodedElements::bytes_under(*asked.codec(), entry->what.type,
                                         entry->end - entry->first, entry->columns)};
  }

  void encode(detail::SavedStorage& entry, Keep asked) {
    const bool whole = is_whole(entry);
    if (whole) {
      if (observer_ != nullptr && observer_->drops(entry)) {
        entry.kept.reset();
        entry.dropped = true;
        return;
      }
      entry.form = asked;
      if (entry.stream) encode_on_its_stream(entry);
      else encode_on_the_cpu(entry);
      if (observer_ != nullptr) observer_->takes_form(entry, asked, entry.form);
    }
    const std::size_t waiting = entry.encoded.empty() ? entry.bytes() : entry.encoded.bytes();
    counts_.encoded_bytes += waiting;
    detail::add_to_module(modules_, entry.what.module, entry.bytes(), waiting);
    if (entry.encoded.empty()) {
      if (is_opaque(entry.what)) counts_.opaque_bytes += entry.bytes();
    } else {
      ++counts_.encoded;
      entry.kept.reset();
    }
    if (observer_ == nullptr || !whole) return;
    entry.sent = observer_->send(entry, entry.kept ? *entry.kept : entry.encoded.storage());
    if (entry.sent == nullptr) return;
    if (entry.kept) entry.kept.reset();
    else entry.encoded.leave();
  }

  void encode_again(detail::SavedStorage& entry) {
    entry.in_place = false;
    observer_->encodes_again(entry, /*is_over=*/false);
    if (!entry.encoded.encode(entry.form, entry.what.type, entry.kept->data(),
                              entry.end - entry.first, entry.columns, entry.demands()) ||
        entry.encoded.empty())
      return;
    entry.kept.reset();
    observer_->encodes_again(entry, /*is_over=*/true);
  }

  static void encode_on_its_stream(detail::SavedStorage& entry) {
    const c10::StreamGuard on(*entry.stream);
    const ElementDemands demands = entry.demands();
    entry.form = unjudged(entry.form, demands.what);
    entry.encoded.encode_on(DeviceWork(*entry.stream), entry.form, entry.what.type,
                            elements_of(entry), entry.end - entry.first, entry.columns, demands);
  }
  /// In the entry's form, or in the first milder form that meets the demands.
  void encode_on_the_cpu(detail::SavedStorage& entry) {
    bool unlike_rows = false;
    while (!entry.encoded.encode(entry.form, entry.what.type, elements_of(entry),
                                 entry.end - entry.first, entry.columns, entry.demands())) {
      ++counts_.declined;
      unlike_rows = entry.form.has_form_for_unlike_rows();
      entry.form = entry.form.milder();
    }
    if (unlike_rows && !entry.encoded.empty()) ++counts_.unlike_rows;
  }

  /// Brings `entry` back from the store; then the entry is as before sending.
  void fetch(const Entry& entry) {
    at::Storage storage = entry->sent->take();
    entry->sent.reset();
    observer_->comes_back(*entry);
    if (entry->encoded.left()) return entry->encoded.come_back(std::move(storage));
    entry->identity = storage.getWeakStorageImpl();
    remember(storage.unsafeGetStorageImpl(), entry);
    entry->kept = std::move(storage);
  }

  /// The decoded elements of `entry` stay, until encoded again unless this is the `last` unpacking. The form goes.
  void decode_in_place(const Entry& entry, bool last) {
    at::Storage storage = decode(entry, /*stays=*/true);
    entry->identity = storage.getWeakStorageImpl();
    entry->version = c10::VariableVersion(0);
    entry->saved_version = 0;
    entry->kept_first = entry->first;
    entry->kept = std::move(storage);
    entry->encoded = EncodedElements();
    if (observer_ != nullptr) observer_->settled();
    if (last) return;
    entry->in_place = true;
    waiting_.push_back(entry);
  }

  at::Storage decode(const Entry& entry, bool stays = false) {
    if (auto alive = entry->decoded.lock()) return at::Storage(std::move(alive));
    const c10::OptionalStreamGuard on(entry->stream);
    const at::Tensor fresh =
        at::empty({static_cast<std::int64_t>(entry->end - entry->first)}, entry->options());
    if (entry->stream) entry->encoded.decode_on(DeviceWork(*entry->stream), fresh.data_ptr());
    else entry->encoded.decode(fresh.data_ptr());
    ++counts_.decoded;
    at::Storage storage = fresh.storage();
    if (observer_ != nullptr) {
      observer_->settled();
      if (!stays && observer_->watches(*entry)) storage = watched(std::move(storage), *entry);
    }
    entry->decoded = storage.getWeakStorageImpl();
    remember(storage.unsafeGetStorageImpl(), entry);
    return storage;
  }

  /// The memory of `of`; the observer is called before the end.
  at::Storage watched(at::Storage of, const detail::SavedStorage& entry) const {
    void* const data = of.data_ptr().get();
    const auto bytes = static_cast<std::int64_t>(of.nbytes());
    const auto let_go = [observer = observer_, step = entry.step, number = entry.number,
                         memory = std::optional<at::Storage>(std::move(of))](void*) mutable {
      observer->lets_go(step, number);
      memory.reset();
      observer->settled();
    };
    return at::from_blob(data, {bytes}, let_go, at::TensorOptions().dtype(at::kByte)).storage();
  }

  const ChoosingFunction policy_;
  const SavedOptions options_;
  const std::shared_ptr<detail::SavedObserver> observer_;  // null: policy_ is asked
  mutable std::mutex mutex_;
  SavedStatistics counts_;
  std::vector<ModuleBytes> modules_;
  std::unordered_map<const c10::StorageImpl*, std::weak_ptr<detail::SavedStorage>> entries_;
  std::size_t most_entries_ = 256;
  std::vector<std::weak_ptr<detail::SavedStorage>> waiting_;
  std::exception_ptr failure_;
};

}}}  // namespace adacc::v0_1::torch
