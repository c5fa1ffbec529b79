// SPDX-License-Identifier: MIT
/// An executor of threads that last for one call: for work of seconds, beside which the start of a thread is nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "executor.hpp"

namespace adacc { inline namespace v0_1 {

/// Tiles are taken in order by whichever thread is free. Where the system starts no more threads, fewer do the work.
class HostThreads {
 public:
  /// @param threads how many, the calling one included; 0: as many as the machine has processors
  explicit HostThreads(unsigned threads = 0)
      : threads_(threads != 0 ? threads : std::thread::hardware_concurrency()) {
    if (threads_ == 0) threads_ = 1;
  }

  int workers() const { return static_cast<int>(threads_); }

  void run(std::size_t tiles, TileFn tile) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&](int worker) {
      for (std::size_t i = next++; i < tiles; i = next++) tile(i, worker);
    };
    std::vector<std::thread> others;
    for (unsigned w = 1; w < threads_ && w < tiles; ++w) {
      try {
        others.emplace_back(work, static_cast<int>(w));
      } catch (const std::system_error&) {
        break;
      }
    }
    work(0);
    for (std::thread& other : others) other.join();
  }

 private:
  unsigned threads_;
};

}}  // namespace adacc::v0_1
