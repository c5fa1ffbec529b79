// SPDX-License-Identifier: MIT
/// Sums of blocks over all ranks, under way while the ranks compute on.
///
/// A block is cut into chunks, with a few under way at once. Every rank owns a piece of each chunk,
/// receives all ranks' versions of its piece, adds them in the one order (pairwise_sum.hpp),
/// and sends the sum to all. So each rank sends and receives 2 (R - 1) / R times the block, the least
/// possible, in 2 (R - 1) messages a chunk. Hundreds of ranks would need too many messages:
/// ranks of one machine should be added first. Or one rank owns the whole chunk and keeps the sum
/// alone, at half the traffic, for sharded optimizer states.
///
/// A chunk's pieces are received in a place, a constant size of memory. Places are all memory taken, and do
/// not grow with the blocks. Messages move only in progress() and finish().
///
/// Blocks may lie in the memory of a device (rank_sums.cuh), if the group reaches it. Then each chunk waits, on the
/// device, for the work that was queued when the block was lent, and for no later work.
#pragma once

#include <cstddef>
#include <utility>

#include "../../core/array.hpp"
#include "../../core/block.hpp"
#include "../../core/cpu.hpp"
#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "../group.hpp"
#include "pairwise_sum.hpp"

namespace adacc { inline namespace v0_1 {

struct RankSumsOptions {
  std::size_t chunk_bytes = 1 << 20;  ///< bytes of a place, about a chunk's
  int chunks = 4;                     ///< under way at once
};

/// Bytes of a RankSums, beside the lists.
constexpr std::size_t rank_sums_bytes(int ranks, const RankSumsOptions& options) {
  return ranks > 1 ? static_cast<std::size_t>(options.chunks) * align_up(options.chunk_bytes) : 0;
}

/// Where a context's blocks lie, what chunks wait for, and who adds them up: in the host's memory, and nothing is waited
/// for, unless specialized.
template <class Context>
class RankSumsMemory {
 public:
  template <class T>
  using Block = adacc::Block<T>;

  explicit RankSumsMemory(const Context&) {}
  RankSumsMemory() = default;

  /// For so many ranks, queued blocks, and chunks under way.
  Error make(std::size_t, std::size_t, std::size_t) { return {}; }
  /// All work queued by now computes the block with this number in the queue.
  Error computed(std::size_t) { return {}; }
  /// The chunk of `slot` waits for that block; returns what its messages begin behind.
  Result<const void*> wait(std::size_t, std::size_t) { return static_cast<const void*>(nullptr); }
  /// Adds up a chunk whose messages have ended.
  template <class T>
  Error add(std::size_t, T* to, const T* const* from, std::size_t count, std::size_t elems) {
    pairwise_sum(to, from, count, elems);
    return {};
  }
  /// Work queued from now on comes behind all sums.
  Error join() { return {}; }
};

template <class T, class Context = Cpu>
class RankSums {
 public:
  using Options = RankSumsOptions;
  using Memory = RankSumsMemory<Context>;
  static constexpr int everybody = -1;

  RankSums() = default;

  /// For at most `most_blocks` blocks at a time. Use the group for nothing else while a sum
  /// is under way. All ranks call make(), and all functions below, with the same arguments.
  static Result<RankSums> make(GroupRef group, std::size_t most_blocks, const Options& options = {},
                               Memory memory = {}) {
    RankSums sums;
    sums.group_ = group;
    sums.memory_ = std::move(memory);
    const auto ranks = static_cast<std::size_t>(group.size());
    if (ranks == 1) return static_cast<RankSums&&>(sums);
    if (options.chunks < 1 || options.chunk_bytes < ranks * alignment)
      return Error::say("sums over ", ranks, " ranks take chunks of at least ", ranks * alignment,
                        " bytes, one at a time or more");
    sums.peers_ = static_cast<int>(ranks) - 1;
    sums.place_elems_ = align_up(options.chunk_bytes) / sizeof(T);
    sums.slots_.resize(static_cast<std::size_t>(options.chunks));
    sums.queue_.resize(most_blocks + 1);
    sums.pieces_.resize(ranks);
    if (const Error why = sums.prepare()) return why;
    if (const Error why = sums.memory_.make(ranks, sums.queue_.size(), sums.slots_.size()))
      return why;
    auto places =
        Memory::template Block<T>::make(sums.place_elems_ * sums.slots_.size(), "sums over ranks");
    if (!places) return places.error;
    sums.places_ = std::move(*places);
    return static_cast<RankSums&&>(sums);
  }

  /// Call before the first sum after other uses of the group.
  Error prepare() const { return group_.prepare(2 * peers_ * static_cast<int>(slots_.size())); }

