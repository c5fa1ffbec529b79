// SPDX-License-Identifier: MIT
// Device memory, problems found, and what is known of every byte.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "cells.hpp"

namespace ptxrun {

/// The number of 1, 2, 4 or 8 bytes at p.
inline u64 number_at(const u8* p, u64 bytes) {
  const auto read = [p](auto x) {
    std::memcpy(&x, p, sizeof x);
    return u64{x};
  };
  switch (bytes) {
    case 1: return *p;
    case 2: return read(u16{});
    case 4: return read(u32{});
    default: return read(u64{});
  }
}

/// Whether n bytes, 1, 2, 4 or a multiple of 8, were all written, if `known` has 1 for each byte that was.
inline bool all_written(const u8* known, u64 n) {
  constexpr u64 ones = 0x0101010101010101;
  if (n < 8) return number_at(known, n) == (ones & ((u64{1} << 8 * n) - 1));
  for (u64 i = 0; i < n; i += 8)
    if (number_at(known + i, 8) != ones) return false;
  return true;
}

/// Generic addresses. Global memory is reserved without access where its addresses are, and kept
/// elsewhere: host code that reads a device pointer crashes, as it would with a GPU.
constexpr u64 arena_base = 0x100000000000, arena_size = u64{32} << 30;
constexpr u64 shared_base = 0x200000000000, local_base = 0x300000000000,
              param_base = 0x400000000000, window = u64{1} << 32;

struct Allocation {
  u64 base, size;
  bool live, constant;
  std::string name;
  MappedCells cells;
};

class Memory {
 public:
  std::map<u64, u64> pinned;  // bytes of page-locked host memory, by address

  Memory() {
    void* fixed = mmap(reinterpret_cast<void*>(arena_base), arena_size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (fixed != reinterpret_cast<void*>(arena_base)) throw std::runtime_error("ptxrun: no arena");
    store_ = map<u8>(arena_size);
    known_ = map<u8>(arena_size);
    granules_ = map<u32>(arena_size / 256 * sizeof(u32));
    allocations_.push_back({0, 0, false, false, "nothing", {}});
  }

  u64 allocate(u64 size, std::string name = "", bool constant = false) {
    const u64 base = next_;
    const u64 room = (size + 255) / 256 * 256 + 512;
    if (base + room > arena_base + arena_size) return 0;
    next_ += room;
    const u32 id = static_cast<u32>(allocations_.size());
    for (u64 g = 0; g < (size + 255) / 256; ++g) granules_[(base - arena_base) / 256 + g] = id;
    if (name.empty()) name = "allocation " + std::to_string(id);
    allocations_.push_back({base, size, true, constant, std::move(name), {}});
    used_ += size;
    return base;
  }
  bool release(u64 base) {
    Allocation& a = of(base);
    if (a.base != base || !a.live || a.size == 0) return false;
    a.live = false;
    used_ -= a.size;
    a.cells.release();
    return true;
  }
  u64 used() const { return used_; }
  static bool in_arena(u64 a) { return a >= arena_base && a < arena_base + arena_size; }
  Allocation& of(u64 a) {
    return allocations_[in_arena(a) ? granules_[(a - arena_base) / 256] : 0];
  }
  /// Null where not all bytes are of one live allocation.
  Allocation* holding(u64 a, u64 n) {
    Allocation& x = of(a);
    return x.live && a >= x.base && a + n <= x.base + x.size ? &x : nullptr;
  }
  /// Page-locked memory of the host, which kernels read and write by its own address. False: not all bytes are of one
  /// piece.
  bool is_pinned(u64 a, u64 n) const {
    const auto after = pinned.upper_bound(a);
    if (after == pinned.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return a - begin < bytes && n <= bytes - (a - begin);
  }
  u8* store(u64 a) { return store_ + (a - arena_base); }
  u8* known(u64 a) { return known_ + (a - arena_base); }
  std::string describe(u64 a) {
    if (!in_arena(a)) return "no device address";
    for (u64 g = (a - arena_base) / 256, back = 0; back < 8 && g > 0; --g, ++back)
      if (const u32 id = granules_[g]; id != 0) {
        const Allocation& x = allocations_[id];
        return x.name + " of " + std::to_string(x.size) + " bytes, offset " +
               std::to_string(static_cast<s64>(a - x.base)) + (x.live ? "" : ", freed");
      }
    return "no allocation";
  }

 private:
  u8 *store_, *known_;
  u32* granules_;
  u64 next_ = arena_base + 4096, used_ = 0;
  std::vector<Allocation> allocations_;

  template <class T>
  static T* map(u64 bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("ptxrun: no memory");
    return static_cast<T*>(p);
  }
};

}  // namespace ptxrun
