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
#include "math/numbers.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Phi(-|x|) of `n` elements, and exp(-x^2 / 2); n is at most stack_elems.
template <class T>
void normal_tail(const T* x, std::size_t n, StackArray<T>& tail, StackArray<T>& bell) {
  const auto in = as_array(x, n);
  bell = (in.square() * T(-0.5)).exp();
  if constexpr (std::is_same_v<T, double>) {
    tail.resize(static_cast<Eigen::Index>(n));
    for (std::size_t i = 0; i < n; ++i)
      tail[static_cast<Eigen::Index>(i)] =
          0.5 * std::erfc(std::fabs(x[i]) * 0.70710678118654752440);
  } else {
    // erfc(z) = exp(-z^2) t (c0 + c1 t + ...), z = |x| / sqrt 2; the half of erfc is in the c's.
    constexpr T c[] = {T(0.112837915728),  T(0.112838158464), T(0.103800360199),  T(0.085945285957),
                       T(0.059047561519),  T(0.043560320778), T(-0.026896583066), T(0.073401622701),
                       T(-0.121520865806), T(0.071920534590), T(-0.014934314235)};
    const StackArray<T> t = (T(1) + in.abs() * T(0.4 * 0.70710678118654752440)).inverse();
    tail = t * c[10] + c[9];
    for (int k = 8; k >= 0; --k) tail = tail * t + c[k];
    tail *= t * bell;
  }
}

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN, forward and backward; infinities become NaN.
struct ErfGelu {
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// Like Gelu, whose slope differs by less than 5e-4.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr const char* name = "erf_gelu";
  static constexpr bool runs_in_bf16 = true;
  static constexpr bool dx_overwrites_dy = true;

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    using W = Wide<T>;
    detail::for_each_piece(cpu, x.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n);
      const auto in = numbers.array();
      detail::StackArray<W> tail, bell;
      detail::normal_tail(numbers.data(), n, tail, bell);
      // x (1 - tail) above zero, x tail below.
      detail::store(y.data() + i, n, (in.max)(W(0)) - in.abs() * tail);
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    using W = Wide<T>;
    constexpr W root = static_cast<W>(0.39894228040143267794L);  // 1 / sqrt(2 pi)
    detail::for_each_piece(cpu, x.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n), up(dy.data() + i, n);
      const W* const in = numbers.data();
      detail::StackArray<W> tail, bell;
      detail::normal_tail(in, n, tail, bell);
      W* const below = tail.data();  // Phi(x)
      for (std::size_t e = 0; e < n; ++e) below[e] = in[e] < 0 ? below[e] : 1 - below[e];
      detail::store(dx.data() + i, n, up.array() * (tail + numbers.array() * bell * root));
    });
  }
};

}}  // namespace adacc::v0_1
