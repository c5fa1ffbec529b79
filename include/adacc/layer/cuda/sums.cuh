// SPDX-License-Identifier: MIT
/// Sums on a CUDA device in a fixed order: over a warp, over the rows of a matrix, over losses.
///
/// No atomic additions: the order of every sum follows from the shape alone, so the bits are the
/// same from run to run. The columns of a matrix are summed by one launch, in which a block has all rows of a few
/// columns. Sums that a kernel forms beside its rows go through partial sums in the workspace, one for each chunk of
/// rows, and these are then added in order.
#pragma once

#include <cstddef>
#include <limits>

#include "../../core/cuda.cuh"
#include "../../core/dtype.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr unsigned warp_size = 32, cuda_warps = cuda_threads / warp_size;

// The functions of std::numeric_limits are the host's; their values are everybody's.
template <class T>
inline constexpr T infinity_of = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T quiet_nan_of = std::numeric_limits<T>::quiet_NaN();

/// The sum over a warp, in all lanes.
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

/// The row of this warp; the next one is `step` rows further.
struct WarpRows {
  std::size_t row, step;
  unsigned lane;
  __device__ WarpRows()
      : row(std::size_t{blockIdx.x} * cuda_warps + threadIdx.x / warp_size),
        step(std::size_t{gridDim.x} * cuda_warps), lane(threadIdx.x % warp_size) {}
};

/// How rows are cut for their sums.
struct CudaChunks {
  static constexpr std::size_t least_rows = 32, most = 128;

  std::size_t rows;

  ADACC_HD constexpr std::size_t chunk_rows() const {
    const std::size_t share = div_up(rows, most);
    return share < least_rows ? least_rows : share;
  }
  ADACC_HD constexpr std::size_t count() const { return div_up(rows, chunk_rows()); }
  /// Bytes of the partial sums of `sums` sums for each column.
  constexpr std::size_t bytes(std::size_t sums, std::size_t cols, Dtype scalar) const {
    return count() * sums * cols * bytes_of(scalar);
  }
};

/// Threads of kernels that sum rows of a chunk.
inline constexpr unsigned sum_threads = 512, sum_warps = sum_threads / warp_size;

/// partials[chunk][sum][column]: sums over the rows of a chunk. The body adds to Body::sums packets of Body::count
/// columns for each row. A warp has such a packet for each lane, and every sixteenth row of the chunk.
template <class T, class Body>
static __global__ void __launch_bounds__(sum_threads)
    chunk_sums_kernel(CudaChunks chunks, std::size_t cols, bool aligned, const Body body,
                      T* partials) {
  constexpr unsigned sums = Body::sums, count = Body::count, width = warp_size * count;
  constexpr unsigned unrolled = 4;  // rows whose loads are on their way together
  __shared__ T shared[sums][sum_warps][width];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t groups = div_up(cols, width);
  for (std::size_t item = blockIdx.x; item < groups * chunks.count(); item += gridDim.x) {
    const std::size_t chunk = item / groups, begin = item % groups * width;
    const std::size_t column = begin + lane * count;
    const std::size_t first = chunk * chunks.chunk_rows();
    const std::size_t rows_left = chunks.rows - first;
    const std::size_t last =
        rows_left < chunks.chunk_rows() ? chunks.rows : first + chunks.chunk_rows();
    Packet<T, count> sum[sums] = {};
    if (column < cols) {
      const std::size_t left = cols - column;
      std::size_t row = first + warp;
      if (aligned && left >= count)
        for (; row + (unrolled - 1) * sum_warps < last; row += unrolled * sum_warps) {
          typename Body::Row read[unrolled];
#pragma unroll
          for (unsigned k = 0; k < unrolled; ++k)
            read[k] = body.read(row + k * sum_warps, column, count, true);
#pragma unroll
          for (unsigned k = 0; k < unrolled; ++k) body.add(read[k], sum);
        }
      for (; row < last; row += sum_warps)
        body.add(body.read(row, column, left, aligned && left >= count), sum);
    }
#pragma unroll
    for (unsigned s = 0; s < sums; ++s)
#pragma unroll
      for (unsigned i = 0; i < count; ++i) shared[s][warp][i * warp_size + lane] = sum[s].at[i];
    __syncthreads();
    for (unsigned at = threadIdx.x; at < width; at += sum_threads)
      if (begin + at < cols)
        for (unsigned s = 0; s < sums; ++s) {
          T total = 0;
#pragma unroll
          for (unsigned w = 0; w < sum_warps; ++w)
            total += shared[s][w][at % count * warp_size + at / count];
          partials[(chunk * sums + s) * cols + begin + at] = total;
        }
    __syncthreads();
  }
}

