// SPDX-License-Identifier: MIT
/// Kernels of layer norm and RMS norm on a CUDA device: a warp for each row.
///
/// Sums over a row are added over 32 lanes, by shuffles. Rows of whole packets and up to 1024 channels are read once
/// and stay in registers; others are read again from the cache, in the same order. The sums over rows for the
/// parameters' gradients are formed from the same registers if there is room, and otherwise by a kernel of their own,
/// in the same order again. RMS norm is layer norm around 0 instead of the mean, without a bias.
#pragma once

#include <type_traits>

#include "../../model/call.hpp"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Rows of up to so many channels are kept.
inline constexpr std::size_t norm_held_cols = 1024;

/// The packets of a lane's part of a row: every 32nd. The first `most` of them are kept in registers, which
/// wants rows of whole packets, all aligned, and no more of them; with 0 none is.
template <unsigned most, class T>
class NormLane {
 public:
  static constexpr bool held = most != 0;
  static constexpr unsigned count = packet_elems<T>, packets = held ? most : 1;

  __device__ NormLane(std::size_t cols, bool aligned, unsigned lane)
      : cols_(cols), aligned_(held || aligned), first_(lane * count) {}

  /// Calls use(k, column) for each, in order; k counts the packets in registers.
  template <class Use>
  __device__ void each(const Use& use) const {
    if constexpr (held) {
#pragma unroll
      for (unsigned k = 0; k < packets; ++k)
        if (column(k) < cols_) use(k, column(k));
    } else {
      for (std::size_t c = first_; c < cols_; c += warp_size * count) use(0, c);
    }
  }
  /// Loads a row's packets into registers, all on their way together.
  __device__ void keep(const T* row, Packet<T, count> (&kept)[packets]) const {
    if constexpr (held) {
#pragma unroll
      for (unsigned k = 0; k < packets; ++k)
        kept[k] = column(k) < cols_ ? read(row, column(k)) : Packet<T, count>{};
    }
  }
  __device__ auto get(const T* row, const Packet<T, count> (&kept)[packets], unsigned k,
                      std::size_t c) const {
    if constexpr (held) return widened(kept[k]);
    else return widened(read(row, c));
  }
  template <class E>
  __device__ Packet<E, count> read(const E* row, std::size_t c) const {
    return read_packet<count>(row + c, cols_ - c, held || whole(c));
  }
  __device__ void write(T* row, std::size_t c, const Packet<Wide<T>, count>& out) const {
    write_packet(row + c, narrowed<T>(out), cols_ - c, held || whole(c));
  }
  /// Whether there is an element i of the packet.
  __device__ bool has(std::size_t c, unsigned i) const { return held || i < cols_ - c; }

 private:
  __device__ bool whole(std::size_t c) const { return aligned_ && cols_ - c >= count; }
  __device__ std::size_t column(unsigned k) const { return first_ + k * warp_size * count; }

  std::size_t cols_;
  bool aligned_;
  unsigned first_;
};

/// Reciprocals of standard deviations (root mean squares); `means` if centered.
template <bool centered, unsigned most, class T>
static __global__ void __launch_bounds__(cuda_threads)
    norm_forward_kernel(std::size_t rows, std::size_t cols, bool aligned, Wide<T> epsilon,
                        const T* x, const Wide<T>* weight, const Wide<T>* bias, T* y,
                        Wide<T>* means, Wide<T>* reciprocals, unsigned* words,
                        unsigned word_count) {
  using W = Wide<T>;
  using Lane = NormLane<most, T>;
  if (blockIdx.x == 0)  // for backward
    for (unsigned i = threadIdx.x; i < word_count; i += cuda_threads) words[i] = 0;
  constexpr unsigned count = Lane::count;
  const W size = static_cast<W>(cols);
  const WarpRows at;
  const Lane lane(cols, aligned, at.lane);
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const T* const in = x + row * cols;
    Packet<T, count> kept[Lane::packets];
    lane.keep(in, kept);
    W mean = 0;
    if constexpr (centered) {
      W sum = 0;
      lane.each([&](unsigned k, std::size_t c) {
        const auto numbers = lane.get(in, kept, k, c);
#pragma unroll
        for (unsigned i = 0; i < count; ++i) sum += numbers.at[i];
      });
      mean = warp_sum(sum) / size;
    }
    W squares = 0;
    lane.each([&](unsigned k, std::size_t c) {
      const auto numbers = lane.get(in, kept, k, c);
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        const W distance = lane.has(c, i) ? numbers.at[i] - mean : W(0);
        squares = fma(distance, distance, squares);
      }
    });
    const W r = W(1) / sqrt(warp_sum(squares) / size + epsilon);
    lane.each([&](unsigned k, std::size_t c) {
      const auto numbers = lane.get(in, kept, k, c);
      const auto w = lane.read(weight, c);
      Packet<W, count> shift{}, out;
      if constexpr (centered) shift = lane.read(bias, c);
#pragma unroll
      for (unsigned i = 0; i < count; ++i)
        out.at[i] = fma((numbers.at[i] - mean) * r, w.at[i], shift.at[i]);
      lane.write(y + row * cols, c, out);
    });
    if (at.lane != 0) continue;
    if constexpr (centered) means[row] = mean;
    reciprocals[row] = r;
  }
}

