// SPDX-License-Identifier: MIT
// Decoding and executing PTX, one block of threads after the other, 32 lanes at a time.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "memory.hpp"

namespace ptxrun {

constexpr u32 all_lanes = ~u32{0};

enum class Space : u8 { generic, global, shared, local, param, constant };
enum class Kind : u8 { data, bra, brx, exit, bar, bar_red, warp_sync, trap };

struct Machine;
struct Warp;
struct Inst {
  Kind kind = Kind::data;
  Space space = Space::generic;
  u8 size = 0;   // bytes of an element
  u8 count = 0;  // elements
  bool is_signed = false, negate_guard = false, atomic = false, wide_base = true;
  u8 what = 0;     // of operations that share a handler
  s32 guard = -1;  // register
  u32 d = 0, d2 = 0, a = 0, b = 0, c = 0, e = 0;
  u32 v[4] = {};  // registers of a vector
  u8 v_width[4] = {};
  s64 offset = 0, source_offset = 0;
  s32 target = -1;
  std::vector<s32> targets;
  void (*fn)(Machine&, Warp&, const Inst&, u32) = nullptr;
  const Statement* st = nullptr;
};

struct Symbol {
  std::string name;
  u64 offset, size;
  bool dynamic = false;  // as large as the launch says
};

struct Kernel {
  std::string name, shown;
  const Module* module = nullptr;
  const Function* function = nullptr;
  std::vector<Inst> code;
  std::vector<u8> image;  // of a warp's registers: constants in it
  u64 shared_bytes = 0, local_bytes = 0, param_bytes = 0;
  std::vector<Symbol> shared_symbols;
  struct Param {
    u64 offset, size;
  };
  std::vector<Param> params;
  std::map<std::string, u32> special;  // %tid.x and the like: registers
  std::string error;                   // why it cannot run
  u32 threads = 0;                     // of a block of the last launch
  u64 dynamic_shared = 0;
  // Counts
  u64 launches = 0, blocks = 0, warp_instructions = 0, lane_instructions = 0, barriers = 0;
  u64 requests[2] = {}, sectors[2] = {}, bytes[2] = {};          // global loads, stores
  u64 shared_requests = 0, shared_passes = 0, shared_ideal = 0;  // passes without conflicts
  std::vector<u64> executed;

  void clear_counts() {
    launches = blocks = warp_instructions = lane_instructions = barriers = 0;
    std::fill_n(requests, 2, u64{0}), std::fill_n(sectors, 2, u64{0}),
        std::fill_n(bytes, 2, u64{0});
    shared_requests = shared_passes = shared_ideal = 0;
    std::fill(executed.begin(), executed.end(), u64{0});
  }
};

struct Group {
  s32 pc;
  u32 mask;
};

/// A cp.async that its thread has not waited for.
struct AsyncCopy {
  const Inst* in;
  u64 to, from, given;  // bytes that are read
  u64 group;
  u8 bytes[16] = {};
};
struct LaneCopies {
  std::vector<AsyncCopy> pending;
  u64 groups = 0;  // committed so far
};

struct Warp {
  u8* regs;
  std::vector<u8> memory;
  u32 alive = 0;
  int id = 0;
  u16 epoch = 0;  // of bar.warp.sync
  std::vector<Group> run, at_sync, at_barrier;
  u8* local = nullptr;  // of lane 0
  std::array<LaneCopies, 32> copies;
};

struct Fault {};

/// What to look for and in which order to run; by the environment.
struct Settings {
  bool races = std::getenv("PTXRUN_RACES") != nullptr;
  bool stats = std::getenv("PTXRUN_STATS") != nullptr;
  // Of shared memory too: kernels may read elements that they then do not use.
  bool unwritten = std::getenv("PTXRUN_UNWRITTEN") != nullptr;
  std::string order = std::getenv("PTXRUN_ORDER") ? std::getenv("PTXRUN_ORDER") : "ascending";
  u64 seed = std::getenv("PTXRUN_SEED") ? std::strtoull(std::getenv("PTXRUN_SEED"), nullptr, 0) : 1;
  s64 quantum = std::getenv("PTXRUN_QUANTUM") ? std::atoll(std::getenv("PTXRUN_QUANTUM")) : 0;
};

struct Machine {
  Memory memory;
  Settings settings;
  std::mt19937_64 random{settings.seed};
  std::set<std::tuple<std::string, const void*, s64>> reported;
  int problems = 0;
  std::map<std::string, int> shown;  // by kind

