// SPDX-License-Identifier: MIT
// Instructions that count, move and combine bits.
#pragma once
#include "registers.hpp"

namespace ptxrun {

/// what: 0 popc, 1 clz, 2 brev, 3 bfind; the result of brev has T's width, others' 32 bits
template <class T>
void count_bits(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const int what = in.what;
  constexpr int bits = 8 * sizeof(T);
  if (what == 2) {
    lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
      u64 x = from_slot<T>(a[l]), r = 0;
      for (int i = 0; i < bits; ++i) r = r << 1 | (x >> i & 1);
      return static_cast<Slot<T>>(r);
    });
    return;
  }
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    if (what == 0) return static_cast<u32>(std::popcount(x));
    if (what == 1) return static_cast<u32>(std::countl_zero(x));
    return x == 0 ? ~0U : static_cast<u32>(bits - 1 - std::countl_zero(x));
  });
}
template <class T>
void extract_bits(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const u32 *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
  constexpr int bits = 8 * sizeof(T);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    const int pos = static_cast<int>(b[l] & 0xFF), len = static_cast<int>(c[l] & 0xFF);
    const bool sign = std::is_signed_v<T> && len != 0 &&
                      (static_cast<u64>(x) >> std::min(pos + len - 1, bits - 1) & 1);
    u64 r = pos >= bits ? 0 : static_cast<u64>(static_cast<Unsigned<T>>(x)) >> pos;
    if (len < 64) {
      r &= (u64{1} << len) - 1;
      // Beyond the top all bits are the sign.
      if (sign) r |= ~u64{0} << std::min(len, std::max(bits - pos, 0));
    }
    return static_cast<Slot<T>>(r);
  });
}
template <class T>
void insert_bits(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  const u32 *c = reg<u32>(w, in.c), *e = reg<u32>(w, in.e);
  constexpr u32 bits = 8 * sizeof(T);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const u32 pos = c[l] & 0xFF, len = e[l] & 0xFF;
    Unsigned<T> m = 0;
    for (u32 i = pos; i < pos + len && i < bits; ++i)
      m |= static_cast<Unsigned<T>>(Unsigned<T>{1} << i);
    const Unsigned<T> x =
        static_cast<Unsigned<T>>(pos >= bits ? 0 : static_cast<Unsigned<T>>(a[l]) << pos);
    return static_cast<Slot<T>>((b[l] & ~m) | (x & m));
  });
}
/// `b` ones from bit `a` on. what: bit 1 clamp
inline void bit_mask(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b);
  const bool clamp = (in.what & 2) != 0;
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) {
    const u32 pos = clamp ? std::min(a[l], 32U) : a[l] & 31,
              len = clamp ? std::min(b[l], 32U) : b[l] & 31;
    return static_cast<u32>(((u64{1} << len) - 1) << pos);
  });
}
/// what: bit 0 right, bit 1 clamp
inline void funnel(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
  const int what = in.what;
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) {
    const u32 n = what & 2 ? std::min(c[l], 32U) : c[l] & 31;
    const u64 x = u64{b[l]} << 32 | a[l];
    return what & 1 ? static_cast<u32>(x >> n) : static_cast<u32>(x << n >> 32);
  });
}
inline void permute(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) {
    const u64 x = u64{b[l]} << 32 | a[l];
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
      const u32 s = c[l] >> 4 * i & 15;
      u32 byte = static_cast<u32>(x >> 8 * (s & 7) & 0xFF);
      if (s & 8) byte = byte & 0x80 ? 0xFF : 0;
      r |= byte << 8 * i;
    }
    return r;
  });
}
inline void logic3(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
  const u32 table = static_cast<u32>(in.offset);
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) {
    u32 r = 0;
    for (u32 k = 0; k < 8; ++k)
      if (table >> k & 1)
        r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    return r;
  });
}
/// mov of a vector: what 0 unpacks a into v, 1 packs v into d.
inline void pack(Machine&, Warp& w, const Inst& in, u32 mask) {
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const u32 bits = 8U * in.size;
    if (in.what == 0) {
      const u64 x = in.size * in.count == 8 ? reg<u64>(w, in.a)[l] : reg<u32>(w, in.a)[l];
      for (u32 k = 0; k < in.count; ++k)
        if (in.v[k] != 0)
          reg_out<u32>(w, in.v[k])[l] =
              static_cast<u32>(x >> bits * k & (bits == 32 ? 0xFFFFFFFFU : (1U << bits) - 1));
    } else {
      u64 x = 0;
      for (u32 k = 0; k < in.count; ++k)
        x |= u64{reg<u32>(w, in.v[k])[l] & (bits == 32 ? 0xFFFFFFFFU : (1U << bits) - 1)}
             << bits * k;
      if (in.size * in.count == 8) reg_out<u64>(w, in.d)[l] = x;
      else reg_out<u32>(w, in.d)[l] = static_cast<u32>(x);
    }
  }
}

}  // namespace ptxrun
