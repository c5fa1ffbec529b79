// SPDX-License-Identifier: MIT
/// The engine's job system, lent to adacc: all that the library needs of it.
#pragma once

#include <adacc/core/executor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "jobs.hpp"

/// adacc/core/executor.hpp is the contract. A job takes tiles until none is left, so that a run
/// kicks at most one job for each worker. The thread that learns works on tiles, too; while it then
/// waits it takes no job of the frame, which could outlast the slice.
class EngineExecutor {
 public:
  explicit EngineExecutor(engine::JobSystem& jobs) : jobs_(jobs) {}

  int workers() const { return jobs_.workers(); }

  void run(std::size_t tiles, adacc::TileFn tile) const {
    struct Tiles {
      adacc::TileFn tile;
      std::size_t count;
      std::atomic<std::size_t> next{0};
    } shared{tile, tiles};
    const auto work = [](void* data, std::size_t, int worker) {
      Tiles& all = *static_cast<Tiles*>(data);
      for (std::size_t i = all.next++; i < all.count; i = all.next++) all.tile(i, worker);
    };
    tiles_ += tiles;
    engine::Counter ended;
    jobs_.kick(work, &shared, std::min(tiles, static_cast<std::size_t>(workers())), ended);
    jobs_.wait_for_these_alone(ended);
  }

  /// That ran as jobs so far.
  std::size_t tiles() const { return tiles_; }

 private:
  engine::JobSystem& jobs_;
  mutable std::size_t tiles_ = 0;
};