  // The launch and block that run
  Kernel* kernel = nullptr;
  u32 grid[3] = {}, block[3] = {}, ctaid[3] = {};
  u32 now = 1, block_first = 1, launch_first = 1;  // stamps
  std::vector<u8> shared, shared_known;            // known: 0, 1 or on_its_way
  static constexpr u8 on_its_way = 2;              // to where a cp.async still copies
  u64 in_flight = 0;                               // such bytes
  std::vector<Cell> shared_cells;
  std::vector<u8> params;
  std::vector<Warp> warps;
  std::vector<u8> locals;

  std::string where(s32 pc) const {
    const Statement& s = *kernel->code[static_cast<std::size_t>(pc)].st;
    const auto f = kernel->module->files.find(s.file);
    std::string out = "line " + std::to_string(s.line) + " of the PTX";
    if (f != kernel->module->files.end())
      out = f->second + ":" + std::to_string(s.source) + ", " + out;
    return out + ": " + s.text;
  }
  s32 pc_of(const Inst& in) const { return static_cast<s32>(&in - kernel->code.data()); }

  /// `other`: the place of an earlier access, or -1.
  void report(const std::string& what, const Inst& in, const Warp& w, int lane, s32 other = -1) {
    if (!reported.emplace(what.substr(0, 24), &in, other).second) return;
    ++problems;
    if (++shown[what.substr(0, 12)] > 20) return;
    std::fprintf(
        stderr,
        "ptxrun: %s\n  kernel %s\n  block (%u, %u, %u) of (%u, %u, %u), thread %d\n  at %s\n",
        what.c_str(), kernel->shown.c_str(), ctaid[0], ctaid[1], ctaid[2], grid[0], grid[1],
        grid[2], w.id * 32 + lane, where(pc_of(in)).c_str());
    if (other >= 0) std::fprintf(stderr, "  and %s\n", where(other).c_str());
  }
  [[noreturn]] void fault(const std::string& what, const Inst& in, const Warp& w, int lane) {
    report(what, in, w, lane);
    throw Fault{};
  }

  std::string shared_place(u64 at) const {
    for (const Symbol& s : kernel->shared_symbols)
      if (at >= s.offset && at < s.offset + s.size)
        return "shared " + s.name + " + " + std::to_string(at - s.offset);
    return "shared memory + " + std::to_string(at);
  }

  enum class Access { read, write, atomic };

  void check_race(Cell* cells, u64 n, Access access, const Inst& in, const Warp& w, int lane,
                  u32 first, u64 address, bool same_value) {
    const u16 me = static_cast<u16>(w.id * 32 + lane);
    const auto ordered = [&](u32 stamp, u16 thread, u16 epoch) {
      if (stamp < first) return true;         // an earlier launch
      if (stamp < block_first) return false;  // another block of threads
      if (stamp < now) return true;           // before a barrier
      if (thread == me) return true;
      return thread / 32 == w.id && epoch < w.epoch;
    };
    const bool writes = access != Access::read, atomic = access == Access::atomic;
    for (u64 i = 0; i < n; ++i) {
      Cell& c = cells[i];
      s32 other = -1;
      const char* what = nullptr;
      if (c.w_stamp != 0 && !(atomic && c.w_atomic) && !ordered(c.w_stamp, c.w_thread, c.w_epoch)) {
        what = writes ? (same_value ? "race of two writes of the same value" : "race of two writes")
                      : "race: reads what another thread writes";
        other = c.w_pc;
      } else if (writes && c.r_stamp != 0 && !(atomic && c.r_atomic) &&
                 ((c.r_stamp == now && c.r_many) || !ordered(c.r_stamp, c.r_thread, c.r_epoch) ||
                  (c.r_before >= first && c.r_before < block_first && c.r_before != 0))) {
        const bool in_warp = c.r_thread / 32 == w.id && c.r_epoch < w.epoch;
        if (!(c.r_stamp == now && c.r_many && in_warp)) {
          what = "race: writes what another thread reads";
          other = c.r_pc;
        }
      }
      if (what) {
        const u16 thread = other == c.w_pc ? c.w_thread : c.r_thread;
        report(std::string(what) + " (thread " + std::to_string(thread) + "), " +
                   (address >= shared_base && address < shared_base + window
                        ? shared_place(address - shared_base + i)
                        : memory.describe(address + i)),
               in, w, lane, other);
      }
      if (access != Access::write) {
        if (c.r_stamp >= first && c.r_stamp < block_first) c.r_before = c.r_stamp;
        // A read before a bar.warp.sync of both is before whatever this one is before.
        const bool before_mine = c.r_thread / 32 == w.id && c.r_epoch < w.epoch;
        c.r_many = c.r_stamp == now && (c.r_many || (c.r_thread != me && !before_mine));
        c.r_atomic = (c.r_stamp != now || c.r_atomic) && atomic;
        c.r_stamp = now, c.r_thread = me, c.r_epoch = w.epoch, c.r_pc = pc_of(in);
      }
      if (writes) {
        c.w_stamp = now, c.w_thread = me, c.w_epoch = w.epoch, c.w_pc = pc_of(in);
        c.w_atomic = atomic;
      }
    }
  }

