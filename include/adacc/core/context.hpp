// SPDX-License-Identifier: MIT
/// The contract of execution contexts, on which kernels run: the members that a step needs.
///
/// Every kernel is handed a context. A context derives from KernelCall, which the runner fills in before each call,
/// and has these members (Cpu in cpu.hpp is an example; testing::ContextArchetype has no more):
///
///     static constexpr bool runs_parts;   // whether kernels can be called for parts of their work
///     int  workers() const;               // threads, each with a workspace
///     template <class T> void fill(View<T> to, T value);                    // to = value
///     template <class T> void accumulate(View<const T> from, View<T> to);   // to += from
///     class Loss;                         // where a step's loss lands:
///         void   clear();                 //   before the first part of a step
///         void   add(double share);       //   the share of each part, which kernels return
///         double value() const;           //   the sum, once the step has ended; may wait for it
///
/// Measuring, probing (cost/) and Training (train/) also copy contexts; a copy runs on the same threads or stream.
/// Kernels whose losses do not pass through the host (a device's) take a Loss& as their last argument and return
/// nothing. The bits of fill and accumulate depend on their arguments alone, not on the number of workers. A context
/// with threads of the host may offer them, as Cpu does:
///
///     template <class Tile> void parallel(std::size_t tiles, const Tile& tile) const;
///
/// A context whose kernels run later, in memory other than the host's, reports failed kernels and unusable memory, as
/// Cuda does:
///
///     Error take_error();        // the first failure of a kernel since the last call
///     static Error memory_fault(const char* name, const void* data, std::size_t bytes);
///     Error Loss::fault() const; // why no loss can be written there
///
/// For a Stash, such a context also moves bytes, after the kernels queued before, and reports memory that the host
/// cannot read. `name` is for error texts:
///
///     void copy(const char* name, ConstBytes from, Bytes to);
///     void set_bytes(const char* name, Bytes to, unsigned char value);
///     static Error host_memory_fault(const char* name, const void* data, std::size_t bytes);
///
/// For watched codecs, such a context gathers pieces of a blob, each of an even number of bytes, for the
/// host to read:
///
///     void gather(const std::byte* from, const Pieces& pieces, std::byte* to);
#pragma once

#include <cstddef>
#include <cstdint>

#include "random.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

/// The part of a layer's or codec's work that one call does, if the runner has cut the work (model/split.hpp): items
/// [first, first + count) of `whole`. whole == 0: the call covers all items.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t whole = 0;

  /// This part, or all `items` items if the work is not cut.
  constexpr Part of(std::size_t items) const { return whole == 0 ? Part{0, items, items} : *this; }
};

/// What a kernel may want to know of the step that it is in.
struct KernelCall {
  /// True in a training step, false in evaluation (dropout is then the identity).
  bool training = true;

  /// The stream of random numbers for the activation whose layer is running. Seed, step and
  /// micro-step are the caller's.
  RandomKey key;

  /// Set by the caller for the whole step: valid positions of each sequence of the batch, if sequences end early and
  /// are padded. The memory must outlive the step. Empty: all sequences are full. Layers that mix positions and say
  /// so read the lengths (attention in both directions, the mean over time).
  View<const std::int32_t> lengths;

  /// The length of sequence `entry` of the batch, which has room for `time` positions: `time` if `lengths` does not
  /// name the sequence, else clamped to [0, time].
  std::size_t length_of(std::size_t entry, std::size_t time) const {
    if (entry >= lengths.size()) return time;
    const std::int32_t length = lengths[entry];
    return length < 0                                ? 0
           : static_cast<std::size_t>(length) < time ? static_cast<std::size_t>(length)
                                                     : time;
  }
};

/// Calls tile(i, worker) for each i in [0, tiles), on the context's threads if there are any.
template <class Context, class Tile>
void for_tiles(Context& context, std::size_t tiles, const Tile& tile) {
  if constexpr (requires { context.parallel(tiles, tile); }) context.parallel(tiles, tile);
  else
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
}

}}  // namespace adacc::v0_1
