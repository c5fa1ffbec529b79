// SPDX-License-Identifier: MIT
// Blocks of threads, warps, barriers.
#pragma once
#include "decode.hpp"

namespace ptxrun {

inline void Machine::start_block(u32 x, u32 y, u32 z) {
  ctaid[0] = x, ctaid[1] = y, ctaid[2] = z;
  block_first = ++now;
  std::fill(shared_known.begin(), shared_known.end(), u8{0});
  // What an earlier block left there is no good value.
  std::fill(shared.begin(), shared.end(), u8{0xEE});
  in_flight = 0;
  const u32 threads = block[0] * block[1] * block[2];
  order.start_block(block_first, threads);
  for (Warp& w : warps) {
    const u32 left = threads - static_cast<u32>(w.id) * 32;
    w.alive = left >= 32 ? all_lanes : (1U << left) - 1;
    w.run.assign(1, {0, w.alive});
    w.at_sync.clear(), w.at_barrier.clear();
    w.epoch = 0;
    w.copies = {};
    for (const auto& [at, axis] : ctaid_registers)
      std::fill_n(reg_out<u32>(w, at), 32, ctaid[axis]);
  }
}

/// Gives a register of each warp what a launch says of it; those of ctaid, in every block anew, are noted.
inline void Machine::set_special(const std::string& name, u32 at) {
  // value(t, l): of thread t, in lane l.
  const auto set = [&](const auto& value) {
    for (Warp& w : warps)
      for (u32 l = 0; l < 32; ++l)
        reg_out<u32>(w, at)[l] = static_cast<u32>(value(static_cast<u32>(w.id) * 32 + l, l));
  };
  const u32 *const b = block, *const g = grid;
  if (name == "%tid.x") set([=](u32 t, u32) { return t % b[0]; });
  else if (name == "%tid.y") set([=](u32 t, u32) { return t / b[0] % b[1]; });
  else if (name == "%tid.z") set([=](u32 t, u32) { return t / b[0] / b[1]; });
  else if (name == "%ntid.x") set([=](u32, u32) { return b[0]; });
  else if (name == "%ntid.y") set([=](u32, u32) { return b[1]; });
  else if (name == "%ntid.z") set([=](u32, u32) { return b[2]; });
  else if (name == "%nctaid.x") set([=](u32, u32) { return g[0]; });
  else if (name == "%nctaid.y") set([=](u32, u32) { return g[1]; });
  else if (name == "%nctaid.z") set([=](u32, u32) { return g[2]; });
  else if (name == "%laneid") set([](u32, u32 l) { return l; });
  else if (name == "%warpid") set([](u32 t, u32) { return t / 32; });
  else if (name == "%nwarpid") set([&](u32, u32) { return warps.size(); });
  else if (name == "%lanemask_lt") set([](u32, u32 l) { return (1U << l) - 1; });
  else if (name == "%lanemask_le") set([](u32, u32 l) { return (u64{2} << l) - 1; });
  else if (name == "%lanemask_eq") set([](u32, u32 l) { return 1U << l; });
  else if (name == "%lanemask_ge") set([](u32, u32 l) { return ~((1U << l) - 1); });
  else if (name == "%lanemask_gt") set([](u32, u32 l) { return ~((u64{2} << l) - 1); });
  else if (name.substr(0, 7) == "%ctaid.") ctaid_registers.emplace_back(at, name[7] - 'x');
  else if (name.substr(0, 5) != "%cloc" && name != "%smid") unsupported("register " + name);
}

inline void Machine::launch(Kernel& k, const u32 g[3], const u32 b[3], u64 dynamic,
                            std::vector<u8> arguments) {
  kernel = &k;
  std::copy(g, g + 3, grid), std::copy(b, b + 3, block);
  launch_first = ++now;
  order.start_launch();
  params = std::move(arguments);
  const u64 shared_size = k.shared_bytes + dynamic;
  for (Symbol& s : k.shared_symbols)
    if (s.dynamic) s.size = dynamic;
  shared.resize(shared_size), shared_known.resize(shared_size);
  shared_cells.clear(settings.races ? shared_size : 0);
  const u32 threads = b[0] * b[1] * b[2];
  const u32 count = (threads + 31) / 32;
  warps.resize(count);
  locals.assign(count * 32 * k.local_bytes, 0xEE);
  for (u32 i = 0; i < count; ++i) {
    Warp& w = warps[i];
    w.id = static_cast<int>(i);
    w.memory.resize(k.image.size() + 64);
    w.regs = w.memory.data() + (64 - reinterpret_cast<u64>(w.memory.data()) % 64) % 64;
    std::copy(k.image.begin() + k.constants_begin, k.image.end(), w.regs + k.constants_begin);
    w.local = locals.data() + i * 32 * k.local_bytes;
  }
  ctaid_registers.clear();
  for (const auto& [name, at] : k.special) set_special(name, at);
  k.launches += 1;
  k.threads = threads, k.dynamic_shared = dynamic;
  const u64 blocks = u64{g[0]} * g[1] * g[2];
  std::vector<u64> turns(blocks);
  for (u64 i = 0; i < blocks; ++i) turns[i] = settings.order == "descending" ? blocks - 1 - i : i;
  if (settings.shuffled) std::shuffle(turns.begin(), turns.end(), random);
  for (const u64 i : turns) {
    start_block(static_cast<u32>(i % g[0]), static_cast<u32>(i / g[0] % g[1]),
                static_cast<u32>(i / g[0] / g[1]));
    k.blocks += 1;
    run_block();
  }
  if (now > 0xF0000000U) throw std::runtime_error("ptxrun: too long");
}

inline void Machine::run_block() {
  std::vector<std::size_t> turns(warps.size());
  for (;;) {
    for (std::size_t i = 0; i < turns.size(); ++i)
      turns[i] = settings.order == "descending" ? turns.size() - 1 - i : i;
    if (settings.shuffled) std::shuffle(turns.begin(), turns.end(), random);
    if (settings.quantum == 0) {
      for (const std::size_t i : turns) run_warp(warps[i], INT64_MAX);
    } else {
      // Warps take turns of random lengths.
      std::vector<std::size_t> live = turns;
      while (!live.empty()) {
        const std::size_t at = random() % live.size();
        const s64 turn = 1 + static_cast<s64>(random() % static_cast<u64>(2 * settings.quantum));
        if (run_warp(warps[live[at]], turn))
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    // All have exited or wait at a barrier.
    s32 pc = -1;
    u32 exited = 0, yes = 0, waiting = 0;
    for (Warp& w : warps) {
      const u32 threads = block[0] * block[1] * block[2] - static_cast<u32>(w.id) * 32;
      exited += std::min(threads, 32U) - static_cast<u32>(std::popcount(w.alive));
      for (const Group& g : w.at_barrier) {
        const Inst& in = kernel->code[static_cast<std::size_t>(g.pc)];
        if (pc >= 0 && pc != g.pc)
          report("threads wait at different barriers", in, w, std::countr_zero(g.mask), pc);
        pc = g.pc;
        waiting += static_cast<u32>(std::popcount(g.mask));
        if (in.kind == Kind::bar_red) {
          const u32 p = pred(w, in.c);
          yes += static_cast<u32>(std::popcount((in.is_signed ? ~p : p) & g.mask));
        }
      }
    }
    if (pc < 0) {
      for (const Warp& w : warps)
        for (std::size_t l = 0; l < 32; ++l)
          for (const AsyncCopy& copy : w.copies[l].pending)
            report("a cp.async that its thread never waits for", *copy.in, w, static_cast<int>(l));
      return;
    }
    kernel->barriers += 1;
    ++now;
    for (Warp& w : warps) {
      for (const Group& g : w.at_barrier) {
        const Inst& in = kernel->code[static_cast<std::size_t>(g.pc)];
        if (exited != 0)
          report(
              "a barrier that " + std::to_string(exited) + " threads never reach: they have ended",
              in, w, std::countr_zero(g.mask));
        if (in.kind == Kind::bar_red) {
          if (in.what == 0) lanes_of(reg_out<u32>(w, in.d), g.mask, [=](int) { return yes; });
          else
            set_pred(w, in.d, (in.what == 1 ? yes == waiting : yes != 0) ? all_lanes : 0, g.mask);
        }
        w.run.push_back({g.pc + 1, g.mask});
      }
      w.at_barrier.clear();
    }
  }
}

/// Lanes that a warp-wide operation waits for are all here?
inline bool Machine::sync_ready(Warp& w, const Inst& in, u32 mask) {
  const u32* members = reg<u32>(w, in.e);
  u32 wanted = 0;
  for (int l = 0; l < 32; ++l) wanted |= mask >> l & 1 ? members[l] : 0;
  return (wanted & w.alive & ~mask) == 0;
}

inline void Machine::warp_sync(Warp& w, const Inst& in, u32 mask) {
  const u32* members = reg<u32>(w, in.e);
  const u32 ended = ~w.alive;
  u32 outside = 0, late = 0;  // lanes
  for (u32 l = 0; l < 32; ++l) {
    outside |= ~members[l] & mask & u32{1} << l;
    late |= (members[l] & ended) != 0 ? mask & u32{1} << l : 0;
  }
  if (outside != 0)
    fault("a warp-wide operation by a lane that is not in its mask", in, w,
          std::countr_zero(outside));
  if (late != 0)
    report("a warp-wide operation whose mask names lanes that have ended", in, w,
           std::countr_zero(late));
  switch (in.what) {
    case 0: w.epoch += 1; return;
    case 1:
    case 2:
    case 3:
    case 4: {
      const u32 *a = reg<u32>(w, in.a), *b = reg<u32>(w, in.b), *c = reg<u32>(w, in.c);
      alignas(64) u32 from[32];
      u32 inside = 0;
      const auto choose = [&](auto lane) {
        for (int l = 0; l < 32; ++l) {
          const int bv = static_cast<int>(b[l] & 31), cv = static_cast<int>(c[l] & 31),
                    seg = static_cast<int>(c[l] >> 8 & 31);
          const int most = (l & seg) | (cv & ~seg), least = l & seg;
          const int j = lane(l, bv, least | (bv & ~seg));
          const bool p = in.what == 2 ? j >= most : j <= most;
          from[l] = static_cast<u32>(p ? j : l);
          inside |= static_cast<u32>(p) << l;
        }
      };
      switch (in.what) {
        case 1: choose([](int, int, int j) { return j; }); break;
        case 2: choose([](int l, int bv, int) { return l - bv; }); break;
        case 3: choose([](int l, int bv, int) { return l + bv; }); break;
        default: choose([](int l, int bv, int) { return l ^ bv; }); break;
      }
      u32 missing = 0;
      for (u32 l = 0; l < 32; ++l) missing |= ~mask >> from[l] & 1 ? mask & u32{1} << l : 0;
      for (; missing != 0; missing &= missing - 1)
        report("shfl: reads a lane that does not take part", in, w, std::countr_zero(missing));
      inside &= mask;
      lanes_of(reg_out<u32>(w, in.d), mask, [&](int l) { return a[from[l]]; });
      if (in.d2 != 0) set_pred(w, in.d2, inside, mask);
      return;
    }
    case 5:
    case 6:
    case 7:
    case 8: {
      const u32 p = in.is_signed ? ~pred(w, in.a) : pred(w, in.a);
      u32 result_p = 0;
      alignas(64) u32 result[32];
      for (int l = 0; l < 32; ++l) {
        if (!(mask >> l & 1)) continue;
        const u32 of = members[l] & mask, yes = p & of;
        const bool r = in.what == 5 ? yes == of : in.what == 6 ? yes != 0 : yes == of || yes == 0;
        result[l] = yes;
        result_p |= static_cast<u32>(r) << l;
      }
      if (in.what == 8) {
        lanes_of(reg_out<u32>(w, in.d), mask, [&](int l) { return mask >> l & 1 ? result[l] : 0; });
      } else set_pred(w, in.d, result_p, mask);
      return;
    }
    case 9: {
      const u32* a = reg<u32>(w, in.a);
      alignas(64) u32 result[32] = {};
      for (int l = 0; l < 32; ++l) {
        if (!(mask >> l & 1)) continue;
        bool first = true;
        u32 r = 0;
        for (int j = 0; j < 32; ++j) {
          if (!(members[l] & mask & 1U << j)) continue;
          const u32 x = a[j];
          if (first) r = x;
          else if (in.size == 0) r += x;
          else if (in.size == 1)
            r = in.is_signed ? static_cast<u32>(std::min(static_cast<s32>(r), static_cast<s32>(x)))
                             : std::min(r, x);
          else if (in.size == 2)
            r = in.is_signed ? static_cast<u32>(std::max(static_cast<s32>(r), static_cast<s32>(x)))
                             : std::max(r, x);
          else if (in.size == 3) r &= x;
          else if (in.size == 4) r |= x;
          else r ^= x;
          first = false;
        }
        result[l] = r;
      }
      lanes_of(reg_out<u32>(w, in.d), mask, [&](int l) { return result[l]; });
      return;
    }
    case 11:
      if (mask != all_lanes) fault("a product of matrices by a part of a warp", in, w, 0);
      return MatrixProduct::run(w, in);
    case 12:
      if (mask != all_lanes) fault("a load of matrices by a part of a warp", in, w, 0);
      return load_matrices(*this, w, in);
    default: {
      const u32* a = reg<u32>(w, in.a);
      alignas(64) u32 result[32] = {};
      for (int l = 0; l < 32; ++l)
        for (int j = 0; j < 32; ++j)
          if (mask >> l & 1 && (members[l] & mask) >> j & 1 && a[j] == a[l]) result[l] |= 1U << j;
      lanes_of(reg_out<u32>(w, in.d), mask, [&](int l) { return result[l]; });
    }
  }
}

/// Runs until all lanes have exited or wait at a barrier (true), or the budget is spent.
inline bool Machine::run_warp(Warp& w, s64 budget) {
  const Inst* const code = kernel->code.data();
  u64 instructions = 0, lanes = 0;
  const auto leave = [&](bool done) {
    kernel->warp_instructions += instructions, kernel->lane_instructions += lanes;
    return done;
  };
  for (;;) {
    if (w.run.empty()) {
      // Lanes that wait for one another may all be here now.
      for (std::size_t i = 0; i < w.at_sync.size(); ++i) {
        const Inst& in = code[w.at_sync[i].pc];
        if (sync_ready(w, in, w.at_sync[i].mask)) {
          w.run.push_back(w.at_sync[i]);
          w.at_sync.erase(w.at_sync.begin() + static_cast<std::ptrdiff_t>(i));
          break;
        }
      }
      if (w.run.empty()) {
        if (w.at_sync.empty()) return leave(true);
        fault("a warp-wide operation that not all lanes of its mask reach", code[w.at_sync[0].pc],
              w, std::countr_zero(w.at_sync[0].mask));
      }
    }
    // Those who are behind first: so lanes meet again where their ways join.
    std::size_t best = 0;
    if (settings.shuffled && settings.quantum != 0) best = random() % w.run.size();
    else
      for (std::size_t i = 1; i < w.run.size(); ++i)
        if (w.run[i].pc < w.run[best].pc) best = i;
    Group g = w.run[best];
    w.run.erase(w.run.begin() + static_cast<std::ptrdiff_t>(best));
    for (std::size_t i = w.run.size(); i-- > 0;)
      if (w.run[i].pc == g.pc) {
        g.mask |= w.run[i].mask;
        w.run.erase(w.run.begin() + static_cast<std::ptrdiff_t>(i));
      }
    s32 meet = INT_MAX;
    for (const Group& o : w.run)
      if (o.pc > g.pc) meet = std::min(meet, o.pc);
    for (;;) {
      if (g.pc >= meet) {  // others are there, or behind
        w.run.push_back(g);
        break;
      }
      if (--budget < 0) {
        w.run.push_back(g);
        return leave(false);
      }
      const Inst& in = code[g.pc];
      u32 m = g.mask;
      if (in.guard >= 0) {
        const u32 p = pred(w, static_cast<u32>(in.guard));
        m &= in.negate_guard ? ~p : p;
      }
      ++instructions;
      lanes += static_cast<u32>(std::popcount(g.mask));
      if (settings.stats) kernel->executed[static_cast<std::size_t>(g.pc)] += 1;
      if (in.kind == Kind::data) {
        if (m != 0) in.fn(*this, w, in, m);
        ++g.pc;
        continue;
      }
      if (m == 0) {
        ++g.pc;
        continue;
      }
      const u32 rest = g.mask & ~m;
      if (in.kind == Kind::bra) {
        if (rest == 0) {
          g.pc = in.target;
          // Backwards past others: they may be behind no longer.
          if (!w.run.empty()) {
            w.run.push_back(g);
            break;
          }
          continue;
        }
        w.run.push_back({in.target, m});
        w.run.push_back({g.pc + 1, rest});
        break;
      }
      if (in.kind == Kind::brx) {
        const u32* index = reg<u32>(w, in.a);
        for (int l = 0; l < 32; ++l)
          if (m >> l & 1) {
            if (index[l] >= in.targets.size()) fault("brx: index", in, w, l);
            w.run.push_back({in.targets[index[l]], 1U << l});
          }
        if (rest != 0) w.run.push_back({g.pc + 1, rest});
        break;
      }
      if (in.kind == Kind::trap) fault("an assertion failed, or trap", in, w, std::countr_zero(m));
      if (in.kind == Kind::exit) {
        w.alive &= ~m;
      } else if (in.kind == Kind::warp_sync) {
        for (std::size_t i = w.at_sync.size(); i-- > 0;)
          if (w.at_sync[i].pc == g.pc) {
            m |= w.at_sync[i].mask;
            w.at_sync.erase(w.at_sync.begin() + static_cast<std::ptrdiff_t>(i));
          }
        if (sync_ready(w, in, m)) {
          warp_sync(w, in, m);
          g = {g.pc + 1, m | rest};
          if (w.run.empty()) continue;
          w.run.push_back(g);
          break;
        }
        w.at_sync.push_back({g.pc, m});
      } else {
        bool merged = false;
        for (Group& o : w.at_barrier)
          if (o.pc == g.pc) o.mask |= m, merged = true;
        if (!merged) w.at_barrier.push_back({g.pc, m});
      }
      if (rest != 0) w.run.push_back({g.pc + 1, rest});
      break;
    }
  }
}

}  // namespace ptxrun
