// SPDX-License-Identifier: MIT
// cp.async: copies from global to shared memory that are done once their thread has waited for them.
//
// A copy takes its bytes when it is issued and gives them when its thread waits. In between the
// destination holds rubbish, and whoever touches it is reported, as is a source that changes. For the
// race check the destination is written twice: when the copy is issued, since it may come at once, and at
// the wait, which is what other threads need a barrier after.
#pragma once
#include "access.hpp"

namespace ptxrun {

/// a: destination, b: source, c: bytes of it that are read, the others are zeros.
inline void issue_copies(Machine& m, Warp& w, const Inst& in, u32 mask) {
  const u64 n = in.size;
  if (m.settings.stats) {
    Inst source = in;
    source.space = Space::global, source.wide_base = true;
    source.a = in.b, source.offset = in.source_offset;
    count_access(m, w, source, mask, false);
    count_access(m, w, in, mask, true);
  }
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    LaneCopies& lane = w.copies[static_cast<std::size_t>(l)];
    AsyncCopy copy{&in, address_of(w, in, l),
                   reg<u64>(w, in.b)[l] + static_cast<u64>(in.source_offset), reg<u32>(w, in.c)[l],
                   lane.groups};
    if (copy.given > n) m.fault("cp.async reads more bytes than it copies", in, w, l);
    if (copy.from % n != 0)
      m.fault("misaligned source of a copy of " + std::to_string(n) + " bytes", in, w, l);
    if (copy.given == n) {
      std::memcpy(copy.bytes,
                  m.access(in, w, l, Space::global, copy.from, n, Machine::Access::read, nullptr),
                  n);
    } else {
      for (u64 i = 0; i < copy.given; ++i)
        copy.bytes[i] =
            *m.access(in, w, l, Space::global, copy.from + i, 1, Machine::Access::read, nullptr);
    }
    u8* const to = m.access(in, w, l, Space::shared, copy.to, n, Machine::Access::write, nullptr);
    std::memset(to, 0xEE, n);
    std::memset(m.shared_known.data() + copy.to, Machine::on_its_way, n);
    m.in_flight += n;
    lane.pending.push_back(copy);
  }
}

inline void finish_copy(Machine& m, Warp& w, const Inst& in, int l, const AsyncCopy& copy) {
  const u64 n = copy.in->size;
  if (std::memcmp(m.memory.store(copy.from), copy.bytes, copy.given) != 0)
    m.report("the source of a cp.async changed before it was waited for", in, w, l,
             m.pc_of(*copy.in));
  std::memset(m.shared_known.data() + copy.to, 0, n);
  m.in_flight -= n;
  std::memcpy(m.access(in, w, l, Space::shared, copy.to, n, Machine::Access::write, copy.bytes),
              copy.bytes, n);
}

inline void commit_copies(Machine&, Warp& w, const Inst&, u32 mask) {
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) ++w.copies[static_cast<std::size_t>(l)].groups;
}

/// offset: so many of the latest groups may go on; -1: also what is in no group is waited for.
inline void wait_for_copies(Machine& m, Warp& w, const Inst& in, u32 mask) {
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    LaneCopies& lane = w.copies[static_cast<std::size_t>(l)];
    std::vector<AsyncCopy> left;
    for (const AsyncCopy& copy : lane.pending)
      if (in.offset < 0 || copy.group + static_cast<u64>(in.offset) < lane.groups)
        finish_copy(m, w, in, l, copy);
      else left.push_back(copy);
    lane.pending = std::move(left);
  }
}

}  // namespace ptxrun
