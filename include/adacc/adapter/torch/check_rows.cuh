// SPDX-License-Identifier: MIT
/// The kernels for checked rows (side_rows.hpp): one checks an encoding's rows and keeps the failed ones, another puts kept
/// rows back.
///
/// The error of a row is the error of encoding_error.hpp: from the original and the scales, without decoding. A warp takes
/// a row at a time, and neighbouring lanes take one part of the row, each by loads of 16 bytes.
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

/// The sum over `lanes` neighbouring lanes of a warp, a power of two, of which each `first` have the same number.
template <class Number>
__device__ Number sum_over(unsigned lanes, Number sum, unsigned first = 1) {
  for (unsigned step = first; step < lanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  return sum;
}
__device__ inline float largest_over(unsigned lanes, float most) {
  for (unsigned step = 1; step < lanes; step *= 2)
    most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  return most;
}

/// The measures of the rows of a block of threads.
struct CheckedBlock {
  double square[adacc::detail::block_rows], noise[adacc::detail::block_rows];
  float most[adacc::detail::block_rows];  ///< magnitude, if there are no scales
  bool fails[adacc::detail::block_rows];
};

/// A scale of the codec's block at `stored`.
__device__ inline float scale_at(const std::byte* stored, unsigned place) {
  bfloat16 read;
  memcpy(&read, stored + std::size_t{2} * place, 2);
  return to_float(adacc::detail::without_mark(read));
}
/// The noise of `columns` elements, in twelfths: rounding is uniform within a step.
template <class Number>
__device__ Number noise_of(float scale, unsigned columns) {
  return static_cast<Number>(scale) * static_cast<Number>(scale) * static_cast<Number>(columns);
}

/// Columns begin to end of a row, and a lane's share of them.
struct RowPart {
  unsigned begin, end, lane, lanes;
};
/// The measures of a lane's share.
template <class Number>
struct PartMeasures {
  Number square = 0, noise = 0;
  float largest = 0, step = 0;  ///< magnitude; scale

  /// Whether floats have no room for squares.
  __device__ bool leaves_floats() const {
    const auto leaves = [](float x) { return x != 0 && !(x > 1e-15F && x < 1e15F); };
    return leaves(largest) || leaves(step);
  }
};

/// Adds the squares of the row at `x`. A lane loads `count` elements at once.
template <int count, class Number, class T>
__device__ void add_squares(PartMeasures<Number>& sums, const T* x, const RowPart& part) {
#pragma unroll 4
  for (unsigned i = part.begin + part.lane * count; i < part.end; i += part.lanes * count) {
    struct alignas(count * sizeof(T)) Loaded {
      T x[count];
    };
    const Loaded loaded = *reinterpret_cast<const Loaded*>(x + i);
    Number square = 0;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const float each = adacc::detail::to_number(loaded.x[k]);
      square += static_cast<Number>(each) * static_cast<Number>(each);
      sums.largest = fmaxf(sums.largest, fabsf(each));
    }
    sums.square += square;
  }
}
/// Adds the noise of scales, each of `size` columns, which are at place(number).
template <class Number, class Place>
__device__ void add_noise(PartMeasures<Number>& sums, const std::byte* stored, unsigned size,
                          const RowPart& part, const Place& place) {
  if (part.begin >= part.end) return;
  for (unsigned group = part.begin / size + part.lane; group * size < part.end;
       group += part.lanes) {
    const float scale = scale_at(stored, place(group));
    const unsigned begin = max(part.begin, group * size), end = min(part.end, (group + 1) * size);
    sums.noise += noise_of<Number>(scale, end - begin);
    sums.step = fmaxf(sums.step, scale);
  }
}

/// The measures of scales shared by all rows of a codec's block.
struct SharedScales {
  double noise = 0;
  float step = 0;
};
/// Of the scales at `stored`, measured once for a block of threads.
__device__ inline SharedScales shared_scales(CheckedBlock& found, const RowScales& scales,
                                             const std::byte* stored, unsigned cols) {
  SharedScales mine;
  const auto size = static_cast<unsigned>(scales.group);
  for (unsigned group = threadIdx.x; group * size < cols; group += blockDim.x) {
    const float scale = scale_at(stored, group);
    mine.noise += noise_of<double>(scale, min(size, cols - group * size));
    mine.step = fmaxf(mine.step, scale);
  }
  mine.noise = sum_over(32, mine.noise), mine.step = largest_over(32, mine.step);
  if (threadIdx.x % 32 == 0)  // in the places of rows, which come later
    found.noise[threadIdx.x / 32] = mine.noise, found.most[threadIdx.x / 32] = mine.step;
  __syncthreads();
  mine = {};
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
    mine.noise += found.noise[warp], mine.step = fmaxf(mine.step, found.most[warp]);
  __syncthreads();
  return mine;
}

