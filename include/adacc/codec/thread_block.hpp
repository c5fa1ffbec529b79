// SPDX-License-Identifier: MIT
/// How CUDA twins of codecs are written: as phases of a block of threads, in code that also runs on the host.
///
/// An algorithm of a thread block is a function template over a Block. Each call of each() is a phase between two
/// barriers; values that a thread keeps for the next phase are in a PerThread. On the device (thread_block.cuh) a
/// phase is straight code, a PerThread a thread's registers. A test on the host runs the threads of a phase one after
/// the other, in several orders: machines without a GPU compare the very source of the GPU's bytes with the CPU's
/// codec. Under the thread sanitizer the threads are fibers, and a race within a phase is reported.
///
///     static constexpr int threads;                  // of a block
///     template <class R> struct PerThread;           // R& operator[](int thread)
///     void each(f);                                  // f(thread) by all threads; a barrier
///     bool any(f);                                   // is f(thread) true for any? a barrier
///     void exclusive_sum(value, use);                // use(thread, sum of value(t), t < thread,
///                                                    // sum of all), u32; a barrier
///     static std::uint32_t add(std::uint32_t&, by);        // atomic, on shared or global memory: the number before
///     static void minimum(int32&, int32), maximum(…);      // atomic, also of std::uint32_t
///     static bool last(std::uint32_t& arrived, n);   // see below
///     void lanes<width>(values, combine);            // see below
///
/// last: called by one thread of each of n blocks, on one word of global memory that is 0 before and afterwards; true
/// in the last block. After the next barrier this block sees the writes of the others before their calls.
///
/// lanes<width>: rows of `width` neighbouring threads (a power of two, at most 32) reduce values(thread), an array in
/// each thread's registers, element by element; all threads get the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/config.hpp"
#include "blob.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// 16 bytes, moved by one thread at a time.
template <class T>
struct alignas(16) Packet16 {
  static constexpr std::size_t size = 16 / sizeof(T);
  T at[16 / sizeof(T)];
};

/// N elements that a thread moves at a time: 1, 2, 4, 8 or 16 bytes.
template <class T, std::size_t N>
struct alignas(sizeof(T) * N) SmallPacket {
  T at[N];
};

#if defined(__CUDA_ARCH__)
template <std::size_t bytes>
struct DeviceWord;
template <>
struct DeviceWord<1> {
  using type = unsigned char;
};
template <>
struct DeviceWord<2> {
  using type = unsigned short;
};
template <>
struct DeviceWord<4> {
  using type = unsigned int;
};
template <>
struct DeviceWord<8> {
  using type = uint2;
};
template <>
struct DeviceWord<16> {
  using type = uint4;
};
#endif

/// Loads a Packet, in one load on the device; `from` is aligned to the size of a Packet.
template <class Packet>
ADACC_HD inline Packet load_packet(const void* from) {
#if defined(__CUDA_ARCH__)
  using Word = typename DeviceWord<sizeof(Packet)>::type;
  return bits_as<Packet>(*static_cast<const Word*>(from));
#else
  Packet packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
#endif
}

/// Stores a Packet, in one store on the device; `to` is aligned to the size of a Packet.
template <class Packet>
ADACC_HD inline void store_packet(void* to, const Packet& packet) {
#if defined(__CUDA_ARCH__)
  using Word = typename DeviceWord<sizeof(Packet)>::type;
  *static_cast<Word*>(to) = bits_as<Word>(packet);
#else
  std::memcpy(to, &packet, sizeof packet);
#endif
}

/// Stores a Packet to global memory that is not read again soon. The compiler may split a plain store into elements
/// if another branch writes these one by one, but not this store.
template <class Packet>
ADACC_HD inline void stream_packet(void* to, const Packet& packet) {
#if defined(__CUDA_ARCH__)
  using Word = typename DeviceWord<sizeof(Packet)>::type;
  __stcs(static_cast<Word*>(to), bits_as<Word>(packet));
#else
  store_packet(to, packet);
#endif
}

/// Whether a blob begins with this header. If not, kernels write NaN: an error would make the host wait.
ADACC_HD inline bool header_is(const std::byte* blob, const BlobHeader& expected) {
  struct alignas(16) Quarter {
    std::uint32_t word[4];
  };
  struct Header {
    Quarter quarter[4];
  };
  const Header wanted = bits_as<Header>(expected);
  bool same = true;
  for (int q = 0; q < 4; ++q) {
    const Quarter found = load_packet<Quarter>(blob + 16 * q);
    for (int w = 0; w < 4; ++w) same = same && found.word[w] == wanted.quarter[q].word[w];
  }
  return same;
}

/// Whether a blob begins with this header, asked by a block of threads: 16 threads compare a word each.
template <class Block>
ADACC_HD bool header_is(Block& block, const std::byte* blob, const BlobHeader& expected) {
  using Word = SmallPacket<std::uint32_t, 1>;
  const auto* const wanted = static_cast<const std::byte*>(static_cast<const void*>(&expected));
  return !block.any([&](int me) {
    return me < 16 &&
           load_packet<Word>(blob + 4 * me).at[0] != load_packet<Word>(wanted + 4 * me).at[0];
  });
}

/// Writes one of the 16 words of a blob's header. (A kernel that has the header as a parameter declares it
/// __grid_constant__: otherwise each thread makes a copy to choose a word from.)
ADACC_HD inline void write_header_word(std::byte* blob, const BlobHeader& header, int word) {
  using Word = SmallPacket<std::uint32_t, 1>;
  const auto* const words = static_cast<const std::byte*>(static_cast<const void*>(&header));
  store_packet(blob + 4 * word, load_packet<Word>(words + 4 * word));
}

}}}  // namespace adacc::v0_1::detail
