// SPDX-License-Identifier: MIT
/// GELU by its definition, with the error function: BERT's, and PyTorch's default.
///
///     y = x Phi(x),  dy/dx = Phi(x) + x phi(x)
///
/// Phi and phi are distribution and density of the standard normal distribution. Hendrycks, Gimpel,
/// "Gaussian Error Linear Units", 2016. gelu.hpp has the other form, which differs by up to 5e-4.
///
/// In float the tail Phi(-|x|) is exp(-x^2 / 2) times a polynomial in t = 1 / (1 + 0.4 |x| / sqrt 2), fitted to a
/// relative error of 1e-8 over all x, so that small values do not cancel; the density takes the same exponential. In
/// double the tail is std::erfc, element by element: for checks.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/lanes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
/// Phi(-|x|), and exp(-x^2 / 2).
template <class V>
void normal_tail(const V& in, V& tail, V& bell) {
  using T = typename V::Number;
  bell = exp(in * in * V::all(T(-0.5)));
  if constexpr (std::is_same_v<T, double>) {
    T numbers[V::lanes];
    in.store(numbers);
    for (T& x : numbers) x = 0.5 * std::erfc(std::fabs(x) * 0.70710678118654752440);
    tail = V::load(numbers);
  } else {
    // erfc(z) = exp(-z^2) t (c0 + c1 t + ...), z = |x| / sqrt 2; the half of erfc is in the c's.
    constexpr T c[] = {T(0.112837915728),  T(0.112838158464), T(0.103800360199),  T(0.085945285957),
                       T(0.059047561519),  T(0.043560320778), T(-0.026896583066), T(0.073401622701),
                       T(-0.121520865806), T(0.071920534590), T(-0.014934314235)};
    const V one = V::all(1), t = one / (one + abs(in) * V::all(T(0.4 * 0.70710678118654752440)));
    tail = t * V::all(c[10]) + V::all(c[9]);
    for (int k = 8; k >= 0; --k) tail = tail * t + V::all(c[k]);
    tail = tail * (t * bell);
  }
}

struct ErfGeluValue {
  template <class V>
  V operator()(const V& in) const {
    V tail, bell;
    normal_tail(in, tail, bell);
    // x (1 - tail) above zero, x tail below.
    return larger(in, V::all(0)) - abs(in) * tail;
  }
};

struct ErfGeluGradient {
  template <class V>
  V operator()(const V& in, const V& up) const {
    using T = typename V::Number;
    constexpr T root = static_cast<T>(0.39894228040143267794L);  // 1 / sqrt(2 pi)
    V tail, bell;
    normal_tail(in, tail, bell);
    const V below = (V::all(1) - tail).unless_less(in, V::all(0), tail);  // Phi(x)
    return up * (below + in * bell * V::all(root));
  }
};
ADACC_TARGET_CODE_END

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN, forward and backward; infinities become NaN.
struct ErfGelu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// Like Gelu, whose slope differs by less than 5e-4.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "erf_gelu";
  static constexpr LayerFacts facts{.dx_overwrites_dy = true, .runs_in_bf16 = true};

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::map_numbers<detail::ErfGeluValue>(cpu, y, x);
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    detail::map_numbers<detail::ErfGeluGradient>(cpu, dx, x, dy);
  }
};

}}  // namespace adacc::v0_1
