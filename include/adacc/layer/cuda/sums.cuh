// SPDX-License-Identifier: MIT
/// Sums on a CUDA device in a fixed order: over a warp, over the rows of a matrix, over losses.
///
/// No atomic additions of numbers: the order of every sum follows from the shape alone, so the bits are the same from
/// run to run. Sums over rows go through partial sums in the workspace, one for each chunk of rows, and these are
/// added in a fixed order by the same launch: the block that arrives last of a group of chunks adds up the group, and the
/// last of these adds up the groups. Which block that is depends on chance, and the order of sums does not.
#pragma once

#include <cstddef>
#include <limits>
#include <type_traits>

#include "../../core/cuda.cuh"
#include "../../core/dtype.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Zeros in the elements of a gradient from `first` on.
template <class T>
void set_zero(Cuda& cuda, const char* name, View<T> gradient, std::size_t first = 0) {
  if (first >= gradient.size()) return;
  cuda.set_bytes(name,
                 Bytes(reinterpret_cast<std::byte*>(gradient.data() + first),
                       Shape((gradient.size() - first) * sizeof(T))),
                 0);
}

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

/// How a kernel cuts rows for their sums: chunks, and groups of chunks.
struct SumCuts {
  std::size_t rows, chunk_rows;
  unsigned chunks, group, groups;  ///< numbers of chunks, of chunks in a group, of groups

  /// Words that count arrivals, for a range of columns: of groups, and of chunks in each group.
  ADACC_HD constexpr unsigned words() const { return 1 + groups; }
};

/// How rows are cut for their sums.
struct CudaChunks {
  static constexpr std::size_t least_rows = 32, most = 128;
  static constexpr unsigned most_in_one = 16;  ///< chunks of a single group

  std::size_t rows;

  constexpr std::size_t chunk_rows(std::size_t most_chunks = most) const {
    const std::size_t share = div_up(rows, most_chunks);
    return share < least_rows ? least_rows : share;
  }
  constexpr std::size_t count(std::size_t most_chunks = most) const {
    return div_up(rows, chunk_rows(most_chunks));
  }
  /// Few chunks are one group; more are about as many groups as chunks in each.
  constexpr SumCuts cuts(std::size_t most_chunks = most) const {
    const auto chunks = static_cast<unsigned>(count(most_chunks));
    unsigned group = chunks;
    if (chunks > most_in_one)
      for (group = 1; group * group < chunks;) ++group;
    return {rows, chunk_rows(most_chunks), chunks, group, (chunks + group - 1) / group};
  }
  /// For a kernel with a block for each chunk of each of `ranges` ranges of columns: blocks for about two on each processor
  /// of a large device, so that none of them is short.
  constexpr SumCuts cuts_of_ranges(std::size_t ranges) const {
    const std::size_t share = div_up(2 * most, ranges);
    return cuts(share < most ? share : most);
  }

  /// Columns of the least range that has words of its own.
  static constexpr std::size_t least_range = 128;
  /// Bytes of the words for all columns. They are zeros before a kernel, and behind it.
  constexpr std::size_t word_bytes(std::size_t cols) const {
    return div_up(cols, least_range) * cuts().words() * sizeof(unsigned);
  }
  /// Bytes of the partial sums of `sums` sums for each column.
  constexpr std::size_t bytes(std::size_t sums, std::size_t cols, Dtype scalar) const {
    return count() * sums * cols * bytes_of(scalar);
  }
  /// Bytes of words, and of partial sums behind them.
  constexpr std::size_t all_bytes(std::size_t sums, std::size_t cols, Dtype scalar) const {
    return align_up(word_bytes(cols)) + bytes(sums, cols, scalar);
  }
};

/// Threads of kernels that sum rows of a chunk.
inline constexpr unsigned sum_threads = 512, sum_warps = sum_threads / warp_size;

/// Sums of a warp's packets in shared memory: written packet element by packet element, and read column by column, both
/// without two lanes in one bank.
template <unsigned count>
struct PacketSlots {
  static constexpr unsigned stride = warp_size + warp_size / count, size = count * stride;
  /// Of element i of a lane's packet.
  __device__ static constexpr unsigned at(unsigned i, unsigned lane) { return i * stride + lane; }
  __device__ static constexpr unsigned of_column(unsigned c) { return at(c % count, c / count); }
};

/// Where the sums of columns are added, one after the other; null: not wanted. A place that `begins` holds nothing yet:
/// the sum is written there.
template <class T, unsigned sums>
struct SumPlaces {
  T* to[sums];
  bool begins[sums] = {};
};

