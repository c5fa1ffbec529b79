// SPDX-License-Identifier: MIT
/// The definition of a product of bf16 matrices, one step at a time.
///
/// Two elements next to one another in k are a pair. A sum takes a pair by two multiply-adds in fp32, the odd k first,
/// each rounded once to the nearest (ties to even). Denormal numbers are zeros: operands, sums, and results whose
/// magnitude after rounding is below the least normal one. The sign stays. So does AVX512_BF16's instruction, which
/// asks for no mode of the thread; kernels for other processors have the same bits. A NaN is a NaN, of any payload.
///
/// Here a multiply-add is computed without an instruction for it. A product of two bf16 has 16 bits, and no exponent
/// beyond double's. The sum in double is rounded to odd: to the neighbour whose last bit is 1, unless it is exact. Then
/// the rounding to fp32 is the only one to count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Denormal numbers become zeros of their sign.
constexpr float without_denormals(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  return bits_as<float>((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}

/// a b + sum, rounded once, for a and b of at most 8 bits; all three are without denormals.
constexpr float pair_multiply_add(float a, float b, float sum) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(sum), total = product + addend;
  const double back = total - product;
  const double error = (product - (total - back)) + (addend - back);
  auto bits = bits_as<std::uint64_t>(total);
  if ((error < 0 || error > 0) && (bits & 1) == 0)
    bits = (error > 0) == (total > 0) ? bits + 1 : bits - 1;
  const auto odd = bits_as<double>(bits);
  const double magnitude = odd < 0 ? -odd : odd;
  // A magnitude from here on rounds to the least normal one, if its exponent is not bounded below.
  constexpr double least_normal = 0x1p-126 - 0x1p-151;
  if (magnitude < least_normal)
    return bits_as<float>(static_cast<std::uint32_t>(bits >> 32) & 0x80000000);
  return static_cast<float>(odd);
}

/// The odd k of a pair.
constexpr float upper_of(std::uint32_t pair) {
  return without_denormals(bits_as<float>(pair & 0xFFFF0000));
}
/// The even k of a pair.
constexpr float lower_of(std::uint32_t pair) {
  return without_denormals(bits_as<float>(pair << 16));
}

/// A sum with one pair more.
constexpr float add_pair(float sum, std::uint32_t a, std::uint32_t b) {
  return pair_multiply_add(lower_of(a), lower_of(b),
                           pair_multiply_add(upper_of(a), upper_of(b), without_denormals(sum)));
}

/// The definition of AMX: 16 pairs, a block, at a time. The even k of a block have a sum of their own, the odd k another
/// one. Both begin with zero, and take their products in order, each by a multiply-add as above. The sum of both is added
/// to the element's sum. Rounding and denormal numbers are as above. The last block ends with zeros.
struct PairBlockSum {
  static constexpr std::size_t pairs = 16;

  float even = 0, odd = 0;

  constexpr void add(std::uint32_t a, std::uint32_t b) {
    even = pair_multiply_add(lower_of(a), lower_of(b), even);
    odd = pair_multiply_add(upper_of(a), upper_of(b), odd);
  }
  constexpr float added_to(float sum) const {
    return pair_multiply_add(1, without_denormals(sum), pair_multiply_add(1, even, odd));
  }
};

}}}  // namespace adacc::v0_1::detail