/// dx of a row, which may be dy: each element is read before it is written, and by the same thread. Adds the row
/// `added`, unless null, which may be dy as well. Calls use(k, x, dy) with the row's packets.
template <bool centered, unsigned most, class T, class Use>
__device__ inline void norm_backward_row(const NormLane<most, T>& lane, std::size_t cols,
                                         const T* in, const T* up, const T* added,
                                         const Wide<T>* weight, Wide<T> mean, Wide<T> r, T* dx,
                                         const Use& use) {
  using W = Wide<T>;
  constexpr unsigned count = NormLane<most, T>::count, packets = NormLane<most, T>::packets;
  const W size = static_cast<W>(cols);
  Packet<T, count> kept[packets], kept_up[packets];
  lane.keep(in, kept);
  lane.keep(up, kept_up);
  W sum = 0, product = 0;
  lane.each([&](unsigned k, std::size_t c) {
    const auto numbers = lane.get(in, kept, k, c), slopes = lane.get(up, kept_up, k, c);
    const auto w = lane.read(weight, c);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      // Factors of 0 where there is no element.
      sum = fma(slopes.at[i], w.at[i], sum);
      product = fma(slopes.at[i] * w.at[i], numbers.at[i] - mean, product);
    }
    use(k, numbers, slopes);
  });
  const W mean_g = centered ? warp_sum(sum) / size : W(0);
  const W scale = r * (warp_sum(product) * r / size);
  lane.each([&](unsigned k, std::size_t c) {
    const auto numbers = lane.get(in, kept, k, c), slopes = lane.get(up, kept_up, k, c);
    const auto w = lane.read(weight, c);
    Packet<T, count> more{};
    if (added != nullptr) more = lane.read(added, c);
    Packet<W, count> out = widened(more);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const W g = fma(slopes.at[i], w.at[i], -mean_g);
      out.at[i] = fma(fma(mean - numbers.at[i], scale, g), r, out.at[i]);
    }
    lane.write(dx, c, out);
  });
}

template <bool centered, unsigned most, class T>
static __global__ void __launch_bounds__(cuda_threads)
    norm_backward_kernel(std::size_t rows, std::size_t cols, bool aligned, const T* x, const T* dy,
                         const T* added, const Wide<T>* weight, const Wide<T>* means,
                         const Wide<T>* reciprocals, T* dx) {
  const WarpRows at;
  const NormLane<most, T> lane(cols, aligned, at.lane);
  for (std::size_t row = at.row; row < rows; row += at.step)
    norm_backward_row<centered>(lane, cols, x + row * cols, dy + row * cols,
                                added == nullptr ? nullptr : added + row * cols, weight,
                                centered ? means[row] : Wide<T>(0), reciprocals[row],
                                dx + row * cols, [](unsigned, const auto&, const auto&) {});
}

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

