// SPDX-License-Identifier: MIT
/// The L2 norm of all gradients on a CUDA device; it stays there, and nothing waits for it.
#pragma once

#include <cmath>
#include <cstddef>

#include "../core/cuda.cuh"
#include "gradient_norm.hpp"

namespace adacc { inline namespace v0_1 {

/// Doubles of device memory that a norm needs; the first is the norm.
inline constexpr std::size_t gradient_norm_places = 257;

namespace detail {

/// partials[block] is the sum of squares over the block's share, added in an order that follows from
/// the size alone.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    square_sums_kernel(std::size_t elems, const T* x, double* partials) {
  __shared__ double sums[cuda_threads];
  double sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * cuda_threads;
  for (std::size_t e = std::size_t{blockIdx.x} * cuda_threads + threadIdx.x; e < elems; e += step) {
    const double value = x[e];
    sum += value * value;
  }
  sums[threadIdx.x] = sum;
  for (unsigned half = cuda_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
}

/// One thread: there are 256 of them at most.
struct NormBody {
  std::size_t count;
  const double* partials;
  double* norm;
  __device__ void operator()(std::size_t) const {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += partials[i];
    *norm = sqrt(sum);
  }
};

}  // namespace detail

/// Queues it: places[0] becomes the square root of the sum of squares over the whole block, as the
/// host's gradient_norm() returns it. `places` has room for gradient_norm_places.
template <class T>
void gradient_norm(Cuda& cuda, View<T> grads, View<double> places) {
  constexpr const char* name = "gradient norm";
  constexpr std::size_t most = gradient_norm_places - 1, per_block = 16 * detail::cuda_threads;
  const std::size_t blocks = div_up(grads.size(), per_block);
  const std::size_t count = blocks < most ? blocks : most;
  if (count != 0) {
    detail::square_sums_kernel<<<static_cast<unsigned>(count), detail::cuda_threads, 0,
                                 cuda.stream()>>>(grads.size(), grads.data(), places.data() + 1);
    cuda.launched(name);
  }
  cuda.each_element(name, 1, detail::NormBody{count, places.data() + 1, places.data()});
}

}}  // namespace adacc::v0_1
