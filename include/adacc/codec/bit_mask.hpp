/// BitMask: one bit an element, whether it is positive; all that the backward of ReLU asks.
///
/// Format: bit_groups.hpp with 1 bit (codec "bit_mask"); an element's code is 1 if x > 0, otherwise
/// 0 (of -0 and negative numbers). It decodes to 1 and 0. So decoded values are not the tensor's,
/// but a reader that only asks whether x > 0 gets the same answer, and its backward the same bits:
/// that is the sense in which BitMask is lossless, and such readers are the only ones that may name
/// it. The derivative of ReLU is one, a kept dropout mask of zeros and scales another.
///
/// A chunk of 4096 elements that holds a NaN or an infinity decodes to NaN: a codec never hides
/// that something has gone wrong. statistics() says how many there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/bfloat16.hpp"
#include "../core/config.hpp"
#include "../core/cpu.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "bit_groups.hpp"
#include "float_bits.hpp"
#include "statistics.hpp"

namespace adacc::inline v0_1 {

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
    if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(code));
    else return static_cast<T>(code);
  }
};

}  // namespace detail

struct BitMask {
  static constexpr const char* name = "bit_mask";
  static constexpr bool lossless = true;
  static constexpr bool keeps_values = false;

  ADACC_HD static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols,
                                                      Dtype dtype) {
    return Codec::encoded_bytes(rows, cols, dtype);
  }
  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob) {
    return Codec::encode(name, cpu, x, blob);
  }
  template <class T>
  static Error decode(Cpu& cpu, ConstBytes blob, View<T> x) {
    return Codec::decode(name, cpu, blob, x);
  }

  /// elements and nonfinite; all zeros if `blob` is not one of such a tensor.
  static CodecStatistics statistics(ConstBytes blob, std::size_t rows, std::size_t cols,
                                    Dtype dtype) {
    CodecStatistics statistics;
    const std::uint64_t unfit = Codec::unfit(name, blob, rows, cols, dtype);
    if (unfit == static_cast<std::uint64_t>(-1)) return statistics;
    statistics.elements = rows * cols;
    statistics.nonfinite = unfit;
    return statistics;
  }

 private:
  using Codec = detail::BitGroupCodec<detail::IsPositive>;
};

}  // namespace adacc::inline v0_1
