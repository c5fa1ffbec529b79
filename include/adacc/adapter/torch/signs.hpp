// SPDX-License-Identifier: MIT
/// One bit per element: the decision of ReLU's backward, or of leaky ReLU's, for every value.
///
/// Format: bit_groups.hpp with 1 bit. libtorch's ReLU stops the gradient where a value is at most 0, and lets the gradient
/// pass elsewhere, a NaN included; leaky ReLU scales the gradient unless a value is above 0, and a NaN is not above. A code
/// of 1 decodes to 1, and a code of 0 to 0: both backwards decide as they do for the value itself, infinities included. So
/// no encoding fails, and none has to be checked. (BitMask, for layers of this library, gives up 4096 elements for a
/// single infinity or NaN.)
#pragma once

#include <cstdint>

#include "../../codec/bit_groups.hpp"
#include "../../codec/bit_mask.hpp"
#include "../../codec/float_bits.hpp"
#include "../../codec/statistics.hpp"
#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// The code of a NaN is `OfNan`.
template <bool OfNan>
struct Sign {
  static constexpr int bits = 1;

  template <class T>
  ADACC_HD static constexpr bool fits(T) {
    return true;
  }
  template <class T>
  ADACC_HD static constexpr std::uint16_t encode(T x) {
    if (adacc::detail::is_nan(x)) return OfNan ? 1 : 0;
    // Read as integers, -0 and negative numbers are above infinity.
    const auto pattern = adacc::detail::pattern_of(x);
    return pattern != 0 && pattern <= adacc::detail::BitPattern<T>::infinity ? 1 : 0;
  }
  template <class T>
  ADACC_HD static constexpr T decode(std::uint16_t code) {
    return adacc::detail::IsPositive::decode<T>(code);
  }
  static constexpr void count_unfit(CodecStatistics&, std::uint64_t) {}
};

}  // namespace detail

struct ReluSigns : adacc::detail::BitGroupCodec<ReluSigns, detail::Sign<true>> {
  using Element = detail::Sign<true>;
  static constexpr const char* name = "relu_signs";
  static constexpr bool lossless = true;
  static constexpr bool keeps_values = false;
};
struct LeakyReluSigns : adacc::detail::BitGroupCodec<LeakyReluSigns, detail::Sign<false>> {
  using Element = detail::Sign<false>;
  static constexpr const char* name = "leaky_relu_signs";
  static constexpr bool lossless = true;
  static constexpr bool keeps_values = false;
};

}}}  // namespace adacc::v0_1::torch
