// SPDX-License-Identifier: MIT
/// Bf16 by a block of threads (thread_block.hpp); the format is in bf16.hpp.
///
/// A block of threads processes one part at a time. Neighbouring threads take neighbouring packets of 16 bytes of the
/// tensor, so each access of a warp is one stretch of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "bf16.hpp"
#include "blob.hpp"
#include "float_bits.hpp"
#include "thread_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
struct Bf16Parts {
  static constexpr std::size_t unroll = 4;  ///< packets in flight per thread
  static constexpr std::size_t packet = Packet16<T>::size;
  using Codes = SmallPacket<std::uint16_t, packet>;

  ADACC_HD static constexpr std::size_t elements(std::size_t threads) {
    return unroll * packet * threads;
  }
  ADACC_HD static constexpr std::size_t count(std::size_t n, std::size_t threads) {
    return div_up(n, elements(threads));
  }
};

/// Encodes part `part` of a tensor of n elements at x into a blob of `bytes` bytes.
template <class T, class Block>
ADACC_HD void bf16_encode_part(Block& block, std::size_t part, std::size_t n, const T* x,
                               const BlobHeader& header, std::size_t bytes, std::byte* blob) {
  using Parts = Bf16Parts<T>;
  constexpr std::size_t threads = Block::threads, size = Parts::packet;
  const std::size_t first = part * Parts::elements(threads);
  std::byte* codes = blob + blob_header_bytes;
  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    if (first + Parts::elements(threads) <= n) {
      Packet16<T> in[Parts::unroll];
      ADACC_UNROLL for (std::size_t u = 0; u < Parts::unroll; ++u) in[u] =
          load_packet<Packet16<T>>(x + first + (u * threads + thread) * size);
      ADACC_UNROLL for (std::size_t u = 0; u < Parts::unroll; ++u) {
        typename Parts::Codes out;
        ADACC_UNROLL for (std::size_t i = 0; i < size; ++i) out.at[i] = bf16_code(in[u].at[i]);
        store_packet(codes + 2 * (first + (u * threads + thread) * size), out);
      }
    } else {
      for (std::size_t e = first + thread; e < n; e += threads)
        store_packet(codes + 2 * e, SmallPacket<std::uint16_t, 1>{{bf16_code(x[e])}});
      const std::size_t padding = (bytes - blob_header_bytes) / 2 - n;  // less than 32
      if (thread < padding)
        store_packet(codes + 2 * (n + thread), SmallPacket<std::uint16_t, 1>{{0}});
    }
    if (part == 0) {
      if (thread < 16) write_header_word(blob, header, me);
      // If the last part is full, no thread has reached the padding.
      const std::size_t padding = (bytes - blob_header_bytes) / 2 - n;
      if (n % Parts::elements(threads) == 0 && thread < padding)
        store_packet(codes + 2 * (n + thread), SmallPacket<std::uint16_t, 1>{{0}});
    }
  });
}

/// Decodes part `part` of a tensor of n elements at x; NaN if the blob's header is another.
template <class T, class Block>
ADACC_HD void bf16_decode_part(Block& block, std::size_t part, std::size_t n,
                               const BlobHeader& header, const std::byte* blob, T* x) {
  using Parts = Bf16Parts<T>;
  constexpr std::size_t threads = Block::threads, size = Parts::packet;
  const std::size_t first = part * Parts::elements(threads);
  const std::byte* codes = blob + blob_header_bytes;
  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    const bool valid = header_is(blob, header);
    if (first + Parts::elements(threads) <= n) {
      typename Parts::Codes in[Parts::unroll];
      ADACC_UNROLL for (std::size_t u = 0; u < Parts::unroll; ++u) in[u] =
          load_packet<typename Parts::Codes>(codes + 2 * (first + (u * threads + thread) * size));
      ADACC_UNROLL for (std::size_t u = 0; u < Parts::unroll; ++u) {
        Packet16<T> out;
        ADACC_UNROLL for (std::size_t i = 0; i < size; ++i) out.at[i] =
            valid ? bf16_value<T>(in[u].at[i]) : quiet_nan<T>();
        store_packet(x + first + (u * threads + thread) * size, out);
      }
    } else {
      for (std::size_t e = first + thread; e < n; e += threads) {
        const auto code = load_packet<SmallPacket<std::uint16_t, 1>>(codes + 2 * e);
        x[e] = valid ? bf16_value<T>(code.at[0]) : quiet_nan<T>();
      }
    }
  });
}

}}}  // namespace adacc::v0_1::detail
