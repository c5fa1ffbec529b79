// SPDX-License-Identifier: MIT
/// Lion: steps of one length in the direction of a momentum's signs, with decoupled weight decay.
///
/// Lion keeps one moment, AdamW two. Rates are 3 to 10 times smaller than AdamW's.
///
/// Source: Chen, Liang, Huang, Real, Wang, Liu, Pham, Dong, Luong, Hsieh, Lu, Le, "Symbolic discovery
/// of optimization algorithms", NeurIPS 2023.
#pragma once

#include <cstddef>

#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

ADACC_TARGET_CODE_BEGIN
namespace detail {

template <class T>
struct LionTerms {
  T scale, beta1, fresh1, beta2, fresh2, rate, decay;
};

template <class T>
void lion_lanes(const LionTerms<T>& a, auto count, T* __restrict p, T* __restrict g,
                T* __restrict m) {
  for (std::size_t i = 0; i < count; ++i) {
    const T gradient = a.scale * g[i];
    const T mixed = a.beta1 * m[i] + a.fresh1 * gradient;
    // A NaN, which is neither, stays visible.
    const T sign = mixed > 0 ? T{1} : mixed < 0 ? T{-1} : mixed;
    m[i] = a.beta2 * m[i] + a.fresh2 * gradient;
    p[i] -= a.rate * (sign + a.decay * p[i]);
    g[i] = 0;
  }
}

}  // namespace detail

/// Lion with the momentum in the form `Moments`.
template <class Moments = FullMoments>
struct LionWith {
  float beta1 = 0.9F;
  float beta2 = 0.99F;
  float weight_decay = 0;  ///< applies if the parameter's spec says `decay`

  static constexpr const char* name = "Lion";
  static constexpr std::size_t state_count = 1;
  static constexpr bool elementwise = true;

  static constexpr StateSpec state(std::size_t, const ParameterSpec& parameter) {
    return {"momentum", parameter.shape.elems(), Moments::form};
  }

  template <class Visit>
  void each_option(const Visit& visit) const {
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("weight decay", weight_decay);
  }
  constexpr const char* mistake() const { return detail::mistake_of_betas(beta1, beta2); }

  /// With g = scale * gradient:
  ///
  ///     p -= rate (sign(beta1 m + (1 - beta1) g) + weight_decay p)
  ///     m = beta2 m + (1 - beta2) g
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    const detail::LionTerms<T> a = terms_of<T>(range.parameter, terms);
    for_moment<Moments>(
        range, [&](auto count, T* p, T* g, T* m) { detail::lion_lanes(a, count, p, g, m); });
  }

  /// The terms of an update, shared by all elements of a parameter.
  template <class T>
  detail::LionTerms<T> terms_of(const ParameterSpec& parameter, const UpdateTerms& update) const {
    const double b1 = beta1, b2 = beta2;
    return {static_cast<T>(update.scale),
            static_cast<T>(b1),
            static_cast<T>(1 - b1),
            static_cast<T>(b2),
            static_cast<T>(1 - b2),
            static_cast<T>(update.rate),
            parameter.decay ? static_cast<T>(weight_decay) : T{0}};
  }
};
ADACC_TARGET_CODE_END

using Lion = LionWith<>;

}}  // namespace adacc::v0_1
