// SPDX-License-Identifier: MIT
/// GELU on a CUDA device, with the formulas of gelu.hpp.
#pragma once

#include "../core/cuda.cuh"
#include "gelu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct GeluBody {
  const T* x;
  T* y;
  __device__ void operator()(std::size_t e) const {
    using W = Wide<T>;
    constexpr W a = GeluTerms<W>::linear, b = GeluTerms<W>::cubic;
    const W in = widened(x[e]);
    y[e] = narrowed<T>(in / (W(1) + exp(in * (in * in * (-2 * b) - 2 * a))));
  }
};

template <class T>
struct GeluGradientBody {
  const T *x, *dy;
  T* dx;
  __device__ void operator()(std::size_t e) const {
    using W = Wide<T>;
    constexpr W a = GeluTerms<W>::linear, b = GeluTerms<W>::cubic, limit = GeluTerms<W>::limit;
    const W in = widened(x[e]);
    const W held = in < -limit ? -limit : in > limit ? limit : in;  // a NaN stays one
    const W s = W(1) / (W(1) + exp(held * (held * held * (-2 * b) - 2 * a)));
    dx[e] = narrowed<T>(widened(dy[e]) * s *
                        (W(1) + in * (W(1) - s) * (held * held * (6 * b) + 2 * a)));
  }
};

}  // namespace detail

template <>
struct kernel<Gelu, Cuda> {
  template <class T>
  static void forward(const Gelu&, Cuda& cuda, const Params<const Wide<T>>&, const View<const T>& x,
                      const View<T>& y, const Bytes&, const Bytes&) {
    cuda.each_element(Gelu::name, x.size(), detail::GeluBody<T>{x.data(), y.data()});
  }

  template <class T>
  static void backward(const Gelu&, Cuda& cuda, const Params<const Wide<T>>&,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>&, const ConstBytes&, const Bytes&) {
    cuda.each_element(Gelu::name, dy.size(),
                      detail::GeluGradientBody<T>{x.data(), dy.data(), dx.data()});
  }
};

}}  // namespace adacc::v0_1
