// SPDX-License-Identifier: MIT
/// A few bits per element, packed so that compilers and GPUs need no shuffles: the common part of BitMask and
/// PackedIndex.
///
/// Elements are numbered row-major, e = row * columns + column. 512 of them are a group, 4096 a
/// chunk. n elements of b bits (1 to 16) make this blob:
///
///     offset        bytes             contents
///     0             64                header (blob.hpp)
///     64            2 * ceil(n/4096)  u16 mark of each chunk: how many of the elements the codec cannot
///                                     represent; if not 0, the whole chunk decodes to NaN
///     M             p                 zeros, up to a multiple of 64; M = the end of the marks
///     G             64 * b            group 0; G = the end of the zeros
///     G + 64*b*g    64 * b            group g, up to ceil(n/512) groups
///
/// A group is b times 32 words of u16. Element i = 32 * j + l of the group is in lane l, at bits j * b to
/// j * b + b - 1 of the lane's 16 * b bits. Word w (at 64 * w + 2 * l of the group) holds bits 16 * w to 16 * w + 15
/// of the lane, the lowest first. Codes of elements beyond n are zeros.
///
/// So 32 neighbours shift by the same amount and go into 32 neighbouring words: the width of one register, or of one
/// warp. (Bits in the order of the elements would need a shuffle or a multiplication for every eight.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "../core/cpu.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/vector_target.hpp"
#include "../core/view.hpp"
#include "blob.hpp"
#include "float_bits.hpp"
#include "spans.hpp"
#include "statistics.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Offsets in a blob of n elements of `bits` bits.
template <int bits>
struct BitGroups {
  static_assert(bits >= 1 && bits <= 16);

  static constexpr std::size_t lanes = 32;
  static constexpr std::size_t per_lane = 16;
  static constexpr std::size_t group = lanes * per_lane;
  static constexpr std::size_t chunk = 8 * group;
  static constexpr std::size_t group_words = lanes * bits;
  static constexpr std::uint16_t mask = static_cast<std::uint16_t>((1U << bits) - 1);
  static_assert(elements_per_tile % chunk == 0);

  static constexpr std::size_t marks_offset = blob_header_bytes;
  ADACC_HD static constexpr std::size_t groups_offset(std::size_t n) {
    return align_up(marks_offset + 2 * div_up(n, chunk));
  }
  /// n is at most 2^60.
  ADACC_HD static constexpr std::size_t bytes(std::size_t n) {
    return groups_offset(n) + 2 * group_words * div_up(n, group);
  }

  // Element j of a lane begins in word word_of(j), at bit shift_of(j); if the element straddles, the rest is in the
  // next word.
  ADACC_HD static constexpr std::size_t word_of(std::size_t j) { return j * bits / 16; }
  ADACC_HD static constexpr int shift_of(std::size_t j) { return static_cast<int>(j * bits % 16); }
  ADACC_HD static constexpr bool straddles(std::size_t j) { return shift_of(j) + bits > 16; }
};

ADACC_TARGET_CODE_BEGIN
/// Writes the codes of n elements; returns how many elements do not fit.
template <class Element, class T>
std::uint32_t codes_of(std::size_t n, const T* __restrict x, std::uint16_t* __restrict codes) {
  std::uint32_t unfit = 0;
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = Element::template encode<T>(x[i]);
    unfit += Element::template fits<T>(x[i]) ? 0U : 1U;
  }
  return unfit;
}

template <int bits>
void pack_group(const std::uint16_t* __restrict codes, std::uint16_t* __restrict words) {
  using Groups = BitGroups<bits>;
  for (std::size_t j = 0; j < Groups::per_lane; ++j) {
    const std::uint16_t* from = codes + j * Groups::lanes;
    std::uint16_t* to = words + Groups::word_of(j) * Groups::lanes;
    const int shift = Groups::shift_of(j);
    if (shift == 0)
      for (std::size_t l = 0; l < Groups::lanes; ++l) to[l] = from[l];
    else
      for (std::size_t l = 0; l < Groups::lanes; ++l)
        to[l] = static_cast<std::uint16_t>(to[l] | from[l] << shift);
    if (Groups::straddles(j))
      for (std::size_t l = 0; l < Groups::lanes; ++l)
        to[Groups::lanes + l] = static_cast<std::uint16_t>(from[l] >> (16 - shift));
  }
}

