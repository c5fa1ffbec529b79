// SPDX-License-Identifier: MIT
/// A few bits per element by a block of threads (thread_block.hpp); the format is in
/// bit_groups.hpp.
///
/// Each thread has neighbouring lanes of a group, as many as their elements fill 16 bytes (4 lanes of floats), for
/// all 16 elements of a lane. So a thread reads and writes packets of 16 bytes of the tensor, with as many threads
/// side by side as a row of 32 elements has packets, and builds the words of the lanes in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "bit_groups.hpp"
#include "blob.hpp"
#include "float_bits.hpp"
#include "thread_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// How a block divides a tensor of T: into parts of `chunks` chunks.
template <int bits, class T, std::size_t threads>
struct BitParts {
  using Groups = BitGroups<bits>;
  static constexpr std::size_t lanes = Packet16<T>::size;  ///< per thread
  static constexpr std::size_t threads_per_group = Groups::lanes / lanes;
  static constexpr std::size_t threads_per_chunk =
      threads_per_group * (Groups::chunk / Groups::group);
  static_assert(threads % threads_per_chunk == 0);
  static constexpr std::size_t chunks = threads / threads_per_chunk;
  static constexpr std::size_t elements = chunks * Groups::chunk;
  using Words = SmallPacket<std::uint16_t, lanes>;

  /// Shared by the threads of an encoding block: how many elements do not fit, by chunk.
  struct Shared {
    std::uint32_t unfit[chunks];
  };

  ADACC_HD static constexpr std::size_t count(std::size_t n) { return div_up(n, elements); }

  // Where a thread works: the first element, and the first word, counted in u16 from group 0.
  ADACC_HD static constexpr std::size_t first_element(std::size_t part, std::size_t thread) {
    return part * elements + thread / threads_per_group * Groups::group +
           thread % threads_per_group * lanes;
  }
  ADACC_HD static constexpr std::size_t first_word(std::size_t part, std::size_t thread) {
    return (part * elements / Groups::group + thread / threads_per_group) * Groups::group_words +
           thread % threads_per_group * lanes;
  }
};

/// Encodes part `part` of a tensor of n elements at x.
template <class Element, class T, class Block>
ADACC_HD void bit_groups_encode_part(
    Block& block, typename BitParts<Element::bits, T, Block::threads>::Shared& shared,
    std::size_t part, std::size_t n, const T* x, const BlobHeader& header, std::byte* blob) {
  using Parts = BitParts<Element::bits, T, Block::threads>;
  using Groups = typename Parts::Groups;
  constexpr std::size_t lanes = Parts::lanes;
  std::byte* const marks = blob + Groups::marks_offset;
  std::byte* const words = blob + Groups::groups_offset(n);
  const std::size_t group_count = div_up(n, Groups::group);
  const std::size_t chunk_count = div_up(n, Groups::chunk);

  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    if (thread < Parts::chunks) shared.unfit[thread] = 0;
    if (part != 0) return;
    if (thread < 16) write_header_word(blob, header, me);
    const std::size_t padding =
        (Groups::groups_offset(n) - Groups::marks_offset) / 2 - chunk_count;  // less than 32
    if (thread < padding)
      store_packet(marks + 2 * (chunk_count + thread), SmallPacket<std::uint16_t, 1>{{0}});
  });

  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    const std::size_t first = Parts::first_element(part, thread);
    if (first / Groups::group >= group_count) return;
    // All 16 rows of the group are the tensor's, except in the last group.
    const bool whole = (first / Groups::group + 1) * Groups::group <= n;
    std::uint32_t unfit = 0;
    const auto pack = [&](auto known_whole) {
      std::uint32_t built[lanes] = {};  // lower half: the word being filled; upper half: overflow
      std::byte* to = words + 2 * Parts::first_word(part, thread);
      ADACC_UNROLL for (std::size_t j = 0; j < Groups::per_lane; ++j) {
        Packet16<T> in;
        if constexpr (decltype(known_whole)::value) {
          in = load_packet<Packet16<T>>(x + first + j * Groups::lanes);
        } else {
          ADACC_UNROLL for (std::size_t l = 0; l < lanes; ++l) {
            const std::size_t e = first + j * Groups::lanes + l;
            in.at[l] = e < n ? x[e] : bits_as<T>(typename BitPattern<T>::type{0});
          }
        }
        ADACC_UNROLL for (std::size_t l = 0; l < lanes; ++l) {
          const T element = in.at[l];
          unfit += Element::template fits<T>(element) ? 0U : 1U;
          built[l] |= std::uint32_t{Element::template encode<T>(element)} << Groups::shift_of(j);
        }
        if (Groups::shift_of(j) + Element::bits < 16) continue;
        typename Parts::Words out;
        ADACC_UNROLL for (std::size_t l = 0; l < lanes; ++l) {
          out.at[l] = static_cast<std::uint16_t>(built[l]);
          built[l] >>= 16;
        }
        store_packet(to + 2 * Groups::word_of(j) * Groups::lanes, out);
      }
    };
    if (whole) pack(std::true_type{});
    else pack(std::false_type{});
    if (unfit != 0) Block::add(shared.unfit[thread / Parts::threads_per_chunk], unfit);
  });

  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    const std::size_t chunk = part * Parts::chunks + thread;
    if (thread < Parts::chunks && chunk < chunk_count)
      store_packet(marks + 2 * chunk, SmallPacket<std::uint16_t, 1>{
                                          {static_cast<std::uint16_t>(shared.unfit[thread])}});
  });
}

