// SPDX-License-Identifier: MIT
/// Kernels of layer norm and RMS norm on a CUDA device: a warp for each row.
///
/// Sums over a row are added over 32 lanes, by shuffles. Rows of whole packets and up to 1024 channels are read once
/// and stay in registers; others are read again from the cache, in the same order. The sums over rows for the
/// parameters' gradients are formed from the same reads if there is room (norm_sums.cuh), and otherwise by a kernel of
/// their own, in the same order again. RMS norm is layer norm around 0 instead of the mean, without a bias.
#pragma once

#include <type_traits>

#include "../../model/call.hpp"
#include "norm_sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

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

/// dx, which may be dy or `added`: each element is read before it is written, and by the same thread. The row `added` is
/// added unless null.
template <bool centered, unsigned most, class T>
static __global__ void __launch_bounds__(cuda_threads)
    norm_backward_kernel(std::size_t rows, std::size_t cols, bool aligned, const T* x, const T* dy,
                         const T* added, const Wide<T>* weight, const Wide<T>* means,
                         const Wide<T>* reciprocals, T* dx) {
  using W = Wide<T>;
  constexpr unsigned count = NormLane<most, T>::count, packets = NormLane<most, T>::packets;
  const WarpRows at;
  const NormLane<most, T> lane(cols, aligned, at.lane);
  for (std::size_t row = at.row; row < rows; row += at.step) {
    const T *const in = x + row * cols, *const up = dy + row * cols;
    NormSlopes<W> slopes{centered ? means[row] : W(0), reciprocals[row]};
    Packet<T, count> kept[packets], kept_up[packets];
    lane.keep(in, kept);
    lane.keep(up, kept_up);
    lane.each([&](unsigned k, std::size_t c) {
      slopes.add(lane.get(in, kept, k, c), lane.get(up, kept_up, k, c), lane.read(weight, c));
    });
    slopes.template finish<centered>(static_cast<W>(cols));
    lane.each([&](unsigned k, std::size_t c) {
      Packet<T, count> more{};
      if (added != nullptr) more = lane.read(added + row * cols, c);
      lane.write(dx + row * cols, c,
                 slopes.of(lane.get(in, kept, k, c), lane.get(up, kept_up, k, c),
                           lane.read(weight, c), widened(more)));
    });
  }
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
    if (dweight != nullptr && !dx.empty()) {
      SumPlaces<W, NormSumsBody<centered, T>::sums + 1> all{};
      for (unsigned k = 0; k < body.sums; ++k)
        all.to[k] = places.to[k], all.begins[k] = places.begins[k];
      all.to[body.sums] = columns, all.begins[body.sums] = call.dx_sums_begin;
      if (norm_backward_with_sums<centered>(cuda, name, rows, cols, body, added, weight, dx.data(),
                                            partials, lasting.words(), all))
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