  /// The bytes of an access by one lane, after every check.
  u8* access(const Inst& in, const Warp& w, int lane, Space space, u64 address, u64 n, Access how,
             const u8* value) {
    if (address % n != 0)
      fault("misaligned access of " + std::to_string(n) + " bytes", in, w, lane);
    if (space == Space::generic) {
      if (Memory::in_arena(address)) space = Space::global;
      else if (address >= shared_base && address < shared_base + window)
        space = Space::shared, address -= shared_base;
      else if (address >= local_base && address < local_base + window)
        space = Space::local, address -= local_base;
      else if (address >= param_base && address < param_base + window)
        space = Space::param, address -= param_base;
      else space = Space::global;
    }
    switch (space) {
      case Space::global:
      case Space::constant: {
        Allocation* a = memory.holding(address, n);
        if (!a)
          fault(std::string(how == Access::read ? "reads" : "writes") +
                    " outside of memory: " + memory.describe(address),
                in, w, lane);
        if (how != Access::read && a->constant) fault("writes a constant", in, w, lane);
        u8* const at = memory.store(address);
        u8* const known = memory.known(address);
        if (how != Access::write) {
          for (u64 i = 0; i < n; ++i)
            if (!known[i]) {
              report("reads what nobody has written: " + memory.describe(address + i), in, w, lane);
              break;
            }
        }
        if (how != Access::read) std::memset(known, 1, n);
        if (settings.races)
          check_race(Memory::cells(*a) + (address - a->base), n, how, in, w, lane, launch_first,
                     address, value && std::memcmp(value, at, n) == 0);
        return at;
      }
      case Space::shared: {
        bool inside = false;
        if (address + n <= shared.size())
          for (const Symbol& s : kernel->shared_symbols)
            inside = inside || (address >= s.offset && address + n <= s.offset + s.size);
        if (!inside)
          fault(std::string(how == Access::read ? "reads" : "writes") +
                    " outside of shared memory, at " + std::to_string(address),
                in, w, lane);
        u8* const at = shared.data() + address;
        if (in_flight != 0 && std::memchr(shared_known.data() + address, on_its_way, n))
          report("touches what a cp.async copies and is not waited for: " + shared_place(address),
                 in, w, lane);
        if (how != Access::write && settings.unwritten) {
          for (u64 i = 0; i < n; ++i)
            if (!shared_known[address + i]) {
              report("reads what nobody has written: " + shared_place(address + i), in, w, lane);
              break;
            }
        }
        if (how != Access::read) std::memset(shared_known.data() + address, 1, n);
        if (settings.races)
          check_race(shared_cells.data() + address, n, how, in, w, lane, block_first,
                     shared_base + address, value && std::memcmp(value, at, n) == 0);
        return at;
      }
      case Space::local:
        if (address + n > kernel->local_bytes) fault("outside of local memory", in, w, lane);
        return w.local + static_cast<u64>(lane) * kernel->local_bytes + address;
      case Space::param:
        if (address + n > params.size() || how != Access::read)
          fault("outside of the parameters", in, w, lane);
        return params.data() + address;
      default: fault("address space", in, w, lane);
    }
  }

