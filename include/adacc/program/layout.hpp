// SPDX-License-Identifier: MIT
/// An offset for every buffer of a schedule: one arena, whose size is the exact peak.
///
/// Buffers alive at the same time never overlap; apart from this they share. Buffers with a life
/// longer than a threshold grow from the bottom, the others from the top, each end first fit in the
/// order in which buffers come to life: activations kept from forward to backward then form a
/// stack, and nothing short-lived leaves holes in it. A handful of thresholds is tried and the
/// smallest arena kept; each try takes time linear in the number of buffers, as there are few
/// holes. If none of them is perfect and the schedule is short, program/layout_search.hpp tries
/// orders of placing buffers. No layout is smaller than `live_bytes`, the largest sum of live
/// bytes.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "free_list.hpp"
#include "instruction.hpp"
#include "layout_search.hpp"
#include "liveness.hpp"

namespace adacc { inline namespace v0_1 {

struct Layout {
  Array<std::size_t> offsets;   ///< bytes, one per buffer, multiples of Buffer::unit()
  std::size_t arena_bytes = 0;  ///< the peak: the end of the highest buffer
  std::size_t live_bytes = 0;   ///< the largest sum of bytes alive at one instruction
};

namespace detail {

/// The buffers born and dying at each instruction, as lists through arrays.
class Timeline {
 public:
  constexpr explicit Timeline(const Schedule& schedule)
      : born_(schedule.instructions.size()), dying_(schedule.instructions.size()),
        next_born_(schedule.buffers.size()), next_dying_(schedule.buffers.size()) {
    for (std::size_t i = 0; i < born_.size(); ++i) born_[i] = dying_[i] = -1;
    for (std::size_t b = schedule.buffers.size(); b-- > 0;) {
      const Buffer& buffer = schedule.buffers[b];
      if (buffer.first < 0) continue;
      link(born_[static_cast<std::size_t>(buffer.first)], next_born_[b], b);
      link(dying_[static_cast<std::size_t>(buffer.last)], next_dying_[b], b);
    }
  }

  constexpr std::size_t size() const { return born_.size(); }

  template <class Visit>
  constexpr void born(std::size_t instruction, const Visit& visit) const {
    walk(born_[instruction], next_born_, visit);
  }
  template <class Visit>
  constexpr void dying(std::size_t instruction, const Visit& visit) const {
    walk(dying_[instruction], next_dying_, visit);
  }

 private:
  static constexpr void link(int& head, int& next, std::size_t buffer) {
    next = head;
    head = static_cast<int>(buffer);
  }
  template <class Visit>
  static constexpr void walk(int head, const Array<int>& next, const Visit& visit) {
    for (int b = head; b >= 0; b = next[static_cast<std::size_t>(b)])
      visit(static_cast<std::size_t>(b));
  }

  Array<int> born_, dying_, next_born_, next_dying_;
};

/// Places buffers alive for more than `threshold` instructions from the bottom, the others from the
/// top.
constexpr Layout place(const Schedule& schedule, const Timeline& timeline, int threshold) {
  Layout layout;
  layout.offsets.resize(schedule.buffers.size());
  const auto is_long = [&](const Buffer& buffer) { return buffer.last - buffer.first > threshold; };
  FreeList bottom, top;
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    timeline.born(i, [&](std::size_t b) {
      const Buffer& buffer = schedule.buffers[b];
      layout.offsets[b] = (is_long(buffer) ? bottom : top).take(buffer.room(), buffer.unit());
    });
    if (bottom.top() + top.top() > layout.arena_bytes)
      layout.arena_bytes = bottom.top() + top.top();
    timeline.dying(i, [&](std::size_t b) {
      const Buffer& buffer = schedule.buffers[b];
      (is_long(buffer) ? bottom : top).give(layout.offsets[b], buffer.room());
    });
  }
  // The top grows downwards from an aligned end.
  const std::size_t unit = schedule.transfers.empty() ? alignment : transfer_alignment;
  layout.arena_bytes = (layout.arena_bytes + unit - 1) / unit * unit;
  for (std::size_t b = 0; b < layout.offsets.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    if (buffer.first >= 0 && !is_long(buffer))
      layout.offsets[b] = layout.arena_bytes - layout.offsets[b] - buffer.room();
  }
  return layout;
}

}  // namespace detail

/// Offsets for `schedule`, in a few milliseconds at most. Up to `short_limit` buffers, the search
/// takes quadratic time if it saves memory; above `long_limit`, 0.1 % of waste is good enough. In
/// between, if `enough` is not 0, a search for schedules with transfers goes on until the arena has
/// `enough` bytes or fewer.
constexpr Layout make_layout(const Schedule& schedule, std::size_t enough = 0) {
  constexpr std::size_t short_limit = detail::LayoutSearch::short_limit, long_limit = 8192;
  const std::size_t buffers = schedule.buffers.size();
  const detail::Timeline timeline(schedule);
  const int longest = static_cast<int>(timeline.size());
  const std::size_t live = live_bytes(schedule);
  // A buffer within a layer lives for up to 16 instructions: this threshold serves deep networks
  // best.
  Layout best = detail::place(schedule, timeline, 16);
  const std::size_t good_enough = live + (buffers > long_limit ? live / 1024 : 0);
  const auto attempt = [&](int threshold) {
    if (best.arena_bytes <= good_enough) return;
    Layout layout = detail::place(schedule, timeline, threshold);
    if (layout.arena_bytes < best.arena_bytes) best = static_cast<Layout&&>(layout);
  };
  for (int threshold = 32; threshold < longest; threshold *= 2) attempt(threshold);
  for (int threshold = 8; threshold > 0; threshold /= 2) attempt(threshold);  // slower: more holes
  attempt(0);
  if (buffers <= short_limit && best.arena_bytes > live)
    detail::LayoutSearch(schedule, live, best.offsets, best.arena_bytes).run();
  else if (enough != 0 && buffers <= long_limit && best.arena_bytes > enough)
    detail::LayoutSearch(schedule, live, best.offsets, best.arena_bytes).run_long(enough);
  best.live_bytes = live;
  best.arena_bytes = 0;  // only transfers use the padding behind the highest buffer
  for (std::size_t b = 0; b < best.offsets.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    const std::size_t end = best.offsets[b] + (buffer.travels ? buffer.room() : buffer.bytes);
    if (buffer.first >= 0 && end > best.arena_bytes) best.arena_bytes = end;
  }
  return best;
}

}}  // namespace adacc::v0_1
