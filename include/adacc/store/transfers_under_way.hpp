// SPDX-License-Identifier: MIT
/// The transfers of a step that runs: begins them, waits for them and, if asked to, times them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../core/clock.hpp"
#include "../program/instruction.hpp"
#include "store.hpp"

namespace adacc { inline namespace v0_1 {

/// The course of a transfer, in seconds of the clock that timed it.
struct TransferTime {
  double begun = 0;
  double asked = 0;      ///< when the step came to wait for it
  double ended = 0;      ///< when the wait was over
  bool stalled = false;  ///< still under way at `asked`: ended at `ended`, not before
  bool known = false;    ///< begun and waited for

  double stall_seconds() const { return stalled ? ended - asked : 0; }
};

/// The course of all transfers of a step, by transfer.
struct TransferTimes {
  Array<TransferTime> writes, reads;

  /// Seconds in which the step waited.
  double stall_seconds() const {
    double sum = 0;
    for (const TransferTime& time : writes) sum += time.stall_seconds();
    for (const TransferTime& time : reads) sum += time.stall_seconds();
    return sum;
  }
};

namespace detail {

class TransfersUnderWay {
 public:
  /// Prepares for the transfers of `schedule`, none of which is under way.
  void reset(const Schedule& schedule) {
    under_way_.clear();
    under_way_.resize(schedule.transfers.size());
  }

  /// Sets the arena and the store between which transfers go; an error if they do not suit `schedule`.
  Error bind(const Schedule& schedule, Bytes arena, const StoreRef& store) {
    if (schedule.store_bytes == 0) return {};
    if (!store)
      return Error::misuse(
          "the plan sends activations to a store: bind() must lend one with room "
          "for ",
          shown(schedule.store_bytes));
    if (store.bytes() < schedule.store_bytes)
      return Error::say("the plan sends ", shown(schedule.store_bytes),
                        " to the store, which has room for ", shown(store.bytes()));
    if (store.alignment() > transfer_alignment || transfer_alignment % store.alignment() != 0)
      return Error::say("the store wants transfers aligned to ", store.alignment(),
                        " bytes; a step aligns them to ", transfer_alignment);
    if (reinterpret_cast<std::uintptr_t>(arena.data()) % transfer_alignment != 0)
      return Error::misuse("the arena must start ", transfer_alignment,
                           "-byte aligned, as the store's transfers do");
    const int tickets = static_cast<int>(schedule.transfers.size());
    if (const Error why = store.prepare(tickets, arena)) return why;
    store_ = store;
    return {};
  }

  /// The store of the transfers; none if there are no transfers.
  StoreRef store() const { return under_way_.empty() ? StoreRef() : store_; }

  /// Runs `inst`, the begin or the wait of a transfer. `memory` is the start of its blob.
  Error run(const Schedule& schedule, const Instruction& inst, std::byte* memory) {
    const bool write = inst.op == Op::write_begin || inst.op == Op::write_wait;
    if (inst.op == Op::write_wait || inst.op == Op::read_wait) return wait(inst.transfer, write);
    const std::size_t t = index(inst.transfer);
    const Transfer& transfer = schedule.transfers[t];
    if (clock_) time(t, write) = {clock_()};
    under_way_[t] = true;
    using Direction = StoreTransfer::Direction;
    store_.begin(inst.transfer, {write ? Direction::write : Direction::read, transfer.offset,
                                 Bytes(memory, Shape(transfer.bytes))});
    return {};
  }

  /// False if `inst` would wait.
  bool ready(const Instruction& inst) const {
    if (inst.op != Op::write_wait && inst.op != Op::read_wait) return true;
    return !under_way_[index(inst.transfer)] || store_.done(inst.transfer);
  }

  /// Waits for all transfers under way; returns the first error.
  Error finish() {
    Error first;
    for (std::size_t t = 0; t < under_way_.size(); ++t) {
      if (!under_way_[t]) continue;
      under_way_[t] = false;
      if (const Error why = store_.wait(static_cast<int>(t)); why && !first) first = why;
    }
    return first;
  }

  /// Times the transfers that follow, or none of them without a clock. Allocates room for the times.
  void time_with(ClockRef clock) {
    clock_ = clock;
    const std::size_t count = clock ? under_way_.size() : 0;
    for (Array<TransferTime>* times : {&times_.writes, &times_.reads})
      if (times->size() != count) {
        times->clear();
        times->resize(count);
      }
  }
  const TransferTimes& times() const { return times_; }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  TransferTime& time(std::size_t t, bool write) {
    return (write ? times_.writes : times_.reads)[t];
  }

  Error wait(int transfer, bool write) {
    const std::size_t t = index(transfer);
    if (!under_way_[t]) return {};
    under_way_[t] = false;
    if (!clock_) return store_.wait(transfer);
    TransferTime& transfer_time = time(t, write);
    transfer_time.asked = clock_();
    transfer_time.stalled = !store_.done(transfer);
    const Error why = store_.wait(transfer);
    transfer_time.ended = clock_();
    transfer_time.known = !why;
    return why;
  }

  Array<bool> under_way_;  ///< by transfer: begun, and not yet waited for
  StoreRef store_;
  ClockRef clock_;
  TransferTimes times_;
};

/// For steps without transfers.
struct NoTransfers {
  void reset(const Schedule&) {}
  Error bind(const Schedule&, Bytes, const StoreRef&) { return {}; }
  bool ready(const Instruction&) const { return true; }
  Error finish() { return {}; }
  void time_with(ClockRef) {}
  TransferTimes times() const { return {}; }
};

}  // namespace detail

}}  // namespace adacc::v0_1
