// SPDX-License-Identifier: MIT
/// A store in memory that is as slow as it is told to be, by the system's clock: any disk on any machine.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/store/memory_store.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

namespace contest {

/// Bytes a second of a store; 0: as fast as it is.
struct Throttle {
  double write_rate = 0, read_rate = 0;
  explicit operator bool() const { return write_rate > 0; }
};

/// Transfers end when the link would have moved them, one after the other; who waits for one sleeps.
/// Copies are made when a transfer begins, by whoever begins it: a disk's driver would leave them to a
/// controller. Predictions count that, because beginning a transfer is measured as well.
class ThrottledStore {
 public:
  static adacc::Result<ThrottledStore> make(std::size_t bytes, const Throttle& throttle) {
    ThrottledStore made;
    auto memory = adacc::Block<std::byte>::make(bytes, "a throttled store", adacc::huge_page);
    if (!memory) return memory.error;
    made.memory_ = static_cast<adacc::Block<std::byte>&&>(*memory);
    made.store_ = std::make_unique<adacc::MemoryStore>(made.memory_.view());
    made.store_->speed = {adacc::steady_seconds, &sleep_until, nullptr, throttle.write_rate,
                          throttle.read_rate};
    return made;
  }

  /// Stays where it is if the store moves.
  adacc::MemoryStore& store() { return *store_; }

 private:
  static void sleep_until(void*, double until) {
    for (double left; (left = until - adacc::steady_seconds()) > 0;)
      std::this_thread::sleep_for(std::chrono::duration<double>(left));
  }

  adacc::Block<std::byte> memory_;
  std::unique_ptr<adacc::MemoryStore> store_;
};

}  // namespace contest