  void start_block(u32 x, u32 y, u32 z);
  void run_block();
  bool run_warp(Warp& w, s64 budget);
  void warp_sync(Warp& w, const Inst& in, u32 mask);
  bool sync_ready(Warp& w, const Inst& in, u32 mask);
  void launch(Kernel& k, const u32 g[3], const u32 b[3], u64 dynamic, std::vector<u8> arguments);
};

// ---- registers ----------------------------------------------------------------------------------

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

// Operations. Integers are computed without sign where a sign makes no difference.
struct Add {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a + b);
    else return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a - b);
    else return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a * b);
    else return static_cast<T>(u64{1} * static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
  }
};
struct MulHi {
  template <class T>
  static T of(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      __extension__ using Signed = __int128;
      __extension__ using Plain = unsigned __int128;
      using W = std::conditional_t<std::is_signed_v<T>, Signed, Plain>;
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> 64);
    } else {
      using W = std::conditional_t<std::is_signed_v<T>, s64, u64>;
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> 8 * sizeof(T));
    }
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a / b);
    else if (b == 0) return static_cast<T>(~T{0});
    else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of(T{0}, a);
    else return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return canonical(b);
      if (b != b) return canonical(a);
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return canonical(b);
      if (b != b) return canonical(a);
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class Op, class T>
void binary(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    return to_slot<T>(Op::template of<T>(from_slot<T>(a[l]), from_slot<T>(b[l])));
  });
}
template <bool left, class T>
void shift(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const u32* b = reg<u32>(w, in.b);
  constexpr u32 bits = 8 * sizeof(T);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    const u32 n = b[l];
    if constexpr (left)
      return to_slot<T>(n >= bits ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(x) << n));
    else if constexpr (std::is_signed_v<T>)
      return to_slot<T>(static_cast<T>(x >> (n >= bits ? bits - 1 : n)));
    else return to_slot<T>(n >= bits ? T{0} : static_cast<T>(x >> n));
  });
}
/// what: 0 not, 1 neg, 2 abs, 3 copy
template <class T>
void unary(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  const int what = in.what;
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]);
    if constexpr (std::is_floating_point_v<T>) {
      return to_slot<T>(what == 1 ? -x : what == 2 ? std::fabs(x) : x);
    } else {
      if (what == 0) return to_slot<T>(static_cast<T>(~x));
      if (what == 1) return to_slot<T>(Sub::of(T{0}, x));
      if (what == 2) return to_slot<T>(x < 0 ? Sub::of(T{0}, x) : x);
      return to_slot<T>(x);
    }
  });
}
template <class T>
void move(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto* a = reg<T>(w, in.a);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) { return a[l]; });
}
/// a * b + c; what: 0 low half, 1 high half
template <class T>
void multiply_add(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b), *c = reg<T>(w, in.c);
  const int what = in.what;
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) {
    const T x = from_slot<T>(a[l]), y = from_slot<T>(b[l]), z = from_slot<T>(c[l]);
    if constexpr (std::is_floating_point_v<T>) return to_slot<T>(canonical(std::fma(x, y, z)));
    else return to_slot<T>(Add::of(what == 1 ? MulHi::of(x, y) : Mul::of(x, y), z));
  });
}
/// T is the narrow type.
template <class T, bool add>
void multiply_wide(Machine&, Warp& w, const Inst& in, u32 mask) {
  using W = std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                               std::conditional_t<std::is_signed_v<T>, s32, u32>>;
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  const auto* c = reg<W>(w, in.c);
  lanes_of(reg_out<W>(w, in.d), mask, [=](int l) {
    const W p =
        static_cast<W>(static_cast<W>(from_slot<T>(a[l])) * static_cast<W>(from_slot<T>(b[l])));
    if constexpr (add) return to_slot<W>(Add::of(p, from_slot<W>(c[l])));
    else return to_slot<W>(p);
  });
}
template <class T>
void select(Machine&, Warp& w, const Inst& in, u32 mask) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  const u32 p = pred(w, in.c);
  lanes_of(reg_out<T>(w, in.d), mask, [=](int l) { return p >> l & 1 ? a[l] : b[l]; });
}

