// SPDX-License-Identifier: MIT
/// Storages of a device in pinned memory of the host.
///
/// One slab of pinned memory takes all storages of a step, one behind the other. Each direction has a stream. Nothing
/// makes the host wait: streams wait for one another's events. So the device's bytes in use follow from the order of calls
/// alone, at any speed of the link.
///
///  - send: the stream out waits for the work that made the storage, and copies.
///  - leave: the storage's own stream waits for that copy, and the memory goes.
///  - come_back: new memory of the storage's own stream; the stream back waits for it, and copies.
///  - take: the storage's own stream waits for that copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../../core/bytes.hpp"
#include "../../program/instruction.hpp"
#include "memory_count.hpp"
#include "sent_storage.hpp"
#include "stopwatch.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// `later` waits on the device for the work of `earlier` so far.
inline void wait_for(c10::Stream earlier, c10::Stream later) {
  c10::Event done(earlier.device_type());
  done.record(earlier);
  done.block(later);
}

class PinnedStorages final : public SentStorages,
                             public std::enable_shared_from_this<PinnedStorages> {
 public:
  /// Throws c10::Error if so much memory cannot be pinned.
  explicit PinnedStorages(std::size_t bytes) : bytes_(bytes / unit * unit) {
    TORCH_CHECK(bytes_ >= 4 * unit, "adacc: a pinned store of ", bytes,
                " bytes is not worth a budget's while");
    try {
      slab_ = at::empty({static_cast<std::int64_t>(bytes_)},
                        at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    } catch (const c10::Error& why) {
      TORCH_CHECK(false, "adacc: ", bytes,
                  " bytes of the host's memory cannot be pinned: ", why.what_without_backtrace());
    }
  }

  std::size_t room_bytes() const override { return bytes_; }
  std::string name() const override { return "pinned memory"; }

  LinkCost measure(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (!streams_) return {1e10, 1e10};  // no storage was worth sending
    const auto count =
        static_cast<std::int64_t>(std::clamp<std::size_t>(bytes, unit, std::min(bytes_, longest)));
    const at::Tensor there = slab_.narrow(0, 0, count);
    const c10::StreamGuard on(streams_->out);
    const at::Tensor here =
        at::zeros({count}, at::TensorOptions().dtype(at::kByte).device(streams_->out.device()));
    LinkCost link;
    for (int i = 0; i < 3; ++i) {  // the last counts
      Stopwatch watch(streams_->out.device());
      watch.mark();
      at::Tensor(there).copy_(here, /*non_blocking=*/true);
      watch.mark();
      at::Tensor(here).copy_(there, /*non_blocking=*/true);
      watch.mark();
      const std::vector<double> laps = watch.laps();
      TORCH_CHECK(laps.size() == 2, "adacc: this libtorch does not tell the time of transfers");
      link.write_rate = static_cast<double>(count) / std::max(1e-9, laps[0]);
      link.read_rate = static_cast<double>(count) / std::max(1e-9, laps[1]);
    }
    link.latency = 1e-5;
    return link;
  }

  void begin_step(std::size_t = 0, int = 0) override {
    std::vector<std::weak_ptr<SentStorage>> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(sent_);
      next_ = 0;
      statistics_ = {};
    }
    for (const std::weak_ptr<SentStorage>& one : waiting)
      if (const auto alive = one.lock()) alive->take();
    const std::lock_guard lock(mutex_);
    if (streams_) wait_for(streams_->back, streams_->out);  // the slab is written anew
  }
  void grow() override {}

  std::shared_ptr<SentStorage> send(const at::Storage& memory,
                                    const std::optional<c10::Stream>& stream) override;

  SentStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  friend class PinnedStorage;
  static constexpr std::size_t unit = transfer_alignment;         // as plans count room
  static constexpr std::size_t least = MemoryCount::least_paged;  // as plans have it
  static constexpr std::size_t longest = 64 * MiB;

  struct Streams {
    c10::Stream out, back;
  };
  /// `bytes` of the slab from `offset` on.
  at::Tensor place(std::size_t offset, std::size_t bytes) const {
    return slab_.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(bytes));
  }
  /// The memory of `storage` as bytes.
  static at::Tensor bytes_of(const at::Storage& storage) {
    at::Tensor tensor =
        at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
    return tensor.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
  }

  const std::size_t bytes_;
  at::Tensor slab_;
  mutable std::mutex mutex_;
  std::optional<Streams> streams_;  // from the first storage on
  std::size_t next_ = 0;
  std::vector<std::weak_ptr<SentStorage>> sent_;  // in this step
  SentStatistics statistics_;
};

