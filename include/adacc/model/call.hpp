// SPDX-License-Identifier: MIT
/// The arguments of one call of a layer or a loss, by name.
///
/// The runner fills them in, for a layer that is cut into parts once for each part. Members that a
/// layer has no use for are empty: aux, if it declares none; x and y in backward, if backward does
/// not read them; dx and gradients that nobody wants (contract.hpp).
#pragma once

#include "../core/bytes.hpp"
#include "../core/context.hpp"
#include "../core/dtype.hpp"
#include "../core/view.hpp"
#include "parameter.hpp"

namespace adacc { inline namespace v0_1 {

/// A layer's forward. Activations are of T, and the input is of X: the layer's input_type.
template <class T, class X = T>
struct ForwardCall {
  View<const X> x{};
  View<T> y{};  ///< written
  Params<const Wide<T>> params{};
  Bytes aux{};  ///< written; backward gets it
  Bytes workspace{};

  /// Memory of LayerNeeds::packed bytes, if the step's arena has it to spare, else empty. It belongs to all parts
  /// of one instruction: each finds there the numbers that the part before it left.
  Bytes packed{};
  bool packed_holds = false;  ///< false in the first part
  /// Whether forward runs again in this step, on the very bits that it read before. aux then holds
  /// the numbers that forward wrote there, and a layer need not compute them again.
  bool aux_holds = false;
  /// The items of the work that are this call's, if the layer is split.
  Part part{};
};

/// A layer's backward.
template <class T, class X = T>
struct BackwardCall {
  View<const X> x{};
  View<const T> y{}, dy{};
  View<T> dx{};  ///< overwritten
  Params<const Wide<T>> params{};
  Params<Wide<T>> dparams{};  ///< added to
  ConstBytes aux{};
  Bytes workspace{};

  Bytes packed{};  ///< as in ForwardCall, for the parts of this instruction
  bool packed_holds = false;
  /// Whether x and y are those of the forward that wrote aux and y. Behind a lossy codec they are
  /// not. A layer whose gradient suffers from the difference can compute again what forward saved.
  bool exact_input = true;
  bool exact_output = true;
  Part part{};
};

/// A loss, alone (dx and dparams are empty) or with its gradients.
template <class T, class Target = T>
struct LossCall {
  View<const T> x{};
  View<const Target> targets{};
  View<T> dx{};  ///< overwritten
  Params<const Wide<T>> params{};
  Params<Wide<T>> dparams{};  ///< added to
  Bytes workspace{};
  /// The rows that this call was given, among all that the mean is over.
  Part part{};
};

namespace detail {

/// The elements of `view`, which are of type U.
template <class U, class T>
View<const U> as_elements(const View<const T>& view) {
  return {reinterpret_cast<const U*>(view.data()), view.shape()};
}

/// A step hands every input and all targets on as elements of T. These are the calls with the types
/// that a functor declares.
template <class X, class T>
ForwardCall<T, X> with_input(const ForwardCall<T>& call) {
  return {
      as_elements<X>(call.x), call.y,         call.params, call.aux, call.workspace, call.packed,
      call.packed_holds,      call.aux_holds, call.part};
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
          call.part};
}
template <class Target, class T>
LossCall<T, Target> with_targets(const LossCall<T>& call) {
  return {call.x,       as_elements<Target>(call.targets),
          call.dx,      call.params,
          call.dparams, call.workspace,
          call.part};
}

}  // namespace detail

}}  // namespace adacc::v0_1