enum Compare : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan_ };
template <class T>
inline bool compared(u8 how, T x, T y) {
  const bool unordered = x != x || y != y;
  switch (how) {
    case eq: return x == y;
    case ne: return x != y && !unordered;
    case lt: return x < y;
    case le: return x <= y;
    case gt: return x > y;
    case ge: return x >= y;
    case equ: return x == y || unordered;
    case neu: return x != y || unordered;
    case ltu: return x < y || unordered;
    case leu: return x <= y || unordered;
    case gtu: return x > y || unordered;
    case geu: return x >= y || unordered;
    case num: return !unordered;
    default: return unordered;
  }
}
template <u8 how, class T>
inline u32 compared_lanes(const Slot<T>* a, const Slot<T>* b) {
  u32 r = 0;
  for (int l = 0; l < 32; ++l)
    r |= static_cast<u32>(compared(how, from_slot<T>(a[l]), from_slot<T>(b[l]))) << l;
  return r;
}
template <class T>
u32 compare_lanes(const Warp& w, const Inst& in) {
  const auto *a = reg<T>(w, in.a), *b = reg<T>(w, in.b);
  switch (in.what) {
    case eq: return compared_lanes<eq, T>(a, b);
    case ne: return compared_lanes<ne, T>(a, b);
    case lt: return compared_lanes<lt, T>(a, b);
    case le: return compared_lanes<le, T>(a, b);
    case gt: return compared_lanes<gt, T>(a, b);
    case ge: return compared_lanes<ge, T>(a, b);
    case equ: return compared_lanes<equ, T>(a, b);
    case neu: return compared_lanes<neu, T>(a, b);
    case ltu: return compared_lanes<ltu, T>(a, b);
    case leu: return compared_lanes<leu, T>(a, b);
    case gtu: return compared_lanes<gtu, T>(a, b);
    case geu: return compared_lanes<geu, T>(a, b);
    case num: return compared_lanes<num, T>(a, b);
    default: return compared_lanes<nan_, T>(a, b);
  }
}
/// size: 0 alone, 1 and, 2 or, 3 xor with predicate c; d2 the complement (or 0: none).
template <class T>
void set_predicate(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 r = compare_lanes<T>(w, in);
  u32 p = r, q = ~r;
  if (in.size != 0) {
    const u32 c = in.is_signed ? ~pred(w, in.c) : pred(w, in.c);
    p = in.size == 1 ? p & c : in.size == 2 ? p | c : p ^ c;
    q = in.size == 1 ? q & c : in.size == 2 ? q | c : q ^ c;
  }
  set_pred(w, in.d, p, mask);
  if (in.d2 != 0) set_pred(w, in.d2, q, mask);
}
/// what: 0 mov, 1 and, 2 or, 3 xor, 4 not
inline void predicates(Machine&, Warp& w, const Inst& in, u32 mask) {
  const u32 a = pred(w, in.a), b = pred(w, in.b);
  const u32 r = in.what == 0   ? a
                : in.what == 1 ? a & b
                : in.what == 2 ? a | b
                : in.what == 3 ? a ^ b
                               : ~a;
  set_pred(w, in.d, r, mask);
}

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
template <class D, class S>
inline D converted(S x, u8 how, bool sat) {
  if constexpr (std::is_same_v<S, Bf16>) {
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

// ---- memory -------------------------------------------------------------------------------------

inline u64 address_of(const Warp& w, const Inst& in, int l) {
  const u64 base = in.wide_base ? reg<u64>(w, in.a)[l] : reg<u32>(w, in.a)[l];
  return base + static_cast<u64>(in.offset);
}
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
    u64 sector[64];
    int count = 0;
    for (int l = 0; l < 32; ++l)
      if (mask >> l & 1) sector[count++] = address_of(w, in, l) / 32;
    std::sort(sector, sector + count);
    k.requests[store] += 1;
    k.sectors[store] += static_cast<u64>(std::unique(sector, sector + count) - sector);
    k.bytes[store] += n * static_cast<u64>(std::popcount(mask));
  } else if (shared) {
    // Words of 4 bytes in 32 banks; of wide accesses a half or quarter of the lanes at a time.
    const int group = n == 16 ? 8 : n == 8 ? 16 : 32;
    k.shared_requests += 1;
    for (int g = 0; g < 32; g += group) {
      std::set<u64> bank[32];
      u64 most = 0;
      for (int l = g; l < g + group; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 at = address_of(w, in, l);
        for (u64 word = at / 4; word * 4 < at + n; ++word) {
          bank[word % 32].insert(word);
          most = std::max<u64>(most, bank[word % 32].size());
        }
      }
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
      u64 x = 0;
      std::memcpy(&x, p, in.size);
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
    u8* p = m.access(in, w, l, in.space, address_of(w, in, l), sizeof(T), Machine::Access::atomic,
                     nullptr);
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
