// SPDX-License-Identifier: MIT
/// A store in memory of the caller's: memory outside of the arena (another node's, a GPU's host), and a double for
/// tests.
///
/// Without a speed, transfers are copies made at begin(). With a speed, they take time on a clock owned by the test,
/// one after the other over one link. In hostile mode nothing is copied before wait(), and memory to be filled by a
/// read holds garbage until then: code that uses memory again too early, or reads too early, gets wrong numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/array.hpp"
#include "../core/clock.hpp"
#include "store.hpp"

namespace adacc { inline namespace v0_1 {

/// The speed of a link, on a clock that a test may set.
struct StoreSpeed {
  ClockRef clock;  ///< seconds; none: transfers take no time
  /// Lets the clock reach a time: sleeps, or sets a made-up clock. Required if there is a clock.
  void (*pass)(void* state, double until) = nullptr;
  void* state = nullptr;
  double write_rate = 1e9;  ///< bytes a second
  double read_rate = 1e9;
  double latency = 0;  ///< seconds of each transfer
};

class MemoryStore {
 public:
  MemoryStore() = default;
  /// A store in `memory`, which stays the caller's and must outlive the store.
  explicit MemoryStore(Bytes memory) : memory_(memory) {}

  /// Takes effect at the next prepare().
  StoreSpeed speed;
  bool hostile = false;
  /// If `failure` is an error, transfers with numbers in [fail_from, fail_to), counted from 0, fail with it.
  std::uint64_t fail_from = 0, fail_to = ~std::uint64_t{0};
  Error failure;

  std::size_t bytes() const { return memory_.size(); }
  std::size_t alignment() const { return adacc::alignment; }

  Error prepare(int tickets, Bytes) {
    transfers_.clear();
    transfers_.resize(static_cast<std::size_t>(tickets));
    return {};
  }

  void begin(int ticket, const StoreTransfer& request) {
    Transfer& entry = transfer(ticket);
    entry.what = request;
    entry.fails = static_cast<bool>(failure) && begun_ >= fail_from && begun_ < fail_to;
    ++begun_;
    const bool write = request.direction == StoreTransfer::Direction::write;
    if (speed.clock) {
      const double now = speed.clock();
      const double size = static_cast<double>(request.memory.size());
      free_at_ = (now > free_at_ ? now : free_at_) + speed.latency +
                 size / (write ? speed.write_rate : speed.read_rate);
      entry.end = free_at_;
    }
    if (!hostile) return copy(entry);
    if (!write) std::memset(request.memory.data(), 0xFF, request.memory.size());  // floats: NaN
  }

  bool done(int ticket) const {
    return !speed.clock || speed.clock() >= transfers_[static_cast<std::size_t>(ticket)].end;
  }

  Error wait(int ticket) {
    Transfer& entry = transfer(ticket);
    if (!done(ticket)) speed.pass(speed.state, entry.end);
    if (hostile) copy(entry);
    return entry.fails ? failure : Error();
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

  void copy(const Transfer& entry) {
    const Bytes memory = entry.what.memory;
    std::byte* const place = memory_.data() + entry.what.offset;
    if (entry.fails) return;
    if (entry.what.direction == StoreTransfer::Direction::write)
      std::memcpy(place, memory.data(), memory.size());
    else std::memcpy(memory.data(), place, memory.size());
  }

  Bytes memory_;
  Array<Transfer> transfers_;  ///< by ticket
  double free_at_ = 0;         ///< when the link becomes idle
  std::uint64_t begun_ = 0;
};

}}  // namespace adacc::v0_1
