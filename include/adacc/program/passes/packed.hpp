// SPDX-License-Identifier: MIT
/// Packed operands shared by the parts of a layer's call are made once, where the arena has spare room.
///
/// A linear layer packs the weight for the product, and a layer cut into parts packs again in each part: 3
/// to 6 % of such a product's time (docs/tile.md). The weight could stay packed from part to part. But this
/// takes the bytes of all weights read by a loop, and loops are there to save bytes. So no plan counts on
/// packed weights: this pass comes last, when every buffer has a place, and fills gaps of the arena free
/// for as long as an instruction, or the loop around it, runs. No peak grows, and no bit changes.
/// Small budgets leave gaps at few instructions, larger ones at nearly all.
#pragma once

#include <cstddef>

#include "../../model/graph.hpp"
#include "../free_list.hpp"
#include "../layout.hpp"

namespace adacc { inline namespace v0_1 {

/// Bytes that parts of an instruction's call could share (ForwardCall::packed); 0 without a cut.
constexpr std::size_t packed_bytes(const Graph& graph, const Instruction& inst) {
  if (inst.parts < 2) return 0;
  if (inst.op == Op::forward) return graph.node(inst.node).forward_packed;
  return inst.op == Op::backward ? graph.node(inst.node).backward_packed : 0;
}

namespace detail {

/// Gives instructions memory for their parts' packed operands, in gaps of a layout.
class PackedPass {
 public:
  /// `layout` belongs to `schedule`; both get the new buffers.
  constexpr PackedPass(const Graph& graph, Schedule& schedule, Layout& layout)
      : graph_(graph), schedule_(schedule), layout_(layout) {}

  constexpr void run() {
    bool any = false;
    for (const Instruction& inst : schedule_.instructions)
      any = any || packed_bytes(graph_, inst) > 0;
    if (!any) return;
    const Timeline timeline(schedule_);
    const auto room = [&](std::size_t b) { return schedule_.buffers[b].room(); };
    const auto place = [&](std::size_t b) { return layout_.offsets[b]; };
    FreeList now(layout_.arena_bytes);
    for (std::size_t first = 0, end = 0; first < schedule_.instructions.size(); first = end) {
      end = end_of(first);
      // Bytes free now and until the end.
      timeline.born(first, [&](std::size_t b) { now.remove(place(b), room(b)); });
      FreeList spare = now;
      for (std::size_t i = first + 1; i < end; ++i)
        timeline.born(i, [&](std::size_t b) { spare.remove(place(b), room(b)); });
      for (std::size_t i = first; i < end; ++i) take(spare, i, first, end - 1);
      for (std::size_t i = first; i < end; ++i) {
        if (i > first) timeline.born(i, [&](std::size_t b) { now.remove(place(b), room(b)); });
        timeline.dying(i, [&](std::size_t b) { give_back(now, place(b), room(b)); });
      }
    }
  }

 private:
  /// The position behind instruction `first`, or behind the loop that begins there.
  constexpr std::size_t end_of(std::size_t first) const {
    const int loop = schedule_.instructions[first].loop;
    return loop < 0
               ? first + 1
               : static_cast<std::size_t>(schedule_.loops[static_cast<std::size_t>(loop)].last) + 1;
  }

  constexpr void take(FreeList& spare, std::size_t i, std::size_t first, std::size_t last) {
    Instruction& inst = schedule_.instructions[i];
    const std::size_t bytes = packed_bytes(graph_, inst);
    if (bytes == 0) return;
    const Buffer packed{.kind = BufferKind::packed,
                        .activation = inst.node,
                        .bytes = bytes,
                        .first = static_cast<int>(first),
                        .last = static_cast<int>(last)};
    const std::size_t offset = spare.take(packed.room(), packed.unit());
    if (offset == FreeList::none) return;
    inst.packed = static_cast<int>(schedule_.buffers.size());
    schedule_.buffers.push_back(packed);
    layout_.offsets.push_back(offset);
  }

  /// The last buffer of an arena may end before its room does.
  constexpr void give_back(FreeList& now, std::size_t offset, std::size_t room) const {
    if (offset + room > layout_.arena_bytes) room = layout_.arena_bytes - offset;
    if (room > 0) now.give(offset, room);
  }

  const Graph& graph_;
  Schedule& schedule_;
  Layout& layout_;
};

}  // namespace detail

}}  // namespace adacc::v0_1
