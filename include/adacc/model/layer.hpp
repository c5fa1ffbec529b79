// SPDX-License-Identifier: MIT
/// A functor, and the policy of its activation.
#pragma once

#include "../policy/planned.hpp"
#include "contract.hpp"

namespace adacc { inline namespace v0_1 {

/// True for the parts of Sequential, Residual and Repeat: Layer, and these three themselves.
template <class Part>
inline constexpr bool is_model_part = requires {
  typename Part::last_layer;
};

template <class Functor, class PolicyType = Planned>
struct Layer {
  static constexpr bool has_policy = requires { Policy{PolicyType::value}; };
  static_assert(has_policy,
                "adacc: the second argument of Layer is a policy: Retain, Recompute, Planned, "
                "Compress<Codec> or Offload<>");
  using last_layer = Functor;

  Functor functor{};

  template <class Visitor>
  [[gnu::always_inline]] constexpr void visit(Visitor& visitor) const {
    if constexpr (has_policy) visitor.template layer<PolicyType>(functor);
  }
};

/// layer<Recompute>(Linear{.out = 512})
template <class PolicyType = Planned, class Functor>
constexpr Layer<Functor, PolicyType> layer(Functor functor) {
  return {functor};
}

}}  // namespace adacc::v0_1
