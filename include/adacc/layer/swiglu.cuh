// SPDX-License-Identifier: MIT
/// SwiGLU on a CUDA device, with the formulas of swiglu.hpp.
#pragma once

#include "../core/cuda.cuh"
#include "cuda/functions.cuh"
#include "cuda/sums.cuh"
#include "swiglu.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A warp for each row, a packet of gates and one of gated values for each lane.
template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    swiglu_forward_kernel(std::size_t rows, std::size_t hidden, bool aligned, const T* x, T* y) {
  constexpr unsigned count = packet_elems<T>;
  const WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step)
#pragma unroll 2
    for (std::size_t c = at.lane * count; c < hidden; c += warp_size * count) {
      const std::size_t left = hidden - c;
      const T* const from = x + 2 * row * hidden + c;
      const auto gate = widened(read_packet<count>(from, left, aligned));
      const auto value = widened(read_packet<count>(from + hidden, left, aligned));
      Packet<Wide<T>, count> out;
#pragma unroll
      for (unsigned i = 0; i < count; ++i)
        out.at[i] = gate.at[i] * fast_sigmoid(gate.at[i]) * value.at[i];
      write_packet(y + row * hidden + c, narrowed<T>(out), left, aligned);
    }
}

template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    swiglu_backward_kernel(std::size_t rows, std::size_t hidden, bool aligned, const T* x,
                           const T* dy, T* dx) {
  constexpr unsigned count = packet_elems<T>;
  const WarpRows at;
  for (std::size_t row = at.row; row < rows; row += at.step)
    for (std::size_t c = at.lane * count; c < hidden; c += warp_size * count) {
      const std::size_t left = hidden - c, place = 2 * row * hidden + c;
      const auto gate = widened(read_packet<count>(x + place, left, aligned));
      const auto value = widened(read_packet<count>(x + place + hidden, left, aligned));
      const auto up = widened(read_packet<count>(dy + row * hidden + c, left, aligned));
      Packet<Wide<T>, count> of_gate, of_value;
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        const Wide<T> g = gate.at[i], s = fast_sigmoid(g), scaled = up.at[i] * s;
        of_gate.at[i] = scaled * value.at[i] * fma(g, 1 - s, 1.0F);
        of_value.at[i] = scaled * g;
      }
      write_packet(dx + place, narrowed<T>(of_gate), left, aligned);
      write_packet(dx + place + hidden, narrowed<T>(of_value), left, aligned);
    }
}

}  // namespace detail

template <>
struct kernel<SwiGlu, Cuda> {
  template <class T>
  static void forward(const SwiGlu&, Cuda& cuda, View<const T> x, View<T> y) {
    using namespace detail;
    cuda.launch(SwiGlu::name, cuda_grid(y.rows(), cuda_warps), cuda_threads,
                &swiglu_forward_kernel<T>, y.rows(), y.cols(),
                aligned(y.cols(), x.data(), y.data()), x.data(), y.data());
  }

  template <class T>
  static void backward(const SwiGlu&, Cuda& cuda, View<const T> x, View<const T> dy, View<T> dx) {
    using namespace detail;
    cuda.launch(SwiGlu::name, cuda_grid(dy.rows(), cuda_warps), cuda_threads,
                &swiglu_backward_kernel<T>, dy.rows(), dy.cols(),
                aligned(dy.cols(), x.data(), dy.data(), dx.data()), x.data(), dy.data(), dx.data());
  }

 private:
  /// Whether the rows of these are whole packets.
  template <class T, class... More>
  static bool aligned(std::size_t hidden, const T* at, const More*... more) {
    constexpr unsigned count = detail::packet_elems<T>;
    return hidden % count == 0 && detail::packet_aligned<count>(at) &&
           (detail::packet_aligned<count>(more) && ...);
  }
};

}}  // namespace adacc::v0_1
