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

/// A sum with one pair more: the odd k in the upper halves, the even k in the lower ones.
constexpr float add_pair(float sum, std::uint32_t a, std::uint32_t b) {
  const auto upper = [](std::uint32_t pair) {
    return without_denormals(bits_as<float>(pair & 0xFFFF0000));
  };
  const auto lower = [](std::uint32_t pair) {
    return without_denormals(bits_as<float>(pair << 16));
  };
  return pair_multiply_add(lower(a), lower(b),
                           pair_multiply_add(upper(a), upper(b), without_denormals(sum)));
}

}}}  // namespace adacc::v0_1::detail