  /// Lends `block` until finish(). Then `block` holds the sum of all ranks' blocks, on every
  /// rank, or on rank `owner` alone, and numbers without meaning elsewhere. Small adjacent blocks are sent
  /// together, so call sum() for each block as soon as the block is ready.
  void sum(View<T> block, int owner = everybody) { add({block.data(), block.size(), owner, true}); }

  /// Lends `block` until finish(). Then `block` holds rank `owner`'s numbers on every rank.
  void spread(View<T> block, int owner) { add({block.data(), block.size(), owner, false}); }

  /// Later blocks do not join the blocks before, even if adjacent.
  void close() { close_pending(); }

  /// Moves messages and sums on without waiting.
  void progress() {
    while (!error_ && turn(false)) {}
  }

  /// Waits for all sums begun. After an error, returns the error forever.
  Error finish() {
    close_pending();
    while (!error_ && turn(true)) {}
    if (!error_ && peers_ != 0) error_ = memory_.join();
    return error_;
  }

  /// Whether no block waits or is under way.
  bool idle() const { return queued_ == 0 && active_ == 0 && pending_.elems == 0; }
  std::size_t place_bytes() const { return places_.size() * sizeof(T); }

 private:
  struct Range {
    T* data = nullptr;
    std::size_t elems = 0;
    int owner = everybody;
    bool sums = true;
  };
  enum class Phase : std::uint8_t { free, exchange, hand_out };
  struct Slot {
    Range range;
    Phase phase = Phase::free;
    int next = 0;                  ///< the first unfinished ticket
    const void* behind = nullptr;  ///< which messages begin behind
  };

  /// Elements of a piece; the last ones may have fewer, or none.
  std::size_t piece_elems(const Range& chunk) const {
    if (chunk.owner != everybody) return chunk.elems;
    const auto ranks = static_cast<std::size_t>(peers_) + 1;
    constexpr std::size_t line = alignment / sizeof(T);
    return div_up(div_up(chunk.elems, ranks), line) * line;
  }
  std::size_t most_elems(const Range& range) const {
    const std::size_t piece = place_elems_ / static_cast<std::size_t>(peers_);
    constexpr std::size_t line = alignment / sizeof(T);
    if (!range.sums) return place_elems_;
    const std::size_t whole = piece / line * line;
    return range.owner == everybody ? whole * (static_cast<std::size_t>(peers_) + 1) : whole;
  }

  void add(const Range& range) {
    if (peers_ == 0 || range.elems == 0) return;
    Range& last = pending_;
    const bool same = last.elems != 0 && last.owner == range.owner && last.sums == range.sums;
    // Adjacent blocks join, whatever is under way: all ranks cut alike.
    if (same && last.elems < most_elems(last) && range.data + range.elems == last.data) {
      last.data = range.data;
      last.elems += range.elems;
    } else if (same && last.elems < most_elems(last) && last.data + last.elems == range.data) {
      last.elems += range.elems;
    } else {
      close_pending();
      last = range;
    }
    if (last.elems >= most_elems(last)) close_pending();
    progress();
  }

  void close_pending() {
    if (pending_.elems == 0) return;
    while (!error_ && queued_ == queue_.size() - 1)
      if (!turn(true)) break;
    const std::size_t last = (first_ + queued_++) % queue_.size();
    queue_[last] = pending_;
    pending_.elems = 0;
    if (const Error why = memory_.computed(last); why && !error_) error_ = why;
  }

  /// Starts a chunk, or moves one on; false if none can move. Chunks take slots in a circle, the same on
  /// all ranks, so messages of a slot belong to the same chunk everywhere.
  bool turn(bool waits) {
    if (queued_ != 0 && active_ < slots_.size()) return start(), true;
    for (std::size_t i = 0; i < active_; ++i) {
      const std::size_t s = (oldest_ + i) % slots_.size();
      if (slots_[s].phase == Phase::free || !ended(s, waits && i == 0)) continue;
      if (error_) return false;
      next_phase(s);
      while (active_ != 0 && slots_[oldest_].phase == Phase::free) {
        oldest_ = (oldest_ + 1) % slots_.size();
        --active_;
      }
      return true;
    }
    return false;
  }

  void start() {
    Range& range = queue_[first_];
    const std::size_t s = (oldest_ + active_++) % slots_.size();
    Slot& slot = slots_[s];
    slot.range = range;
    const Result<const void*> behind = memory_.wait(s, first_);
    if (!behind) return static_cast<void>(error_ = behind.error);
    slot.behind = *behind;
    const std::size_t most = most_elems(range);
    if (range.elems > most) {
      slot.range.elems = most;
      range.data += most;
      range.elems -= most;
    } else {
      first_ = (first_ + 1) % queue_.size();
      --queued_;
    }
    slot.next = 0;
    slot.phase = slot.range.sums ? Phase::exchange : Phase::hand_out;
    if (slot.range.sums) exchange(s);
    else hand_out(s);
  }

