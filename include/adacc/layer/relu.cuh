// SPDX-License-Identifier: MIT
/// ReLU on a CUDA device: the bits of relu.hpp.
#pragma once

#include "../core/cuda.cuh"
#include "relu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct ReluBody {
  const T* x;
  T* y;
  __device__ void operator()(std::size_t e) const { y[e] = widened(x[e]) < 0 ? T{} : x[e]; }
};

template <class T>
struct ReluGradientBody {
  const T *y, *dy;
  T* dx;
  __device__ void operator()(std::size_t e) const {
    const Wide<T> out = widened(y[e]);
    const T passed = out > 0 ? dy[e] : y[e];  // NaN where y is NaN
    dx[e] = out <= 0 ? T{} : passed;
  }
};

}  // namespace detail

template <>
struct kernel<Relu, Cuda> {
  template <class T>
  static void forward(const Relu&, Cuda& cuda, const Params<const Wide<T>>&, const View<const T>& x,
                      const View<T>& y, const Bytes&, const Bytes&) {
    cuda.each_element(Relu::name, x.size(), detail::ReluBody<T>{x.data(), y.data()});
  }

  template <class T>
  static void backward(const Relu&, Cuda& cuda, const Params<const Wide<T>>&, const View<const T>&,
                       const View<const T>& y, const View<const T>& dy, const View<T>& dx,
                       const Params<Wide<T>>&, const ConstBytes&, const Bytes&) {
    cuda.each_element(Relu::name, dy.size(),
                      detail::ReluGradientBody<T>{y.data(), dy.data(), dx.data()});
  }
};

}}  // namespace adacc::v0_1
