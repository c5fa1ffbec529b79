// SPDX-License-Identifier: MIT
/// A lane's part of a row of layer norm or RMS norm on a CUDA device, and the formula of dx.
#pragma once

#include <cstddef>

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

/// dx of a row, from two sums over it: with g = dy w and the normalized row n = (x - mean) r,
/// dx = r (g - mean(g) - n mean(g n)); for RMS norm, whose mean is 0, without mean(g).
template <class W>
struct NormSlopes {
  W mean, reciprocal;
  W sum = 0, product = 0;  ///< of a lane: of g, of g (x - mean)
  W mean_slope = 0, scale = 0;

  /// Adds a packet. Weights of 0 stand where there is no element.
  template <unsigned count>
  __device__ void add(const Packet<W, count>& x, const Packet<W, count>& dy,
                      const Packet<W, count>& weight) {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      sum = fma(dy.at[i], weight.at[i], sum);
      product = fma(dy.at[i] * weight.at[i], x.at[i] - mean, product);
    }
  }
  /// Adds up the sums of a warp.
  template <bool centered>
  __device__ void finish(W size) {
    mean_slope = centered ? warp_sum(sum) / size : W(0);
    scale = reciprocal * (warp_sum(product) * reciprocal / size);
  }
  /// A packet of dx, added to `out`.
  template <unsigned count>
  __device__ Packet<W, count> of(const Packet<W, count>& x, const Packet<W, count>& dy,
                                 const Packet<W, count>& weight, Packet<W, count> out) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const W g = fma(dy.at[i], weight.at[i], -mean_slope);
      out.at[i] = fma(fma(mean - x.at[i], scale, g), reciprocal, out.at[i]);
    }
    return out;
  }
};

}}}  // namespace adacc::v0_1::detail
