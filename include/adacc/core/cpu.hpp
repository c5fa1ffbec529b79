/// The execution context of kernels on the host: threads, mode and randomness.
#pragma once

#include <cstddef>

#include "executor.hpp"
#include "random.hpp"

namespace adacc { inline namespace v0_1 {

/// The part of a layer's or a codec's work that a call does, where the runner has cut it
/// (model/split.hpp): items [first, first + count) of `whole`. No part of anything, where `whole`
/// is 0: the call is all there is.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t whole = 0;

  /// The run of `items` items that this stands for: all of them, where it is no part of anything.
  constexpr Part of(std::size_t items) const { return whole == 0 ? Part{0, items, items} : *this; }
};

class Cpu {
 public:
  Cpu() = default;
  explicit Cpu(ExecutorRef executor) : executor_(executor) {}

  /// Threads that may run tiles at once; sizes per-worker workspaces.
  int workers() const { return executor_.workers(); }

  /// Calls tile(i, worker) for every i in [0, tiles), spread over the caller's threads, and
  /// returns when all are done. For results that do not depend on the number of threads, choose
  /// tiles from the shape alone and let each write what no other does.
  template <class Tile>
  void parallel(std::size_t tiles, const Tile& tile) const {
    executor_.run(tiles, TileFn(tile));
  }

  /// True in a training step, false in evaluation (dropout is then the identity).
  bool training = true;

  /// Set by the runner for each layer's backward: whether the input and the output that backward
  /// reads are those of the forward that wrote its aux and its output. Behind a lossy codec they
  /// are not. A layer whose gradient suffers from the difference can compute what it saved again.
  bool exact_input = true;
  bool exact_output = true;

  /// Set by the runner for the calls of layers and losses that can be split. Who computes a mean
  /// over all rows, or draws numbers by element, needs to know which ones it was given.
  Part part;

  /// The stream for the activation whose layer is running; the runner sets it.
  RandomKey key;

 private:
  ExecutorRef executor_;
};

}}  // namespace adacc::v0_1
