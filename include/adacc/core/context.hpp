// SPDX-License-Identifier: MIT
/// The contract of execution contexts, on which kernels run: the members needed by a step.
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
/// nothing. The bits of fill and accumulate depend on their arguments alone, not on the number of workers.
///
/// A context may declare more; context_traits below says which of these members a context has:
///
///     template <class Tile> void parallel(std::size_t tiles, const Tile& tile) const;
///                                // threads of the host, as in Cpu
///     static Error memory_fault(const char* name, const void* data, std::size_t bytes);
///                                // kernels run later, in other memory than the host's: the fault
///                                // of memory lent to the context
///     Error take_error();        // the first failed kernel since the last call
///     Error Loss::fault() const; // why no loss can land there
///     bool  memory_is_checked;   // set while memory need not be looked at again
///     auto  stream() const;      // the order of kernels, which a store's transfers are to share
///     void  narrow(const char* name, View<const float> from, View<bfloat16> to);
///                                // copies parameters, for steps whose activations are in bfloat16;
///                                // `name` is for reports
///     void  widen(const char* name, View<const bfloat16> from, View<float> to);
///                                // decodes parameters held in bfloat16; in other memory than the host's, these
///                                // need it
///     void  gather(const std::byte* from, const Pieces& pieces, std::byte* to);
///                                // brings together the pieces of a watched blob that the host is to
///                                // read, of an even number of bytes each
///
/// and, for a Stash in such memory, `name` being for reports of failures:
///
///     void copy(const char* name, ConstBytes from, Bytes to);
///     void set_bytes(const char* name, Bytes to, unsigned char value);
///     static Error host_memory_fault(const char* name, const void* data, std::size_t bytes);
///     Error take_any_error();    // take_error(), and failed launches of kernels of the caller's
///
/// Templates to specialize for a context where the general template does not serve, each in a header beside the
/// declaration (`.cuh` for Cuda):
///
///     kernel<Layer, Context>                // model/contract.hpp: a layer's or a loss's twin
///     codec_kernel<Codec, Context>          // codec/codec.hpp
///     optimizer_kernel<Optimizer, Context>  // optimizer/update_table.hpp
///     detail::InstructionTimes<Context>     // cost/instruction_times.hpp: times of instructions
///     TrainingMemory<Context>               // train/memory.hpp: the memory of a Training
///     detail::StashSample<Context>          // stash/measure.hpp: values for measuring a stash
///     detail::WatchedCopy<Context>          // stash/evolving_stash.hpp: the host's copy of a blob
///
/// and functions to overload: gradient_norm (optimizer/), the sketch of a gradient (cost/).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "carried.hpp"
#include "dtype.hpp"
#include "error.hpp"
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

/// The state of a step, for kernels.
struct KernelCall {
  /// True in a training step, false in evaluation (dropout is then the identity).
  bool training = true;

  /// The stream of random numbers for the activation whose layer is running. Seed, step and
  /// micro-step are the caller's.
  RandomKey key;

  /// Set by the caller for the whole step: valid positions of each sequence of the batch, if sequences end early and
  /// are padded. The memory must outlive the step, and is the device's if the context's layers run on one. Empty: all
  /// sequences are full. Layers that mix positions and say so read the lengths (attention in both directions, the mean
  /// over time).
  View<const std::int32_t> lengths;

  /// Set by the caller for the whole step: the position of each token within its document, (batch, time), if documents
  /// are packed into sequences one behind the other: 0 begins a document. The memory must outlive the step, which checks
  /// the positions. Empty: each sequence is one document. Layers that mix positions, or count them, and say so keep
  /// documents apart: attention, positions of the embedding, the rotary embedding. All others take a sequence
  /// as one document. Threads of the host alone read positions.
  View<const std::int32_t> positions;

  /// Set by the caller for a pass of Mode::infer: the pass continues sequences, whose earlier positions are in this state.
  /// Layers that extend sequences (contract.hpp) read and extend it. Null: sequences begin with the pass.
  const CarriedState* carried = nullptr;

  /// The position of token `t` of sequence `entry` within its document; the batch has room for `time` positions.
  std::size_t position_of(std::size_t entry, std::size_t t, std::size_t time) const {
    if (carried != nullptr) return carried->first + t;
    const std::size_t at = entry * time + t;
    if (at >= positions.size() || positions[at] < 0) return t;
    const auto position = static_cast<std::size_t>(positions[at]);
    return position < t ? position : t;
  }

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

/// The members of a context beyond those of all contexts.
template <class Context>
struct context_traits {
  /// Whether kernels run later, and on other memory than the host's.
  static constexpr bool own_memory = requires(const void* data) {
    Error{Context::memory_fault("", data, std::size_t{})};
  };
  static constexpr bool returns_errors = requires(Context & context) {
    Error{context.take_error()};
  };
  static constexpr bool loss_may_fail = requires(const typename Context::Loss& loss) {
    Error{loss.fault()};
  };
  static constexpr bool looks_at_memory = requires(Context & context) {
    context.memory_is_checked = true;
  };
  static constexpr bool has_stream = requires(const Context& context) { context.stream(); };
  /// Whether kernels run on other memory, where products of activations in T read copies of parameters in bfloat16.
  template <class T>
  static constexpr bool reads_copies = own_memory&& dtype_of<T> ==
                                       Dtype::bf16&& requires(Context& context,
                                                              View<const float> from,
                                                              View<bfloat16> to) {
    context.narrow("", from, to);
  };
  /// Whether parameters held in bfloat16 can be decoded on other memory.
  template <class T>
  static constexpr bool widens = requires(Context& context, View<const bfloat16> from, View<T> to) {
    context.widen("", from, to);
  };
  static constexpr bool gathers =
      requires(Context & context, const std::byte* from, Pieces pieces, std::byte* to) {
    context.gather(from, pieces, to);
  };
};

/// Calls tile(i, worker) for each i in [0, tiles), on the context's threads if there are any.
template <class Context, class Tile>
void for_tiles(Context& context, std::size_t tiles, const Tile& tile) {
  if constexpr (requires { context.parallel(tiles, tile); }) context.parallel(tiles, tile);
  else
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
}

}}  // namespace adacc::v0_1
