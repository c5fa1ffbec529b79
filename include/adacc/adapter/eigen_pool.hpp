// SPDX-License-Identifier: MIT
/// The default executor: the calling thread and Eigen's thread pool.
///
/// Eigen's kernels bring this pool along, so no second pool is needed. The calling thread takes part as worker 0.
/// Workers claim tiles from one counter. Nothing is allocated in `run`: one pointer goes to the pool's Schedule, and
/// std::function keeps a pointer in place. `run` does not wait for a pool thread still asleep when the last tile
/// ends: the thread finds the run closed and leaves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "../core/executor.hpp"
#include "../layer/math/eigen.hpp"  // before all of Eigen

#include <unsupported/Eigen/CXX11/ThreadPool>

namespace adacc { inline namespace v0_1 {

class EigenPool {
 public:
  /// Runs on `threads` threads, the caller's among them; 1 (or less) starts none. Only starting threads allocates
  /// here, and can fail (as std::thread does).
  explicit EigenPool(int threads) : workers_(threads < 1 ? 1 : threads) {
    if (workers_ > 1) pool_ = std::make_unique<Eigen::ThreadPool>(workers_ - 1);
  }
  EigenPool(const EigenPool&) = delete;
  EigenPool& operator=(const EigenPool&) = delete;

  int workers() const { return workers_; }

  /// Calls tile(i, worker) once for every i in [0, tiles). One run at a time, never from inside a tile.
  void run(std::size_t tiles, TileFn tile) {
    if (pool_ == nullptr || tiles < 2) {
      for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
      return;
    }
    tile_ = &tile;
    tiles_ = tiles;
    next_.store(0, std::memory_order_relaxed);
    state_.store(open);
    call_helpers();
    work(0);
    close();
  }

 private:
  /// `state_` counts the helpers of the open run: those who have joined (this numbers them), and those still inside.
  static constexpr std::uint64_t open = 1;
  static constexpr std::uint64_t one_active = std::uint64_t{1} << 8;
  static constexpr std::uint64_t one_joined = std::uint64_t{1} << 32;
  static constexpr std::uint64_t active_mask = one_joined - one_active;

  /// Keeps one call in the pool's queue for each helper of use. Calls left in the queue by an earlier run serve this
  /// one: a thread taking a call counted here sees the run open, because both sides order `called_` and `state_`
  /// sequentially.
  void call_helpers() {
    const auto most = static_cast<std::size_t>(workers_ - 1);
    const int wanted = static_cast<int>(tiles_ - 1 < most ? tiles_ - 1 : most);
    for (int called = called_.load(); called < wanted; ++called) {
      called_.fetch_add(1, std::memory_order_relaxed);
      pool_->Schedule([this] { help(); });
    }
  }

  void help() {
    called_.fetch_sub(1);
    const auto most = static_cast<std::uint64_t>(workers_ - 1);
    std::uint64_t state = state_.load();
    do {
      if ((state & open) == 0 || state / one_joined >= most) return;
    } while (!state_.compare_exchange_weak(state, state + one_joined + one_active,
                                           std::memory_order_acquire, std::memory_order_relaxed));
    work(static_cast<int>(state / one_joined) + 1);
    state_.fetch_sub(one_active, std::memory_order_release);
  }

  void work(int worker) {
    const TileFn tile = *tile_;
    const std::size_t tiles = tiles_;
    for (;;) {
      const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= tiles) return;
      tile(i, worker);
    }
  }

  /// Closes the run to new helpers and waits for those inside: first on the processor, for runs are short, then
  /// yielding.
  void close() {
    std::uint64_t state = state_.fetch_and(~open, std::memory_order_acq_rel);
    for (int spins = 0; (state & active_mask) != 0; ++spins) {
      if (spins > 4000) std::this_thread::yield();
      state = state_.load(std::memory_order_acquire);
    }
  }

  const int workers_;
  const TileFn* tile_ = nullptr;  // of the open run
  std::size_t tiles_ = 0;
  alignas(64) std::atomic<std::size_t> next_{0};
  alignas(64) std::atomic<std::uint64_t> state_{0};
  std::atomic<int> called_{0};               // calls in the pool's queue
  std::unique_ptr<Eigen::ThreadPool> pool_;  // last: its threads end before the members they use
};

}}  // namespace adacc::v0_1