/// Whether the block is the last of `of` blocks to arrive, each of which calls this behind its writes. The last one may
/// read what all of them have written.
static __device__ inline bool last_to_arrive(unsigned& word, unsigned of) {
  __syncthreads();
  if (of == 1) return true;
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(&word, of - 1) == of - 1;
    __threadfence();
  }
  return __syncthreads_or(last ? 1 : 0) != 0;
}

/// The sum of `count` numbers at `from`, `step` apart, for each element of a packet, in order. Four loads are on their way
/// at a time.
template <unsigned width, class T>
__device__ Packet<T, width> sum_apart(const T* from, std::size_t step, unsigned count) {
  constexpr unsigned together = 4;
  Packet<T, width> sum{};
  for (unsigned k = 0; k < count; k += together) {
    Packet<T, width> read[together];
#pragma unroll
    for (unsigned j = 0; j < together; ++j)
      if (k + j < count) read[j] = read_packet<width>(from + (k + j) * step, width, true);
#pragma unroll
    for (unsigned j = 0; j < together; ++j)
      if (k + j < count)
#pragma unroll
        for (unsigned i = 0; i < width; ++i) sum.at[i] += read[j].at[i];
  }
  return sum;
}

/// partials[chunk][sum][column] of one chunk and of `width` columns from `begin` on are written: the last blocks add up
/// the chunks of all, group by group, and the groups.
template <class T, unsigned sums>
__device__ void finish_sums(const SumCuts& cuts, unsigned chunk, std::size_t cols,
                            std::size_t begin, unsigned width, T* partials, unsigned* words,
                            const SumPlaces<T, sums>& places) {
  const unsigned of = chunk / cuts.group, first = of * cuts.group;
  const unsigned members = min(cuts.group, cuts.chunks - first);
  const auto here = static_cast<unsigned>(cols - begin < width ? cols - begin : width);
  const std::size_t row = sums * cols;
  // Sums of `count` partial sums from `from` on, `step` apart, by packets of columns: all there are, or those of a group.
  const auto add_packets = [&]<unsigned packet>(T* from, unsigned step, unsigned count, bool all,
                                                std::integral_constant<unsigned, packet>) {
    const unsigned packets = here / packet;
    for (unsigned k = threadIdx.x; k < sums * packets; k += sum_threads) {
      const unsigned s = k / packets, c = k % packets * packet;
      T* to = nullptr;
      bool begins = false;
#pragma unroll
      for (unsigned u = 0; u < sums; ++u)  // an index that varies would take local memory
        if (u == s) to = places.to[u], begins = places.begins[u];
      if (to == nullptr) continue;
      T* const at = from + s * cols + begin + c;
      const auto sum = sum_apart<packet>(at, step * row, count);
      if (!all) {
        write_packet(at, sum, packet, true);
        continue;
      }
      Packet<T, packet> total{};
      if (!begins) total = read_packet<packet>(to + begin + c, packet, true);
#pragma unroll
      for (unsigned i = 0; i < packet; ++i)
        total.at[i] = begins ? sum.at[i] : total.at[i] + sum.at[i];
      write_packet(to + begin + c, total, packet, true);
    }
  };
  constexpr unsigned wide = packet_elems<T>;
  const auto add_up = [&](T* from, unsigned step, unsigned count, bool all) {
    bool aligned = cols % wide == 0;
#pragma unroll
    for (unsigned s = 0; s < sums; ++s) aligned = aligned && packet_aligned<wide>(places.to[s]);
    if (aligned) add_packets(from, step, count, all, std::integral_constant<unsigned, wide>());
    else add_packets(from, step, count, all, std::integral_constant<unsigned, 1>());
  };
  if (!last_to_arrive(words[1 + of], members)) return;
  const bool one_group = cuts.groups == 1;
  if (!one_group) {
    add_up(partials + first * row, 1, members, false);
    if (!last_to_arrive(words[0], cuts.groups)) return;
  }
  add_up(partials, one_group ? 1 : cuts.group, one_group ? members : cuts.groups, true);
}

