// SPDX-License-Identifier: MIT
/// The kernels for checked rows (side_rows.hpp): one checks an encoding's rows and keeps the failed ones, another puts kept
/// rows back.
///
/// The error of a row is the error of encoding_error.hpp: from the original and the scales, without decoding. A warp takes
/// a row at a time, and neighbouring lanes take one part of the row: as many as the part has loads of 16 bytes, at most 32.
/// Bound: the original is read once, mostly from the cache in which the encoding has left it. Sums and places depend on the
/// order of blocks. The set of kept rows does not, as long as each failed row has a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../codec/float_bits.hpp"
#include "../../codec/quant/quantize.hpp"
#include "../../codec/thread_block.cuh"
#include "side_rows.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// The sum over `lanes` neighbouring lanes of a warp, a power of two.
__device__ inline double sum_over(int lanes, double sum) {
  for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  return sum;
}
__device__ inline float largest_over(int lanes, float most) {
  for (int step = 1; step < lanes; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  return most;
}

/// The measures of the rows of a block of threads.
struct CheckedBlock {
  double square[adacc::detail::block_rows], noise[adacc::detail::block_rows];
  float most[adacc::detail::block_rows];  ///< magnitude, if there are no scales
  bool fails[adacc::detail::block_rows];
};

/// The sum of squares of a few neighbouring numbers. Floats are enough, unless squares leave their range.
template <int count>
__device__ double square_of(const float (&x)[count], float& most) {
  float largest = 0, sum = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, fabsf(x[i])), sum += x[i] * x[i];
  most = fmaxf(most, largest);
  if (largest == 0 || (largest > 1e-15F && largest < 1e15F)) return static_cast<double>(sum);
  double exact = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) exact += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return exact;
}

/// The share of one lane: `count` elements in each `stride`, from `begin` on.
template <int count, class T>
__device__ double square_of_part(const T* row, std::size_t begin, std::size_t end,
                                 std::size_t stride, float& most) {
  double square = 0;
#pragma unroll 4
  for (std::size_t i = begin; i < end; i += stride) {
    struct alignas(count * sizeof(T)) Loaded {
      T x[count];
    };
    const Loaded loaded = *reinterpret_cast<const Loaded*>(row + i);
    float x[count];
#pragma unroll
    for (int k = 0; k < count; ++k) x[k] = adacc::detail::to_number(loaded.x[k]);
    square += square_of(x, most);
  }
  return square;
}

/// Measures row `row`, which is row `in_block` of the codec's block of `rows` rows at `scales`. A lane loads `count`
/// elements at once.
template <int count, class T>
__device__ void measure_row(CheckedBlock& found, std::size_t place, const RowCheck<T>& job,
                            std::size_t row, const std::byte* stored, std::size_t in_block,
                            std::size_t rows) {
  const std::size_t lane = threadIdx.x % 32, loads = div_up(job.part, std::size_t{count});
  int lanes = 1;
  while (lanes < 32 && static_cast<std::size_t>(lanes) < loads) lanes *= 2;
  const auto width = static_cast<std::size_t>(lanes);
  const RowScales& scales = job.scales;
  const RowLimits& limits = job.limits;
  const T* const x = job.x + row * job.cols;
  double row_square = 0, row_noise = 0;
  float row_most = 0;
  bool fails = false;
  for (std::size_t first = 0; first < job.cols; first += 32 / width * job.part) {
    const std::size_t c = first + lane / width * job.part;
    const std::size_t end = min(c + job.part, job.cols);  // not above c: no such part
    float most = 0;
    const double mine =
        square_of_part<count>(x, c + lane % width * count, end, width * count, most);
    row_square += mine;
    if (scales.group == 0) {
      row_most = fmaxf(row_most, most);
      continue;
    }
    double noise = 0;
    float step = 0;
    for (std::size_t group = c / scales.group + lane % width; c < end && group * scales.group < end;
         group += width) {
      const std::size_t begin = max(c, group * scales.group);
      const std::size_t stop = min(end, (group + 1) * scales.group);
      bfloat16 read;
      memcpy(&read, stored + 2 * (scales.shared ? group : group * rows + in_block), 2);
      const float scale = to_float(adacc::detail::without_mark(read));
      noise += static_cast<double>(scale) * static_cast<double>(scale) *
               static_cast<double>(stop - begin) / 12;
      step = fmaxf(step, scale);
    }
    row_noise += noise;
    const double square = sum_over(lanes, mine), error = sum_over(lanes, noise);
    step = largest_over(lanes, step);
    fails = fails ||
            (c < end && (!(square < largest_square) ||
                         (limits.error > 0 && square > 0 && !(error / square <= limits.error)) ||
                         (limits.step > 0 && !(step <= limits.step)) ||
                         (limits.mean_square > 0 &&
                          !(square / static_cast<double>(end - c) <= limits.mean_square))));
  }
  row_square = sum_over(32, row_square), row_noise = sum_over(32, row_noise);
  row_most = largest_over(32, row_most);
  fails = __any_sync(~0U, fails) != 0;
  if (lane != 0) return;
  found.square[place] = row_square, found.noise[place] = row_noise;
  found.most[place] = row_most, found.fails[place] = fails;
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

/// Keeps the failed rows of the `rows` from row `first` on, if there is room, and adds the other rows to the sums.
template <class T>
__device__ void keep_rows(CheckedBlock& found, const RowCheck<T>& job, std::size_t first,
                          std::size_t rows) {
  const std::size_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto* const header = reinterpret_cast<SideRows::Header*>(job.kept);
  if (warp == 0) {
    double all = 0, noise = 0, square = 0;
    for (std::size_t row = lane; row < rows; row += 32) all += found.square[row];
    all = sum_over(32, all);
    for (std::size_t row = lane; row < rows; row += 32) {
      if (job.scales.group == 0) found.fails[row] = fails_in_block(found, job, row, rows, all);
      if (found.fails[row]) continue;
      noise += found.noise[row], square += found.square[row];
    }
    noise = sum_over(32, noise), square = sum_over(32, square);
    if (lane == 0) atomicAdd(&header->noise, noise), atomicAdd(&header->square, square);
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

template <int count, class T>
__device__ void measure_rows(CheckedBlock& found, const RowCheck<T>& job, std::size_t first,
                             std::size_t rows) {
  constexpr std::size_t block_rows = adacc::detail::block_rows;
  for (std::size_t r = threadIdx.x / 32; r < rows; r += blockDim.x / 32) {
    const std::size_t row = first + r, block = row / block_rows;
    measure_row<count>(found, r, job, row,
                       job.blob + job.scales.start + block * job.scales.stride +
                           sizeof(adacc::detail::BlockHeader),
                       row % block_rows, min(block_rows, job.rows - block * block_rows));
  }
}

template <class T>
__device__ void check_rows(const RowCheck<T>& job) {
  using Block = adacc::detail::CudaBlock;
  constexpr int at_once = 16 / sizeof(T);
  __shared__ CheckedBlock found;
  auto* const header = reinterpret_cast<SideRows::Header*>(job.kept);
  const std::size_t here = job.scales.rows_at_once();
  const bool loads_16_bytes = job.cols % at_once == 0 && job.part % at_once == 0 &&
                              reinterpret_cast<std::uintptr_t>(job.x) % 16 == 0;
  for (std::size_t first = blockIdx.x * here; first < job.rows; first += gridDim.x * here) {
    const std::size_t rows = min(here, job.rows - first);
    if (loads_16_bytes) measure_rows<at_once>(found, job, first, rows);
    else measure_rows<1>(found, job, first, rows);
    __syncthreads();
    keep_rows(found, job, first, rows);
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
