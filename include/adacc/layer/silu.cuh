// SPDX-License-Identifier: MIT
/// SiLU on a CUDA device, with the formulas of silu.hpp.
#pragma once

#include "../core/cuda.cuh"
#include "silu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct SiluBody {
  const T* x;
  T* y;
  __device__ void operator()(std::size_t e) const {
    using W = Wide<T>;
    const W in = widened(x[e]);
    y[e] = narrowed<T>(in / (W(1) + exp(-in)));
  }
};

template <class T>
struct SiluGradientBody {
  const T *x, *dy;
  T* dx;
  __device__ void operator()(std::size_t e) const {
    using W = Wide<T>;
    const W in = widened(x[e]), s = W(1) / (W(1) + exp(-in));
    dx[e] = narrowed<T>(widened(dy[e]) * s * (W(1) + in * (W(1) - s)));
  }
};

}  // namespace detail

template <>
struct kernel<Silu, Cuda> {
  template <class T>
  static void forward(const Silu&, Cuda& cuda, const Params<const Wide<T>>&, const View<const T>& x,
                      const View<T>& y, const Bytes&, const Bytes&) {
    cuda.each_element(Silu::name, x.size(), detail::SiluBody<T>{x.data(), y.data()});
  }

  template <class T>
  static void backward(const Silu&, Cuda& cuda, const Params<const Wide<T>>&,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>&, const ConstBytes&, const Bytes&) {
    cuda.each_element(Silu::name, dy.size(),
                      detail::SiluGradientBody<T>{x.data(), dy.data(), dx.data()});
  }
};

}}  // namespace adacc::v0_1
