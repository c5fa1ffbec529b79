// SPDX-License-Identifier: MIT
/// The slowdown of computation by transfers beside it.
///
/// Transfers are not free: they take the system's work, a copying thread, memory bandwidth, and on a virtual machine
/// the host's work on cores of the step. On two cores, a step that sends most activations takes 5 % longer, without a
/// single wait. A planner ignorant of this would send all the link can carry, however little memory this saves.
///
/// So a computation is timed alone and beside transfers, by turns. The extra time, over the bytes moved meanwhile, is
/// LinkCost::begin_per_byte.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/context.hpp"
#include "../core/extremes.hpp"
#include "measure_link.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Multiply-adds on all workers, over numbers in their caches.
class Spin {
 public:
  static constexpr std::size_t most_passes = 4096;  // some 130 million multiply-adds

  explicit Spin(int workers)
      : tiles_(8 * static_cast<std::size_t>(workers < 1 ? 1 : workers)), results_(tiles_) {}

  template <class Context>
  void run(Context& context, std::size_t passes) {
    for_tiles(context, tiles_, [&](std::size_t tile, int) {
      alignas(alignment) float x[2048];
      for (float& e : x) e = static_cast<float>(tile);
      for (std::size_t pass = 0; pass < passes; ++pass)
        for (float& e : x) e = e * 0.999F + 0.001F;
      results_[tile] = x[passes % 2048];  // the compiler must compute it
    });
  }

 private:
  std::size_t tiles_;
  Array<float> results_;
};

}  // namespace detail

/// Seconds of computation lost per byte in transit, on the threads of `context`. `link` is the result of
/// measure_link() for `store`; `how` gives the number of transfers of `bytes` bytes in flight. The store is prepared
/// for `memory`, the other end of the transfers; the contents of both are lost. 0 if the clock sees no computation,
/// like a test's clock.
template <class Context>
Result<double> measure_drag(Context& context, StoreRef store, Bytes memory, std::size_t bytes,
                            const LinkCost& link, const LinkMeasurement& how) {
  using Direction = StoreTransfer::Direction;
  const auto depth = static_cast<std::size_t>(how.depth);
  if (!how.clock || how.depth < 1 || !link.exists() || bytes == 0 || memory.size() < depth * bytes)
    return Error::misuse(
        "measuring what transfers take from computation takes a clock, a link, at ",
        "least 1 transfer in flight, and memory for all of them");
  detail::Spin spin(context.workers());
  const auto timed = [&](std::size_t passes) {
    const double start = how.clock();
    spin.run(context, passes);
    return how.clock() - start;
  };
  const double way[] = {how.depth * link.write_seconds(bytes),
                        how.depth * link.read_seconds(bytes)};
  // Doubles `passes` until the computation lasts as long as the transfers, or the limit is reached.
  std::size_t passes = 64;
  for (double seconds = timed(passes); seconds < way[0] && passes < detail::Spin::most_passes;
       seconds = timed(passes *= 2))
    if (!(seconds > 0)) return 0.0;

  double drag = 0;
  for (const Direction direction : {Direction::write, Direction::read}) {
    Array<double> alone, beside;
    for (int i = 0; i < 2 * how.repeats + 1; ++i) {
      alone.push_back(timed(passes));
      detail::begin_transfers(store, memory, bytes, direction, how.depth);
      beside.push_back(timed(passes));
      if (const Error why = detail::wait_for_transfers(store, how.depth)) return why;
    }
    const double together = detail::median_of(static_cast<Array<double>&&>(beside));
    const double longer = together - detail::median_of(static_cast<Array<double>&&>(alone));
    const double whole = way[static_cast<std::size_t>(direction)];
    const double travelled =
        static_cast<double>(depth * bytes) * (together < whole ? together / whole : 1);
    if (longer > 0) drag += longer / travelled / 2;  // the mean of both directions
  }
  return drag;
}

/// measure_link() at the sizes of activations of `graph`, including the slowdown of `context`.
template <class Context>
Result<LinkCost> measure_link(Context& context, StoreRef store, Bytes memory, const Graph& graph,
                              const LinkMeasurement& how) {
  Result<LinkCost> link = measure_link(store, memory, graph, how);
  if (!link) return link;
  const detail::LinkSizes sizes(store, graph, how,
                                memory.size() / static_cast<std::size_t>(how.depth));
  const Result<double> drag = measure_drag(context, store, memory, sizes.longer, *link, how);
  if (!drag) return drag.error;
  link->begin_per_byte = *drag;
  return link;
}

}}  // namespace adacc::v0_1
