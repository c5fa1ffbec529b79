// SPDX-License-Identifier: MIT
/// BitMask: one bit an element, whether it is positive; all that the backward of ReLU asks.
///
/// Format: bit_groups.hpp with 1 bit (codec "bit_mask"); an element's code is 1 if x > 0, otherwise
/// 0 (of -0 and negative numbers). It decodes to 1 and 0. So decoded values are not the tensor's,
/// but a reader that only asks whether x > 0 gets the same answer, and its backward the same bits:
/// that is the sense in which BitMask is lossless, and such readers are the only ones that may name
/// it. The derivative of ReLU is one, a kept dropout mask of zeros and scales another.
///
/// A chunk of 4096 elements that holds a NaN or an infinity decodes to NaN: a codec never hides
/// that something has gone wrong. statistics() counts them as nonfinite.
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
    // As integers, -0 and negative numbers are above infinity.
    const auto pattern = pattern_of(x);
    return pattern != 0 && pattern < BitPattern<T>::infinity ? 1 : 0;
  }

  template <class T>
  ADACC_HD static constexpr T decode(std::uint16_t code) {
    // All bits of a code of 1: a mask that selects.
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
