// SPDX-License-Identifier: MIT
/// Storages in a store (store/store.hpp): their places, and their transfers under way.
///
/// A storage is written unchanged, page by page, from memory of libtorch; the memory is freed once the write has been
/// waited for. The storage is read into new memory. Every transfer under way is waited for before the memory goes,
/// even on errors. If nothing has waited for a write by the time the storage is needed again, the memory is still
/// there, and nothing is read.
///
/// Places in the store are given out in the order of sending, anew for each step; storages left from the step before
/// come back into memory first. A planned step has the room it needs from the beginning; in other steps, a scratch file
/// grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "../../core/steady_clock.hpp"
#include "../../cost/measure_link.hpp"
#include "../../store/scratch_file.hpp"
#include "memory_count.hpp"
#include "sent_storage.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StoredStorages;

class StoredStorage final : public SentStorage {
 public:
  StoredStorage(std::shared_ptr<StoredStorages> of, at::Storage memory, int ticket,
                std::size_t offset);
  ~StoredStorage() override;
  StoredStorage(const StoredStorage&) = delete;
  StoredStorage& operator=(const StoredStorage&) = delete;

  bool leave() override;
  bool come_back() override;
  at::Storage take() override;

 private:
  friend class StoredStorages;
  enum class State : unsigned char { writing, away, reading, here, lost };

  /// The mutex of `of_` is held.
  void leave_now();
  void begin_to_come_back();

  std::shared_ptr<StoredStorages> of_;
  std::optional<at::Storage> memory_;
  std::size_t bytes_;
  int ticket_;
  std::size_t offset_;
  State state_ = State::writing;
};

class StoredStorages final : public SentStorages,
                             public std::enable_shared_from_this<StoredStorages> {
 public:
  /// A scratch file in `folder`, as large as plans need. Throws c10::Error if the file cannot be made.
  explicit StoredStorages(std::string folder) : folder_(std::move(folder)) {
    open(first_bytes);
    examine();
  }
  /// A store of the caller's, which must outlive every storage there. prepare() gets no memory: tensors lie in no one
  /// block.
  explicit StoredStorages(StoreRef store) : store_(store) { examine(); }

  std::size_t room_bytes() const override {
    return folder_.empty() ? store_.bytes() : static_cast<std::size_t>(-1);
  }
  std::string name() const override {
    return folder_.empty() ? "the store" : "the scratch file in " + folder_;
  }

  LinkCost measure(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    constexpr std::size_t page = transfer_alignment;
    LinkMeasurement how{.clock = ClockRef(&steady_seconds)};
    how.depth = 2, how.repeats = 3;
    const std::size_t most = store_.bytes() / 2;
    const std::size_t longer = std::clamp(std::min(bytes, most) / page * page, 2 * page, largest);
    const std::size_t shorter = std::max(page, longer / 8 / page * page);
    const at::Tensor memory =
        at::empty({static_cast<std::int64_t>(2 * longer)}, at::TensorOptions().dtype(at::kByte));
    const Bytes where(static_cast<std::byte*>(memory.data_ptr()), Shape(2 * longer));
    // Memory allocated by libtorch begins at a page if allocated by MemoryCount.
    TORCH_CHECK(MemoryCount::may_travel(memory.storage()),
                "adacc: another allocator of tensors is in place than the one that counts");
    const Result<LinkCost> link = measure_link(store_, where, shorter, longer, how);
    tickets_ = 0;
    TORCH_CHECK(link, "adacc: ", link.error.text());
    return *link;
  }

  void begin_step(std::size_t bytes = 0, int count = 0) override {
    std::vector<std::weak_ptr<SentStorage>> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(sent_);
      next_offset_ = 0;
      next_ticket_ = 0;
      grows_ = count == 0;
      statistics_ = {};
    }
    for (const std::weak_ptr<SentStorage>& one : waiting)
      if (const auto alive = one.lock()) alive->take();
    waiting.clear();
    std::unique_lock lock(mutex_);
    while (under_way_ > 0) {  // for a storage being destroyed on another thread
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    if (bytes > store_.bytes()) open(bytes);
    if (count <= tickets_) return;
    const Error why = prepare(count);
    TORCH_CHECK(!why, "adacc: ", why.text());
  }
  void grow() override {
    const std::lock_guard lock(mutex_);
    grows_ = true;
  }

  std::shared_ptr<SentStorage> send(const at::Storage& memory,
                                    const std::optional<c10::Stream>&) override {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = paged(memory.nbytes());
    if (!MemoryCount::may_travel(memory) || !has_room(bytes)) return nullptr;
    auto sent =
        std::make_shared<StoredStorage>(shared_from_this(), memory, next_ticket_, next_offset_);
    begin(*sent, StoreTransfer::Direction::write);
    ++next_ticket_;
    next_offset_ += bytes;
    sent_.push_back(sent);
    return sent;
  }

  SentStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  friend class StoredStorage;
  static constexpr std::size_t first_bytes = 8 * MiB;  // for trying and measuring the store
  static constexpr std::size_t largest = 4 * MiB;

  static std::size_t paged(std::size_t bytes) {
    return div_up(bytes, transfer_alignment) * transfer_alignment;
  }

  /// Whether one more storage of `bytes` bytes may be sent. Without a plan, makes room if possible.
  bool has_room(std::size_t bytes) {
    const auto enough = [&] {
      return next_ticket_ < tickets_ && bytes <= store_.bytes() - next_offset_;
    };
    if (enough() || !grows_ || under_way_ > 0) return enough();
    if (!folder_.empty() && bytes > store_.bytes() - next_offset_ &&
        file_.grow(std::max(next_offset_ + bytes, 2 * store_.bytes())))
      static_cast<void>(file_.grow(next_offset_ + bytes));  // a full disk: the storage stays
    if (next_ticket_ >= tickets_ && prepare(std::max(64, 2 * tickets_))) return false;
    return enough();
  }
  Error prepare(int tickets) {
    const Error why = store_.prepare(tickets, Bytes());
    if (!why) tickets_ = tickets;
    return why;
  }
  void open(std::size_t bytes) {
    if (folder_.empty()) return;
    store_ = StoreRef();
    file_ = ScratchFile();  // frees the old room
    Result<ScratchFile> file = ScratchFile::make(folder_, bytes);
    TORCH_CHECK(file, "adacc: ", file.error.text());
    file_ = std::move(*file);
    store_ = file_;
    tickets_ = 0;
  }
  void examine() const {
    TORCH_CHECK(transfer_alignment % store_.alignment() == 0,
                "adacc: the store wants transfers of ", store_.alignment(),
                "-byte units; those of tensors are of ", transfer_alignment);
    TORCH_CHECK(store_.bytes() >= 4 * transfer_alignment, "adacc: the store has room for ",
                store_.bytes(), " bytes, which is not worth a budget's while");
  }

  void begin(StoredStorage& storage, StoreTransfer::Direction direction) {
    const std::size_t bytes = paged(storage.bytes_);
    auto* const data = const_cast<void*>(static_cast<const void*>(storage.memory_->data()));
    store_.begin(storage.ticket_,
                 {direction, storage.offset_, Bytes(static_cast<std::byte*>(data), Shape(bytes))});
    (direction == StoreTransfer::Direction::write ? statistics_.written_bytes
                                                  : statistics_.read_bytes) += bytes;
    ++under_way_;
  }
  Error wait(const StoredStorage& storage) {
    const double start = steady_seconds();
    const bool stalls = !store_.done(storage.ticket_);
    const Error why = store_.wait(storage.ticket_);
    if (stalls) statistics_.stall_seconds += steady_seconds() - start;
    --under_way_;
    return why;
  }

  const std::string folder_;  // empty: the store is the caller's
  mutable std::mutex mutex_;
  ScratchFile file_;
  StoreRef store_;
  int tickets_ = 0, next_ticket_ = 0, under_way_ = 0;
  bool grows_ = false;  // there is no plan that says how much is sent
  std::size_t next_offset_ = 0;
  std::vector<std::weak_ptr<SentStorage>> sent_;  // in this step
  SentStatistics statistics_;
};