/// Measures row `row`, which is row `in_block` of the codec's block of `rows` rows at `stored`.
template <int count, class T>
__device__ void measure_row(CheckedBlock& found, std::size_t place, const RowCheck<T>& job,
                            std::size_t row, const std::byte* stored, unsigned in_block,
                            unsigned rows, const SharedScales& shared) {
  const auto cols = static_cast<unsigned>(job.cols), width = static_cast<unsigned>(job.part),
             size = static_cast<unsigned>(job.scales.group);
  const unsigned lane = threadIdx.x % 32, loads = div_up(width, unsigned{count});
  // Few lanes with four loads each have few sums to exchange, but all lanes shall have a part.
  unsigned lanes = 1;
  while (lanes < 32 && (4 * lanes < loads || (lanes < loads && 16 / lanes * width >= cols)))
    lanes *= 2;
  const RowLimits& limits = job.limits;
  const T* const x = job.x + row * job.cols;
  // No part of a row has its own limit of noise then.
  const bool takes_shared = job.scales.shared && limits.error == 0;
  const bool has_noise = size > 0 && !takes_shared;
  double row_square = 0, row_noise = 0;
  float row_most = 0;
  bool fails = takes_shared && limits.step > 0 && !(shared.step <= limits.step);
  for (unsigned first = 0; first < cols; first += 32 / lanes * width) {
    const unsigned begin = first + lane / lanes * width;
    const unsigned end = min(begin + width, cols);  // not above begin: no such part
    const RowPart part{begin, end, lane % lanes, lanes};
    const auto measure = [&]<class Number>(PartMeasures<Number>& sums) {
      add_squares<count>(sums, x, part);
      if (has_noise)
        add_noise(sums, stored, size, part, [&](unsigned group) {
          return job.scales.shared ? group : group * rows + in_block;
        });
    };
    PartMeasures<float> mine;
    measure(mine);
    double square, noise = 0;
    if (__any_sync(~0U, mine.leaves_floats())) {
      PartMeasures<double> exact;
      measure(exact);
      square = sum_over(lanes, exact.square);
      if (has_noise) noise = sum_over(lanes, exact.noise);
    } else {
      square = static_cast<double>(sum_over(lanes, mine.square));
      if (has_noise) noise = static_cast<double>(sum_over(lanes, mine.noise));
    }
    row_square += square, row_noise += noise, row_most = fmaxf(row_most, mine.largest);
    if (size == 0) continue;
    const float step = limits.step > 0 ? largest_over(lanes, mine.step) : 0;
    fails = fails || (begin < end &&
                      (!(square < largest_square) ||
                       (limits.error > 0 && square > 0 && !(noise <= 12 * limits.error * square)) ||
                       (limits.step > 0 && !(step <= limits.step)) ||
                       (limits.mean_square > 0 &&
                        !(square <= limits.mean_square * static_cast<double>(end - begin)))));
  }
  // The lanes of a part have the same sums.
  row_square = sum_over(32, row_square, lanes);
  row_noise = takes_shared ? shared.noise : sum_over(32, row_noise, lanes);
  if (size == 0) row_most = largest_over(32, row_most);
  fails = __any_sync(~0U, fails) != 0;
  if (lane != 0) return;
  found.square[place] = row_square, found.noise[place] = row_noise / 12;
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

/// Measures the `rows` rows from row `first` on, all of one block of the codec.
template <int count, class T>
__device__ void measure_rows(CheckedBlock& found, const RowCheck<T>& job, std::size_t first,
                             std::size_t rows) {
  constexpr std::size_t block_rows = adacc::detail::block_rows;
  const std::size_t block = first / block_rows;
  const std::byte* const stored =
      job.blob + job.scales.start + block * job.scales.stride + sizeof(adacc::detail::BlockHeader);
  SharedScales shared;
  if (job.scales.shared)
    shared = shared_scales(found, job.scales, stored, static_cast<unsigned>(job.cols));
  for (std::size_t r = threadIdx.x / 32; r < rows; r += blockDim.x / 32)
    measure_row<count>(
        found, r, job, first + r, stored, static_cast<unsigned>((first + r) % block_rows),
        static_cast<unsigned>(min(block_rows, job.rows - block * block_rows)), shared);
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
