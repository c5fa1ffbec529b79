// SPDX-License-Identifier: MIT
// Registers of a warp as lanes of a type, and predicates as bits of a mask.
#pragma once
#include "machine.hpp"

namespace ptxrun {

template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class T>
inline T from_slot(Slot<T> s) {
  if constexpr (sizeof(T) == sizeof(s)) return std::bit_cast<T>(s);
  else if constexpr (sizeof(T) == 2) return std::bit_cast<T>(static_cast<u16>(s));
  else return std::bit_cast<T>(static_cast<u8>(s));
}
template <class T>
inline Slot<T> to_slot(T v) {
  if constexpr (sizeof(T) == 8 || sizeof(T) == 4) return std::bit_cast<Slot<T>>(v);
  else if constexpr (sizeof(T) == 2) return std::bit_cast<u16>(v);
  else return std::bit_cast<u8>(v);
}

template <class T>
inline const Slot<T>* reg(const Warp& w, u32 at) {
  return reinterpret_cast<const Slot<T>*>(w.regs + at);
}
template <class T>
inline Slot<T>* reg_out(Warp& w, u32 at) {
  return reinterpret_cast<Slot<T>*>(w.regs + at);
}
inline u32 pred(const Warp& w, u32 at) {
  u32 p;
  std::memcpy(&p, w.regs + at, 4);
  return p;
}
inline void set_pred(Warp& w, u32 at, u32 value, u32 mask) {
  const u32 old = pred(w, at), now = (old & ~mask) | (value & mask);
  std::memcpy(w.regs + at, &now, 4);
}

/// d[l] = f(l) for the lanes of a mask. f has no effects.
template <class S, class F>
inline void lanes_of(S* d, u32 mask, const F& f) {
  alignas(64) S t[32];
  for (int l = 0; l < 32; ++l) t[l] = f(l);
  if (mask == all_lanes) {
    std::memcpy(d, t, sizeof t);
  } else {
    for (int l = 0; l < 32; ++l) d[l] = mask >> l & 1 ? t[l] : d[l];
  }
}

/// NaN as a GPU makes it, of floats.
template <class T>
inline T canonical(T v) {
  if constexpr (std::is_same_v<T, float>) return v != v ? std::bit_cast<float>(0x7FFFFFFFU) : v;
  else return v;
}

template <class T>
using Unsigned = std::conditional_t<
    sizeof(T) == 8, u64,
    std::conditional_t<sizeof(T) == 4, u32, std::conditional_t<sizeof(T) == 2, u16, u8>>>;

}  // namespace ptxrun