/// Adds to places sums over rows. The body adds to Body::sums packets of Body::count columns for each row. A warp has such
/// a packet for each lane, and every sixteenth row of a chunk. `partials` and `words` are as in CudaChunks. Grid: ranges
/// of columns, chunks.
template <class T, class Body>
static __global__ void __launch_bounds__(sum_threads, 2)
    column_sums_kernel(const SumCuts cuts, std::size_t cols, bool aligned, const Body body,
                       T* partials, unsigned* words, const SumPlaces<T, Body::sums> places) {
  constexpr unsigned sums = Body::sums, count = Body::count, width = warp_size * count;
  constexpr unsigned unrolled = 4;  // rows whose loads are on their way together
  using Slots = PacketSlots<count>;
  __shared__ T shared[sums][sum_warps][Slots::size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t begin = std::size_t{blockIdx.x} * width, column = begin + lane * count;
  const std::size_t first = blockIdx.y * cuts.chunk_rows, end = first + cuts.chunk_rows;
  const std::size_t last = end < cuts.rows ? end : cuts.rows;
  Packet<T, count> sum[sums] = {};
  if (column < cols) {
    const std::size_t left = cols - column;
    std::size_t row = first + warp;
    if (aligned && left >= count) {
      for (; row + (unrolled - 1) * sum_warps < last; row += unrolled * sum_warps) {
        typename Body::Row read[unrolled];
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k)
          read[k] = body.read(row + k * sum_warps, column, count, true);
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k)
          body.add(read[k], row + k * sum_warps, column, count, true, sum);
      }
      for (; row < last; row += sum_warps)
        body.add(body.read(row, column, count, true), row, column, count, true, sum);
    }
    for (; row < last; row += sum_warps)
      body.add(body.read(row, column, left, false), row, column, left, false, sum);
  }
#pragma unroll
  for (unsigned s = 0; s < sums; ++s)
#pragma unroll
    for (unsigned i = 0; i < count; ++i) shared[s][warp][Slots::at(i, lane)] = sum[s].at[i];
  __syncthreads();
  T* const of_chunk = partials + blockIdx.y * (sums * cols) + begin;
  for (unsigned at = threadIdx.x; at < width; at += sum_threads)
    if (begin + at < cols)
#pragma unroll
      for (unsigned s = 0; s < sums; ++s) {
        T total = 0;
#pragma unroll
        for (unsigned w = 0; w < sum_warps; ++w) total += shared[s][w][Slots::of_column(at)];
        of_chunk[s * cols + at] = total;
      }
  finish_sums<T, sums>(cuts, blockIdx.y, cols, begin, width, partials,
                       words + blockIdx.x * cuts.words(), places);
}

/// to[s][c] += the sums over rows of the numbers added by the body, if to[s] is not null. `words` are zeros, `partials`
/// anything (CudaChunks, which has room for more chunks than there are for several ranges of columns).
template <class T, class Body>
void add_column_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const Body& body, T* partials, unsigned* words,
                     const SumPlaces<T, Body::sums>& places) {
  static_assert(warp_size * Body::count >= CudaChunks::least_range);
  const std::size_t ranges = div_up(cols, warp_size * Body::count);
  const SumCuts cuts = CudaChunks{rows}.cuts_of_ranges(ranges);
  const dim3 grid(static_cast<unsigned>(ranges), cuts.chunks);
  cuda.note(launch(name, {grid, sum_threads, cuda.stream()}, &column_sums_kernel<T, Body>, cuts,
                   cols, body.aligned(), body, partials, words, places));
}
/// The same with words that are set to zero first, in a workspace of CudaChunks::all_bytes().
template <class T, class Body>
void add_column_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const Body& body, Bytes workspace, const SumPlaces<T, Body::sums>& places) {
  const CudaChunks chunks{rows};
  const std::size_t bytes = chunks.word_bytes(cols);
  if (chunks.count() > 1) cuda.set_bytes(name, Bytes(workspace.data(), Shape(bytes)), 0);
  add_column_sums<T>(cuda, name, rows, cols, body,
                     reinterpret_cast<T*>(workspace.data() + align_up(bytes)),
                     reinterpret_cast<unsigned*>(workspace.data()), places);
}

/// The column sums of a matrix.
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
  __device__ void add(const Row& read, std::size_t, std::size_t, std::size_t, bool,
                      Packet<Wide<T>, count> (&sum)[sums]) const {
    const auto in = widened(read);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) sum[0].at[i] += in.at[i];
  }
};

/// to[c] += the sum over all rows of matrix[r][c]; or, if `begins`, to[c] = this sum. The workspace is that of
/// add_column_sums().
template <class T>
void add_matrix_sums(Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
                     const T* matrix, Wide<T>* to, bool begins, Bytes workspace) {
  add_column_sums<Wide<T>>(cuda, name, rows, cols, MatrixBody<T>{matrix, cols}, workspace,
                           {{to}, {begins}});
}

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
