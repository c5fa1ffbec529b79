// SPDX-License-Identifier: MIT
/// The execution context of kernels on the host: the caller's threads.
#pragma once

#include <cstddef>
#include <type_traits>

#include "bfloat16.hpp"
#include "bytes.hpp"
#include "context.hpp"
#include "executor.hpp"
#include "vector_target.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
/// to += from: `count` numbers, each sum rounded once.
inline void add_halves(const bfloat16* from, std::size_t count, bfloat16* to) {
  constexpr std::size_t chunk = 64;  // a constant, so compilers see whole vectors
  std::size_t first = 0;
  const auto add = [&](std::size_t e) { to[e] = to_bfloat16(to_float(to[e]) + to_float(from[e])); };
  for (; first + chunk <= count; first += chunk)
    for (std::size_t e = 0; e < chunk; ++e) add(first + e);
  for (; first < count; ++first) add(first);
}
ADACC_TARGET_CODE_END

}  // namespace detail

class Cpu : public KernelCall {
 public:
  static constexpr bool runs_parts = true;

  Cpu() = default;
  explicit Cpu(ExecutorRef executor) : executor_(executor) {}

  /// Threads that may run tiles at once: the number of per-worker workspaces.
  int workers() const { return executor_.workers(); }

  /// Calls tile(i, worker) for each i in [0, tiles), spread over the caller's threads, and returns when all calls are
  /// done. Results do not depend on the number of threads if tiles follow from the shape alone and no two tiles write
  /// the same memory.
  template <class Tile>
  void parallel(std::size_t tiles, const Tile& tile) const {
    executor_.run(tiles, TileFn(tile));
  }

  /// Every element becomes `value`.
  template <class T>
  void fill(View<T> to, T value) const {
    in_tiles(to.size(), [=](std::size_t begin, std::size_t end) {
      for (std::size_t e = begin; e < end; ++e) to[e] = value;
    });
  }

  /// to += from, element by element; sums of bfloat16 are rounded once.
  template <class T>
  void accumulate(View<const T> from, View<T> to) const {
    in_tiles(to.size(), [from = from.data(), to = to.data()](std::size_t begin, std::size_t end) {
      if constexpr (std::is_same_v<T, bfloat16>)
        detail::call_at_level<detail::add_halves>(from + begin, end - begin, to + begin);
      else
        for (std::size_t e = begin; e < end; ++e) to[e] += from[e];
    });
  }

  /// The loss is a number on the host.
  class Loss {
   public:
    void clear() { sum_ = 0; }
    void add(double share) { sum_ += share; }
    double value() const { return sum_; }

   private:
    double sum_ = 0;
  };

 private:
  template <class Range>
  void in_tiles(std::size_t size, const Range& range) const {
    constexpr std::size_t tile = 16 * KiB;
    parallel(div_up(size, tile), [=](std::size_t i, int) {
      range(i * tile, size - i * tile < tile ? size : (i + 1) * tile);
    });
  }

  ExecutorRef executor_;
};

}}  // namespace adacc::v0_1
