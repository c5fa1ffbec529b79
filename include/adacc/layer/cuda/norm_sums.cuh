// SPDX-License-Identifier: MIT
/// Backward of layer norm and RMS norm with the sums over rows for gradients, in one kernel: for activations of 2 bytes and
/// rows of up to 1024 channels.
///
/// A row of x, dy and the added gradient comes to shared memory while the row before is computed, if the device has room
/// for both: each lane copies what it reads itself, so warps do not wait for one another. The sums of a lane's columns
/// stay in registers. Bits do not depend on the room.
#pragma once

#include <type_traits>

#include "../../core/shared_memory.cuh"
#include "async_copy.cuh"
#include "norm_lane.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The gradients of weight and, if centered, bias.
template <bool centered, class T>
struct NormSumsBody {
  static constexpr unsigned sums = centered ? 2 : 1, count = packet_elems<T>;
  struct Row {
    Packet<T, count> x, dy;
    Wide<T> mean, reciprocal;
  };
  const T *x, *dy;
  const Wide<T>*means, *reciprocals;
  std::size_t cols;
  bool aligned() const {
    return cols % count == 0 && packet_aligned<count>(x) && packet_aligned<count>(dy);
  }
  __device__ Row read(std::size_t row, std::size_t column, std::size_t left, bool whole) const {
    const std::size_t e = row * cols + column;
    return {read_packet<count>(x + e, left, whole), read_packet<count>(dy + e, left, whole),
            centered ? means[row] : Wide<T>(0), reciprocals[row]};
  }
  __device__ void add(const Row& read, std::size_t, std::size_t, std::size_t, bool,
                      Packet<Wide<T>, count> (&sum)[sums]) const {
    add(widened(read.x), widened(read.dy), read.mean, read.reciprocal, sum);
  }
  __device__ static void add(const Packet<Wide<T>, count>& in, const Packet<Wide<T>, count>& up,
                             Wide<T> mean, Wide<T> reciprocal,
                             Packet<Wide<T>, count> (&sum)[sums]) {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      sum[0].at[i] = fma(up.at[i], (in.at[i] - mean) * reciprocal, sum[0].at[i]);
      if constexpr (centered) sum[1].at[i] += up.at[i];
    }
  }
};

/// Rows of x, dy and the added gradient in shared memory, one for each warp in a stage.
template <unsigned most, class T>
class NormStages {
 public:
  static constexpr unsigned count = packet_elems<T>, tensors = 3;
  static constexpr std::size_t warp_elems = std::size_t{tensors} * most * warp_size * count;
  static constexpr std::size_t stage_bytes = sum_warps * warp_elems * sizeof(T);

  /// `room`: shared memory of stages. Null: no row is added.
  __device__ NormStages(const NormLane<most, T>& lane, unsigned char* room, const T* x, const T* dy,
                        const T* added, std::size_t cols)
      : lane_(lane), from_{x, dy, added}, cols_(cols),
        own_(reinterpret_cast<T*>(room) + threadIdx.x / warp_size * warp_elems +
             threadIdx.x % warp_size * count) {}

  /// Begins to copy a row, as a group of copies of its own.
  __device__ void load(unsigned stage, std::size_t row) const {
#pragma unroll
    for (unsigned t = 0; t < tensors; ++t)
      if (from_[t] != nullptr)
        lane_.each([&](unsigned k, std::size_t c) {
          copy_beside<16>(place(stage, t, k), from_[t] + row * cols_ + c, 16);
        });
    commit_copies();
  }
  /// A packet of a copied row: t is 0 for x, 1 for dy, 2 for the added gradient, zeros if there is none.
  __device__ Packet<Wide<T>, count> get(unsigned stage, unsigned t, unsigned k) const {
    if (from_[t] == nullptr) return {};
    return widened(read_packet<count>(place(stage, t, k), count, true));
  }

 private:
  __device__ T* place(unsigned stage, unsigned t, unsigned k) const {
    return own_ + stage * (sum_warps * warp_elems) + (t * most + k) * (warp_size * count);
  }

  const NormLane<most, T>& lane_;
  const T* from_[tensors];
  std::size_t cols_;
  T* own_;
};

