// SPDX-License-Identifier: MIT
/// BitMask: one bit per element, whether it is positive; enough for the backward of ReLU.
///
/// Format: bit_groups.hpp with 1 bit (codec "bit_mask"). The code of an element is 1 if x > 0, otherwise 0 (for -0,
/// too), and decodes to 1 or 0. So decoded values are not the tensor's, but a reader that only tests x > 0 gets the
/// same answer, and its backward the same bits. In this sense BitMask is lossless, and only such readers may name it:
/// the derivative of ReLU is one, dropout with a kept mask of zeros and scales another.
///
/// A chunk of 4096 elements with a NaN or an infinity decodes to NaN: a codec never hides that a computation has gone
/// wrong. statistics() counts such elements as nonfinite.
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

struct IsPositive {
  static constexpr int bits = 1;

  template <class T>
  ADACC_HD static constexpr bool fits(T x) {
    return is_number(x);
  }

  template <class T>
  ADACC_HD static constexpr std::uint16_t encode(T x) {
    // Read as integers, -0 and negative numbers are above infinity.
    const auto pattern = pattern_of(x);
    return pattern != 0 && pattern < BitPattern<T>::infinity ? 1 : 0;
  }

  template <class T>
  ADACC_HD static constexpr T decode(std::uint16_t code) {
    // All bits are set for a code of 1: a mask that selects.
    constexpr std::uint16_t one = to_bfloat16(1.0F).bits;
    if constexpr (std::is_same_v<T, bfloat16>)
      return {static_cast<std::uint16_t>((0U - code) & one)};
    else return static_cast<T>(code);
  }

  static constexpr void count_unfit(CodecStatistics& statistics, std::uint64_t unfit) {
    statistics.nonfinite = unfit;
  }
};

}  // namespace detail

struct BitMask : detail::BitGroupCodec<BitMask, detail::IsPositive> {
  static constexpr const char* name = "bit_mask";
  static constexpr bool lossless = true;
  static constexpr bool keeps_values = false;
};

}}  // namespace adacc::v0_1
