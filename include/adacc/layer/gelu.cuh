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
    constexpr T a = GeluTerms<T>::linear, b = GeluTerms<T>::cubic;
    const T in = x[e];
    y[e] = in / (T(1) + exp(in * (in * in * (-2 * b) - 2 * a)));
  }
};

template <class T>
struct GeluGradientBody {
  const T *x, *dy;
  T* dx;
  __device__ void operator()(std::size_t e) const {
    constexpr T a = GeluTerms<T>::linear, b = GeluTerms<T>::cubic, limit = GeluTerms<T>::limit;
    const T in = x[e];
    const T held = in < -limit ? -limit : in > limit ? limit : in;  // a NaN stays one
    const T s = T(1) / (T(1) + exp(held * (held * held * (-2 * b) - 2 * a)));
    dx[e] = dy[e] * s * (T(1) + in * (T(1) - s) * (held * held * (6 * b) + 2 * a));
  }
};

}  // namespace detail

template <>
struct kernel<Gelu, Cuda> {
  template <class T>
  static void forward(const Gelu&, Cuda& cuda, const Params<const T>&, const View<const T>& x,
                      const View<T>& y, const Bytes&, const Bytes&) {
    cuda.each_element(Gelu::name, x.size(), detail::GeluBody<T>{x.data(), y.data()});
  }

  template <class T>
  static void backward(const Gelu&, Cuda& cuda, const Params<const T>&, const View<const T>& x,
                       const View<const T>&, const View<const T>& dy, const View<T>& dx,
                       const Params<T>&, const ConstBytes&, const Bytes&) {
    cuda.each_element(Gelu::name, dy.size(),
                      detail::GeluGradientBody<T>{x.data(), dy.data(), dx.data()});
  }
};

}}  // namespace adacc::v0_1
