// SPDX-License-Identifier: MIT
/// Layers whose input is added to their output, directly or projected by other layers.
///
/// The sum is formed in place, in the last layer's output, and governed by the last layer's policy. So the last layer's
/// backward must not read this output.
#pragma once

#include "sequential.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

template <class Functor>
constexpr bool may_end_residual() {
  if constexpr (requires { Reads{Functor::backward_reads}; })
    return !reads_output(Functor::backward_reads);
  else return true;  // another message tells of the missing backward_reads
}

}  // namespace detail

template <class... Parts>
struct Residual : Sequential<Parts...> {
  using Sequential<Parts...>::Sequential;
  using typename Sequential<Parts...>::last_layer;
  static_assert(detail::may_end_residual<last_layer>(),
                "adacc: the last layer of a Residual must not read its own output in backward: "
                "the sum takes that output's place");

  template <class Visitor>
  constexpr void visit(Visitor& visitor) const {
    const int source = visitor.current();
    Sequential<Parts...>::visit(visitor);
    visitor.add(source);
  }
};

template <class... Parts>
Residual(const Parts&...) -> Residual<Parts...>;

/// Where shapes change: y = projection(x) + parts(x), both made from the same x (a convolution of one
/// pixel with a stride, say, beside two of 3 x 3). The projection runs first and waits for the sum.
template <class Projection, class... Parts>
struct ProjectedResidual {
  static_assert(is_model_part<Projection>,
                "adacc: the first part of a ProjectedResidual is its projection: a Layer, or a "
                "Sequential of several");
  using last_layer = typename Sequential<Parts...>::last_layer;
  static_assert(detail::may_end_residual<last_layer>(),
                "adacc: the last layer of a ProjectedResidual must not read its own output in "
                "backward: the sum takes that output's place");

  Projection projection{};
  Sequential<Parts...> parts{};

  constexpr ProjectedResidual() = default;
  constexpr explicit ProjectedResidual(const Projection& first, const Parts&... rest)
      : projection(first), parts(rest...) {}

  template <class Visitor>
  constexpr void visit(Visitor& visitor) const {
    const int source = visitor.current();
    projection.visit(visitor);
    const int projected = visitor.current();
    visitor.branch(source);
    parts.visit(visitor);
    visitor.add(projected);
  }
};

template <class Projection, class... Parts>
ProjectedResidual(const Projection&, const Parts&...) -> ProjectedResidual<Projection, Parts...>;

}}  // namespace adacc::v0_1
