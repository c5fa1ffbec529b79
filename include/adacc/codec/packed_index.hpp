// SPDX-License-Identifier: MIT
/// PackedIndexWith<bits>: small non-negative integers, 1 to 16 bits each instead of a float's 32.
///
/// For indices that are stored in a tensor: the position of the largest element in a pooling window, a category, a
/// bucket.
///
/// Format: bit_groups.hpp with `bits` bits (codec "packed_index_4" for 4 bits, and so on). The code of an element is
/// its value, from 0 to 2^bits - 1. Decoded values equal the encoded ones (-0 comes back as 0, which is equal).
///
/// A chunk of 4096 elements with any other element (too large, negative, a fraction, a NaN or an infinity) decodes to
/// NaN, so a wrong choice of bits shows at once and trains nothing. statistics() counts such elements as outliers
/// without a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/bfloat16.hpp"
#include "../core/config.hpp"
#include "bit_groups.hpp"
#include "float_bits.hpp"
#include "statistics.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <int index_bits>
struct SmallIndex {
  static constexpr int bits = index_bits;

  template <class T>
  ADACC_HD static constexpr bool fits(T x) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return fits(to_float(x));
    } else {
      using Word = typename BitPattern<T>::type;
      constexpr Word minus_zero = ~(static_cast<Word>(-1) >> 1);
      const Word pattern = pattern_of(x), index = pattern_of(static_cast<T>(truncated(x)));
      return (index == pattern) | (pattern == minus_zero);
    }
  }

  template <class T>
  ADACC_HD static constexpr std::uint16_t encode(T x) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return encode(to_float(x));
    } else {
      return static_cast<std::uint16_t>(truncated(x));
    }
  }

  template <class T>
  ADACC_HD static constexpr T decode(std::uint16_t code) {
    return rounded<T>(code);
  }

  static constexpr void count_unfit(CodecStatistics& statistics, std::uint64_t unfit) {
    statistics.outliers = statistics.unplaced = unfit;
  }

 private:
  /// The index without its fraction; 0 for numbers out of range and for -0: compared as integers, -0, negative
  /// numbers, infinities and NaNs are above every positive number. A mask, because g++ makes a branch of a choice
  /// that ends in a conversion.
  template <class T>
  ADACC_HD static constexpr std::int32_t truncated(T x) {
    using Word = typename BitPattern<T>::type;
    constexpr Word largest = pattern_of(static_cast<T>((1U << bits) - 1));
    const Word pattern = pattern_of(x);
    const Word in_range = Word{0} - static_cast<Word>(pattern <= largest);
    return static_cast<std::int32_t>(bits_as<T>(pattern & in_range));
  }
};

/// "packed_index_4"
struct PackedIndexName {
  char text[16] = "packed_index_";

  constexpr explicit PackedIndexName(int bits) {
    char* end = text + 13;
    if (bits >= 10) *end++ = static_cast<char>('0' + bits / 10);
    *end = static_cast<char>('0' + bits % 10);
  }
};

}  // namespace detail

template <int bits>
struct PackedIndexWith : detail::BitGroupCodec<PackedIndexWith<bits>, detail::SmallIndex<bits>> {
  static_assert(bits >= 1 && bits <= 16, "adacc: PackedIndexWith takes 1 to 16 bits");

 private:
  static constexpr detail::PackedIndexName text{bits};

 public:
  static constexpr const char* name = text.text;
  static constexpr bool lossless = true;
};

}}  // namespace adacc::v0_1
