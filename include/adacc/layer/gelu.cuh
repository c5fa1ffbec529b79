// SPDX-License-Identifier: MIT
/// GELU on a CUDA device, with the formulas of gelu.hpp.
///
/// Backward is a kernel of its own, not an epilogue of the product that makes dy (cuBLASLt's DGELU): the form of that
/// GELU is not documented. And such a product would hold x beside its operands: if activations are encoded, the peak of
/// a block would grow by x.
#pragma once

#include "../core/cuda.cuh"
#include "cuda/functions.cuh"
#include "cuda/map_sums.cuh"
#include "gelu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// y = x / (1 + 2^(x (b x^2 + a))). Reciprocal and power are the device's approximations, good to about 1e-7 of the
/// factor of x: with exact ones the arithmetic takes longer than the memory.
struct GeluBody {
  __device__ float operator()(float x) const {
    constexpr float a = -2 * GeluTerms<float>::linear * log2_e,
                    b = -2 * GeluTerms<float>::cubic * log2_e;
    return x * fast_reciprocal(1 + fast_power_of_2(x * fma(x * x, b, a)));
  }
};

struct GeluGradientBody {
  __device__ float operator()(float x, float dy) const {
    using Terms = GeluTerms<float>;
    constexpr float a = -2 * Terms::linear * log2_e, b = -2 * Terms::cubic * log2_e;
    // A NaN becomes a limit here; NaN still comes out, from the factor x below.
    const float held = fminf(fmaxf(x, -Terms::limit), Terms::limit), square = held * held;
    const float s = fast_reciprocal(1 + fast_power_of_2(held * fma(square, b, a)));
    const float slope = fma(square, 6 * Terms::cubic, 2 * Terms::linear);
    return dy * s * fma(x * (1 - s), slope, 1.0F);
  }
};

}  // namespace detail

template <>
struct kernel<Gelu, Cuda> {
  static constexpr bool sums_dx = true;

  static constexpr LayerNeeds needs(const Gelu&, Shape in, NeedsQuery query) {
    return {.workspace = detail::map_gradient_bytes(in, query)};
  }

  template <class T>
  static void forward(const Gelu&, Cuda& cuda, View<const T> x, View<T> y) {
    cuda.map(Gelu::name, y, detail::GeluBody{}, x.data());
  }

  template <class T>
  static void backward(const Gelu&, Cuda& cuda, const BackwardCall<T>& call) {
    detail::map_gradient(cuda, Gelu::name, detail::GeluGradientBody{}, call);
  }
};

}}  // namespace adacc::v0_1
