// SPDX-License-Identifier: MIT
// What blocks of threads of one launch know of each other's memory: they make an order by a fence, an atomic
// operation on one address, and a fence.
#pragma once
#include <unordered_map>
#include <vector>

#include "parse.hpp"

namespace ptxrun {

/// What a thread did before a fence is before what another block's thread does behind one, if each had an atomic
/// operation on the same address, this one behind its fence and the other before. Barriers carry it to the other
/// threads of either block. Blocks run one after the other, so the earlier one is the one that ran first.
///
/// An order that goes by way of a third block's address is not known, nor are atomic operations that are fences
/// themselves. A write between a thread's fence and its next barrier counts as before the fence.
class BlockOrder {
 public:
  void start_launch() { released_.clear(); }
  void start_block(u32 first, std::size_t threads) {
    first_ = first;
    fenced_.assign(threads, 0);
    seen_.clear(), known_.clear();
  }

  void fence(u16 thread, u32 now) {
    fenced_[thread] = now;
    std::erase_if(seen_, [&](Known& k) {
      if (k.by != thread) return false;
      k.since = now;
      known_.push_back(k);
      return true;
    });
  }
  void atomic(u16 thread, u64 address) {
    std::vector<Release>& of = released_[address];
    if (!of.empty()) seen_.push_back({&of, of.size(), thread, 0});
    if (fenced_[thread] != 0) of.push_back({first_, fenced_[thread], thread});
  }

  /// Whether what a thread of an earlier block did at `stamp` is known to be before what this one does now.
  bool before(u32 stamp, u16 thread, u16 me, u32 now) const {
    for (const Known& k : known_) {
      if (k.by != me && k.since >= now) continue;
      for (std::size_t i = 0; i < k.count; ++i) {
        const Release& r = (*k.of)[i];
        if (stamp >= r.first && (stamp < r.stamp || (stamp == r.stamp && thread == r.thread)))
          return true;
      }
    }
    return false;
  }

 private:
  struct Release {
    u32 first, stamp;  // of its block; of the fence
    u16 thread;
  };
  struct Known {
    const std::vector<Release>* of;  // an address's
    std::size_t count;               // those that were there
    u16 by;
    u32 since;
  };

  u32 first_ = 0;
  std::vector<u32> fenced_;          // by thread: the stamp of its last fence, or 0
  std::vector<Known> seen_, known_;  // before and behind a fence
  std::unordered_map<u64, std::vector<Release>> released_;
};

}  // namespace ptxrun
