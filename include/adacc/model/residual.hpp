// SPDX-License-Identifier: MIT
/// Layers whose input is added to their output.
///
/// The sum is formed in place: it takes the place of the last layer's output, and that layer's
/// policy governs it. So the last layer's backward must not read its own output.
#pragma once

#include "sequential.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

template <class Functor>
constexpr bool may_end_residual() {
  if constexpr (requires { Reads{Functor::backward_reads}; })
    return !reads_output(Functor::backward_reads);
  else return true;  // another message says that backward_reads is missing
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

}}  // namespace adacc::v0_1
