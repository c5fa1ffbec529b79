// SPDX-License-Identifier: MIT
// Instructions that convert between types, and functions of floats that a device approximates.
#pragma once
#include "registers.hpp"

namespace ptxrun {

enum Round : u8 { none, rn, rz, rm, rp, rni, rzi, rmi, rpi };
template <class T>
inline T integral(T x, u8 how) {
  switch (how) {
    case rni: return std::nearbyint(x);
    case rzi: return std::trunc(x);
    case rmi: return std::floor(x);
    case rpi: return std::ceil(x);
    default: return x;
  }
}
struct Bf16 {
  u16 bits;
};
struct F16 {
  u16 bits;
};
inline float float_of(F16 x) {
  const u32 sign = u32{x.bits} >> 15 << 31, exponent = x.bits >> 10 & 31U,
            fraction = x.bits & 1023U;
  if (exponent == 0)
    return std::copysign(std::ldexp(static_cast<float>(fraction), -24), sign != 0 ? -1.0F : 1.0F);
  const u32 wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}
/// Rounded to the nearest, to even between two.
inline F16 half_of(float x) {
  if (x != x) return F16{0x7FFF};
  const u32 b = std::bit_cast<u32>(x), sign = b >> 31 << 15, size = b & 0x7FFFFFFF;
  const float a = std::fabs(x);
  const u32 bits = a >= 65520.0F  ? 0x7C00
                   : a < 0x1p-14F ? static_cast<u32>(std::nearbyint(a * 0x1p24F))
                                  : (size + 0xFFF + (size >> 13 & 1) - (112U << 23)) >> 13;
  return F16{static_cast<u16>(sign | bits)};
}
template <class D, class S>
inline D converted(S x, u8 how, bool sat) {
  if constexpr (std::is_same_v<S, F16>) {
    return converted<D, float>(float_of(x), how, sat);
  } else if constexpr (std::is_same_v<D, F16>) {
    return half_of(static_cast<float>(x));
  } else if constexpr (std::is_same_v<S, Bf16>) {
    return converted<D, float>(std::bit_cast<float>(u32{x.bits} << 16), how, sat);
  } else if constexpr (std::is_same_v<D, Bf16>) {
    const float f = static_cast<float>(x);
    if (f != f) return Bf16{0x7FFF};
    const u32 b = std::bit_cast<u32>(f);
    if (how == rz) return Bf16{static_cast<u16>(b >> 16)};
    return Bf16{static_cast<u16>((b + 0x7FFF + (b >> 16 & 1)) >> 16)};
  } else if constexpr (std::is_floating_point_v<S> && std::is_floating_point_v<D>) {
    if constexpr (sizeof(D) == sizeof(S)) {
      D r = canonical(integral(x, how));
      if (sat) r = r != r ? D{0} : r < 0 ? D{0} : r > 1 ? D{1} : r;
      return r;
    } else return static_cast<D>(x);  // a NaN keeps its sign and upper bits, as ptxas folds it
  } else if constexpr (std::is_floating_point_v<S>) {
    if (x != x) return D{0};
    const S y = integral(x, how == none ? u8{rzi} : how);
    const S low = static_cast<S>(std::numeric_limits<D>::min());
    if (y <= low) return std::numeric_limits<D>::min();
    if (y >= std::ldexp(S{1}, std::numeric_limits<D>::digits)) return std::numeric_limits<D>::max();
    return static_cast<D>(y);
  } else if constexpr (std::is_floating_point_v<D>) {
    return static_cast<D>(x);
  } else {
    if (sat) {
      if constexpr (std::is_signed_v<S>) {
        if constexpr (!std::is_signed_v<D>) {
          if (x < 0) return D{0};
        } else if (static_cast<s64>(x) < static_cast<s64>(std::numeric_limits<D>::min()))
          return std::numeric_limits<D>::min();
      }
      if (x > 0 && static_cast<u64>(x) > static_cast<u64>(std::numeric_limits<D>::max()))
        return std::numeric_limits<D>::max();
    }
    return static_cast<D>(x);
  }
}
/// The result fills the register: v_width[0] is its width in bits.
template <class D, class S>
void convert(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<S>(w, in.a);
  const u8 how = in.what;
  const bool sat = in.is_signed;
  if (sizeof(D) < 8 && in.v_width[0] == 64) {
    lanes_of(reg_out<u64>(w, in.d), mask, [=](int l) {
      const D r = converted<D, S>(from_slot<S>(a[l]), how, sat);
      if constexpr (std::is_integral_v<D>) return static_cast<u64>(static_cast<s64>(r));
      else return static_cast<u64>(to_slot<D>(r));
    });
  } else {
    const u32 keep = in.v_width[0] == 16 ? 0xFFFFU : ~0U;
    lanes_of(reg_out<D>(w, in.d), mask, [=](int l) {
      const D r = converted<D, S>(from_slot<S>(a[l]), how, sat);
      if constexpr (std::is_integral_v<D> && sizeof(D) < 4)
        return static_cast<u32>(static_cast<s32>(r)) & keep;
      else return to_slot<D>(r);
    });
  }
}

/// what: 0 rcp, 1 sqrt, 2 rsqrt, 3 ex2, 4 lg2, 5 sin, 6 cos, 7 tanh. Approximations of a GPU are
/// not these.
template <class T>
void function_of(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const int what = in.what;
  const bool flush = in.is_signed;  // subnormal numbers to zero
  const auto flushed = [flush](T v) {
    return flush && std::fabs(v) < std::numeric_limits<T>::min() ? std::copysign(T{0}, v) : v;
  };
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = flushed(from_slot<T>(a[l]));
    T r = x;
    switch (what) {
      case 0: r = T{1} / x; break;
      case 1: r = std::sqrt(x); break;
      case 2: r = T{1} / std::sqrt(x); break;
      case 3: r = std::exp2(x); break;
      case 4: r = std::log2(x); break;
      case 5: r = std::sin(x); break;
      case 6: r = std::cos(x); break;
      default: r = std::tanh(x);
    }
    // Of a double's reciprocal the lower half is zero.
    if constexpr (sizeof(T) == 8)
      if (flush) r = std::bit_cast<T>(std::bit_cast<u64>(r) & ~u64{0xFFFFFFFF});
    return to_slot<T>(canonical(flushed(r)));
  });
}

}  // namespace ptxrun