/// dx, and the sums of column_sums_kernel with a NormSumsBody and, behind them, of dx with a MatrixBody. Rows are read
/// once and kept in registers, and so are the sums of a lane's columns: for activations of 2 bytes, which leave room for
/// them. Grid: chunks.
template <bool centered, unsigned most, class T>
static __global__ void __launch_bounds__(sum_threads) norm_backward_sums_kernel(
    const SumCuts cuts, unsigned cols, const NormSumsBody<centered, T> body, const T* added,
    const Wide<T>* weight, T* dx, Wide<T>* partials, unsigned* words,
    const SumPlaces<Wide<T>, NormSumsBody<centered, T>::sums + 1> places) {
  using W = Wide<T>;
  using Body = NormSumsBody<centered, T>;
  using Lane = NormLane<most, T>;
  constexpr unsigned count = Lane::count, sums = Body::sums, width = warp_size * count;
  using Slots = PacketSlots<count>;
  __shared__ W shared[sums][sum_warps][Slots::size];
  const unsigned own = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const Lane lane(cols, true, own);
  const std::size_t first = blockIdx.x * cuts.chunk_rows, end = first + cuts.chunk_rows;
  const std::size_t last = end < cuts.rows ? end : cuts.rows;
  W* const of_chunk = partials + blockIdx.x * (std::size_t{sums + 1} * cols);
  // The sums of all warps, of column packets k: of the first sums, or of dx.
  const auto reduce = [&](unsigned k, unsigned from, unsigned n) {
    __syncthreads();
    for (unsigned at = threadIdx.x; at < n * width; at += sum_threads) {
      const unsigned s = at / width, c = at % width;
      if (k * width + c >= cols) continue;
      W total = 0;
#pragma unroll
      for (unsigned w = 0; w < sum_warps; ++w) total += shared[s][w][Slots::of_column(c)];
      of_chunk[(from + s) * cols + k * width + c] = total;
    }
    __syncthreads();
  };
  {
    Packet<W, count> sum[Lane::packets][sums] = {};
    for (std::size_t row = first + warp; row < last; row += sum_warps) {
      const W mean = centered ? body.means[row] : W(0), r = body.reciprocals[row];
      norm_backward_row<centered>(
          lane, cols, body.x + row * cols, body.dy + row * cols,
          added == nullptr ? nullptr : added + row * cols, weight, mean, r, dx + row * cols,
          [&](unsigned k, const auto& in, const auto& up) { Body::add(in, up, mean, r, sum[k]); });
    }
#pragma unroll
    for (unsigned k = 0; k < Lane::packets; ++k) {
      if (k * width >= cols) continue;  // alike in all threads
#pragma unroll
      for (unsigned s = 0; s < sums; ++s)
#pragma unroll
        for (unsigned i = 0; i < count; ++i) shared[s][warp][Slots::at(i, own)] = sum[k][s].at[i];
      reduce(k, 0, sums);
    }
  }
  if (places.to[sums] != nullptr) {
    // Each thread reads again what it has written: registers have no room for these sums beside the others.
    Packet<W, count> sum[Lane::packets] = {};
    for (std::size_t row = first + warp; row < last; row += sum_warps)
      lane.each([&](unsigned k, std::size_t c) {
        const auto numbers = widened(lane.read(dx + row * cols, c));
#pragma unroll
        for (unsigned i = 0; i < count; ++i) sum[k].at[i] += numbers.at[i];
      });
#pragma unroll
    for (unsigned k = 0; k < Lane::packets; ++k) {
      if (k * width >= cols) continue;
#pragma unroll
      for (unsigned i = 0; i < count; ++i) shared[0][warp][Slots::at(i, own)] = sum[k].at[i];
      reduce(k, sums, 1);
    }
  }
  finish_sums<W, sums + 1>(cuts, blockIdx.x, cols, 0, cols, partials, words, places);
}

/// Numbers of a norm from forward to backward: statistics of `count` kinds for each row and, behind them, words of zeros
/// for sums over rows.
template <class W>
struct NormAux {
  std::byte* data;
  std::size_t rows, cols, count;

  static constexpr std::size_t bytes(std::size_t rows, std::size_t cols, std::size_t count,
                                     std::size_t size) {
    return align_up(count * rows * size) + CudaChunks{rows}.word_bytes(cols);
  }
  W* statistics() const { return reinterpret_cast<W*>(data); }
  unsigned* words() const {
    return reinterpret_cast<unsigned*>(data + align_up(count * rows * sizeof(W)));
  }
  unsigned word_count() const {
    return static_cast<unsigned>(CudaChunks{rows}.word_bytes(cols) / sizeof(unsigned));
  }
};

template <unsigned most>
using NormPackets = std::integral_constant<unsigned, most>;

/// Calls launch(most, aligned); `most`, a constant, is the number of packets of a row kept in registers.
template <class T, class Launch, class... P>
void norm_launch(std::size_t cols, const Launch& launch, const P*... at) {
  constexpr unsigned count = packet_elems<T>;
  const bool aligned = cols % count == 0 && (packet_aligned<count>(at) && ...);
  if (aligned && cols <= norm_held_cols)
    launch(NormPackets<norm_held_cols / (warp_size * count)>(), aligned);
  else launch(NormPackets<0>(), aligned);
}

