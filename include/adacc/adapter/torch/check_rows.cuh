// SPDX-License-Identifier: MIT
/// The kernels for checked rows (side_rows.hpp): one checks an encoding's rows and keeps the failed ones, another puts kept
/// rows back.
///
/// The error of a row is the error of encoding_error.hpp: from the original and the scales, without decoding. A block of
/// threads takes 64 rows, a warp four of them at a time. Sums and places depend on the order of blocks. The
/// set of kept rows does not, as long as each failed row has a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../codec/float_bits.hpp"
#include "../../codec/quant/quantize.hpp"
#include "../../codec/thread_block.cuh"
#include "side_rows.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Sums and maxima over the lanes of a warp.
template <int count>
__device__ void add_lanes(double (&sums)[count]) {
#pragma unroll
  for (int k = 0; k < count; ++k)
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sums[k] += __shfl_xor_sync(~0U, sums[k], step);
}
template <int count>
__device__ void largest_of_lanes(float (&most)[count]) {
#pragma unroll
  for (int k = 0; k < count; ++k)
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
      most[k] = fmaxf(most[k], __shfl_xor_sync(~0U, most[k], step));
}

/// The measures of the rows of a block of threads.
struct CheckedBlock {
  double noise[adacc::detail::block_rows], square[adacc::detail::block_rows];
  float most[adacc::detail::block_rows];  ///< magnitude, if there are no scales
  bool fails[adacc::detail::block_rows];
};

constexpr int rows_at_once = 4;

/// Measures `count` rows of block `index` from row `row` of the block on: at most rows_at_once.
template <class T>
__device__ void measure_rows(CheckedBlock& found, const RowCheck<T>& job, std::size_t index,
                             std::size_t row, std::size_t count) {
  namespace codec = adacc::detail;
  const std::size_t lane = threadIdx.x % 32, first = index * codec::block_rows;
  const std::size_t in_block = min(codec::block_rows, job.rows - first);
  const RowScales& scales = job.scales;
  const std::byte* const stored =
      job.blob + scales.start + index * scales.stride + sizeof(codec::BlockHeader);
  double row_noise[rows_at_once] = {}, row_square[rows_at_once] = {};
  float row_most[rows_at_once] = {};
  bool fails[rows_at_once] = {};
  for (std::size_t c = 0; c < job.cols; c += job.part) {
    const std::size_t n = min(job.part, job.cols - c);
    double noise[rows_at_once] = {}, square[rows_at_once] = {};
    float most[rows_at_once] = {};
    for (std::size_t i = lane; i < n; i += 32) {
#pragma unroll
      for (int k = 0; k < rows_at_once; ++k)
        if (k < static_cast<int>(count)) {
          const float x = codec::to_number(job.x[(first + row + k) * job.cols + c + i]);
          square[k] += static_cast<double>(x) * static_cast<double>(x);
          most[k] = fmaxf(most[k], fabsf(x));
        }
    }
    add_lanes(square);
    if (scales.group == 0) largest_of_lanes(most);
    else {
#pragma unroll
      for (int k = 0; k < rows_at_once; ++k) most[k] = 0;  // of the scales
      for (std::size_t group = c / scales.group + lane; group * scales.group < c + n; group += 32) {
        const std::size_t begin = max(c, group * scales.group);
        const std::size_t end = min(c + n, (group + 1) * scales.group);
#pragma unroll
        for (int k = 0; k < rows_at_once; ++k)
          if (k < static_cast<int>(count) && (k == 0 || !scales.shared)) {
            bfloat16 read;
            memcpy(&read, stored + 2 * (scales.shared ? group : group * in_block + row + k), 2);
            const float scale = to_float(codec::without_mark(read));
            noise[k] += static_cast<double>(scale) * static_cast<double>(scale) *
                        static_cast<double>(end - begin);
            most[k] = fmaxf(most[k], scale);
          }
      }
      add_lanes(noise);
      largest_of_lanes(most);
    }
#pragma unroll
    for (int k = 0; k < rows_at_once; ++k) {
      const double error = (scales.shared ? noise[0] : noise[k]) / 12;
      const float step = scales.shared ? most[0] : most[k];
      row_noise[k] += error, row_square[k] += square[k];
      row_most[k] = fmaxf(row_most[k], step);
      if (scales.group == 0) continue;
      const RowLimits& limits = job.limits;
      fails[k] =
          fails[k] || !(square[k] < largest_square) ||
          (limits.error > 0 && square[k] > 0 && !(error / square[k] <= limits.error)) ||
          (limits.step > 0 && !(step <= limits.step)) ||
          (limits.mean_square > 0 && !(square[k] / static_cast<double>(n) <= limits.mean_square));
    }
  }
#pragma unroll
  for (int k = 0; k < rows_at_once; ++k)
    if (lane == 0 && k < static_cast<int>(count)) {
      found.noise[row + k] = row_noise[k], found.square[row + k] = row_square[k];
      found.most[row + k] = row_most[k], found.fails[row + k] = fails[k];
    }
}

