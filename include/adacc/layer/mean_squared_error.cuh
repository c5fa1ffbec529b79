// SPDX-License-Identifier: MIT
/// Mean squared error on a CUDA device; the loss lands in device memory.
#pragma once

#include "cuda/norm.cuh"
#include "cuda/softmax.cuh"
#include "mean_squared_error.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// sums[row] is the sum of squares; dx may be x.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    squared_error_kernel(std::size_t rows, std::size_t cols, const T* x, const T* targets,
                         Wide<T> factor, double* sums, T* dx) {
  WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step) {
    double sum = 0;
    for (std::size_t c = at.lane; c < cols; c += warp_size) {
      const std::size_t e = row * cols + c;
      const Wide<T> difference = widened(x[e]) - widened(targets[e]);
      sum += static_cast<double>(difference * difference);
      if (dx != nullptr) dx[e] = narrowed<T>(factor * difference);
    }
    sum = warp_sum(sum);
    if (at.lane == 0) sums[row] = sum;
  }
}

}  // namespace detail

template <>
struct kernel<MeanSquaredError, Cuda> {
  template <class T>
  static void forward(const MeanSquaredError&, Cuda& cuda, const LossCall<T>& call,
                      Cuda::Loss& into) {
    run(cuda, call, into);
  }

  template <class T>
  static void forward_backward(const MeanSquaredError&, Cuda& cuda, const LossCall<T>& call,
                               Cuda::Loss& into) {
    run(cuda, call, into);
  }

 private:
  template <class T>
  static void run(Cuda& cuda, const LossCall<T>& call, Cuda::Loss& into) {
    Bytes workspace = call.workspace;
    constexpr const char* name = MeanSquaredError::name;
    double* const sums = carve<double>(workspace, call.x.rows()).data();
    const std::size_t elems = call.part.of(call.x.rows()).whole * call.x.cols();
    cuda.launch(name, detail::cuda_grid(call.x.rows(), detail::cuda_warps), detail::cuda_threads,
                &detail::squared_error_kernel<T>, call.x.rows(), call.x.cols(), call.x.data(),
                call.targets.data(), Wide<T>(2) / static_cast<Wide<T>>(elems), sums,
                call.dx.data());
    detail::add_losses(cuda, name, call.x.rows(), sums, elems, into);
  }
};

}}  // namespace adacc::v0_1
