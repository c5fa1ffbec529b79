// SPDX-License-Identifier: MIT
// Arithmetic on floats in other modes than usual: rounded down, with NaNs that spread, on pairs of
// bfloat16. All operands are registers of 32 bits.
#pragma once
#include "arithmetic.hpp"

namespace ptxrun {

/// a * b + c, the largest float that is not above it.
struct FmaDown {
  static u32 of(u32 a, u32 b, u32 c) {
    // The product of two floats is exact in double. Of the sum with c, `sum` is the nearest double
    // and `rest` what is missing.
    const double product = double{std::bit_cast<float>(a)} * double{std::bit_cast<float>(b)};
    const double addend = std::bit_cast<float>(c), sum = product + addend;
    if (sum != sum) return 0x7FFFFFFF;
    if (std::isinf(sum)) return std::bit_cast<u32>(static_cast<float>(sum));
    const double of_addend = sum - product;
    const double rest = (product - (sum - of_addend)) + (addend - of_addend);
    float down = static_cast<float>(sum);
    if (double{down} > sum || (double{down} == sum && rest < 0))
      down = std::nextafter(down, -std::numeric_limits<float>::infinity());
    // Nothing minus nothing is -0 if rounded down.
    if (down == 0 && product == -addend &&
        (product != 0 || std::signbit(product) != std::signbit(addend)))
      down = -0.0F;
    return std::bit_cast<u32>(down);
  }
};

/// min.NaN and max.NaN: a NaN if one of both is.
template <class Op>
struct OrNan {
  static u32 of(u32 a, u32 b, u32) {
    const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
    return x != x || y != y ? 0x7FFFFFFF : std::bit_cast<u32>(Op::of(x, y));
  }
};

/// The same of two bfloat16 each.
template <class Op>
struct PairOrNan {
  static u32 of(u32 a, u32 b, u32) {
    const u32 low = OrNan<Op>::of(a << 16, b << 16, 0) >> 16;
    return (OrNan<Op>::of(a & 0xFFFF0000, b & 0xFFFF0000, 0) & 0xFFFF0000) | low;
  }
};

/// Two floats to the nearest bfloat16, the first one in the upper half.
struct ToPair {
  static u32 one(u32 x) {
    if ((x & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
    return (x + 0x7FFF + (x >> 16 & 1)) >> 16;
  }
  static u32 of(u32 a, u32 b, u32) { return one(a) << 16 | one(b); }
};

template <class Op>
void in_mode(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) { return Op::of(a[l], b[l], c[l]); });
}

/// Null if it is none of these.
inline auto float_mode(const std::string& op) -> void (*)(Machine&, Warp&, const Inst&, u32) {
  if (op == "fma.rm.f32") return in_mode<FmaDown>;
  if (op == "min.NaN.f32") return in_mode<OrNan<Min>>;
  if (op == "max.NaN.f32") return in_mode<OrNan<Max>>;
  if (op == "min.NaN.bf16x2") return in_mode<PairOrNan<Min>>;
  if (op == "max.NaN.bf16x2") return in_mode<PairOrNan<Max>>;
  if (op == "cvt.rn.bf16x2.f32") return in_mode<ToPair>;
  return nullptr;
}

}  // namespace ptxrun
