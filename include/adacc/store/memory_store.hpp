// SPDX-License-Identifier: MIT
/// A store in memory of the caller's: memory that the arena should not be in (another node's, a
/// GPU's host), and a double for tests.
///
/// Without a speed, transfers are copies made at begin(). With one, they take their time on a clock
/// that the test owns, one after the other over one link. In hostile mode nothing is copied before
/// wait(), and what a read is to fill holds garbage until then: whoever uses memory again too early,
/// or reads it before it is there, gets wrong numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/array.hpp"
#include "../core/clock.hpp"
#include "store.hpp"

namespace adacc { inline namespace v0_1 {

/// The speed of a link, on a clock that can be told to pass.
struct StoreSpeed {
  ClockRef clock;  ///< seconds; none: transfers take no time
  /// Lets the clock reach a time: sleeps, or sets a made-up clock. Must be there if clock is.
  void (*pass)(void* state, double until) = nullptr;
  void* state = nullptr;
  double write_rate = 1e9;  ///< bytes a second
  double read_rate = 1e9;
  double latency = 0;  ///< seconds of each transfer
};

class MemoryStore {
 public:
  MemoryStore() = default;
  /// Over `memory`, which stays the caller's and outlives the store.
  explicit MemoryStore(Bytes memory) : memory_(memory) {}

  /// From the next prepare() on.
  StoreSpeed speed;
  bool hostile = false;
  /// Transfers from number `fail_from` on, counted from 0, and before number `fail_to`, fail with
  /// `failure`, if it is an error.
  std::uint64_t fail_from = 0, fail_to = ~std::uint64_t{0};
  Error failure;

  std::size_t bytes() const { return memory_.size(); }
  std::size_t alignment() const { return adacc::alignment; }

  Error prepare(int tickets, Bytes) {
    transfers_.clear();
    transfers_.resize(static_cast<std::size_t>(tickets));
    return {};
  }

  void begin(int ticket, const StoreTransfer& what) {
    Transfer& mine = transfer(ticket);
    mine.what = what;
    mine.fails = static_cast<bool>(failure) && begun_ >= fail_from && begun_ < fail_to;
    ++begun_;
    const bool write = what.direction == StoreTransfer::Direction::write;
    if (speed.clock) {
      const double now = speed.clock();
      const double size = static_cast<double>(what.memory.size());
      free_at_ = (now > free_at_ ? now : free_at_) + speed.latency +
                 size / (write ? speed.write_rate : speed.read_rate);
      mine.end = free_at_;
    }
    if (!hostile) return copy(mine);
    if (!write) std::memset(what.memory.data(), 0xFF, what.memory.size());  // floats: NaN
  }

  bool done(int ticket) const {
    return !speed.clock || speed.clock() >= transfers_[static_cast<std::size_t>(ticket)].end;
  }

  Error wait(int ticket) {
    Transfer& mine = transfer(ticket);
    if (!done(ticket)) speed.pass(speed.state, mine.end);
    if (hostile) copy(mine);
    return mine.fails ? failure : Error();
  }

  /// Transfers begun so far.
  std::uint64_t begun() const { return begun_; }

 private:
  struct Transfer {
    StoreTransfer what;
    double end = 0;
    bool fails = false;
  };
  Transfer& transfer(int ticket) { return transfers_[static_cast<std::size_t>(ticket)]; }

  void copy(const Transfer& mine) {
    const Bytes memory = mine.what.memory;
    std::byte* const place = memory_.data() + mine.what.offset;
    if (mine.fails) return;
    if (mine.what.direction == StoreTransfer::Direction::write)
      std::memcpy(place, memory.data(), memory.size());
    else std::memcpy(memory.data(), place, memory.size());
  }

  Bytes memory_;
  Array<Transfer> transfers_;  ///< by ticket
  double free_at_ = 0;         ///< when the link has nothing to do
  std::uint64_t begun_ = 0;
};

}}  // namespace adacc::v0_1