/// Where the sums of columns are added, one after the other; null: not wanted.
template <class T, unsigned sums>
struct SumPlaces {
  T* to[sums];
};

/// to[s][c] += the sum of partials[k][s][c] over all k: of every eighth k by each warp, and these in order.
template <class T, unsigned sums>
static __global__ void __launch_bounds__(cuda_threads)
    add_partials_kernel(std::size_t count, std::size_t cols, const T* partials,
                        const SumPlaces<T, sums> places) {
  __shared__ T shared[cuda_warps][warp_size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t stride = sums * cols;
  for (std::size_t begin = std::size_t{blockIdx.x} * warp_size; begin < stride;
       begin += std::size_t{gridDim.x} * warp_size) {
    const std::size_t at = begin + lane;
    T sum = 0;
    if (at < stride)
#pragma unroll 16
      for (std::size_t k = warp; k < count; k += cuda_warps) sum += partials[k * stride + at];
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && at < stride) {
      T total = 0;
#pragma unroll
      for (unsigned w = 0; w < cuda_warps; ++w) total += shared[w][lane];
      const std::size_t s = at / cols;
      T* to = nullptr;
#pragma unroll
      for (unsigned i = 0; i < sums; ++i) to = s == i ? places.to[i] : to;
      if (to != nullptr) to[at - s * cols] += total;
    }
    __syncthreads();
  }
}

template <class T, unsigned sums>
void add_partials(Cuda& cuda, const char* name, CudaChunks chunks, std::size_t cols,
                  const T* partials, const SumPlaces<T, sums>& places) {
  cuda.launch(name, cuda_grid(sums * cols, warp_size), cuda_threads, &add_partials_kernel<T, sums>,
              chunks.count(), cols, partials, places);
}

/// to[s][c] += the sums over rows of the numbers added by the body, if to[s] is not null; the workspace holds
/// CudaChunks::bytes().
template <class T, class Body>
void add_column_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const Body& body, T* partials, const SumPlaces<T, Body::sums>& places) {
  const CudaChunks chunks{rows};
  const std::size_t items = div_up(cols, warp_size * Body::count) * chunks.count();
  cuda.launch(name, cuda_grid(items, 1), sum_threads, &chunk_sums_kernel<T, Body>, chunks, cols,
              body.aligned(), body, partials);
  add_partials(cuda, name, chunks, cols, partials, places);
}

/// Threads of a block that sums columns, and packets side by side there: 64 bytes of each row, as many as memory hands
/// out at a time. Few columns make few blocks, but each has 64 KiB of loads on their way: by an estimate, 24 blocks read 768
/// columns of bfloat16 at three quarters of an H100's bandwidth.
inline constexpr unsigned column_threads = 1024, column_packets = 4;