/// Decodes part `part` of a tensor of n elements at x; NaN if the blob's header is another.
template <class Element, class T, class Block>
ADACC_HD void bit_groups_decode_part(Block& block, std::size_t part, std::size_t n,
                                     const BlobHeader& header, const std::byte* blob, T* x) {
  using Parts = BitParts<Element::bits, T, Block::threads>;
  using Groups = typename Parts::Groups;
  constexpr std::size_t lanes = Parts::lanes;
  const std::byte* const marks = blob + Groups::marks_offset;
  const std::byte* const words = blob + Groups::groups_offset(n);
  const std::size_t group_count = div_up(n, Groups::group);

  block.each([&](int me) {
    const auto thread = static_cast<std::size_t>(me);
    const std::size_t first = Parts::first_element(part, thread);
    if (first / Groups::group >= group_count) return;
    const auto mark =
        load_packet<SmallPacket<std::uint16_t, 1>>(marks + 2 * (first / Groups::chunk));
    const bool valid = header_is(blob, header) && mark.at[0] == 0;
    const bool whole = (first / Groups::group + 1) * Groups::group <= n;

    const std::byte* from = words + 2 * Parts::first_word(part, thread);
    typename Parts::Words in[Element::bits];
    ADACC_UNROLL for (std::size_t w = 0; w < Element::bits; ++w) in[w] =
        load_packet<typename Parts::Words>(from + 2 * w * Groups::lanes);
    ADACC_UNROLL for (std::size_t j = 0; j < Groups::per_lane; ++j) {
      Packet16<T> out;
      ADACC_UNROLL for (std::size_t l = 0; l < lanes; ++l) {
        std::uint32_t code = in[Groups::word_of(j)].at[l];
        if (Groups::straddles(j))
          code |= static_cast<std::uint32_t>(in[Groups::word_of(j) + 1].at[l]) << 16;
        code = code >> Groups::shift_of(j) & Groups::mask;
        out.at[l] =
            valid ? Element::template decode<T>(static_cast<std::uint16_t>(code)) : quiet_nan<T>();
      }
      const std::size_t e = first + j * Groups::lanes;
      if (whole) {
        stream_packet(x + e, out);
      } else {
        ADACC_UNROLL for (std::size_t l = 0; l < lanes; ++l) if (e + l < n) x[e + l] = out.at[l];
      }
    }
  });
}

}}}  // namespace adacc::v0_1::detail
