// SPDX-License-Identifier: MIT
/// SiLU on a CUDA device, with the formulas of silu.hpp.
#pragma once

#include "../core/cuda.cuh"
#include "cuda/functions.cuh"
#include "silu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

struct SiluBody {
  __device__ float operator()(float x) const { return x * fast_sigmoid(x); }
};

struct SiluGradientBody {
  __device__ float operator()(float x, float dy) const {
    const float s = fast_sigmoid(x);
    return dy * s * fma(x, 1 - s, 1.0F);
  }
};

}  // namespace detail

template <>
struct kernel<Silu, Cuda> {
  template <class T>
  static void forward(const Silu&, Cuda& cuda, View<const T> x, View<T> y) {
    cuda.map(Silu::name, y, detail::SiluBody{}, x.data());
  }

  template <class T>
  static void backward(const Silu&, Cuda& cuda, View<const T> x, View<const T> dy, View<T> dx) {
    cuda.map(Silu::name, dx, detail::SiluGradientBody{}, x.data(), dy.data());
  }
};

}}  // namespace adacc::v0_1
