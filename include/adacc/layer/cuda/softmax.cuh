// SPDX-License-Identifier: MIT
/// The loss of rows of logits and its gradient, on a CUDA device: a block of threads for each row.
///
/// A first pass over the row finds its maximum and the sum of exponentials at once: a thread keeps a sum relative to
/// the largest logit so far, and rescales the sum when a larger one comes. A second pass writes the gradient. (Milakov
/// and Gimelshein, "Online normalizer calculation for softmax", 2018.)
#pragma once

#include <cstdint>

#include "functions.cuh"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Threads for a row: enough of them to keep a device busy with some hundreds of rows.
inline constexpr unsigned softmax_threads = 512, softmax_warps = softmax_threads / warp_size;

/// The sum of e^(x - top) over some numbers, of which `top` is the largest (a NaN is none).
struct LogitSum {
  float top = -infinity_of<float>, sum = 0;

  /// e^(x - top); if numbers are all -infinity, e^x.
  static __device__ float relative(float x, float top) {
    return fast_power_of_2((x - (top == -infinity_of<float> ? 0.0F : top)) * log2_e);
  }
  /// Missing numbers are -infinity.
  template <unsigned count>
  __device__ void add(const Packet<float, count>& x) {
    float most = top;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) most = fmaxf(most, x.at[i]);
    if (most > top) {
      sum *= relative(top, most);
      top = most;
    }
    const float from = top == -infinity_of<float> ? 0.0F : top;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum += fast_power_of_2((x.at[i] - from) * log2_e);
  }
  /// The sum relative to `most`, which is at least `top`.
  __device__ float relative_to(float most) const {
    return top == most ? sum : sum * relative(top, most);
  }
};

/// losses[row] = -log softmax(logits[row])[target]; a target beyond the classes gives NaN. `out`, if not null, becomes
/// (softmax - one-hot) * share; `out` may be the logits. Rows of both begin `stride` elements one after the other;
/// elements behind the classes are neither read nor written.
template <class T>
static __global__ void __launch_bounds__(softmax_threads)
    softmax_loss_kernel(std::size_t rows, std::size_t classes, std::size_t stride, bool aligned,
                        const T* logits, const std::int32_t* targets, float share, double* losses,
                        T* out) {
  constexpr unsigned count = packet_elems<T>, unrolled = 4;
  constexpr std::size_t step = std::size_t{softmax_threads} * count;
  __shared__ float shared[2][softmax_warps];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t begin = threadIdx.x * count;
  // Calls use(column, numbers, whole) for this thread's packets of a row, in order. Missing numbers are -infinity.
  const auto each = [&](const T* in, const auto& use) {
    each_packet<unrolled, count>(in, begin, step, classes, aligned,
                                 [&](std::size_t c, const Packet<T, count>& packet, bool whole) {
                                   auto numbers = widened(packet);
#pragma unroll
                                   for (unsigned i = 0; i < count; ++i)
                                     if (!whole && i >= classes - c)
                                       numbers.at[i] = -infinity_of<float>;
                                   use(c, numbers, whole);
                                 });
  };
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = logits + row * stride;
    LogitSum mine;
    each(in, [&](std::size_t, const auto& numbers, bool) { mine.add(numbers); });
    // First in every warp, then in the block.
    const float most = warp_maximum(mine.top), sum_of_warp = warp_sum(mine.relative_to(most));
    if (lane == 0) shared[0][warp] = most, shared[1][warp] = sum_of_warp;
    __syncthreads();
    float top = -infinity_of<float>, sum = 0;
#pragma unroll
    for (unsigned w = 0; w < softmax_warps; ++w) top = fmaxf(top, shared[0][w]);
#pragma unroll
    for (unsigned w = 0; w < softmax_warps; ++w)
      sum += LogitSum{shared[0][w], shared[1][w]}.relative_to(top);
    const auto target = static_cast<std::size_t>(targets[row]);
    if (threadIdx.x == 0) {
      const float logit = target < classes ? widened(in[target]) : quiet_nan_of<float>;
      losses[row] =
          log(static_cast<double>(sum)) + (static_cast<double>(top) - static_cast<double>(logit));
    }
    __syncthreads();  // the target's logit is read before it is overwritten
    if (out == nullptr) continue;
    const float scale = share / sum;
    each(in, [&](std::size_t c, const auto& numbers, bool whole) {
      const unsigned here = target - c < count ? static_cast<unsigned>(target - c) : count;
      Packet<float, count> slopes;
#pragma unroll
      for (unsigned i = 0; i < count; ++i)
        slopes.at[i] =
            fma(fast_power_of_2((numbers.at[i] - top) * log2_e), scale, i == here ? -share : 0.0F);
      write_packet(out + row * stride + c, narrowed<T>(slopes), classes - c, whole);
    });
  }
}

template <class T>
void softmax_loss(Cuda& cuda, const char* name, std::size_t rows, std::size_t classes,
                  std::size_t stride, const T* logits, const std::int32_t* targets,
                  std::size_t all_rows, double* losses, T* out) {
  constexpr unsigned count = packet_elems<T>;
  const bool aligned =
      stride % count == 0 && packet_aligned<count>(logits) && packet_aligned<count>(out);
  softmax_loss_kernel<<<cuda_grid(rows, 1), softmax_threads, 0, cuda.stream()>>>(
      rows, classes, stride, aligned, logits, targets, 1 / static_cast<float>(all_rows), losses,
      out);
  cuda.launched(name);
}

}}}  // namespace adacc::v0_1::detail