/// Without scales, 64 rows are judged together, as on the host. The rows above the block's limit fail.
template <class T>
__device__ bool fails_in_block(const CheckedBlock& found, const RowCheck<T>& job, std::size_t row,
                               std::size_t rows, double square) {
  const RowLimits& limits = job.limits;
  const auto count = static_cast<double>(rows), columns = static_cast<double>(job.cols);
  return (!(square < largest_square) && !(found.square[row] < largest_square / count)) ||
         (limits.step > 0 && !(found.most[row] / 256 <= limits.step)) ||
         (limits.mean_square > 0 && !(square / (count * columns) <= limits.mean_square) &&
          !(found.square[row] / columns <= limits.mean_square));
}

/// Keeps the failed rows of a block, if there is room, and adds the other rows to the sums.
template <class T>
__device__ void keep_rows(CheckedBlock& found, const RowCheck<T>& job, std::size_t index) {
  constexpr std::size_t most = adacc::detail::block_rows;
  const std::size_t first = index * most, rows = min(most, job.rows - first);
  const std::size_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto* const header = reinterpret_cast<SideRows::Header*>(job.kept);
  if (warp == 0) {
    double all[1] = {};
    for (std::size_t row = lane; row < rows; row += 32) all[0] += found.square[row];
    add_lanes(all);
    double sums[2] = {};
    for (std::size_t row = lane; row < rows; row += 32) {
      if (job.scales.group == 0) found.fails[row] = fails_in_block(found, job, row, rows, all[0]);
      if (found.fails[row]) continue;
      sums[0] += job.scales.group == 0 ? 0 : found.noise[row], sums[1] += found.square[row];
    }
    add_lanes(sums);
    if (lane == 0) atomicAdd(&header->noise, sums[0]), atomicAdd(&header->square, sums[1]);
  }
  __syncthreads();
  auto* const numbers = reinterpret_cast<std::uint32_t*>(job.kept + sizeof(SideRows::Header));
  auto* const kept = reinterpret_cast<std::uint16_t*>(job.kept + job.side.elements);
  for (std::size_t row = warp; row < rows; row += blockDim.x / 32) {
    if (!found.fails[row]) continue;
    std::uint32_t place = lane == 0 ? atomicAdd(&header->failed, 1U) : 0;
    place = __shfl_sync(~0U, place, 0);
    if (place >= job.side.room) continue;
    if (lane == 0) numbers[place] = static_cast<std::uint32_t>(job.first + first + row);
    for (std::size_t i = lane; i < job.words; i += 32)
      kept[place * job.words + i] = job.exact[(first + row) * job.words + i];
  }
}

template <class T>
__device__ void check_rows(const RowCheck<T>& job) {
  using Block = adacc::detail::CudaBlock;
  constexpr std::size_t block_rows = adacc::detail::block_rows,
                        mine = block_rows * 32 / Block::threads;
  __shared__ CheckedBlock found;
  auto* const header = reinterpret_cast<SideRows::Header*>(job.kept);
  for (std::size_t index = blockIdx.x; index * block_rows < job.rows; index += gridDim.x) {
    const std::size_t rows = min(block_rows, job.rows - index * block_rows);
    const std::size_t begin = threadIdx.x / 32 * mine, end = min(rows, begin + mine);
    for (std::size_t row = begin; row < end; row += rows_at_once)
      measure_rows(found, job, index, row, min(std::size_t{rows_at_once}, end - row));
    __syncthreads();
    keep_rows(found, job, index);
    __syncthreads();
    if (threadIdx.x != 0 || !Block::last(header->arrived, job.blocks) || job.report == nullptr)
      continue;
    job.report->noise = atomicAdd(&header->noise, 0.0);
    job.report->square = atomicAdd(&header->square, 0.0);
    job.report->failed = atomicAdd(&header->failed, 0U);
    __threadfence_system();  // the host sees the stamp last
    *static_cast<volatile std::uint32_t*>(&job.report->stamp) = job.stamp;
  }
}

/// Puts the kept rows back into a decoded storage.
__device__ inline void put_rows(const SideRows& side, const std::byte* kept, std::size_t words,
                                std::uint16_t* x) {
  const auto* const header = reinterpret_cast<const SideRows::Header*>(kept);
  const auto* const numbers =
      reinterpret_cast<const std::uint32_t*>(kept + sizeof(SideRows::Header));
  const auto* const rows = reinterpret_cast<const std::uint16_t*>(kept + side.elements);
  const std::size_t count = min(static_cast<std::size_t>(header->failed), side.room);
  for (std::size_t place = blockIdx.x; place < count; place += gridDim.x)
    for (std::size_t i = threadIdx.x; i < words; i += blockDim.x)
      x[numbers[place] * words + i] = rows[place * words + i];
}

}}}}  // namespace adacc::v0_1::torch::detail
