// SPDX-License-Identifier: MIT
/// The loss of rows of logits and its gradient, on a CUDA device: a block of threads for each row.
#pragma once

#include <cstdint>

#include "cuda_sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// losses[row] = -log softmax(logits[row])[target]; a target that is no class gives NaN. If `out` is
/// not null, it becomes (softmax - one-hot) * share; it may be the logits.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    softmax_loss_kernel(std::size_t rows, std::size_t classes, std::size_t stride, const T* logits,
                        const std::int32_t* targets, Wide<T> share, double* losses, T* out) {
  using W = Wide<T>;
  __shared__ W shared[2][cuda_warps];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // A value of every warp becomes one of the block.
  const auto of_block = [&](W(&place)[cuda_warps], W mine, const auto& combine) {
    if (lane == 0) place[warp] = mine;
    __syncthreads();
    W all = place[0];
    for (unsigned w = 1; w < cuda_warps; ++w) all = combine(all, place[w]);
    return all;
  };
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = logits + row * stride;
    W top = -infinity_of<W>;
    for (std::size_t c = threadIdx.x; c < classes; c += cuda_threads) {
      const W logit = widened(in[c]);
      top = top < logit ? logit : top;
    }
    top = of_block(shared[0], warp_maximum(top), [](W a, W b) { return a < b ? b : a; });
    W sum = 0;
    for (std::size_t c = threadIdx.x; c < classes; c += cuda_threads)
      sum += exp(widened(in[c]) - top);
    sum = of_block(shared[1], warp_sum(sum), [](W a, W b) { return a + b; });
    const auto target = static_cast<std::size_t>(targets[row]);
    if (threadIdx.x == 0) {
      const W logit = target < classes ? widened(in[target]) : quiet_nan_of<W>;
      losses[row] =
          log(static_cast<double>(sum)) + (static_cast<double>(top) - static_cast<double>(logit));
    }
    __syncthreads();  // the target's logit is read before it is overwritten
    if (out == nullptr) continue;
    const W scale = share / sum;
    for (std::size_t c = threadIdx.x; c < classes; c += cuda_threads)
      out[row * stride + c] =
          narrowed<T>(exp(widened(in[c]) - top) * scale - (c == target ? share : W(0)));
  }
}

/// The rows that a mean is over.
inline std::size_t cuda_mean_rows(const Cuda& cuda, std::size_t rows) {
  return cuda.part.whole != 0 ? cuda.part.whole : rows;
}

template <class T>
void softmax_loss(Cuda& cuda, const char* name, std::size_t rows, std::size_t classes,
                  std::size_t stride, const T* logits, const std::int32_t* targets,
                  std::size_t all_rows, double* losses, T* out) {
  softmax_loss_kernel<<<cuda_grid(rows, 1), cuda_threads, 0, cuda.stream()>>>(
      rows, classes, stride, logits, targets, Wide<T>(1) / static_cast<Wide<T>>(all_rows), losses,
      out);
  cuda.launched(name);
}

}}}  // namespace adacc::v0_1::detail
