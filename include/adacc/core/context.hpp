// SPDX-License-Identifier: MIT
/// The contract of execution contexts: what a step asks of whatever its kernels run on.
///
/// A context is handed to every kernel. It derives from KernelCall, which the runner fills in
/// before each call, and has these members (Cpu in cpu.hpp is one; testing::ContextArchetype has no
/// more):
///
///     static constexpr bool runs_parts;   // whether kernels can be called for parts of their work
///     int  workers() const;               // threads that workspaces are made for
///     template <class T> void fill(View<T> to, T value);                    // to = value
///     template <class T> void accumulate(View<const T> from, View<T> to);   // to += from
///     class Loss;                         // where a step's loss lands:
///         void   clear();                 //   before the first part of a step
///         void   add(double share);       //   the share of each part, which kernels return
///         double value() const;           //   the sum, once the step has ended; may wait for it
///
/// Measuring, probing (cost/) and Training (train/) also copy it; a copy runs on the same threads
/// or stream. Kernels whose losses do not pass through the host (a device's) take a Loss& as their
/// last argument and return nothing. The bits of fill and accumulate depend on their arguments
/// alone, not on the number of workers. One with threads of the host may say how to reach them, as
/// Cpu does:
///
///     template <class Tile> void parallel(std::size_t tiles, const Tile& tile) const;
///
/// One whose kernels run later, and in other memory than the host's, says what went wrong with them
/// and what is wrong with memory, as Cuda does:
///
///     Error take_error();        // the first kernel that failed since it was last asked
///     static Error memory_fault(const char* name, const void* data, std::size_t bytes);
///     Error Loss::fault() const; // why no loss can land there
///
/// and, for a Stash, moves bytes in that memory, behind the kernels before, and says what is wrong with
/// memory that the host is to read; `name` is for reports of what failed:
///
///     void copy(const char* name, ConstBytes from, Bytes to);
///     void set_bytes(const char* name, Bytes to, unsigned char value);
///     static Error host_memory_fault(const char* name, const void* data, std::size_t bytes);
///
/// and, if codecs are to be watched there, brings together what the host is to read of a blob, pieces of an
/// even number of bytes:
///
///     void gather(const std::byte* from, const Pieces& pieces, std::byte* to);
#pragma once

#include <cstddef>
#include <cstdint>

#include "random.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

/// The part of a layer's or a codec's work that a call does, if the runner has cut it
/// (model/split.hpp): items [first, first + count) of `whole`. whole == 0 means the call covers all
/// items.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t whole = 0;

  /// The run of `items` items that this stands for: all of them, if it is no part of anything.
  constexpr Part of(std::size_t items) const { return whole == 0 ? Part{0, items, items} : *this; }
};

/// What a kernel may want to know of the step that it is in.
struct KernelCall {
  /// True in a training step, false in evaluation (dropout is then the identity).
  bool training = true;

  /// The stream of random numbers for the activation whose layer is running. Seed, step and
  /// micro-step are the caller's.
  RandomKey key;

  /// The caller's, for the whole step: how many positions of each sequence of the batch are there,
  /// if sequences end early and are padded; in memory that outlives the step. Empty: all are whole.
  /// Layers that let positions of a sequence meet look at it if they say so (attention in both
  /// directions, the mean over time).
  View<const std::int32_t> lengths;

  /// The length of sequence `entry` of the batch, of `time` positions with room; what `lengths` does
  /// not name is whole, and what lies outside of 0 to `time` is taken to be the nearer of these.
  std::size_t length_of(std::size_t entry, std::size_t time) const {
    if (entry >= lengths.size()) return time;
    const std::int32_t length = lengths[entry];
    return length < 0                                ? 0
           : static_cast<std::size_t>(length) < time ? static_cast<std::size_t>(length)
                                                     : time;
  }
};

/// Calls tile(i, worker) for every i in [0, tiles), on the context's threads if it has some.
template <class Context, class Tile>
void for_tiles(Context& context, std::size_t tiles, const Tile& tile) {
  if constexpr (requires { context.parallel(tiles, tile); }) context.parallel(tiles, tile);
  else
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
}

}}  // namespace adacc::v0_1
