// SPDX-License-Identifier: MIT
/// A search for a smaller layout: in which order to place buffers.
///
/// Placed one after the other, each at the lowest offset free during its whole life, buffers rarely
/// leave a gap, and some order gives the smallest arena there is. So the search tries the usual good
/// orders first (large, long-lived and early buffers first), and mends each by moving the buffer with
/// the highest end to the front. If a gap worth closing is left, a climb goes from order to order. A
/// try takes time quadratic in the number of buffers, so the search is for short schedules. In long
/// schedules with transfers few buffers meet: a few orders are tried, with placed buffers listed by
/// ranges of instructions. Random numbers come from a fixed seed: a schedule always gets one layout,
/// in the compiler and at run time.
///
/// Buffers sent to a store die in the order of their birth, and come back in the other: no stack holds
/// them. So with transfers two more orders are tried: early buffers first, and traveling buffers
/// before all others, mended for a millisecond each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "instruction.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class LayoutSearch {
 public:
  /// Improves `offsets`, one per buffer of `schedule`, with an arena of `arena_bytes`; no layout is
  /// smaller than `live_bytes`.
  constexpr LayoutSearch(const Schedule& schedule, std::size_t live_bytes,
                         Array<std::size_t>& offsets, std::size_t& arena_bytes)
      : live_bytes_(live_bytes), best_offsets_(offsets), best_bytes_(arena_bytes),
        offsets_(schedule.buffers.size()), end_(static_cast<int>(schedule.instructions.size())),
        has_transfers_(!schedule.transfers.empty()),
        placed_(schedule.buffers.size() > short_limit ? schedule.instructions.size() / span + 1
                                                      : 1) {
    items_.reserve(schedule.buffers.size());
    for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      if (buffer.first >= 0)
        items_.push_back(
            {buffer.room(), buffer.unit(), buffer.first, buffer.last, b, buffer.travels});
    }
  }

  /// Buffers up to which all orders are tried.
  static constexpr std::size_t short_limit = 768;

  /// For a schedule with transfers, too long for run(): tries the orders for transfers until the
  /// arena has `enough` bytes or fewer.
  constexpr void run_long(std::size_t enough) {
    for (const Rank rank : {Rank::travels, Rank::start, Rank::area, Rank::bytes}) {
      sort_by(rank);
      const std::size_t most = looks_ + (std::size_t{1} << 18U);
      while (best_bytes_ > enough && looks_ < most) {
        place(best_bytes_ - 1);
        move(highest_, 0);
      }
    }
  }

  constexpr void run() {
    for (const Rank rank : {Rank::bytes, Rank::area, Rank::life, Rank::start}) {
      sort_by(rank);
      for (int tries = 8; tries > 0 && best_bytes_ > live_bytes_ && looks_ < most_looks();
           --tries) {
        place(best_bytes_ - 1);
        move(highest_, 0);
      }
    }
    const std::size_t good_enough = live_bytes_ + live_bytes_ / 32;
    for (int round = 0; best_bytes_ > good_enough && looks_ < most_looks(); ++round) {
      sort_by(round % 2 == 0 ? Rank::life : Rank::area);
      climb(256, good_enough);
    }
    if (!has_transfers_) return;
    for (const Rank rank : {Rank::start, Rank::travels}) {
      sort_by(rank);
      const std::size_t most = looks_ + (std::size_t{1} << 17U);
      while (best_bytes_ > live_bytes_ && looks_ < most) {
        place(best_bytes_ - 1);
        move(highest_, 0);
      }
    }
  }

 private:
  enum class Rank : std::uint8_t { bytes, area, life, start, travels };
  struct Item {
    std::size_t bytes = 0;
    std::size_t unit = 1;
    int first = 0, last = 0;
    std::size_t buffer = 0;
    bool travels = false;
  };
  struct Placed {
    std::size_t begin = 0, end = 0;
    int first = 0, last = 0;
  };

  /// How many placed buffers are looked at in all, at most a millisecond's worth. Compilers count
  /// the operations of a constant expression, and longer schedules leave smaller gaps.
  constexpr std::size_t most_looks() const {
    return std::size_t{1} << (items_.size() <= 40 ? 18U : 15U);
  }

  constexpr std::size_t rank_of(const Item& item, Rank rank) const {
    const auto life = static_cast<std::size_t>(item.last - item.first + 1);
    switch (rank) {
      case Rank::bytes: return item.bytes;
      case Rank::area: return item.bytes * life;
      case Rank::life: return life;
      case Rank::start: return static_cast<std::size_t>(end_ - item.first);
      case Rank::travels:
        return static_cast<std::size_t>((item.travels ? 2 * end_ : end_) - item.first);
    }
    return 0;
  }

  constexpr void sort_by(Rank rank) {
    sort(items_, [&](const Item& a, const Item& b) {
      const std::size_t rank_a = rank_of(a, rank), rank_b = rank_of(b, rank);
      if (rank_a != rank_b) return rank_a > rank_b;
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.buffer < b.buffer;
    });
  }

  constexpr void move(std::size_t from, std::size_t to) {
    const Item item = items_[from];
    items_.erase(from);
    items_.insert(to, item);
  }

  /// Places all items in their order. Gives up as soon as an item ends above `limit`. Returns the end of the
  /// highest item, sets highest_ to its position in the order, and keeps the best layout.
  constexpr std::size_t place(std::size_t limit) {
    for (Array<Placed>& placed : placed_) placed.clear();
    std::size_t arena = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      const std::size_t offset = lowest_free(item);
      const std::size_t end = offset + item.bytes;
      offsets_[item.buffer] = offset;
      if (end > arena) {
        arena = end;
        highest_ = i;
        if (arena > limit) return arena;
      }
      for (std::size_t s = span_of(item.first); s <= span_of(item.last); ++s) {
        Array<Placed>& placed = placed_[s];
        std::size_t at = placed.size();
        while (at > 0 && placed[at - 1].begin > offset) --at;
        placed.insert(at, {offset, end, item.first, item.last});
      }
    }
    if (arena < best_bytes_) {
      best_bytes_ = arena;
      best_offsets_ = offsets_;
    }
    return arena;
  }

  /// The lowest offset free of placed buffers during the item's whole life.
  constexpr std::size_t lowest_free(const Item& item) {
    std::size_t offset = 0, before = 0;
    do {
      before = offset;
      for (std::size_t s = span_of(item.first); s <= span_of(item.last); ++s)
        for (const Placed& other : placed_[s]) {  // by offset
          ++looks_;
          if (other.first > item.last || item.first > other.last) continue;
          if (other.begin >= offset + item.bytes) break;
          if (other.end > offset) offset = (other.end + item.unit - 1) / item.unit * item.unit;
        }
    } while (offset != before && span_of(item.first) != span_of(item.last));
    return offset;
  }
  constexpr std::size_t span_of(int instruction) const {
    return placed_.size() == 1 ? 0 : static_cast<std::size_t>(instruction) / span;
  }

  /// Moves one item at a time, three times out of four the highest item to somewhere before, and
  /// keeps every move without a larger arena.
  constexpr void climb(int tries, std::size_t good_enough) {
    std::size_t current = place(static_cast<std::size_t>(-1));
    std::size_t highest = highest_;
    for (; tries > 0 && best_bytes_ > good_enough && looks_ < most_looks(); --tries) {
      const bool lower = highest > 0 && draw(4) != 0;
      const std::size_t from = lower ? highest : draw(items_.size());
      const std::size_t to = draw(lower ? highest : items_.size());
      move(from, to);
      const std::size_t arena = place(current);
      if (arena > current) {
        move(to, from);
      } else {
        current = arena;
        highest = highest_;
      }
    }
  }

  /// A number below n, from a linear congruential generator with Knuth's constants (MMIX).
  constexpr std::size_t draw(std::size_t n) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(random_ >> 33U) % n;
  }

  std::size_t live_bytes_;
  Array<std::size_t>& best_offsets_;
  std::size_t& best_bytes_;
  Array<Item> items_;  // in the order to try
  Array<std::size_t> offsets_;
  int end_;
  bool has_transfers_;
  /// Placed items, by the ranges of instructions of a long schedule they live in: few items meet.
  static constexpr std::size_t span = 64;
  Array<Array<Placed>> placed_;
  std::size_t highest_ = 0;
  std::size_t looks_ = 0;
  std::uint64_t random_ = 1;
};

}}}  // namespace adacc::v0_1::detail
