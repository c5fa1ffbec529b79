// SPDX-License-Identifier: MIT
/// Bytes in use in one memory, now and at the peak: written by allocators, on any thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

class ByteCount {
 public:
  /// Bytes in use since the last lap; apart from peak_bytes(), which belongs to the program.
  struct Lap {
    std::size_t most = 0, least = 0, live = 0;
  };

  explicit ByteCount(std::size_t live = 0)
      : live_(live), peak_(live), lap_most_(live), lap_least_(live) {}

  /// `bytes` more are in use. Returns all bytes in use.
  std::size_t add(std::size_t bytes) {
    const std::size_t live = live_ += bytes;
    for (std::atomic<std::size_t>* const most : {&peak_, &lap_most_}) {
      std::size_t peak = most->load();
      while (live > peak && !most->compare_exchange_weak(peak, live)) {}
    }
    return live;
  }
  /// `bytes` fewer are in use. Returns all bytes in use.
  std::size_t take(std::size_t bytes) {
    const std::size_t live = live_ -= bytes;
    std::size_t least = lap_least_.load();
    while (live < least && !lap_least_.compare_exchange_weak(least, live)) {}
    return live;
  }

  /// Bytes in use; the most since reset_peak().
  std::size_t live_bytes() const { return live_.load(); }
  std::size_t peak_bytes() const { return peak_.load(); }
  void reset_peak() { peak_.store(live_.load()); }

  Lap lap() {
    const std::size_t live = live_.load();
    return {lap_most_.exchange(live), lap_least_.exchange(live), live};
  }

 private:
  std::atomic<std::size_t> live_, peak_, lap_most_, lap_least_;
};

}}}  // namespace adacc::v0_1::torch