class PinnedStorage final : public SentStorage {
 public:
  PinnedStorage(std::shared_ptr<PinnedStorages> of, at::Storage memory, c10::Stream stream,
                std::size_t offset)
      : of_(std::move(of)), stream_(stream), bytes_(memory.nbytes()), offset_(offset),
        memory_(std::move(memory)) {}
  ~PinnedStorage() override {
    try {  // no copy is under way when the memory goes
      const std::lock_guard lock(of_->mutex_);
      if (memory_ && copied_) copied_->block(stream_);
    } catch (...) {}
  }

  bool leave() override {
    const std::lock_guard lock(of_->mutex_);
    if (state_ != State::writing) return false;
    copied_->block(stream_);
    memory_.reset();
    state_ = State::away;
    return true;
  }
  bool come_back() override {
    const std::lock_guard lock(of_->mutex_);
    if (state_ != State::away) return false;
    read();
    return true;
  }
  at::Storage take() override {
    const std::lock_guard lock(of_->mutex_);
    if (state_ == State::away) read();
    if (state_ != State::here)
      copied_->block(stream_);  // a copy out reads the memory: its next user waits, too
    state_ = State::here;
    copied_.reset();
    return *memory_;
  }

 private:
  friend class PinnedStorages;
  enum class State : unsigned char { writing, away, reading, here };

  /// The mutex of `of_` is held.
  void write() {
    wait_for(stream_, of_->streams_->out);
    copy(of_->streams_->out, of_->place(offset_, bytes_), PinnedStorages::bytes_of(*memory_));
    of_->statistics_.written_bytes += bytes_;
  }
  void read() {
    const c10::Stream back = of_->streams_->back;
    {
      const c10::StreamGuard on(stream_);
      memory_ = at::empty({static_cast<std::int64_t>(bytes_)},
                          at::TensorOptions().dtype(at::kByte).device(stream_.device()))
                    .storage();
    }
    wait_for(stream_, back);  // for the memory, and so for the copy out
    copy(back, PinnedStorages::bytes_of(*memory_), of_->place(offset_, bytes_));
    of_->statistics_.read_bytes += bytes_;
    state_ = State::reading;
  }
  void copy(c10::Stream on, at::Tensor to, const at::Tensor& from) {
    const c10::StreamGuard guard(on);
    to.copy_(from, /*non_blocking=*/true);
    copied_.emplace(on.device_type());
    copied_->record(on);
  }

  std::shared_ptr<PinnedStorages> of_;
  c10::Stream stream_;
  std::size_t bytes_, offset_;
  std::optional<at::Storage> memory_;
  std::optional<c10::Event> copied_;
  State state_ = State::writing;
};

inline std::shared_ptr<SentStorage> PinnedStorages::send(const at::Storage& memory,
                                                         const std::optional<c10::Stream>& stream) {
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = div_up(memory.nbytes(), unit) * unit;
  if (!stream || memory.nbytes() < least || bytes > bytes_ - next_) return nullptr;
  const c10::Device device = stream->device();
  if (!streams_) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    streams_ =
        Streams{guard.getStreamFromGlobalPool(device), guard.getStreamFromGlobalPool(device)};
  }
  auto made = std::make_shared<PinnedStorage>(shared_from_this(), memory, *stream, next_);
  made->write();
  next_ += bytes;
  sent_.push_back(made);
  return made;
}

}}}}  // namespace adacc::v0_1::torch::detail