/// Decodes one element of each lane: the lower bits are in `word`, from `shift` on, the rest in `next`.
template <class Element, class T>
void unpack_lanes(const std::uint16_t* __restrict word, const std::uint16_t* __restrict next,
                  int shift, T* __restrict x) {
  using Groups = BitGroups<Element::bits>;
  for (std::size_t l = 0; l < Groups::lanes; ++l) {
    const std::uint32_t both = std::uint32_t{word[l]} | std::uint32_t{next[l]} << 16;
    x[l] = Element::template decode<T>(static_cast<std::uint16_t>(both >> shift & Groups::mask));
  }
}

template <class Element, class T>
void unpack_group(const std::uint16_t* __restrict words, T* __restrict x) {
  using Groups = BitGroups<Element::bits>;
  for (std::size_t j = 0; j < Groups::per_lane; ++j) {
    const std::uint16_t* word = words + Groups::word_of(j) * Groups::lanes;
    // If the element does not straddle, the mask hides the next word, and any word will do.
    const std::uint16_t* next = Groups::straddles(j) ? word + Groups::lanes : word;
    unpack_lanes<Element>(word, next, Groups::shift_of(j), x + j * Groups::lanes);
  }
}

/// n elements, at most a chunk, are packed, those that do not fit counted.
template <class Element, class T>
void encode_chunk(std::size_t n, const T* x, std::uint16_t* words, std::uint32_t& unfit) {
  using Groups = BitGroups<Element::bits>;
  alignas(alignment) std::uint16_t codes[Groups::group];
  unfit = 0;
  for (; n >= Groups::group; n -= Groups::group) {
    unfit += codes_of<Element>(Groups::group, x, codes);
    pack_group<Element::bits>(codes, words);
    x += Groups::group;
    words += Groups::group_words;
  }
  if (n != 0) {
    std::memset(codes, 0, sizeof codes);
    unfit += codes_of<Element>(n, x, codes);
    pack_group<Element::bits>(codes, words);
  }
}

template <class Element, class T>
void decode_chunk(std::size_t n, const std::uint16_t* words, T* x) {
  using Groups = BitGroups<Element::bits>;
  for (; n >= Groups::group; n -= Groups::group) {
    unpack_group<Element>(words, x);
    x += Groups::group;
    words += Groups::group_words;
  }
  if (n != 0) {
    alignas(alignment) T last[Groups::group];
    unpack_group<Element>(words, last);
    std::memcpy(x, last, n * sizeof(T));
  }
}
ADACC_TARGET_CODE_END

/// The base of Codec, which has a name. Elements are coded one by one, by an Element with
///
///     static constexpr int bits;
///     template <class T> ADACC_HD static constexpr bool fits(T x);
///     template <class T> ADACC_HD static constexpr std::uint16_t encode(T x);  // 0 if x does not fit
///     template <class T> ADACC_HD static constexpr T decode(std::uint16_t code);
///     static constexpr void count_unfit(CodecStatistics& statistics, std::uint64_t unfit);
template <class Codec, class Element>
class BitGroupCodec {
  using Groups = BitGroups<Element::bits>;

