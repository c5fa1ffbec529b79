// SPDX-License-Identifier: MIT
/// The cost of a link, measured by transfers of the sizes in a step.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/clock.hpp"
#include "../core/error.hpp"
#include "../core/extremes.hpp"
#include "../model/graph.hpp"
#include "../store/store.hpp"
#include "link.hpp"

namespace adacc { inline namespace v0_1 {

struct LinkMeasurement {
  ClockRef clock;   ///< required
  int repeats = 5;  ///< the median counts
  /// Transfers in flight at once, as in a step: most disks are faster with a deeper queue.
  int depth = 4;
};

namespace detail {

constexpr double median_of(Array<double> values) {
  sort(values, [](double a, double b) { return a < b; });
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Begins `count` transfers of `bytes` each, between the beginning of the store and of `memory`.
inline void begin_transfers(StoreRef store, Bytes memory, std::size_t bytes,
                            StoreTransfer::Direction direction, int count) {
  for (int t = 0; t < count; ++t) {
    const std::size_t at = static_cast<std::size_t>(t) * bytes;
    store.begin(t, {direction, at, Bytes(memory.data() + at, Shape(bytes))});
  }
}

/// Waits for all transfers; returns the first error.
inline Error wait_for_transfers(StoreRef store, int count) {
  Error failed;
  for (int t = 0; t < count; ++t)
    if (const Error why = store.wait(t); why && !failed) failed = why;
  return failed;
}

/// Seconds of `how.depth` transfers of `bytes` each, from the first begin to the last wait, and of all begins.
struct LinkSample {
  double whole = 0, begins = 0;
};

inline Result<LinkSample> sample_link(StoreRef store, Bytes memory, std::size_t bytes,
                                      StoreTransfer::Direction direction,
                                      const LinkMeasurement& how) {
  Array<double> whole, begins;
  for (int i = 0; i < how.repeats; ++i) {
    const double start = how.clock();
    begin_transfers(store, memory, bytes, direction, how.depth);
    const double begun = how.clock();
    if (const Error why = wait_for_transfers(store, how.depth)) return why;
    const double end = how.clock();
    if (!(end > start) || !(end - start < 1e9))
      return Error::say("the clock that measuring a store was given stood still or went backwards");
    whole.push_back(end - start);
    begins.push_back(begun - start);
  }
  return LinkSample{median_of(static_cast<Array<double>&&>(whole)),
                    median_of(static_cast<Array<double>&&>(begins))};
}

}  // namespace detail

/// Measures `store` with transfers of `longer` and `shorter` bytes (multiples of transfer_alignment,
/// shorter < longer) from and to `memory`, of at least how.depth * longer bytes, aligned to transfer_alignment. The
/// contents of store and memory are lost. prepare() is called, so bind the step again afterwards.
inline Result<LinkCost> measure_link(StoreRef store, Bytes memory, std::size_t shorter,
                                     std::size_t longer, const LinkMeasurement& how) {
  using Direction = StoreTransfer::Direction;
  if (!how.clock || how.repeats < 1 || how.depth < 1 || shorter == 0 || shorter >= longer)
    return Error::misuse(
        "measuring a link takes a clock, at least 1 repeat and 1 transfer in "
        "flight, and two sizes, the smaller first");
  const auto depth = static_cast<std::size_t>(how.depth);
  if (memory.size() < depth * longer || store.bytes() < depth * longer)
    return Error::misuse("measuring a link with transfers of ", shown(longer),
                         " takes memory and a store of ", shown(depth * longer), ", and got ",
                         shown(memory.size()), " and ", shown(store.bytes()));
  if (const Error why = store.prepare(how.depth, memory)) return why;
  LinkCost link;
  double latency[2] = {}, rate[2] = {};
  for (const Direction direction : {Direction::write, Direction::read}) {
    const auto d = static_cast<std::size_t>(direction);
    const auto few = detail::sample_link(store, memory, shorter, direction, how);
    if (!few) return few.error;
    const auto many = detail::sample_link(store, memory, longer, direction, how);
    if (!many) return many.error;
    // A line through both: the part that does not grow with the bytes is latency.
    const double bytes = static_cast<double>(depth * (longer - shorter));
    const double more = many->whole - few->whole;
    rate[d] = more > 0 ? bytes / more : static_cast<double>(depth * longer) / many->whole;
    const double rest = few->whole - static_cast<double>(depth * shorter) / rate[d];
    latency[d] = rest > 0 ? rest / static_cast<double>(depth) : 0;
    const double begins = few->begins / static_cast<double>(depth);
    if (begins > link.begin) link.begin = begins;
  }
  link.write_rate = rate[0];
  link.read_rate = rate[1];
  link.latency = (latency[0] + latency[1]) / 2;
  return link;
}

namespace detail {

/// The sizes at which a link is measured for the activations of `graph`: at most `most` bytes, and few enough for the
/// store to hold all transfers in flight.
struct LinkSizes {
  std::size_t shorter = 0, longer = 0;

  LinkSizes(StoreRef store, const Graph& graph, const LinkMeasurement& how, std::size_t most) {
    const std::size_t unit = larger(transfer_alignment, store.alignment());
    for (const Node& node : graph.nodes) raise(longer, node.output_bytes);
    lower(longer, most);
    lower(longer, store.bytes() / static_cast<std::size_t>(how.depth));
    longer = larger(longer / unit * unit, 2 * unit);
    shorter = larger(longer / 8 / unit * unit, unit);
  }
};

}  // namespace detail

/// Bytes of memory for measure_link() with transfers as long as the longest activation of `graph`.
inline std::size_t link_memory_bytes(StoreRef store, const Graph& graph,
                                     const LinkMeasurement& how) {
  constexpr auto any = static_cast<std::size_t>(-1);
  return static_cast<std::size_t>(how.depth) * detail::LinkSizes(store, graph, how, any).longer;
}

/// Measures `store` at the sizes of activations of `graph`, or at smaller ones if `memory` is too small.
inline Result<LinkCost> measure_link(StoreRef store, Bytes memory, const Graph& graph,
                                     const LinkMeasurement& how) {
  if (how.depth < 1) return Error::misuse("measuring a link takes at least 1 transfer in flight");
  const detail::LinkSizes sizes(store, graph, how,
                                memory.size() / static_cast<std::size_t>(how.depth));
  return measure_link(store, memory, sizes.shorter, sizes.longer, how);
}

/// Seconds of measure_link() with `memory_bytes` bytes of memory, if the link has the costs of `link`.
inline double seconds_to_measure(const LinkCost& link, StoreRef store, std::size_t memory_bytes,
                                 const Graph& graph, const LinkMeasurement& how) {
  const detail::LinkSizes sizes(store, graph, how,
                                memory_bytes / static_cast<std::size_t>(how.depth));
  double seconds = 0;
  for (const std::size_t bytes : {sizes.shorter, sizes.longer})
    seconds += link.write_seconds(bytes) + link.read_seconds(bytes);
  return how.repeats * how.depth * seconds;
}

}}  // namespace adacc::v0_1
