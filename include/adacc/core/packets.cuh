// SPDX-License-Identifier: MIT
/// How kernels of a CUDA device move tensors: in packets of consecutive elements, 16 bytes at once if pointers are
/// aligned.
///
/// A kernel bound by memory is as fast as its threads have bytes in flight, and an access of 16 bytes costs a
/// thread no more than one of 2. Results do not depend on how a packet was read: unaligned tensors, and the last
/// elements of a tensor, are read and written one by one, by the same thread with the same arithmetic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "config.hpp"
#include "dtype.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Threads of a block of most kernels.
inline constexpr unsigned cuda_threads = 256;

/// Blocks for `items` items, `per_block` per block; kernels loop, so any number of blocks will do.
inline unsigned cuda_grid(std::size_t items, std::size_t per_block = cuda_threads) {
  constexpr std::size_t most = std::size_t{1} << 20;
  const std::size_t blocks = div_up(items, per_block);
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// An element of a tensor in the type in which kernels compute.
template <class T>
__device__ inline Wide<T> widened(T x) {
  if constexpr (dtype_of<T> == Dtype::bf16) return to_float(x);
  else return x;
}

/// A number in the type of a tensor: bfloat16 is rounded to nearest by an instruction of the device, whose NaN
/// differs from the NaN of to_bfloat16().
template <class T>
__device__ inline T narrowed(Wide<T> x) {
  if constexpr (dtype_of<T> == Dtype::bf16) {
    bfloat16 narrow;
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#endif
    return narrow;
  } else {
    return x;
  }
}

/// The most bytes a thread reads or writes at once.
inline constexpr unsigned packet_bytes = 16;

/// Elements per packet for tensors of these types: 16 bytes of the widest type.
template <class... T>
inline constexpr unsigned packet_elems = [] {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return static_cast<unsigned>(packet_bytes / widest);
}();

template <class T, unsigned count>
struct Packet {
  T at[count];
};

/// The type in which a packet of `bytes` bytes is read and written at once.
template <std::size_t bytes>
struct PacketWords {
  static_assert(bytes % packet_bytes == 0, "adacc: a packet has 2, 4, 8 or a multiple of 16 bytes");
  struct alignas(packet_bytes) type {
    uint4 at[bytes / packet_bytes];
  };
};
template <>
struct PacketWords<2> {
  using type = std::uint16_t;
};
template <>
struct PacketWords<4> {
  using type = std::uint32_t;
};
template <>
struct PacketWords<8> {
  using type = uint2;
};
template <>
struct PacketWords<16> {
  using type = uint4;
};

/// Whether whole packets of `count` elements may be read at `at`.
template <unsigned count, class T>
ADACC_HD bool packet_aligned(const T* at) {
  constexpr std::size_t bytes = count * sizeof(T);
  return reinterpret_cast<std::uintptr_t>(at) % (bytes < packet_bytes ? bytes : packet_bytes) == 0;
}

/// Reads `count` elements at `from`, of which `left` exist. `whole` promises that all exist and are aligned: they are
/// read at once. Otherwise one by one, with T() for missing elements.
template <unsigned count, class T>
__device__ inline Packet<T, count> read_packet(const T* from, std::size_t left, bool whole) {
  using Words = typename PacketWords<count * sizeof(T)>::type;
  Packet<T, count> packet;
  if (whole) {
    packet = bits_as<Packet<T, count>>(*reinterpret_cast<const Words*>(from));
  } else {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) packet.at[i] = i < left ? from[i] : T();
  }
  return packet;
}
template <unsigned count, class T>
__device__ inline void write_packet(T* to, const Packet<T, count>& packet, std::size_t left,
                                    bool whole) {
  using Words = typename PacketWords<count * sizeof(T)>::type;
  if (whole) {
    *reinterpret_cast<Words*>(to) = bits_as<Words>(packet);
  } else {
#pragma unroll
    for (unsigned i = 0; i < count; ++i)
      if (i < left) to[i] = packet.at[i];
  }
}

/// Calls use(e, packet, whole) for the packets at `begin`, `begin` + `step` and so on, in order; `turns` of them are
/// in flight at a time. `whole` is as in read_packet().
template <unsigned turns, unsigned count, class T, class Use>
__device__ inline void each_packet(const T* from, std::size_t begin, std::size_t step,
                                   std::size_t elems, bool aligned, const Use& use) {
  std::size_t e = begin;
  if (aligned)
    for (; e + (turns - 1) * step + count <= elems; e += turns * step) {
      Packet<T, count> packets[turns];
#pragma unroll
      for (unsigned k = 0; k < turns; ++k)
        packets[k] = read_packet<count>(from + e + k * step, count, true);
#pragma unroll
      for (unsigned k = 0; k < turns; ++k) use(e + k * step, packets[k], true);
    }
  for (; e < elems; e += step) {
    const std::size_t left = elems - e;
    const bool whole = aligned && left >= count;
    use(e, read_packet<count>(from + e, left, whole), whole);
  }
}

template <class T, unsigned count>
__device__ inline Packet<Wide<T>, count> widened(const Packet<T, count>& packet) {
  Packet<Wide<T>, count> wide;
#pragma unroll
  for (unsigned i = 0; i < count; ++i) wide.at[i] = widened(packet.at[i]);
  return wide;
}
/// Two numbers as bfloat16, by one instruction; the first is in the lower half.
__device__ inline std::uint32_t narrowed_pair(float low, float high) {
  std::uint32_t pair = 0;
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}
template <class T, unsigned count>
__device__ inline Packet<T, count> narrowed(const Packet<Wide<T>, count>& wide) {
  if constexpr (dtype_of<T> == Dtype::bf16 && count % 2 == 0) {
    Packet<std::uint32_t, count / 2> pairs;
#pragma unroll
    for (unsigned i = 0; i < count; i += 2)
      pairs.at[i / 2] = narrowed_pair(wide.at[i], wide.at[i + 1]);
    return bits_as<Packet<T, count>>(pairs);
  } else {
    Packet<T, count> packet;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) packet.at[i] = narrowed<T>(wide.at[i]);
    return packet;
  }
}

template <class Body, class Out, class... In>
concept MapsPackets = requires(const Body& body, Out& out, const In&... in) {
  body.packet(std::size_t{}, out, in...);
};

template <class To, unsigned count, class Body, class... In>
__device__ inline Packet<To, count> map_packet(const Body& body, std::size_t e, const In&... in) {
  Packet<Wide<To>, count> out;
  if constexpr (MapsPackets<Body, Packet<Wide<To>, count>, In...>) {
    body.packet(e, out, in...);
  } else {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) out.at[i] = body(in.at[i]...);
  }
  return narrowed<To>(out);
}

/// to[e] = body(from[e]...) for all elements, in Wide<> numbers. A body with a member `packet` is called as
/// body.packet(e, to, from...) with packets from element e on.
template <unsigned count, class Body, class To, class... From>
static __global__ void __launch_bounds__(cuda_threads)
    map_kernel(std::size_t elems, bool aligned, const Body body, To* to, const From*... from) {
  const std::size_t packets = div_up(elems, count), step = std::size_t{gridDim.x} * cuda_threads;
  for (std::size_t p = std::size_t{blockIdx.x} * cuda_threads + threadIdx.x; p < packets;
       p += step) {
    const std::size_t e = p * count, left = elems - e;
    const bool whole = aligned && left >= count;
    write_packet(
        to + e,
        map_packet<To, count>(body, e, widened(read_packet<count>(from + e, left, whole))...), left,
        whole);
  }
}

}}}  // namespace adacc::v0_1::detail
