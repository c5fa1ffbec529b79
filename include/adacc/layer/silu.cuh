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
  static void forward(const Silu&, Cuda& cuda, const Params<const Wide<T>>&, const View<const T>& x,
                      const View<T>& y, const Bytes&, const Bytes&) {
    cuda.map(Silu::name, y, detail::SiluBody{}, x.data());
  }

  template <class T>
  static void backward(const Silu&, Cuda& cuda, const Params<const Wide<T>>&,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>&, const ConstBytes&, const Bytes&) {
    cuda.map(Silu::name, dx, detail::SiluGradientBody{}, x.data(), dy.data());
  }
};

}}  // namespace adacc::v0_1