/// to[c] += the sum of matrix[r][c] over all rows r: of every 256th row by each thread, over the threads of a warp by
/// shuffles, and over the warps in order.
template <class T>
static __global__ void __launch_bounds__(column_threads)
    column_sums_kernel(std::size_t rows, std::size_t cols, bool aligned, const T* matrix,
                       Wide<T>* to) {
  using W = Wide<T>;
  constexpr unsigned count = packet_elems<T>, width = column_packets * count;
  constexpr unsigned step = column_threads / column_packets, warps = column_threads / warp_size;
  constexpr unsigned unrolled = 4;  // rows whose loads are on their way together
  __shared__ W shared[warps][width];
  const unsigned own = threadIdx.x % column_packets, lane = threadIdx.x % warp_size;
  const std::size_t begin = std::size_t{blockIdx.x} * width, column = begin + own * count;
  Packet<W, count> sum = {};
  const auto add = [&](const Packet<T, count>& packet) {
    const auto in = widened(packet);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum.at[i] += in.at[i];
  };
  if (column < cols) {
    const std::size_t left = cols - column;
    const bool whole = aligned && left >= count;
    const T* const first = matrix + column;
    std::size_t row = threadIdx.x / column_packets;
    if (whole)
      for (; row + (unrolled - 1) * step < rows; row += unrolled * step) {
        Packet<T, count> read[unrolled];
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k)
          read[k] = read_packet<count>(first + (row + k * step) * cols, left, true);
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k) add(read[k]);
      }
    for (; row < rows; row += step) add(read_packet<count>(first + row * cols, left, whole));
  }
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
#pragma unroll
    for (unsigned apart = warp_size / 2; apart >= column_packets; apart /= 2)
      sum.at[i] += __shfl_xor_sync(~0U, sum.at[i], apart);
    if (lane < column_packets) shared[threadIdx.x / warp_size][own * count + i] = sum.at[i];
  }
  __syncthreads();
  if (threadIdx.x >= width || cols - begin <= threadIdx.x) return;
  W total = 0;
#pragma unroll 8
  for (unsigned w = 0; w < warps; ++w) total += shared[w][threadIdx.x];
  to[begin + threadIdx.x] += total;
}

/// to[c] += the sum over all rows of matrix[r][c].
template <class T>
void add_matrix_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const T* matrix, Wide<T>* to) {
  constexpr unsigned count = packet_elems<T>;
  const bool aligned = cols % count == 0 && packet_aligned<count>(matrix);
  cuda.launch(name, static_cast<unsigned>(div_up(cols, column_packets * count)), column_threads,
              &column_sums_kernel<T>, rows, cols, aligned, matrix, to);
}

/// The column sums of a matrix, in the order of chunk_sums_kernel.
template <class T>
struct MatrixBody {
  static constexpr unsigned sums = 1, count = packet_elems<T>;
  using Row = Packet<T, count>;
  const T* matrix;
  std::size_t cols;
  bool aligned() const { return cols % count == 0 && packet_aligned<count>(matrix); }
  __device__ Row read(std::size_t row, std::size_t column, std::size_t left, bool whole) const {
    return read_packet<count>(matrix + row * cols + column, left, whole);
  }
  __device__ void add(const Row& row, Packet<Wide<T>, count> (&sum)[sums]) const {
    const auto in = widened(row);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum[0].at[i] += in.at[i];
  }
};

/// *loss += the sum of `count` numbers, over `share`, or over the number at `divisor` if not null. One block.
static __global__ void __launch_bounds__(cuda_threads)
    add_losses_kernel(std::size_t count, const double* rows, double share, const double* divisor,
                      double* loss) {
  __shared__ double sums[cuda_threads];
  double sum = 0;
  for (std::size_t i = threadIdx.x; i < count; i += cuda_threads) sum += rows[i];
  sums[threadIdx.x] = sum;
  for (unsigned half = cuda_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss += sums[0] / (divisor == nullptr ? share : *divisor);
}

inline void add_losses(Cuda& cuda, const char* name, std::size_t count, const double* rows,
                       std::size_t share, Cuda::Loss& loss) {
  cuda.launch(name, 1, cuda_threads, &add_losses_kernel, count, rows, static_cast<double>(share),
              nullptr, loss.place());
}
inline void add_losses(Cuda& cuda, const char* name, std::size_t count, const double* rows,
                       const double* divisor, Cuda::Loss& loss) {
  cuda.launch(name, 1, cuda_threads, &add_losses_kernel, count, rows, 1, divisor, loss.place());
}

}}}  // namespace adacc::v0_1::detail
