// SPDX-License-Identifier: MIT
/// The L2 norm of all gradients on a CUDA device; the norm stays there, and nothing waits for it.
#pragma once

#include <cstddef>

#include "../core/cuda.cuh"
#include "gradient_norm.hpp"

namespace adacc { inline namespace v0_1 {

/// Doubles of device memory for a norm; the first is the norm.
inline constexpr std::size_t gradient_norm_places = 1025;

namespace detail {

/// The sum over all threads of a block; valid in the first thread.
static __device__ inline double block_sum(double mine) {
  __shared__ double sums[cuda_threads];
  sums[threadIdx.x] = mine;
  for (unsigned half = cuda_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

/// partials[block] becomes the sum of squares over the block's share, added in an order that depends on the size
/// alone.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    square_sums_kernel(std::size_t elems, bool aligned, const T* x, double* partials) {
  constexpr unsigned count = packet_elems<T>, turns = 4;
  double sum = 0;
  const auto add = [&](std::size_t, const Packet<T, count>& packet, bool) {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const double value = packet.at[i];
      sum = fma(value, value, sum);
    }
  };
  const std::size_t step = std::size_t{gridDim.x} * cuda_threads * count;
  const std::size_t begin = (std::size_t{blockIdx.x} * cuda_threads + threadIdx.x) * count;
  each_packet<turns, count>(x, begin, step, elems, aligned, add);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// *norm = the root of the sum of `count` numbers. One block.
static __global__ void __launch_bounds__(cuda_threads)
    norm_kernel(std::size_t count, const double* partials, double* norm) {
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < count; i += cuda_threads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

}  // namespace detail

/// Queues the norm: places[0] becomes the square root of the sum of squares over the whole block, like the result of
/// the host's gradient_norm(). `places` has room for gradient_norm_places. Faults of the memory are noted in the
/// context (Cuda::take_error()); then nothing is queued.
template <class T>
void gradient_norm(Cuda& cuda, View<T> grads, View<double> places) {
  constexpr const char* name = "gradient norm";
  constexpr std::size_t most = gradient_norm_places - 1, per_block = 32 * detail::cuda_threads;
  constexpr unsigned packet = detail::packet_elems<T>;
  const std::size_t blocks = div_up(grads.size(), per_block);
  const std::size_t count = blocks < most ? blocks : most;
  if (places.size() < count + 1)
    return cuda.note(Error::misuse(name, ": ", count + 1, " doubles are wanted, and ",
                                   places.size(), " are lent"));
  if (const Error why =
          cuda.examine(name, {{"gradients", grads.data(), grads.size() * sizeof(T)},
                              {"places of the norm", places.data(), (count + 1) * sizeof(double)}}))
    return cuda.note(why);
  if (count != 0) {
    cuda.launch(name, static_cast<unsigned>(count), detail::cuda_threads,
                &detail::square_sums_kernel<T>, grads.size(),
                detail::packet_aligned<packet>(grads.data()), grads.data(), places.data() + 1);
  }
  cuda.launch(name, 1, detail::cuda_threads, &detail::norm_kernel, count, places.data() + 1,
              places.data());
}

}}  // namespace adacc::v0_1