inline StoredStorage::StoredStorage(std::shared_ptr<StoredStorages> of, at::Storage memory,
                                    int ticket, std::size_t offset)
    : of_(std::move(of)), memory_(std::move(memory)), bytes_(memory_->nbytes()), ticket_(ticket),
      offset_(offset) {}

inline StoredStorage::~StoredStorage() {
  const std::lock_guard lock(of_->mutex_);
  if (state_ == State::writing || state_ == State::reading)
    static_cast<void>(of_->wait(*this));  // a result without use
}

inline bool StoredStorage::leave() {
  const std::lock_guard lock(of_->mutex_);
  if (state_ != State::writing) return false;
  leave_now();
  return true;
}
inline void StoredStorage::leave_now() {
  const Error why = of_->wait(*this);
  state_ = why ? State::here : State::away;
  if (!why) memory_.reset();
  TORCH_CHECK(!why, "adacc: a saved tensor could not be sent to ", of_->name(), ": ", why.text());
}

inline bool StoredStorage::come_back() {
  const std::lock_guard lock(of_->mutex_);
  if (state_ != State::away) return false;
  begin_to_come_back();
  return true;
}
inline void StoredStorage::begin_to_come_back() {
  const at::Tensor fresh =
      at::empty({static_cast<std::int64_t>(bytes_)}, at::TensorOptions().dtype(at::kByte));
  memory_ = fresh.storage();
  of_->begin(*this, StoreTransfer::Direction::read);
  state_ = State::reading;
}

inline at::Storage StoredStorage::take() {
  const std::lock_guard lock(of_->mutex_);
  TORCH_CHECK(state_ != State::lost, "adacc: a saved tensor was lost in ", of_->name());
  if (state_ == State::away) begin_to_come_back();
  const State before = state_;
  if (before == State::here) return *memory_;
  const Error why = of_->wait(*this);
  // After a failed write, the storage is still in memory.
  state_ = why && before == State::reading ? State::lost : State::here;
  if (state_ == State::lost) memory_.reset();
  TORCH_CHECK(state_ == State::here, "adacc: a saved tensor could not be fetched from ",
              of_->name(), ": ", why.text());
  return *memory_;
}

}}}}  // namespace adacc::v0_1::torch::detail
