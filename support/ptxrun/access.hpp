// SPDX-License-Identifier: MIT
// Instructions that load, store and add atomically, and how many sectors of memory they move.
#pragma once
#include "arithmetic.hpp"

namespace ptxrun {

inline u64 address_of(const Warp& w, const Inst& in, int l) {
  const u64 base = in.wide_base ? reg<u64>(w, in.a)[l] : reg<u32>(w, in.a)[l];
  return base + static_cast<u64>(in.offset);
}
/// Sorts numbers, the different ones in front; returns how many these are.
inline u64 distinct(u64* numbers, int count) {
  if (!std::is_sorted(numbers, numbers + count)) std::sort(numbers, numbers + count);
  return static_cast<u64>(std::unique(numbers, numbers + count) - numbers);
}
/// Counts what a warp's access moves.
inline void count_access(Machine& m, const Warp& w, const Inst& in, u32 mask, bool store) {
  u64 n = u64{in.size} * in.count;
  u64 first = address_of(w, in, std::countr_zero(mask));
  const bool global =
      in.space == Space::global || (in.space == Space::generic && Memory::in_arena(first));
  const bool shared =
      in.space == Space::shared ||
      (in.space == Space::generic && first >= shared_base && first < shared_base + window);
  Kernel& k = *m.kernel;
  if (global) {
    u64 sector[32];
    int count = 0;
    for (int l = 0; l < 32; ++l)
      if (mask >> l & 1) sector[count++] = address_of(w, in, l) / 32;
    k.requests[store] += 1;
    k.sectors[store] += distinct(sector, count);
    k.bytes[store] += n * static_cast<u64>(std::popcount(mask));
  } else if (shared) {
    // Words of 4 bytes in 32 banks; of wide accesses a half or quarter of the lanes at a time.
    const int group = n == 16 ? 8 : n == 8 ? 16 : 32;
    k.shared_requests += 1;
    for (int g = 0; g < 32; g += group) {
      u64 words[32];
      int count = 0;
      for (int l = g; l < g + group; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 at = address_of(w, in, l);
        for (u64 word = at / 4; word * 4 < at + n; ++word) words[count++] = word;
      }
      const u64 different = distinct(words, count);
      u64 in_bank[32] = {}, most = 0;
      for (u64 i = 0; i < different; ++i) most = std::max(most, ++in_bank[words[i] % 32]);
      k.shared_passes += most;
      k.shared_ideal += most != 0;
    }
  }
}
inline void load(Machine& m, Warp& w, const Inst& in, u32 mask) {
  if (m.settings.stats) count_access(m, w, in, mask, false);
  const u64 n = u64{in.size} * in.count;
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const u8* p =
        m.access(in, w, l, in.space, address_of(w, in, l), n, Machine::Access::read, nullptr);
    for (int k = 0; k < in.count; ++k, p += in.size) {
      if (in.v[k] == 0) continue;  // "_"
      u64 x = number_at(p, in.size);
      if (in.is_signed && in.size < 8) {
        const int s = 64 - 8 * in.size;
        x = static_cast<u64>(static_cast<s64>(x << s) >> s);
      }
      if (in.v_width[k] == 64) reg_out<u64>(w, in.v[k])[l] = x;
      else reg_out<u32>(w, in.v[k])[l] = static_cast<u32>(in.v_width[k] == 16 ? x & 0xFFFF : x);
    }
  }
}
inline void store(Machine& m, Warp& w, const Inst& in, u32 mask) {
  if (m.settings.stats) count_access(m, w, in, mask, true);
  const u64 n = u64{in.size} * in.count;
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    u8 value[32];
    for (int k = 0; k < in.count; ++k) {
      const u64 x = in.v_width[k] == 64 ? reg<u64>(w, in.v[k])[l] : reg<u32>(w, in.v[k])[l];
      std::memcpy(value + k * in.size, &x, in.size);
    }
    u8* p = m.access(in, w, l, in.space, address_of(w, in, l), n, Machine::Access::write, value);
    std::memcpy(p, value, n);
  }
}
enum AtomicOp : u8 {
  atom_add,
  atom_min,
  atom_max,
  atom_and,
  atom_or,
  atom_xor,
  atom_exch,
  atom_cas,
  atom_inc,
  atom_dec
};
template <class T>
void atomic_of(Machine& m, Warp& w, const Inst& in, u32 mask) {
  if (m.settings.stats) count_access(m, w, in, mask, true);
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const u64 at = address_of(w, in, l);
    u8* p = m.access(in, w, l, in.space, at, sizeof(T), Machine::Access::atomic, nullptr);
    if (m.settings.races && Memory::in_arena(at))
      m.order.atomic(static_cast<u16>(w.id * 32 + l), at);
    T old, b = from_slot<T>(reg<T>(w, in.b)[l]), now{};
    std::memcpy(&old, p, sizeof old);
    switch (in.what) {
      case atom_add: now = Add::of(old, b); break;
      case atom_min: now = Min::of(old, b); break;
      case atom_max: now = Max::of(old, b); break;
      case atom_exch: now = b; break;
      default:
        if constexpr (std::is_integral_v<T>) {
          if (in.what == atom_and) now = And::of(old, b);
          else if (in.what == atom_or) now = Or::of(old, b);
          else if (in.what == atom_xor) now = Xor::of(old, b);
          else if (in.what == atom_cas) now = old == b ? from_slot<T>(reg<T>(w, in.c)[l]) : old;
          else if (in.what == atom_inc) now = old >= b ? T{0} : static_cast<T>(old + 1);
          else now = old == 0 || old > b ? b : static_cast<T>(old - 1);
        }
    }
    std::memcpy(p, &now, sizeof now);
    if (in.d != 0) reg_out<T>(w, in.d)[l] = to_slot<T>(old);
  }
}
inline void fence(Machine& m, Warp& w, const Inst&, u32 mask) {
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) m.order.fence(static_cast<u16>(w.id * 32 + l), m.now);
}
inline void nothing(Machine&, Warp&, const Inst&, u32) {}
/// cvta and its inverse: offset is what to add.
inline void convert_address(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u64 add = static_cast<u64>(in.offset);
  if (in.wide_base) {
    const u64* a = reg<u64>(w, in.a);
    lanes_of(reg_out<u64>(w, in.d), mask, [=](int l) { return a[l] + add; });
  } else {
    const u32* a = reg<u32>(w, in.a);
    lanes_of(reg_out<u32>(w, in.d), mask, [=](int l) { return a[l] + static_cast<u32>(add); });
  }
}
inline void active_mask(Machine&, Warp& w, const Inst& in, u32 mask) {
  lanes_of(reg_out<u32>(w, in.d), mask, [=](int) { return mask; });
}

}  // namespace ptxrun