/// dx, and the sums of column_sums_kernel with a NormSumsBody and, behind them, of dx with a MatrixBody. `stages`: 2, or 1
/// where shared memory has no room for two. Grid: chunks.
template <bool centered, unsigned most, class T>
static __global__ void __launch_bounds__(sum_threads)
    norm_backward_sums_kernel(const SumCuts cuts, unsigned cols,
                              const NormSumsBody<centered, T> body, const T* added,
                              const Wide<T>* weight, T* dx, Wide<T>* partials, unsigned* words,
                              const SumPlaces<Wide<T>, NormSumsBody<centered, T>::sums + 1> places,
                              unsigned stages) {
  using W = Wide<T>;
  using Body = NormSumsBody<centered, T>;
  using Lane = NormLane<most, T>;
  constexpr unsigned count = Lane::count, sums = Body::sums, width = warp_size * count;
  using Slots = PacketSlots<count>;
  extern __shared__ __align__(16) unsigned char norm_shared[];
  W(*const shared)
  [sum_warps][Slots::size] = reinterpret_cast<W(*)[sum_warps][Slots::size]>(norm_shared);
  const unsigned own = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const Lane lane(cols, true, own);
  const std::size_t first = blockIdx.x * cuts.chunk_rows + warp;
  const std::size_t end = (blockIdx.x + std::size_t{1}) * cuts.chunk_rows;
  const std::size_t last = end < cuts.rows ? end : cuts.rows;
  const unsigned wanted = places.to[sums] == nullptr ? sums : sums + 1;
  Packet<W, count> sum[Lane::packets][sums] = {}, dx_sum[Lane::packets] = {};
  {
    const NormStages<most, T> rows(lane, norm_shared, body.x, body.dy, added, cols);
    unsigned stage = 0;
    NormSlopes<W> next{};
    const auto load = [&](unsigned to, std::size_t row) {
      if (row < last) {
        rows.load(to, row);
        next = {centered ? body.means[row] : W(0), body.reciprocals[row]};
      } else {
        commit_copies();
      }
    };
    load(0, first);
    for (std::size_t row = first; row < last; row += sum_warps) {
      NormSlopes<W> slopes = next;
      if (stages == 2) {
        load(stage ^ 1, row + sum_warps);
        wait_for_copies_before<1>();
      } else {
        wait_for_copies();
      }
      lane.each([&](unsigned k, std::size_t c) {
        const auto in = rows.get(stage, 0, k), up = rows.get(stage, 1, k);
        slopes.add(in, up, lane.read(weight, c));
        Body::add(in, up, slopes.mean, slopes.reciprocal, sum[k]);
      });
      slopes.template finish<centered>(static_cast<W>(cols));
      lane.each([&](unsigned k, std::size_t c) {
        const auto out = narrowed<T>(slopes.of(rows.get(stage, 0, k), rows.get(stage, 1, k),
                                               lane.read(weight, c), rows.get(stage, 2, k)));
        write_packet(dx + row * cols + c, out, count, true);
        if (wanted == sums) return;
        const auto numbers = widened(out);
#pragma unroll
        for (unsigned i = 0; i < count; ++i) dx_sum[k].at[i] += numbers.at[i];
      });
      if (stages == 2) stage ^= 1;
      else load(0, row + sum_warps);
    }
  }
  W* const of_chunk = partials + blockIdx.x * (std::size_t{sums + 1} * cols);
#pragma unroll
  for (unsigned k = 0; k < Lane::packets; ++k) {
    if (k * width >= cols) continue;  // alike in all threads
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
#pragma unroll
      for (unsigned s = 0; s < sums; ++s) shared[s][warp][Slots::at(i, own)] = sum[k][s].at[i];
      shared[sums][warp][Slots::at(i, own)] = dx_sum[k].at[i];
    }
    __syncthreads();
    for (unsigned at = threadIdx.x; at < wanted * width; at += sum_threads) {
      const unsigned s = at / width, c = at % width;
      if (k * width + c >= cols) continue;
      W total = 0;
#pragma unroll
      for (unsigned w = 0; w < sum_warps; ++w) total += shared[s][w][Slots::of_column(c)];
      of_chunk[s * cols + k * width + c] = total;
    }
  }
  finish_sums<W, sums + 1>(cuts, blockIdx.x, cols, 0, cols, partials, words, places);
}

/// Queues norm_backward_sums_kernel. False, and nothing is queued, where it is not to be had: for rows that are longer or
/// not aligned, and devices without the shared memory.
template <bool centered, class T>
bool norm_backward_with_sums(
    Cuda& cuda, const char* name, std::size_t rows, std::size_t cols,
    const NormSumsBody<centered, T>& body, const T* added, const Wide<T>* weight, T* dx,
    Wide<T>* partials, unsigned* words,
    const SumPlaces<Wide<T>, NormSumsBody<centered, T>::sums + 1>& places) {
  constexpr unsigned width = warp_size * NormSumsBody<centered, T>::count;
  if (!body.aligned() || cols > norm_held_cols || !packet_aligned<body.count>(dx) ||
      !packet_aligned<body.count>(added) || !packet_aligned<body.count>(weight))
    return false;
  const auto launched = [&](auto most) {
    const auto kernel = &norm_backward_sums_kernel<centered, most.value, T>;
    constexpr std::size_t stage = NormStages<most.value, T>::stage_bytes;
    static_assert(stage >=
                  (body.sums + 1) * sum_warps * PacketSlots<body.count>::size * sizeof(Wide<T>));
    const auto room = shared_room(kernel);
    if (!room || *room < stage) return false;
    const unsigned stages = *room < 2 * stage ? 1 : 2;
    const SumCuts cuts = CudaChunks{rows}.cuts();
    cuda.note(launch(name, {dim3(cuts.chunks), sum_threads, cuda.stream(), stages * stage}, kernel,
                     cuts, static_cast<unsigned>(cols), body, added, weight, dx, partials, words,
                     places, stages));
    return true;
  };
  if (cols <= 3 * width) return launched(std::integral_constant<unsigned, 3>());
  return launched(std::integral_constant<unsigned, norm_held_cols / width>());
}

}}}  // namespace adacc::v0_1::detail
