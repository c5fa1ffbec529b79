// SPDX-License-Identifier: MIT
/// GELU by its definition on a CUDA device, with the formulas of erf_gelu.hpp and the device's own erfc.
#pragma once

#include <cmath>

#include "../core/cuda.cuh"
#include "cuda/functions.cuh"
#include "cuda/map_sums.cuh"
#include "erf_gelu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Phi(-|x|).
__device__ inline float normal_tail(float x) { return 0.5F * erfcf(fabsf(x) * 0.70710678F); }

struct ErfGeluBody {
  __device__ float operator()(float x) const { return fmaxf(x, 0) - fabsf(x) * normal_tail(x); }
};

struct ErfGeluGradientBody {
  __device__ float operator()(float x, float dy) const {
    constexpr float root = 0.39894228F;  // 1 / sqrt(2 pi)
    const float tail = normal_tail(x), below = x < 0 ? tail : 1 - tail;
    return dy * fma(x, fast_power_of_2(-0.5F * log2_e * x * x) * root, below);
  }
};

}  // namespace detail

template <>
struct kernel<ErfGelu, Cuda> {
  static constexpr bool sums_dx = true;

  static constexpr LayerNeeds needs(const ErfGelu&, Shape in, NeedsQuery query) {
    return {.workspace = detail::map_gradient_bytes(in, query)};
  }

  template <class T>
  static void forward(const ErfGelu&, Cuda& cuda, View<const T> x, View<T> y) {
    cuda.map(ErfGelu::name, y, detail::ErfGeluBody{}, x.data());
  }

  template <class T>
  static void backward(const ErfGelu&, Cuda& cuda, const BackwardCall<T>& call) {
    detail::map_gradient(cuda, ErfGelu::name, detail::ErfGeluGradientBody{}, call);
  }
};

}}  // namespace adacc::v0_1
