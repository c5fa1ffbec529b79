// SPDX-License-Identifier: MIT
/// Stochastic gradient descent with momentum and decoupled weight decay.
///
/// Source: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
/// form of Sutskever, Martens, Dahl, Hinton, ICML 2013; the decay is kept out of the velocity as in
/// Loshchilov and Hutter, ICLR 2019.
#pragma once

#include <cstddef>

#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

ADACC_TARGET_CODE_BEGIN
namespace detail {

template <class T>
void sgd_lanes(auto count, T scale, T momentum, T rate, T decay, T* __restrict p, T* __restrict g,
               T* __restrict v) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + scale * g[i];
    p[i] -= rate * (v[i] + decay * p[i]);
    g[i] = 0;
  }
}

}  // namespace detail

/// Sgd with the velocity in the form `Moments`.
template <class Moments = FullMoments>
struct SgdWith {
  float momentum = 0.9F;
  float weight_decay = 0;  ///< applies if the parameter's spec says `decay`

  static constexpr const char* name = "SGD";
  static constexpr std::size_t state_count = 1;
  static constexpr bool elementwise = true;

  static constexpr StateSpec state(std::size_t, const ParameterSpec& parameter) {
    return {"velocity", parameter.shape.elems(), Moments::form};
  }

  template <class Visit>
  void each_option(const Visit& visit) const {
    visit("momentum", momentum);
    visit("weight decay", weight_decay);
  }
  constexpr const char* mistake() const {
    return detail::is_decay(momentum) ? nullptr : "momentum must be 0 or more, and below 1";
  }

  /// With g = scale * gradient:
  ///
  ///     v = momentum v + g          p -= rate (v + weight_decay p)
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    const T decay = range.parameter.decay ? static_cast<T>(weight_decay) : T{0};
    for_moment<Moments>(range, [&](auto count, T* p, T* g, T* v) {
      detail::sgd_lanes(count, static_cast<T>(terms.scale), static_cast<T>(momentum),
                        static_cast<T>(terms.rate), decay, p, g, v);
    });
  }
};
ADACC_TARGET_CODE_END

using Sgd = SgdWith<>;

}}  // namespace adacc::v0_1
