// SPDX-License-Identifier: MIT
/// The kernels of a Tape as callables of a stash: one by one, or in a group, if each but the first changes an output
/// of the kernel before it in place. The group is one callable, so the changed activation has no memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "queue.hpp"
#include "tape_kernel.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
struct TapeCallable {
  TapeCallable() = default;
  TapeCallable(const TapeCallable&) = delete;
  TapeCallable& operator=(const TapeCallable&) = delete;
  virtual ~TapeCallable() = default;
  virtual void run(const TapeCall<T>& call) const = 0;
};

template <class T, class Function>
struct TapeCallableOf final : TapeCallable<T> {
  static inline char type_mark = 0;  ///< its address tells types apart

  explicit TapeCallableOf(const Function& f) : function(f) {}
  void run(const TapeCall<T>& call) const override { function(call); }

  /// Tells kinds of callables apart.
  std::uint64_t mark() const {
    if constexpr (requires { function.kind(); })
      return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(function.kind()));
    else return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&type_mark));
  }

  Function function;
};

/// An activation in a step of one batch size.
struct TapeExtent {
  Shape view;  ///< the shape seen by callables
  std::size_t bytes = 0;
};

/// Where a tape stands, for its callables.
template <class Context>
struct TapeNow {
  Context* context = nullptr;
  const TapeExtent* extents = nullptr;  ///< by activation
  mutable Error mistake;                ///< of a callable, in this step
};

/// A kernel of a tape.
template <class T, class Context>
struct TapeEntry {
  TapeKernel<T, Context> call;
  std::unique_ptr<TapeCallable<T>> callable;
  std::uint64_t mark = 0;  ///< of the callable's kind
  int first = -1;          ///< the first output
  std::vector<int>
      begins_as;  ///< by output: the number among reads of the input changed in place; -1: none
  std::vector<int> saves;  ///< activations
  std::size_t group = 0;

  int output(std::size_t i) const { return first + static_cast<int>(i); }

  /// Runs the kernel. Inputs changed in place are outputs from here on.
  void run(const TapeNow<Context>& now, View<const T>* in, const View<T>* out,
           Bytes workspace) const {
    for (std::size_t i = 0; i < call.writes.size(); ++i) {
      const Shape whole(now.extents[output(i)].bytes);
      const Bytes to(static_cast<std::byte*>(static_cast<void*>(out[i].data())), whole);
      if (has(call.writes[i].options, TapeOutputs::zeroed)) fill_bytes(*now.context, to, 0);
      if (begins_as[i] < 0) continue;
      View<const T>& from = in[begins_as[i]];
      if (from.data() != out[i].data())
        copy_bytes(*now.context,
                   {static_cast<const std::byte*>(static_cast<const void*>(from.data())), whole},
                   to);
      from = out[i];
    }
    callable->run({call, in, out, workspace, now.mistake});
  }
};

/// Neighbouring kernels that are one callable of the stash.
template <class T, class Context>
struct TapeGroup {
  /// Inputs and outputs of a kernel by their number among those of the group.
  struct Member {
    const TapeEntry<T, Context>* kernel = nullptr;
    std::vector<int> inputs;  ///< -1 - i: output i of the group
    std::vector<int> outputs;
  };

  const TapeNow<Context>* now = nullptr;
  int first = 0, last = 0;  ///< kernels
  std::vector<Member> members;
  std::vector<int> reads, writes;  ///< activations
  mutable std::vector<View<const T>> in;
  mutable std::vector<View<T>> out;

  /// For StashRecompute.
  static void again(const void* self, const View<const T>* inputs, const View<T>* outputs,
                    Bytes workspace) {
    const TapeGroup& group = *static_cast<const TapeGroup*>(self);
    for (const Member& member : group.members) {
      group.in.clear(), group.out.clear();
      for (const int i : member.inputs)
        group.in.push_back(i >= 0 ? inputs[i] : View<const T>(outputs[-1 - i]));
      for (const int i : member.outputs) group.out.push_back(outputs[i]);
      member.kernel->run(*group.now, group.in.data(), group.out.data(), workspace);
    }
  }
};

}}}  // namespace adacc::v0_1::detail