 public:
  ADACC_HD static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols,
                                                      Dtype dtype) {
    const std::size_t n = codable_elements(rows, cols, dtype);
    return n == 0 ? 0 : Groups::bytes(n);
  }

  static constexpr std::size_t split_items(std::size_t rows, std::size_t cols) {
    return span_count(rows, cols);
  }
  static constexpr std::size_t item_elements(std::size_t) { return elements_per_tile; }

  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob, Part part = {}) {
    const std::size_t rows = x.rows(), cols = x.cols(), n = x.size();
    const std::size_t bytes = encoded_bytes(rows, cols, dtype_of<T>);
    if (Error error = check_encode(Codec::name, x, blob, bytes)) return error;

    write_blob_header(blob.data(), Codec::name, dtype_of<T>, rows, cols);
    const std::size_t marks_end = Groups::marks_offset + 2 * div_up(n, Groups::chunk);
    std::memset(blob.data() + marks_end, 0, Groups::groups_offset(n) - marks_end);
    auto* marks = words_at(blob, Groups::marks_offset);
    auto* words = words_at(blob, Groups::groups_offset(n));
    for_each_chunk(cpu, n, part, [&](std::size_t first, std::size_t count) {
      std::uint32_t unfit = 0;
      call_at_level<encode_chunk<Element, T>>(
          count, x.data() + first, words + first / Groups::group * Groups::group_words, unfit);
      marks[first / Groups::chunk] = static_cast<std::uint16_t>(unfit);
    });
    return {};
  }

  template <class T>
  static Error decode(Cpu& cpu, ConstBytes blob, View<T> x, Part part = {}) {
    const std::size_t n = x.size();
    const std::size_t bytes = encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_decode(Codec::name, blob, x, bytes)) return error;

    const auto* marks = words_at(blob, Groups::marks_offset);
    const auto* words = words_at(blob, Groups::groups_offset(n));
    for_each_chunk(cpu, n, part, [&](std::size_t first, std::size_t count) {
      T* out = x.data() + first;
      if (marks[first / Groups::chunk] != 0)
        for (std::size_t i = 0; i < count; ++i) out[i] = quiet_nan<T>();
      else
        call_at_level<decode_chunk<Element, T>>(
            count, words + first / Groups::group * Groups::group_words, out);
    });
    return {};
  }

  /// The number of elements, and of those that the codec cannot represent; all zeros if `blob` is no blob of such a
  /// tensor.
  static CodecStatistics statistics(ConstBytes blob, std::size_t rows, std::size_t cols,
                                    Dtype dtype) {
    const std::size_t bytes = encoded_bytes(rows, cols, dtype);
    // The size is one of the checks; here g++ sees it, and does not warn of reads past the end.
    if (blob.size() != bytes || check_blob(blob, Codec::name, dtype, rows, cols, bytes)) return {};
    const Pieces marks = watched(rows, cols, dtype);
    return seen(blob.data() + marks.first, marks.stride, rows, cols);
  }

  /// The marks of the chunks.
  static constexpr Pieces watched(std::size_t rows, std::size_t cols, Dtype) {
    return {Groups::marks_offset, 2, 2, div_up(rows * cols, Groups::chunk)};
  }
  static CodecStatistics seen(const std::byte* marks, std::size_t stride, std::size_t rows,
                              std::size_t cols) {
    CodecStatistics statistics;
    std::uint64_t unfit = 0;
    for (std::size_t chunk = 0; chunk < div_up(rows * cols, Groups::chunk); ++chunk) {
      std::uint16_t mark;
      std::memcpy(&mark, marks + stride * chunk, sizeof mark);
      unfit += mark;
    }
    statistics.elements = rows * cols;
    Element::count_unfit(statistics, unfit);
    return statistics;
  }

 private:
  static std::uint16_t* words_at(Bytes blob, std::size_t offset) {
    return static_cast<std::uint16_t*>(static_cast<void*>(blob.data() + offset));
  }
  static const std::uint16_t* words_at(ConstBytes blob, std::size_t offset) {
    return static_cast<const std::uint16_t*>(static_cast<const void*>(blob.data() + offset));
  }

  template <class Chunk>
  static void for_each_chunk(const Cpu& cpu, std::size_t n, Part part, const Chunk& chunk) {
    for_each_span(cpu, n, part, [&](std::size_t first, std::size_t count) {
      for (std::size_t done = 0; done < count; done += Groups::chunk) {
        const std::size_t left = count - done;
        chunk(first + done, left < Groups::chunk ? left : Groups::chunk);
      }
    });
  }
};

}}}  // namespace adacc::v0_1::detail
