// SPDX-License-Identifier: MIT
/// An executor of threads that last for one call: for work of seconds, beside which the start of a thread is nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "executor.hpp"

namespace adacc { inline namespace v0_1 {

/// Tiles are taken in order by whichever thread is free. Threads are started in run(), which can fail as std::thread does.
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
    Joined others;
    for (unsigned w = 1; w < threads_ && w < tiles; ++w)
      others.threads.emplace_back(work, static_cast<int>(w));
    work(0);
  }

 private:
  struct Joined {
    std::vector<std::thread> threads;
    ~Joined() {
      for (std::thread& thread : threads) thread.join();
    }
  };

  unsigned threads_;
};

}}  // namespace adacc::v0_1