  int ticket(std::size_t s, int i) const { return static_cast<int>(s) * 2 * peers_ + i; }
  int peer(int i) const { return (group_.rank() + 1 + i) % (peers_ + 1); }

  /// Rank `rank`'s own piece of a chunk.
  View<T> piece(const Range& chunk, int rank) const {
    if (chunk.owner != everybody)
      return {chunk.data, Shape(rank == chunk.owner ? chunk.elems : std::size_t{0})};
    const std::size_t elems = piece_elems(chunk), at = static_cast<std::size_t>(rank) * elems;
    if (at >= chunk.elems) return {chunk.data, Shape(std::size_t{0})};
    return {chunk.data + at, Shape(chunk.elems - at < elems ? chunk.elems - at : elems)};
  }
  T* place(std::size_t s, int i) {
    const std::size_t elems = piece_elems(slots_[s].range);
    return places_.data() + s * place_elems_ + static_cast<std::size_t>(i) * elems;
  }
  static Bytes bytes(T* data, std::size_t elems) {
    return {static_cast<std::byte*>(static_cast<void*>(data)), Shape(elems * sizeof(T))};
  }

  /// Receives all versions of this rank's piece, and sends this rank's versions of other pieces.
  void exchange(std::size_t s) {
    const Range& chunk = slots_[s].range;
    const View<T> share = piece(chunk, group_.rank());
    for (int i = 0; i < peers_; ++i) {
      const View<T> theirs = piece(chunk, peer(i));
      if (!share.empty()) receive(s, i, place(s, i), share.size());
      if (!theirs.empty()) send(s, i, theirs);
    }
  }

  /// Sends this rank's piece to all, and receives the pieces of others.
  void hand_out(std::size_t s) {
    const Range& chunk = slots_[s].range;
    const View<T> share = piece(chunk, group_.rank());
    for (int i = 0; i < peers_; ++i) {
      const View<T> theirs = piece(chunk, peer(i));
      if (!theirs.empty()) receive(s, i, theirs.data(), theirs.size());
      if (!share.empty()) send(s, i, share);
    }
  }

  /// Messages with this rank's i-th peer, of a slot: one each way in each phase.
  void receive(std::size_t s, int i, T* to, std::size_t elems) {
    group_.receive(ticket(s, 2 * i), peer(i), static_cast<int>(s), bytes(to, elems),
                   slots_[s].behind);
  }
  void send(std::size_t s, int i, View<T> from) {
    group_.send(ticket(s, 2 * i + 1), peer(i), static_cast<int>(s), bytes(from.data(), from.size()),
                slots_[s].behind);
  }

  /// Whether all messages of the slot's phase have ended; their tickets are then free.
  bool ended(std::size_t s, bool waits) {
    Slot& slot = slots_[s];
    for (; slot.next < 2 * peers_; ++slot.next) {
      const int other = slot.next / 2;
      const bool comes = slot.next % 2 == 0;
      const bool of_mine = comes == (slot.phase == Phase::exchange);
      if (piece(slot.range, of_mine ? group_.rank() : peer(other)).empty()) continue;
      if (!waits && !group_.done(ticket(s, slot.next))) return false;
      if (const Error why = group_.wait(ticket(s, slot.next))) return error_ = why, true;
    }
    return true;
  }

  void next_phase(std::size_t s) {
    Slot& slot = slots_[s];
    slot.next = 0;
    if (slot.phase == Phase::exchange) {
      const View<T> share = piece(slot.range, group_.rank());
      for (int i = 0; i < peers_; ++i) pieces_[static_cast<std::size_t>(peer(i))] = place(s, i);
      pieces_[static_cast<std::size_t>(group_.rank())] = share.data();
      if (!share.empty())
        if (const Error why = memory_.add(s, share.data(), pieces_.data(),
                                          static_cast<std::size_t>(peers_) + 1, share.size()))
          return static_cast<void>(error_ = why);
      if (slot.range.owner == everybody) {
        slot.phase = Phase::hand_out;
        return hand_out(s);
      }
    }
    slot.phase = Phase::free;
  }

  GroupRef group_;
  int peers_ = 0;
  std::size_t place_elems_ = 0;
  Memory memory_;
  typename Memory::template Block<T> places_;  ///< by slot: a piece of every peer
  Array<Slot> slots_;
  std::size_t oldest_ = 0, active_ = 0;  ///< slots taken, in a circle
  Array<Range> queue_;                   ///< a circle, too
  std::size_t first_ = 0, queued_ = 0;
  Range pending_;           ///< may still grow
  Array<const T*> pieces_;  ///< by rank, for adding
  Error error_;
};

}}  // namespace adacc::v0_1
