// SPDX-License-Identifier: MIT
/// Rotary position embedding on a CUDA device.
///
/// A block of threads for each position, whose sines and cosines are computed once, for all heads and sequences. Angles
/// are formed in double, as on the host: in float, a late position would be turned by another angle.
#pragma once

#include <cmath>
#include <cstdint>

#include "../core/cuda.cuh"
#include "rotary_embedding.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// What a kernel is told of the heads. Pair i is turned by 2^(i `exponent`) half turns / pi from position to position.
struct RotaryShape {
  std::size_t entries, time, cols;
  std::uint32_t turned;   ///< heads of queries and keys, which come first
  std::uint32_t half;     ///< pairs of a head
  std::uint32_t packets;  ///< packets that half a head begins
  double exponent, direction;
};

/// write_packet() by an intrinsic function: nvcc 13.0 writes the plain one in pieces of 4 bytes here.
template <bool aligned, class T, unsigned count>
__device__ inline void write_rotated(T* to, const Packet<T, count>& packet, std::size_t left) {
  if constexpr (aligned) __stwb(reinterpret_cast<uint4*>(to), bits_as<uint4>(packet));
  else write_packet(to, packet, left, false);
}

/// Turns queries and keys, and copies values if `to` is elsewhere.
template <bool aligned, class T>
static __global__ void __launch_bounds__(cuda_threads)
    rotary_kernel(const RotaryShape shape, const T* from, T* to) {
  constexpr unsigned count = packet_elems<T>, most_packets = 16, most_pairs = most_packets * count;
  __shared__ Wide<T> cosines[most_pairs], sines[most_pairs];
  const std::size_t passed = std::size_t{2} * shape.turned * shape.half;  // channels before values
  for (std::size_t position = blockIdx.x; position < shape.time; position += gridDim.x) {
    for (std::uint32_t first = 0; first < shape.packets; first += most_packets) {
      const std::uint32_t packets =
          shape.packets - first < most_packets ? shape.packets - first : most_packets;
      __syncthreads();
      for (std::uint32_t i = threadIdx.x; i < packets * count; i += cuda_threads) {
        constexpr double reciprocal_pi = 0.31830988618379067154;
        const double angle = exp2(shape.exponent * (first * count + i)) * reciprocal_pi;
        double sine = 0, cosine = 0;
        sincospi(angle * static_cast<double>(position), &sine, &cosine);
        cosines[i] = static_cast<Wide<T>>(cosine);
        sines[i] = static_cast<Wide<T>>(sine * shape.direction);
      }
      __syncthreads();
      // Items of a sequence are packets of heads; threads go on from one sequence to the next.
      const std::uint32_t items = packets * shape.turned;
      std::uint32_t item = threadIdx.x % items;
      for (std::size_t entry = threadIdx.x / items; entry < shape.entries;) {
        const std::uint32_t head = item / packets, k = item - head * packets;
        const std::uint32_t pair = (first + k) * count, left = shape.half - pair;
        const std::size_t at = (entry * shape.time + position) * shape.cols +
                               std::size_t{2} * shape.half * head + pair;
        const auto a = widened(read_packet<count>(from + at, left, aligned));
        const auto b = widened(read_packet<count>(from + at + shape.half, left, aligned));
        Packet<Wide<T>, count> lower, upper;
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
          const Wide<T> cosine = cosines[k * count + i], sine = sines[k * count + i];
          lower.at[i] = a.at[i] * cosine - b.at[i] * sine;
          upper.at[i] = b.at[i] * cosine + a.at[i] * sine;
        }
        write_rotated<aligned>(to + at, narrowed<T>(lower), left);
        write_rotated<aligned>(to + at + shape.half, narrowed<T>(upper), left);
        item += cuda_threads;
        entry += item / items;
        item %= items;
      }
    }
    for (std::size_t entry = 0; from != to && entry < shape.entries; ++entry) {
      const std::size_t row = (entry * shape.time + position) * shape.cols;
      for (std::size_t c = passed + threadIdx.x * count; c < shape.cols; c += cuda_threads * count)
        write_rotated<aligned>(to + row + c,
                               read_packet<count>(from + row + c, shape.cols - c, aligned),
                               shape.cols - c);
    }
  }
}

}  // namespace detail

template <>
struct kernel<RotaryEmbedding, Cuda> {
  static constexpr LayerNeeds needs(const RotaryEmbedding& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (!needs.error && in.cols() > 0xFFFFFFFF)
      needs.error = Error::say("rotary_embedding on a CUDA device takes rows of at most ",
                               0xFFFFFFFF, " channels, and got ", in);
    if (!needs.error && f.norms)
      needs.error = Error::say(
          "rotary_embedding on a CUDA device does not normalize queries and keys (Qwen3): train "
          "such a "
          "network on the CPU");
    return needs;
  }

  template <class T>
  static void forward(const RotaryEmbedding& f, Cuda& cuda, const ForwardCall<T>& call) {
    turn(f, cuda, call.x, call.y, 1);
  }
  template <class T>
  static void backward(const RotaryEmbedding& f, Cuda& cuda, const BackwardCall<T>& call) {
    if (!call.dx.empty()) turn(f, cuda, call.dy, call.dx, -1);
  }

 private:
  template <class T>
  static void turn(const RotaryEmbedding& f, Cuda& cuda, View<const T> from, View<T> to,
                   double direction) {
    using namespace detail;
    constexpr unsigned count = packet_elems<T>;
    const Shape in = from.shape();
    const std::size_t half = f.head_size(in) / 2;
    RotaryShape shape{.entries = in[0], .time = in[1], .cols = in.cols()};
    shape.turned = static_cast<std::uint32_t>(f.heads + f.key_heads());
    shape.half = static_cast<std::uint32_t>(half);
    shape.packets = static_cast<std::uint32_t>(div_up(half, count));
    shape.exponent = -std::log2(f.base) / static_cast<double>(half);
    shape.direction = direction;
    const bool aligned =
        half % count == 0 && packet_aligned<count>(from.data()) && packet_aligned<count>(to.data());
    cuda.launch(RotaryEmbedding::name, cuda_grid(in[1], 1), cuda_threads,
                aligned ? &rotary_kernel<true, T> : &rotary_kernel<false, T>, shape, from.data(),
                to.data());
  }
};

}}  // namespace adacc::v0_1
