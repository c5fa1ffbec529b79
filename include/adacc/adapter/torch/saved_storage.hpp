// SPDX-License-Identifier: MIT
/// SavedStorage: one storage of saved tensors, from forward to backward; and SavedObserver, who chooses its form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "elements.hpp"
#include "policy.hpp"
#include "sent_storages.hpp"
#include "step_record.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

using StorageImpl = c10::intrusive_ptr<c10::StorageImpl>;
using WeakStorageImpl = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct SavedStorage;
struct Recipe;     // recipes.hpp
struct MadeAgain;  // made_again.hpp

/// Follows the tensors given to a store and read from it, and chooses their forms (budget.hpp). All functions but
/// freed() are called behind the store's mutex.
class SavedObserver {
 public:
  virtual ~SavedObserver() = default;
  /// Whether storages of the device of `tensor` are observed; all others are kept as they are. May be called without
  /// the store's mutex.
  virtual bool observes(const at::Tensor& tensor) = 0;
  /// A tensor is packed: called first. The returned value lives as long as the packed tensor.
  virtual std::shared_ptr<void> packing() = 0;
  /// Whether the module of a storage saved now is wanted: in Python, the search for one takes as long as all else.
  virtual bool names_modules() = 0;
  /// `tensor` is the first tensor saved of `storage`, which gets a number here.
  virtual void saved(const at::Tensor& tensor, SavedStorage& storage) = 0;
  virtual void saved_again(const SavedStorage& storage) = 0;
  /// Whether storages held by autograd alone are noted (released()), and encoded later.
  virtual bool defers() = 0;
  virtual void released(const SavedStorage& storage) = 0;
  /// The least form of `source` for an operator that makes `storage`: as planned, or `least`, by the tolerance of both's
  /// savers in this step.
  virtual StepSource::Form least_form(const SavedStorage& storage, const SavedStorage& source,
                                      StepSource::Form least) = 0;
  /// Whether `storage`, after a form was asked for, is dropped instead, because the block makes the storage again.
  virtual bool drops(const SavedStorage& storage) = 0;
  /// The packed `tensor` is a parameter, or was computed from parameters alone.
  virtual void saved_parameter(const at::Tensor& tensor) = 0;
  /// Autograd alone holds `storage`, whose saved elements begin at `x`.
  virtual Keep form_of(const SavedStorage& storage, const void* x) = 0;
  /// The form of the storage from now on: `taken`, or retained if nothing is encoded. Forms from `asked` up to
  /// `taken` were declined.
  virtual void takes_form(const SavedStorage& storage, Keep asked, Keep taken) = 0;
  /// A device checks the rows of `storage`, encoded in its form, and will report to `checked`.
  virtual void checks(const SavedStorage& storage, CheckedStorage checked) = 0;
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
  /// Of `decoded`, or of the memory that it watches: streams of libtorch are told to this one.
  WeakStorageImpl decoded_memory{StorageImpl()};
  c10::VariableVersion version{0};
  std::uint32_t saved_version = 0;
  std::vector<std::int64_t> calls;  ///< of the operators that saved it (RunningOperators)
  std::size_t unread = 0;           ///< tensors never unpacked
  bool waiting = true;              ///< the policy has not been asked yet
  bool in_place = false;            ///< `kept` are decoded elements, to be encoded again
  bool dropped = false;             ///< no bytes are left: a block makes the storage again
  bool feeds_block = false;         ///< the input of a block, which may read the storage again
  bool is_weight = false;           ///< made of parameters: made again or retained, never encoded
  std::shared_ptr<const Recipe> recipe;  ///< null: unknown
  /// In the place of any bytes: an operator that makes them. Before a form is asked for, one that may.
  std::shared_ptr<const MadeAgain> again;
  bool is_exact_source = false;  ///< an operator that runs again reads it, and tolerates no loss
  bool loses_as_planned =
      false;  ///< an operator that runs again reads it: no form but that of the plan may lose
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
  /// The saved elements in `kept`.
  const std::byte* elements() const {
    return static_cast<const std::byte*>(static_cast<const void*>(kept->data())) +
           first * elem_bytes();
  }
  /// Whether the memory in `kept` is unchanged. Another owner may have called resize_ for fewer bytes; reading is
  /// libtorch's affair then.
  bool is_whole() const { return kept->nbytes() >= end * elem_bytes() && !changed(); }
  bool changed() const { return version.current_version() != saved_version; }
  c10::Device device() const { return stream ? stream->device() : c10::Device(at::kCPU); }
  at::TensorOptions options() const {
    return at::TensorOptions().dtype(what.type).device(device());
  }
};

/// The storage, which lives as long as a tensor that was saved of it.
using SavedEntry = std::shared_ptr<SavedStorage>;

inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}
/// The memory of `storage` is given to nobody else before `stream` has done its work so far, a reader of the storage.
inline void record_on(const at::Storage& storage, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(storage.data_ptr(), stream);
}
/// The current stream reads the elements of `entry`, decoded on the entry's stream.
inline void read_elsewhere(const SavedStorage& entry) {
  const c10::Stream on = *entry.stream, reader = current_stream(on.device());
  auto memory = entry.decoded_memory.lock();
  if (reader == on || !memory) return;
  const at::Storage storage(std::move(memory));
  c10::Event decoded(on.device_type());
  decoded.record(on);
  decoded.block(reader);
  record_on(storage, reader);
}

inline void check_version(bool changed, const c10::ScalarType type, c10::IntArrayRef sizes) {
  TORCH_CHECK(!changed,
              "adacc: one of the variables needed for gradient computation has been modified "
              "by an inplace operation after it was saved: a ",
              type, " tensor of sizes ", sizes);
}

}}}}  // namespace adacc::v0_1::torch::detail
