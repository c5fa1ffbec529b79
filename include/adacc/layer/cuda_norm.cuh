// SPDX-License-Identifier: MIT
/// Kernels of layer norm and RMS norm on a CUDA device: a warp for each row.
///
/// Sums over a row are those of its 32 lanes, added by shuffles; the row itself is read again from
/// the cache. RMS norm is layer norm around 0 instead of the mean, without a bias.
#pragma once

#include "../model/parameter.hpp"
#include "cuda_sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The row of this warp, and of its next turns.
struct WarpRows {
  std::size_t row, step;
  unsigned lane;
  __device__ WarpRows()
      : row(std::size_t{blockIdx.x} * cuda_warps + threadIdx.x / warp_size),
        step(std::size_t{gridDim.x} * cuda_warps), lane(threadIdx.x % warp_size) {}
};

/// Reciprocals of standard deviations (root mean squares); `means` if centered.
template <bool centered, class T>
static __global__ void __launch_bounds__(cuda_threads)
    norm_forward_kernel(std::size_t rows, std::size_t cols, Wide<T> epsilon, const T* x,
                        const Wide<T>* weight, const Wide<T>* bias, T* y, Wide<T>* means,
                        Wide<T>* reciprocals) {
  using W = Wide<T>;
  const W size = static_cast<W>(cols);
  WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const T* const in = x + row * cols;
    W mean = 0;
    if constexpr (centered) {
      W sum = 0;
      for (std::size_t c = at.lane; c < cols; c += warp_size) sum += widened(in[c]);
      mean = warp_sum(sum) / size;
    }
    W squares = 0;
    for (std::size_t c = at.lane; c < cols; c += warp_size) {
      const W distance = widened(in[c]) - mean;
      squares += distance * distance;
    }
    const W r = W(1) / sqrt(warp_sum(squares) / size + epsilon);
    for (std::size_t c = at.lane; c < cols; c += warp_size) {
      W out = (widened(in[c]) - mean) * r * weight[c];
      if constexpr (centered) out += bias[c];
      y[row * cols + c] = narrowed<T>(out);
    }
    if (at.lane != 0) continue;
    if constexpr (centered) means[row] = mean;
    reciprocals[row] = r;
  }
}

/// dx may be dy: each element is read before it is written, and by the same thread.
template <bool centered, class T>
static __global__ void __launch_bounds__(cuda_threads)
    norm_backward_kernel(std::size_t rows, std::size_t cols, const T* x, const T* dy,
                         const Wide<T>* weight, const Wide<T>* means, const Wide<T>* reciprocals,
                         T* dx) {
  using W = Wide<T>;
  const W size = static_cast<W>(cols);
  WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const T* const in = x + row * cols;
    const T* const up = dy + row * cols;
    const W mean = centered ? means[row] : W(0), r = reciprocals[row];
    W sum = 0, product = 0;
    for (std::size_t c = at.lane; c < cols; c += warp_size) {
      const W g = widened(up[c]) * weight[c];
      sum += g;
      product += g * (widened(in[c]) - mean);
    }
    const W mean_g = centered ? warp_sum(sum) / size : W(0);
    const W mean_gx = warp_sum(product) * r / size;
    for (std::size_t c = at.lane; c < cols; c += warp_size) {
      const W from_mean = widened(in[c]) - mean;
      dx[row * cols + c] =
          narrowed<T>((widened(up[c]) * weight[c] - mean_g - from_mean * (r * mean_gx)) * r);
    }
  }
}

/// The gradients of weight and, if centered, bias.
template <bool centered, class T>
struct NormSumsBody {
  static constexpr std::size_t sums = centered ? 2 : 1;
  const T *x, *dy;
  const Wide<T>*means, *reciprocals;
  std::size_t cols;
  __device__ void operator()(std::size_t row, std::size_t column, Wide<T> (&value)[sums]) const {
    const std::size_t e = row * cols + column;
    const Wide<T> mean = centered ? means[row] : Wide<T>(0), up = widened(dy[e]);
    value[0] = up * ((widened(x[e]) - mean) * reciprocals[row]);
    if constexpr (centered) value[1] = up;
  }
};

template <bool centered, class T>
void norm_forward(Cuda& cuda, const char* name, float epsilon, const Params<const Wide<T>>& params,
                  View<const T> x, View<T> y, Bytes aux) {
  auto* const statistics = reinterpret_cast<Wide<T>*>(aux.data());
  const Wide<T>* bias = nullptr;
  if constexpr (centered) bias = params[1].data();
  norm_forward_kernel<centered>
      <<<cuda_grid(x.rows(), cuda_warps), cuda_threads, 0, cuda.stream()>>>(
          x.rows(), x.cols(), static_cast<Wide<T>>(epsilon), x.data(), params[0].data(), bias,
          y.data(), statistics, statistics + (centered ? x.rows() : 0));
  cuda.launched(name);
}

template <bool centered, class T>
void norm_backward(Cuda& cuda, const char* name, const Params<const Wide<T>>& params,
                   View<const T> x, View<const T> dy, View<T> dx, const Params<Wide<T>>& dparams,
                   ConstBytes aux, Bytes workspace) {
  using W = Wide<T>;
  const W* const means = reinterpret_cast<const W*>(aux.data());
  const std::size_t rows = dy.rows(), cols = dy.cols();
  const W* const reciprocals = means + (centered ? rows : 0);
  const NormSumsBody<centered, T> body{x.data(), dy.data(), means, reciprocals, cols};
  W* const partials = reinterpret_cast<W*>(workspace.data());
  W* const dweight = dparams[0].data();
  // Before dx, which may overwrite dy.
  if constexpr (centered) {
    W* const dbias = dparams[1].data();
    if (dweight != nullptr)
      add_column_sums<W>(cuda, name, rows, cols, body, partials, {dweight, dbias});
    else if (dbias != nullptr)
      add_column_sums<W>(cuda, name, rows, cols, MatrixBody<T>{dy.data(), cols}, partials, {dbias});
  } else if (dweight != nullptr) {
    add_column_sums<W>(cuda, name, rows, cols, body, partials, {dweight});
  }
  if (dx.empty()) return;
  norm_backward_kernel<centered><<<cuda_grid(rows, cuda_warps), cuda_threads, 0, cuda.stream()>>>(
      rows, cols, x.data(), dy.data(), params[0].data(), means, reciprocals, dx.data());
  cuda.launched(name);
}

}}}  // namespace adacc::v0_1::detail
