// SPDX-License-Identifier: MIT
/// Sums on a CUDA device in a fixed order: over a warp, over the rows of a matrix, over losses.
///
/// No atomic additions: the order of every sum follows from the shape alone, so the bits are the
/// same from run to run. Sums over rows go through partial sums in the workspace, one for each
/// chunk of rows, and these are then added in order.
#pragma once

#include <cstddef>
#include <limits>

#include "../core/cuda.cuh"
#include "../core/dtype.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr unsigned warp_size = 32, cuda_warps = cuda_threads / warp_size;

// The functions of std::numeric_limits are the host's; their values are everybody's.
template <class T>
inline constexpr T infinity_of = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T quiet_nan_of = std::numeric_limits<T>::quiet_NaN();

/// The same in all lanes.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}
template <class T>
__device__ T warp_maximum(T value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(~0U, value, step);
    value = value < other ? other : value;
  }
  return value;
}

/// How rows are cut for their sums.
struct CudaChunks {
  static constexpr std::size_t least_rows = 32, most = 128;

  std::size_t rows;

  ADACC_HD constexpr std::size_t chunk_rows() const {
    const std::size_t share = div_up(rows, most);
    return share < least_rows ? least_rows : share;
  }
  ADACC_HD constexpr std::size_t count() const { return div_up(rows, chunk_rows()); }
  /// Of the partial sums of `sums` sums for each column.
  constexpr std::size_t bytes(std::size_t sums, std::size_t cols, Dtype scalar) const {
    return count() * sums * cols * bytes_of(scalar);
  }
};

/// partials[chunk][sum][column]: sums over the rows of a chunk of what body(row, column, values)
/// gives, Body::sums values. A block has 32 columns, each warp every eighth row.
template <class T, class Body>
static __global__ void __launch_bounds__(cuda_threads)
    chunk_sums_kernel(CudaChunks chunks, std::size_t cols, const Body body, T* partials) {
  constexpr std::size_t sums = Body::sums;
  __shared__ T shared[sums][cuda_warps][warp_size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t groups = div_up(cols, warp_size);
  for (std::size_t item = blockIdx.x; item < groups * chunks.count(); item += gridDim.x) {
    const std::size_t chunk = item / groups, column = item % groups * warp_size + lane;
    const std::size_t first = chunk * chunks.chunk_rows();
    const std::size_t left = chunks.rows - first;
    const std::size_t last = left < chunks.chunk_rows() ? chunks.rows : first + chunks.chunk_rows();
    T sum[sums] = {};
    if (column < cols)
      for (std::size_t row = first + warp; row < last; row += cuda_warps) {
        T value[sums];
        body(row, column, value);
        for (std::size_t s = 0; s < sums; ++s) sum[s] += value[s];
      }
    for (std::size_t s = 0; s < sums; ++s) shared[s][warp][lane] = sum[s];
    __syncthreads();
    if (warp == 0 && column < cols)
      for (std::size_t s = 0; s < sums; ++s) {
        T total = 0;
        for (unsigned w = 0; w < cuda_warps; ++w) total += shared[s][w][lane];
        partials[(chunk * sums + s) * cols + column] = total;
      }
    __syncthreads();
  }
}

/// to[c] += partials[0][c], then partials[1][c], and so on.
template <class T>
struct AddPartialsBody {
  const T* partials;
  std::size_t stride, count;
  T* to;
  __device__ void operator()(std::size_t c) const {
    T sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += partials[k * stride + c];
    to[c] += sum;
  }
};

/// to[s][c] += the sums over rows of body's values, where to[s] is not null; the workspace holds
/// CudaChunks::bytes().
template <class T, class Body>
void add_column_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const Body& body, T* partials, T* const (&to)[Body::sums]) {
  const CudaChunks chunks{rows};
  const std::size_t items = div_up(cols, warp_size) * chunks.count();
  chunk_sums_kernel<<<cuda_grid(items, 1), cuda_threads, 0, cuda.stream()>>>(chunks, cols, body,
                                                                             partials);
  cuda.launched(name);
  for (std::size_t s = 0; s < Body::sums; ++s)
    if (to[s] != nullptr)
      cuda.each_element(
          name, cols,
          AddPartialsBody<T>{partials + s * cols, Body::sums * cols, chunks.count(), to[s]});
}

/// The column sums of a matrix.
template <class T>
struct MatrixBody {
  static constexpr std::size_t sums = 1;
  const T* matrix;
  std::size_t cols;
  __device__ void operator()(std::size_t row, std::size_t column, Wide<T> (&value)[1]) const {
    value[0] = widened(matrix[row * cols + column]);
  }
};

/// *loss += the sum of `count` numbers, over `share`. One block.
static __global__ void __launch_bounds__(cuda_threads)
    add_losses_kernel(std::size_t count, const double* rows, double share, double* loss) {
  __shared__ double sums[cuda_threads];
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < count; i += cuda_threads) sum += rows[i];
  sums[threadIdx.x] = sum;
  for (unsigned half = cuda_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss += sums[0] / share;
}

inline void add_losses(Cuda& cuda, const char* name, std::size_t count, const double* rows,
                       std::size_t share, Cuda::Loss& loss) {
  add_losses_kernel<<<1, cuda_threads, 0, cuda.stream()>>>(count, rows, static_cast<double>(share),
                                                           loss.place());
  cuda.launched(name);
}

}}}  // namespace adacc::v0_1::detail