template <bool centered, class T>
void norm_forward(Cuda& cuda, const char* name, float epsilon, const Params<const Wide<T>>& params,
                  View<const T> x, View<T> y, Bytes aux) {
  const std::size_t rows = x.rows(), cols = x.cols();
  const NormAux<Wide<T>> lasting{aux.data(), rows, cols, centered ? 2 : 1};
  Wide<T>* const statistics = lasting.statistics();
  const Wide<T>*weight = params[0].data(), *bias = nullptr;
  if constexpr (centered) bias = params[1].data();
  norm_launch<T>(
      cols,
      [&](auto most, bool aligned) {
        cuda.launch(name, cuda_grid(rows, cuda_warps), cuda_threads,
                    &norm_forward_kernel<centered, most.value, T>, rows, cols, aligned,
                    static_cast<Wide<T>>(epsilon), x.data(), weight, bias, y.data(), statistics,
                    statistics + (centered ? rows : 0), lasting.words(), lasting.word_count());
      },
      x.data(), y.data(), weight, bias);
}

template <bool centered, class T>
void norm_backward(Cuda& cuda, const char* name, const BackwardCall<T>& call) {
  using W = Wide<T>;
  const View<const T> x = call.x, dy = call.dy;
  const View<T> dx = call.dx;
  const T* const added = call.added.data();
  const std::size_t rows = dy.rows(), cols = dy.cols();
  // Words become zeros again.
  const NormAux<W> lasting{const_cast<std::byte*>(call.aux.data()), rows, cols, centered ? 2 : 1};
  const W* const means = lasting.statistics();
  const W* const reciprocals = means + (centered ? rows : 0);
  const NormSumsBody<centered, T> body{x.data(), dy.data(), means, reciprocals, cols};
  W* const partials = reinterpret_cast<W*>(call.workspace.data());
  W *const dweight = call.dparams[0].data(), *dbias = nullptr;
  const W* const weight = call.params[0].data();
  SumPlaces<W, NormSumsBody<centered, T>::sums> places{{dweight}, {call.begins(0)}};
  if constexpr (centered) {
    places.to[1] = dbias = call.dparams[1].data();
    places.begins[1] = call.begins(1);
  }
  W* const columns = call.dx_sums;
  if constexpr (sizeof(T) == 2)
    if (dweight != nullptr && !dx.empty() && body.aligned() && cols <= norm_held_cols &&
        packet_aligned<body.count>(dx.data()) && packet_aligned<body.count>(added) &&
        packet_aligned<body.count>(weight)) {
      const SumCuts cuts = CudaChunks{rows}.cuts();
      SumPlaces<W, NormSumsBody<centered, T>::sums + 1> all{};
      for (unsigned s = 0; s < NormSumsBody<centered, T>::sums; ++s)
        all.to[s] = places.to[s], all.begins[s] = places.begins[s];
      all.to[NormSumsBody<centered, T>::sums] = columns;
      all.begins[NormSumsBody<centered, T>::sums] = call.dx_sums_begin;
      const auto launch = [&](auto most) {
        cuda.launch(name, cuts.chunks, sum_threads,
                    &norm_backward_sums_kernel<centered, most.value, T>, cuts,
                    static_cast<unsigned>(cols), body, added, weight, dx.data(), partials,
                    lasting.words(), all);
      };
      // Short rows leave registers for sums, which otherwise go through memory.
      if (cols <= 3 * warp_size * body.count) launch(NormPackets<3>());
      else launch(NormPackets<norm_held_cols / (warp_size * body.count)>());
      return;
    }
  // Before dx, which may overwrite dy.
  if (dweight != nullptr)
    add_column_sums<W>(cuda, name, rows, cols, body, partials, lasting.words(), places);
  else if (dbias != nullptr)
    add_column_sums<W>(cuda, name, rows, cols, MatrixBody<T>{dy.data(), cols}, partials,
                       lasting.words(), {{dbias}, {call.begins(1)}});
  if (dx.empty()) return;
  norm_launch<T>(
      cols,
      [&](auto most, bool aligned) {
        cuda.launch(name, cuda_grid(rows, cuda_warps), cuda_threads,
                    &norm_backward_kernel<centered, most.value, T>, rows, cols, aligned, x.data(),
                    dy.data(), added, weight, means, reciprocals, dx.data());
      },
      x.data(), dy.data(), added, dx.data(), weight);
  if (columns != nullptr)
    add_column_sums<W>(cuda, name, rows, cols, MatrixBody<T>{dx.data(), cols}, partials,
                       lasting.words(), {{columns}, {call.dx_sums_begin}});
}

}}}  // namespace adacc::v0_1::detail
