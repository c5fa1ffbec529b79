// SPDX-License-Identifier: MIT
/// ReLU on a CUDA device: the bits of relu.hpp; in bfloat16 a NaN may get other ones.
#pragma once

#include "../core/cuda.cuh"
#include "relu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

struct ReluBody {
  __device__ float operator()(float x) const { return x < 0 ? 0 : x; }
};

struct ReluGradientBody {
  __device__ float operator()(float y, float dy) const {
    const float passed = y > 0 ? dy : y;  // NaN where y is NaN
    return y <= 0 ? 0 : passed;
  }
};

}  // namespace detail

template <>
struct kernel<Relu, Cuda> {
  template <class T>
  static void forward(const Relu&, Cuda& cuda, View<const T> x, View<T> y) {
    cuda.map(Relu::name, y, detail::ReluBody{}, x.data());
  }

  template <class T>
  static void backward(const Relu&, Cuda& cuda, View<const T> y, View<const T> dy, View<T> dx) {
    cuda.map(Relu::name, dx, detail::ReluGradientBody{}, y.data(), dy.data());
  }
};

}}  // namespace adacc::v0_1
