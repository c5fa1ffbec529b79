// SPDX-License-Identifier: MIT
/// An executor that runs tiles in a permuted order under several worker numbers, on one thread.
///
/// Dependence on the order of tiles, on a tile's worker or on the number of workers shows every time with this
/// executor: no race has to be lost first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/executor.hpp"
#include "../core/random.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

class PermutedExecutor {
 public:
  explicit PermutedExecutor(int workers, std::uint64_t seed = 1)
      : workers_(workers < 1 ? 1 : workers), seed_(seed) {}

  int workers() const { return workers_; }

  /// The number of calls to run() from inside a tile, which the contract forbids.
  std::size_t nested() const { return nested_; }

  void run(std::size_t tiles, TileFn tile) {
    if (running_) ++nested_;
    const bool outermost = !running_;
    running_ = true;
    std::vector<std::size_t> order(tiles);
    for (std::size_t i = 0; i < tiles; ++i) order[i] = i;
    const RandomKey key{seed_, static_cast<std::uint32_t>(runs_++), 0, 0, Purpose::probe};
    for (std::size_t i = tiles; i > 1; --i) {
      const std::size_t other = random_word(key, i) % i;
      const std::size_t kept = order[i - 1];
      order[i - 1] = order[other];
      order[other] = kept;
    }
    for (std::size_t i = 0; i < tiles; ++i)
      tile(order[i], static_cast<int>(random_word(key, tiles + 1 + i) %
                                      static_cast<std::uint32_t>(workers_)));
    if (outermost) running_ = false;
  }

 private:
  int workers_;
  std::uint64_t seed_;
  std::size_t runs_ = 0;
  std::size_t nested_ = 0;
  bool running_ = false;
};

}}}  // namespace adacc::v0_1::testing
