// SPDX-License-Identifier: MIT
/// An executor that gives tiles to its workers in turn, on the calling thread, so that every
/// worker's scratch is used: for tests that count the bytes that a step changes.
#pragma once

#include <adacc/core/executor.hpp>

#include <cstddef>

struct InTurn {
  int count;
  int workers() const { return count; }
  void run(std::size_t tiles, adacc::TileFn tile) const {
    for (std::size_t i = 0; i < tiles; ++i)
      tile(i, static_cast<int>(i % static_cast<std::size_t>(count)));
  }
};
