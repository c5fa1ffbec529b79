// SPDX-License-Identifier: MIT
/// The description of a kernel on a Tape (stash/tape.hpp), and the arguments of the callable.
#pragma once

#include <cstddef>

#include "kernel.hpp"
#include "model.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context>
struct TapeKernel;

/// The arguments of a kernel: memory to read and to write, in forward and whenever outputs are computed again.
/// Outputs and workspace hold anything at first, unless an output is TapeOutputs::zeroed or takes the place of an
/// input. Shapes are those of the step's batch (TapeOutputs::per_item).
template <class T>
class TapeCall {
 public:
  /// `mistake` gets the words for a number of in() or out() that is too large.
  template <class Context>
  TapeCall(const TapeKernel<T, Context>& kernel, const View<const T>* inputs,
           const View<T>* outputs, Bytes workspace, Error& mistake)
      : name_(kernel.name), reads_(kernel.reads.numbers().size()), writes_(kernel.writes.size()),
        inputs_(inputs), outputs_(outputs), workspace_(workspace), mistake_(&mistake) {}

  /// Activation i of TapeKernel::reads. Elements of another type are a view of T over the same memory. A number too
  /// large gives an empty view, and fails the step.
  const View<const T>& in(std::size_t i) const {
    return i < reads_ ? inputs_[i] : none<const T>("in(", i, "), and reads ", reads_);
  }
  /// Output i, to be written whole. A number too large is answered as by in().
  const View<T>& out(std::size_t i) const {
    return i < writes_ ? outputs_[i] : none<T>("out(", i, "), and writes ", writes_);
  }
  template <class U>
  const U* in_as(std::size_t i) const {
    return static_cast<const U*>(static_cast<const void*>(in(i).data()));
  }
  template <class U>
  U* out_as(std::size_t i) const {
    return static_cast<U*>(static_cast<void*>(out(i).data()));
  }
  /// TapeKernel::workspace_bytes of scratch, 64-byte aligned.
  Bytes workspace() const { return workspace_; }

 private:
  template <class Element>
  [[gnu::cold, gnu::noinline]] const View<Element>& none(const char* what, std::size_t i,
                                                         const char* has, std::size_t count) const {
    static const View<Element> empty{};
    *mistake_ = Error::misuse("kernel ", name_, " asks for ", what, i, has, count, " of them");
    return empty;
  }

  const char* name_;
  std::size_t reads_, writes_;
  const View<const T>* inputs_;
  const View<T>* outputs_;
  Bytes workspace_;
  Error* mistake_;
};

/// Options of an output: {"att", shape, TapeOutputs::zeroed | TapeOutputs::gradient}.
enum class TapeOutputs : unsigned char {
  plain = 0,
  /// The tape has a gradient for the output: Tape::grad(), zero at first, from the backward of the last
  /// reader to the backward of the kernel itself.
  gradient = 1,
  /// The memory is zero before the kernel runs, for kernels that do not write all of it.
  zeroed = 2,
  /// The first extent grows with the items of a batch (TapeStart::items): in a step of fewer items it is smaller.
  per_item = 4,
};
constexpr TapeOutputs operator|(TapeOutputs a, TapeOutputs b) {
  return static_cast<TapeOutputs>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(TapeOutputs options, TapeOutputs one) {
  return (static_cast<unsigned>(options) & static_cast<unsigned>(one)) != 0;
}

/// The type of an output's elements: the tape's own, or another.
enum class TapeType : unsigned char { own, f32, f64, i32, bf16, f16, bytes };

constexpr std::size_t bytes_of(TapeType type) {
  constexpr std::size_t bytes[] = {0, 4, 8, 4, 2, 2, 1};
  return bytes[static_cast<int>(type)];
}
constexpr const char* name_of(TapeType type) {
  constexpr const char* names[] = {"own", "f32", "f64", "i32", "bf16", "f16", "bytes"};
  return names[static_cast<int>(type)];
}

/// Instead of a shape: the output begins as activation `id`, one of the kernel's reads, and the kernel changes the
/// values in place. in(i) is the same memory as the output.
struct TapeInPlace {
  int id = -1;
};

/// An output of a kernel: elements of T of a shape, which `codecs` may encode; elements of another type; bytes of
/// anything; or an input changed in place.
template <class T, class Context>
struct TapeOutput {
  using Model = StashModel<T, Context>;
  using Codecs = StashListOf<StashCodec<Model>>;

  StashOutput<Model> described;
  TapeOutputs options = TapeOutputs::plain;
  TapeType type = TapeType::own;
  int in_place_of = -1;  ///< the input; -1: none

  TapeOutput() = default;
  TapeOutput(const char* name, Shape shape, const Codecs& codecs = {})
      : described(name, shape, codecs) {}
  TapeOutput(const char* name, Shape shape, TapeOutputs set, const Codecs& codecs = {})
      : described(name, shape, codecs), options(set) {}
  TapeOutput(const char* name, Shape shape, TapeType of, TapeOutputs set = TapeOutputs::plain,
             const Codecs& codecs = {})
      : described(name, shape, codecs), options(set), type(of) {}
  TapeOutput(const char* name, TapeInPlace input, TapeOutputs set = TapeOutputs::plain,
             const Codecs& codecs = {})
      : described(name, Shape(), codecs), options(set), in_place_of(input.id) {}
  TapeOutput(const char* name, StashBytes bytes, TapeOutputs set = TapeOutputs::plain)
      : described(name, bytes), options(set) {}
};

/// One call of a kernel in forward. Names must outlive the tape.
template <class T, class Context>
struct TapeKernel {
  const char* name = "";  ///< in errors and reports
  StashList reads = {};   ///< ids of activations read by the kernel, in the order of in()
  StashListOf<TapeOutput<T, Context>> writes =
      {};                           ///< in the order of out(); none, for a kernel like an update
  StashReads saves = {};            ///< activations read by backward: ids, and own outputs by name
  std::size_t workspace_bytes = 0;  ///< for the kernel
  std::size_t backward_bytes = 0;   ///< for backward: Tape::backward_workspace()
  /// The kernel runs in forward alone, because another run gives other results (a random mask, running means,
  /// a queue of inputs). Outputs are kept if backward wants them.
  bool once = false;
  /// Each output of real numbers that a later kernel reads has a gradient, as with TapeOutputs::gradient.
  bool gradients = false;
};

}}  // namespace adacc::v0_1
