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
template <class T>
inline T element_at(const u8* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

/// One piece of memory in which all lanes of a warp access elements of type T.
template <class T>
class Lanes {
 public:
  /// Looks at all lanes together. Finds no piece if one of the lanes has anything to report but a race.
  Lanes(Machine& m, const Warp& w, const Inst& in, u32 mask, Machine::Access how) {
    const u64 n = sizeof(T) * in.count, first = address_of(w, in, std::countr_zero(mask));
    const u64 add = static_cast<u64>(in.offset);
    // Lanes outside of the mask count as the first one.
    if (in.wide_base) {
      const u64* const base = reg<u64>(w, in.a);
      for (int l = 0; l < 32; ++l) at_[l] = mask >> l & 1 ? base[l] + add : first;
    } else {
      const u32* const base = reg<u32>(w, in.a);
      for (int l = 0; l < 32; ++l) at_[l] = mask >> l & 1 ? base[l] + add : first;
    }
    u64 least = first, most = first, bits = 0;
    for (const u64 at : at_) least = std::min(least, at), most = std::max(most, at), bits |= at;
    if ((bits & (n - 1)) != 0 || most + n < n) return;
    u64 begin = least;
    const Space space = Machine::resolve(in.space, begin);
    if (space == Space::local) return;
    const u64 size = most - least + n;
    const Machine::Piece piece = m.find(space, begin, begin + size, how);
    if (!piece.bytes || (!piece.known && how == Machine::Access::write)) return;
    if (space == Space::shared && m.in_flight != 0 &&
        std::memchr(piece.known + begin, Machine::on_its_way, size))
      return;
    for (u64& at : at_) at += begin - least - piece.begin;
    if (how == Machine::Access::write || !piece.must_be_known || all_known(piece.known, in.count))
      piece_ = piece;
  }

  bool found() const { return piece_.bytes != nullptr; }
  /// The bytes of a lane; of a lane outside of the mask, those of the first one.
  u8* bytes(int l) const { return piece_.bytes + at_[l]; }
  void set_known(int l, u64 n) const { std::memset(piece_.known + at_[l], 1, n); }
  /// Looks for races of a lane's write of `value`.
  void check_write(Machine& m, const Warp& w, const Inst& in, int l, const u8* value) const {
    check(m, w, in, l, Machine::Access::write, value);
  }
  /// Looks for races of reads by the lanes of a mask.
  void check_reads(Machine& m, const Warp& w, const Inst& in, u32 mask) const {
    if (!piece_.known) return;  // parameters, which nobody writes
    const u64 n = sizeof(T) * in.count;
    const WordReads reads = m.word_reads(piece_, in, w);
    const Cells cells = piece_.cells;
    for (int l = 0; l < 32; ++l)
      if ((mask >> l & 1) &&
          !(n % 4 == 0 && reads.read(cells.word(at_[l]), n, static_cast<u16>(w.id * 32 + l))))
        check(m, w, in, l, Machine::Access::read, nullptr);
  }

 private:
  Machine::Piece piece_;
  u64 at_[32];  // from the piece's begin

  void check(Machine& m, const Warp& w, const Inst& in, int l, Machine::Access how,
             const u8* value) const {
    m.check_race(piece_, piece_.begin + at_[l], sizeof(T) * in.count, how, in, w, l, value);
  }
  bool all_known(const u8* known, int count) const {
    constexpr T ones = static_cast<T>(0x0101010101010101);
    bool all = true;
    for (u64 k = 0; k < static_cast<u64>(count); ++k)
      for (const u64 at : at_) all &= element_at<T>(known + at + k * sizeof(T)) == ones;
    return all;
  }
};

/// T: what an element is loaded as.
template <class T>
void load(Machine& m, Warp& w, const Inst& in, u32 mask) {
  constexpr auto read = Machine::Access::read;
  if (m.settings.stats) count_access(m, w, in, mask, false);
  const Lanes<T> lanes(m, w, in, mask, read);
  const u8* from[32];
  if (lanes.found()) {
    for (int l = 0; l < 32; ++l) from[l] = lanes.bytes(l);
    if (m.settings.races) lanes.check_reads(m, w, in, mask);
  } else {
    static constexpr u8 zeros[32] = {};
    for (int l = 0; l < 32; ++l)
      from[l] = mask >> l & 1 ? m.access(in, w, l, in.space, address_of(w, in, l),
                                         sizeof(T) * in.count, read, nullptr)
                              : zeros;
  }
  for (u64 k = 0; k < in.count; ++k) {
    if (in.v[k] == 0) continue;  // "_"
    const auto element = [&](int l) {
      const T x = element_at<T>(from[l] + k * sizeof(T));
      return in.is_signed ? static_cast<u64>(s64{static_cast<std::make_signed_t<T>>(x)}) : u64{x};
    };
    if (in.v_width[k] == 64) {
      lanes_of(reg_out<u64>(w, in.v[k]), mask, element);
    } else {
      const u32 keep = in.v_width[k] == 16 ? 0xFFFF : ~u32{0};
      lanes_of(reg_out<u32>(w, in.v[k]), mask,
               [&](int l) { return static_cast<u32>(element(l)) & keep; });
    }
  }
}
template <class T>
void store(Machine& m, Warp& w, const Inst& in, u32 mask) {
  constexpr auto write = Machine::Access::write;
  if (m.settings.stats) count_access(m, w, in, mask, true);
  const Lanes<T> lanes(m, w, in, mask, write);
  const u64 n = sizeof(T) * in.count;
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    u8 value[32];
    for (u64 k = 0; k < in.count; ++k) {
      const u64 x = in.v_width[k] == 64 ? reg<u64>(w, in.v[k])[l] : reg<u32>(w, in.v[k])[l];
      std::memcpy(value + k * sizeof(T), &x, sizeof(T));
    }
    u8* p = nullptr;
    if (lanes.found()) {
      p = lanes.bytes(l);
      lanes.set_known(l, n);
      if (m.settings.races) lanes.check_write(m, w, in, l, value);
    } else {
      p = m.access(in, w, l, in.space, address_of(w, in, l), n, write, value);
    }
    for (u64 k = 0; k < in.count; ++k)
      std::memcpy(p + k * sizeof(T), value + k * sizeof(T), sizeof(T));
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
