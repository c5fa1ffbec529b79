// SPDX-License-Identifier: MIT
/// The arguments of one call of a layer or a loss, by name.
///
/// The step fills them in. A layer cut into parts has one call for each part. Empty are (contract.hpp)
///   - aux and workspace, if the layer declares none;
///   - x or y in backward, if backward does not read this tensor (backward_reads, reads_when);
///   - dx and dparams[i], if nobody wants this gradient and the layer declares reads_when.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../core/context.hpp"
#include "../core/dtype.hpp"
#include "../core/view.hpp"
#include "parameter.hpp"

namespace adacc { inline namespace v0_1 {

/// Arguments of a layer's forward. T: type of activations. X: type of the input, the layer's input_type.
template <class T, class X = T>
struct ForwardCall {
  View<const X> x{};               ///< the input
  View<T> y{};                     ///< the output, overwritten
  Params<const Wide<T>> params{};  ///< values, in the order of parameters()
  Bytes aux{};                     ///< overwritten, and handed to backward
  Bytes workspace{};               ///< scratch, undefined at first

  /// Memory of LayerNeeds::packed bytes for numbers made of parameters alone, or empty if the arena has no room to
  /// spare. All parts of one instruction share this memory: each finds the numbers left by the part before.
  Bytes packed{};
  bool packed_holds = false;  ///< whether the numbers are there: false in the first part
  /// True if forward runs again in this step. aux then still holds the numbers of the first forward.
  bool again = false;
  /// True if x also has the very bits of the first time: the layer need not compute these numbers again.
  bool aux_holds = false;
  /// The items of this call, if the layer declares `split`.
  Part part{};
  /// Added to y by a layer that adds_residual: the input of a Residual that ends here. Empty: nothing.
  View<const T> added{};
};

/// Arguments of a layer's backward.
template <class T, class X = T>
struct BackwardCall {
  View<const X> x{};
  View<const T> y{}, dy{};  ///< the output; the loss's gradient with respect to it
  View<T> dx{};             ///< overwritten
  Params<const Wide<T>> params{};
  Params<Wide<T>> dparams{};  ///< added to
  ConstBytes aux{};           ///< written by forward
  Bytes workspace{};

  Bytes packed{};  ///< see ForwardCall; for the parts of this instruction
  bool packed_holds = false;
  /// Whether x and y have the very bits of forward. Behind a lossy codec they have others. A layer whose gradient
  /// suffers from the difference can compute the numbers in aux, or y, again.
  bool exact_input = true;
  bool exact_output = true;
  Part part{};
  /// Added to dx by a layer that adds_gradient: the gradient along a residual sum. May be dy. Empty: nothing.
  View<const T> added{};
  /// Bit i: dparams[i] holds nothing yet. 0 unless the layer writes_gradients.
  std::uint64_t begun_here = 0;
  /// For a layer that sums_dx: the gradient of the layer in front that is the sums of dx's columns. Added to, or written
  /// if it begins here. Null: nothing.
  Wide<T>* dx_sums = nullptr;
  bool dx_sums_begin = false;
  bool dy_is_summed = false;  ///< the layer behind has done so for this layer

  /// Whether dparams[i] is to be written, and not added to.
  constexpr bool begins(std::size_t i) const { return (begun_here >> i & 1) != 0; }
};

/// Arguments of a loss: alone (dx and dparams are empty) or with gradients.
template <class T, class Target = T>
struct LossCall {
  View<const T> x{};
  View<const Target> targets{};
  View<T> dx{};  ///< overwritten
  Params<const Wide<T>> params{};
  Params<Wide<T>> dparams{};  ///< added to
  Bytes workspace{};
  /// The rows of this call among all rows of the mean.
  Part part{};
  /// For losses over classes (class_targets.hpp): divides the sum of the rows' losses. 0: the number of this call's
  /// counted targets.
  std::size_t divisor = 0;
  std::uint64_t begun_here = 0;  ///< see BackwardCall

  constexpr bool begins(std::size_t i) const { return (begun_here >> i & 1) != 0; }
};

namespace detail {

/// The elements of `view`, whose type is in fact U.
template <class U, class T>
View<const U> as_elements(const View<const T>& view) {
  return {reinterpret_cast<const U*>(view.data()), view.shape()};
}

/// A step hands every input and all targets on as elements of T. These functions turn a call into one with the types
/// declared by the functor. (A layer whose input is of another type has no dx whose columns it could sum.)
template <class X, class T>
ForwardCall<T, X> with_input(const ForwardCall<T>& call) {
  return {as_elements<X>(call.x), call.y,      call.params,       call.aux,
          call.workspace,         call.packed, call.packed_holds, call.again,
          call.aux_holds,         call.part,   call.added};
}
template <class X, class T>
BackwardCall<T, X> with_input(const BackwardCall<T>& call) {
  return {as_elements<X>(call.x),
          call.y,
          call.dy,
          call.dx,
          call.params,
          call.dparams,
          call.aux,
          call.workspace,
          call.packed,
          call.packed_holds,
          call.exact_input,
          call.exact_output,
          call.part,
          call.added,
          call.begun_here};
}
template <class Target, class T>
LossCall<T, Target> with_targets(const LossCall<T>& call) {
  return {call.x,         as_elements<Target>(call.targets),
          call.dx,        call.params,
          call.dparams,   call.workspace,
          call.part,      call.divisor,
          call.begun_here};
}

}  // namespace detail

}}  // namespace adacc::v0_1
