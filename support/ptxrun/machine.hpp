// SPDX-License-Identifier: MIT
// What executes: instructions as they are decoded, warps of 32 lanes, and the machine with its memory and checks.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "block_order.hpp"
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
  std::vector<u8> image;    // of a warp's registers
  u32 constants_begin = 0;  // in the image: behind what instructions write
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
  bool shuffled = order == "random";
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
  SharedCells shared_cells;
  BlockOrder order;
  std::vector<u8> params;
  std::vector<Warp> warps;
  std::vector<u8> locals;
  std::vector<std::pair<u32, int>> ctaid_registers;  // and the axis of each

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

  /// An allocation, a variable in shared memory or the parameters of a launch, in which an access lies.
  struct Piece {
    u8* bytes = nullptr;  // of the address `begin`; null: there is none
    u8* known = nullptr;  // of each byte whether it was written; null: nobody asks
    u64 begin = 0;
    Allocation* allocation = nullptr;  // of global memory
    bool must_be_known = false;
    Cells cells;
  };

  /// The stamp of the first accesses that may race: another launch's are over.
  u32 first_racing(const Piece& piece) const {
    return piece.allocation ? launch_first : block_first;
  }
  WordReads word_reads(const Piece& piece, const Inst& in, const Warp& w) const {
    return {now, first_racing(piece), block_first, pc_of(in), w.epoch};
  }
  /// Looks for races of the n bytes at `address` of a piece. `value`: the bytes to write, or null.
  void check_race(const Piece& piece, u64 address, u64 n, Access access, const Inst& in,
                  const Warp& w, int lane, const u8* value) {
    const u32 first = first_racing(piece);
    const u16 me = static_cast<u16>(w.id * 32 + lane);
    const auto ordered = [&](u32 stamp, u16 thread, u16 epoch) {
      if (stamp < first) return true;  // an earlier launch
      if (stamp < block_first)
        return order.before(stamp, thread, me, now);  // another block of threads
      if (stamp < now) return true;                   // before a barrier
      if (thread == me) return true;
      return thread / 32 == w.id && epoch < w.epoch;
    };
    const bool writes = access != Access::read, atomic = access == Access::atomic;
    const s32 pc = pc_of(in);
    const WordReads reads = word_reads(piece, in, w);
    piece.cells.each(address - piece.begin, n, [&](Cell& c, u64 i) {
      s32 other = -1;
      const char* what = nullptr;
      if (c.w_stamp != 0 && !(atomic && c.w_atomic) && !ordered(c.w_stamp, c.w_thread, c.w_epoch)) {
        const bool same =
            value && std::memcmp(value, piece.bytes + (address - piece.begin), n) == 0;
        what = writes ? (same ? "race of two writes of the same value" : "race of two writes")
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
                   (piece.allocation ? memory.describe(address + i) : shared_place(address + i)),
               in, w, lane, other);
      }
      if (access != Access::write) reads.trace(c, me, atomic);
      if (writes) {
        c.w_stamp = now, c.w_thread = me, c.w_epoch = w.epoch, c.w_pc = pc;
        c.w_atomic = atomic;
      }
    });
  }

  /// The space of a generic address, and the address in it.
  static Space resolve(Space space, u64& address) {
    const auto within = [&](u64 base) { return address >= base && address < base + window; };
    if (space != Space::generic) return space;
    if (within(shared_base)) return address -= shared_base, Space::shared;
    if (within(local_base)) return address -= local_base, Space::local;
    if (within(param_base)) return address -= param_base, Space::param;
    return Space::global;
  }

  /// The one allocation or variable that has all bytes from `address` on up to `end`, or no piece. Not of local memory.
  Piece find(Space space, u64 address, u64 end, Access how) {
    Piece piece;
    if (space == Space::global || space == Space::constant) {
      Allocation* const a = memory.holding(address, end - address);
      if (!a && space == Space::global && memory.is_pinned(address, end - address)) {
        piece.bytes = reinterpret_cast<u8*>(address), piece.begin = address;
        return piece;
      }
      if (!a || (how != Access::read && a->constant)) return piece;
      piece.bytes = memory.store(a->base), piece.known = memory.known(a->base),
      piece.begin = a->base;
      piece.allocation = a, piece.must_be_known = true;
      if (settings.races) piece.cells = a->cells.get(a->size);
    } else if (space == Space::shared) {
      if (end > shared.size()) return piece;
      for (const Symbol& s : kernel->shared_symbols)
        if (address >= s.offset && end <= s.offset + s.size) piece.bytes = shared.data();
      piece.known = shared_known.data(), piece.must_be_known = settings.unwritten;
      if (settings.races) piece.cells = shared_cells.get();
    } else if (space == Space::param) {
      if (end <= params.size() && how == Access::read) piece.bytes = params.data();
    }
    return piece;
  }

  /// The bytes of an access by one lane, after every check.
  u8* access(const Inst& in, const Warp& w, int lane, Space space, u64 address, u64 n, Access how,
             const u8* value) {
    if ((address & (n - 1)) != 0)  // n is a power of 2
      fault("misaligned access of " + std::to_string(n) + " bytes", in, w, lane);
    space = resolve(space, address);
    if (space == Space::local) {
      if (address + n > kernel->local_bytes) fault("outside of local memory", in, w, lane);
      return w.local + static_cast<u64>(lane) * kernel->local_bytes + address;
    }
    const Piece piece = find(space, address, address + n, how);
    if (!piece.bytes) no_piece(in, w, lane, space, address, n, how);
    u8* const at = piece.bytes + (address - piece.begin);
    if (!piece.known) return at;
    u8* const known = piece.known + (address - piece.begin);
    const auto place = [&](u64 i) {
      return piece.allocation ? memory.describe(address + i) : shared_place(address + i);
    };
    if (space == Space::shared && in_flight != 0 && std::memchr(known, on_its_way, n))
      report("touches what a cp.async copies and is not waited for: " + place(0), in, w, lane);
    if (how != Access::write && piece.must_be_known && !all_written(known, n)) {
      for (u64 i = 0; i < n; ++i)
        if (!known[i]) {
          report("reads what nobody has written: " + place(i), in, w, lane);
          break;
        }
    }
    if (how != Access::read) std::memset(known, 1, n);
    if (settings.races) check_race(piece, address, n, how, in, w, lane, value);
    return at;
  }
  [[noreturn]] void no_piece(const Inst& in, const Warp& w, int lane, Space space, u64 address,
                             u64 n, Access how) {
    const std::string verb = how == Access::read ? "reads" : "writes";
    if (space == Space::param) fault("outside of the parameters", in, w, lane);
    if (space == Space::shared)
      fault(verb + " outside of shared memory, at " + std::to_string(address), in, w, lane);
    if (memory.holding(address, n)) fault("writes a constant", in, w, lane);
    fault(verb + " outside of memory: " + memory.describe(address), in, w, lane);
  }

  // In run.hpp.
  inline void set_special(const std::string& name, u32 at);
  inline void start_block(u32 x, u32 y, u32 z);
  inline void run_block();
  inline bool run_warp(Warp& w, s64 budget);
  inline void warp_sync(Warp& w, const Inst& in, u32 mask);
  inline bool sync_ready(Warp& w, const Inst& in, u32 mask);
  inline void launch(Kernel& k, const u32 g[3], const u32 b[3], u64 dynamic,
                     std::vector<u8> arguments);
};

}  // namespace ptxrun
