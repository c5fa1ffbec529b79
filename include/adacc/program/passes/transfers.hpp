// SPDX-License-Identifier: MIT
/// From a schedule to a schedule with transfers: activations go to a store and come back.
///
/// An activation kept in a store (Form::travels) leaves the arena behind the last reader in forward, and
/// is there again for the first reader in backward. The places where a transfer begins and is waited for
/// follow from bytes alone, never from time: a slow link makes a step longer, and changes neither bits
/// nor the peak. The rules, for a limit of bytes alive at once:
///
///   - a write begins right behind the last reader in forward;
///   - a write is waited for at the first instruction that would otherwise pass the limit, the oldest
///     write first: the bytes are free from there on. A write nobody has to wait for is left out;
///   - a read begins as soon as there is room for it until the reader, in the order of the readers, and
///     not before the write has been waited for;
///   - a read is waited for in front of the reader.
///
/// By these rules most instructions have nearly as many live bytes as allowed, and buffers of many sizes
/// coming and going like a queue do not fill an arena without gaps. So writes are waited for, and reads
/// begin, by an `aim` below the limit, passed only where nothing else can be sent: the gaps then have
/// room wherever fewer bytes have to live (place_schedule in program.hpp chooses the aim).
///
/// All transfers begin and end between loops, never in one: a buffer alive at any instruction of a loop
/// is alive at all of them.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/extremes.hpp"
#include "../liveness.hpp"
#include "../schedule.hpp"

namespace adacc { inline namespace v0_1 {

class TransferPass {
 public:
  /// Prepares `schedule`, made for `graph` and `plan`. All three must outlive the pass.
  constexpr TransferPass(const Graph& graph, const Plan& plan, const Schedule& schedule)
      : graph_(graph), in_(schedule), buffers_(schedule.buffers) {
    const int count = static_cast<int>(in_.instructions.size());
    while (forward_end_ < count && !of_backward(in_.instructions[index(forward_end_)]))
      ++forward_end_;
    if (forward_end_ < count) forward_end_ = behind(forward_end_, forward_end_);
    find_items(plan);
  }

  /// Whether there is nothing to send.
  constexpr bool empty() const { return items_.empty(); }

  /// Writes the schedule to `out`, with as much sent as it takes to keep live bytes within `aim` or,
  /// failing this, within `limit`; false if even the limit is out of reach.
  constexpr bool run(std::size_t limit, std::size_t aim, Schedule& out) {
    if (!place(limit, aim)) return false;
    write(out);
    return true;
  }

  /// The smallest limit that can be kept, to transfer_alignment.
  constexpr std::size_t smallest_limit() {
    std::size_t low = 0, high = most() / transfer_alignment + 1;  // place(high * ...) succeeds
    while (low + 1 < high) {
      const std::size_t middle = (low + high) / 2;
      if (place(middle * transfer_alignment, middle * transfer_alignment)) high = middle;
      else low = middle;
    }
    return high * transfer_alignment;
  }

 private:
  /// An activation in the form kept in the arena. Places are gaps: gap i is in front of instruction i.
  struct Item {
    int buffer = 0;
    std::size_t bytes = 0;
    int sent = 0;     ///< where the write begins
    int wanted = 0;   ///< the first reader in backward
    int waited = -1;  ///< where the write is waited for; -1: the activation stays
    int loaded = -1;  ///< where the read begins
  };

  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static constexpr bool of_backward(const Instruction& inst) {
    return inst.op == Op::backward || inst.op == Op::decode || inst.again;
  }

  /// The gap in front of instruction i, or of the loop around it.
  constexpr int before(int i) const {
    const int loop = in_.instructions[index(i)].loop;
    return loop < 0 ? i : in_.loops[index(loop)].first;
  }
  /// The gap behind the loop of instruction i, or `otherwise`.
  constexpr int behind(int i, int otherwise) const {
    const int loop = in_.instructions[index(i)].loop;
    return loop < 0 ? otherwise : in_.loops[index(loop)].last + 1;
  }

  constexpr void find_items(const Plan& plan) {
    Array<int> kept(graph_.nodes.size());  // by activation: the buffer kept for backward
    for (int& buffer : kept) buffer = -1;
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer& buffer = buffers_[b];
      const bool waits =
          buffer.first >= 0 && buffer.first < forward_end_ && buffer.last >= forward_end_ &&
          (buffer.kind == BufferKind::activation || buffer.kind == BufferKind::encoded);
      if (waits && plan[buffer.activation].travels())
        kept[index(buffer.activation)] = static_cast<int>(b);
    }
    Array<int> sent(kept.size()), wanted(kept.size());
    for (int& at : sent) at = -1;
    for (int& at : wanted) at = -1;
    for (int i = 0; i < static_cast<int>(in_.instructions.size()); ++i) {
      const auto used = [&](int id) {
        if (id == step_input || kept[index(id)] < 0) return;
        if (i < forward_end_) sent[index(id)] = behind(i, i + 1);
        else if (wanted[index(id)] < 0) wanted[index(id)] = before(i);
      };
      const Instruction& inst = in_.instructions[index(i)];
      const auto named = [&](int buffer) {
        if (buffer < 0) return;
        const int id =
            buffers_[index(buffer)].activation;  // none: the gradient of the step's input
        if (id != step_input && kept[index(id)] == buffer) used(id);
      };
      named(inst.x), named(inst.y), named(inst.dx), named(inst.dy), named(inst.blob),
          named(inst.added);
      // Instructions name one input; a caller's kernels (Stash) may read more.
      if (inst.op == Op::backward)
        for (const int id : graph_.backward_reads(inst.node)) used(id);
      if (inst.op == Op::forward)
        graph_.forward_reads(inst.node, [&](int id) {
          if (inst.again || !graph_.node(id).value_outside) used(id);
        });
    }
    for (std::size_t id = 0; id < kept.size(); ++id)
      if (kept[id] >= 0 && sent[id] >= 0 && wanted[id] >= 0) {
        Buffer& buffer = buffers_[index(kept[id])];
        buffer.travels = true;
        items_.push_back({kept[id], buffer.room(), sent[id], wanted[id]});
      }
    sort(items_, [](const Item& a, const Item& b) {
      return a.sent != b.sent ? a.sent < b.sent : a.buffer < b.buffer;
    });
  }

  constexpr void sum_live() {
    LiveBytes live;
    live.reset(in_.instructions.size());
    for (const Buffer& buffer : buffers_) live.add(buffer);
    live.sum();
    live_.resize(live.size());
    for (std::size_t i = 0; i < live.size(); ++i) live_[i] = live[i];
    for (const Loop& loop : in_.loops) {
      std::size_t most = 0;
      for (int i = loop.first; i <= loop.last; ++i) detail::raise(most, live_[index(i)]);
      for (int i = loop.first; i <= loop.last; ++i) live_[index(i)] = most;
    }
  }
  constexpr std::size_t most() {
    sum_live();
    std::size_t most = 0;
    for (const std::size_t bytes : live_)
      if (bytes > most) most = bytes;
    return most;
  }

  constexpr bool place(std::size_t limit, std::size_t aim) {
    sum_live();
    for (Item& item : items_) item.waited = item.loaded = -1;
    if (!place_writes(limit, aim)) return false;
    place_reads(aim);
    return true;
  }

  /// Waits only where bytes are wanted. Takes the bytes that are away off live_.
  constexpr bool place_writes(std::size_t limit, std::size_t aim) {
    back_.clear();
    back_.resize(live_.size() + 1);  // bytes wanted again from an instruction on
    std::size_t away = 0, oldest = 0;
    for (int i = 0; i < static_cast<int>(live_.size()); ++i) {
      away -= back_[index(i)];
      while (live_[index(i)] - away > aim) {
        if (oldest == items_.size() || items_[oldest].sent > i) {
          if (live_[index(i)] - away > limit) return false;
          break;
        }
        Item& item = items_[oldest++];
        if (item.wanted <= i) continue;  // the activation is back in use
        item.waited = i;
        away += item.bytes;
        back_[index(item.wanted)] += item.bytes;
      }
      live_[index(i)] -= away;
    }
    return true;
  }

  constexpr void place_reads(std::size_t aim) {
    order_.clear();
    for (std::size_t k = 0; k < items_.size(); ++k)
      if (items_[k].waited >= 0) order_.push_back(k);
    sort(order_, [&](std::size_t a, std::size_t b) {
      return items_[a].wanted != items_[b].wanted ? items_[a].wanted < items_[b].wanted : a < b;
    });
    int earliest = forward_end_;
    for (const std::size_t k : order_) {
      Item& item = items_[k];
      const int least = item.waited > earliest ? item.waited : earliest;
      int at = item.wanted;
      while (at > least && live_[index(at - 1)] + item.bytes <= aim) --at;
      for (int i = at; i < item.wanted; ++i) live_[index(i)] += item.bytes;
      item.loaded = earliest = at;
    }
  }

  /// An event in a gap between instructions: first events to keep the link busy, then those to free
  /// bytes, then those to take bytes.
  struct Event {
    int place = 0;
    Op op = Op::write_begin;
    std::size_t item = 0;
    std::size_t rank = 0;  ///< among equal events of a gap
  };

  constexpr void write(Schedule& out) {
    Array<Event> events;
    for (std::size_t k = 0; k < items_.size(); ++k)
      if (items_[k].waited >= 0) {
        events.push_back({items_[k].sent, Op::write_begin, k, k});
        events.push_back({items_[k].waited, Op::write_wait, k, k});
      }
    for (std::size_t rank = 0; rank < order_.size(); ++rank) {
      const Item& item = items_[order_[rank]];
      events.push_back({item.loaded, Op::read_begin, order_[rank], rank});
      events.push_back({item.wanted, Op::read_wait, order_[rank], rank});
    }
    sort(events, [](const Event& a, const Event& b) {
      if (a.place != b.place) return a.place < b.place;
      return a.op != b.op ? a.op < b.op : a.rank < b.rank;
    });
    out = {};
    out.output = in_.output;
    out.output_gradient = in_.output_gradient;
    out.input_gradient = in_.input_gradient;
    out.buffers = buffers_;
    out.loops = in_.loops;
    Array<int> transfer(items_.size()), again(items_.size());
    Array<int> stands_for(buffers_.size());  // the buffer now standing for an instruction's operand
    for (std::size_t b = 0; b < stands_for.size(); ++b) stands_for[b] = static_cast<int>(b);
    Array<int> position(in_.instructions.size() + 1);
    std::size_t next = 0;
    for (int i = 0; i <= static_cast<int>(in_.instructions.size()); ++i) {
      for (; next < events.size() && events[next].place == i; ++next)
        append(out, events[next], transfer, again, stands_for);
      position[index(i)] = static_cast<int>(out.instructions.size());
      if (i == static_cast<int>(in_.instructions.size())) break;
      Instruction inst = in_.instructions[index(i)];
      for (int* id : {&inst.x, &inst.y, &inst.dx, &inst.dy, &inst.blob, &inst.added})
        if (*id >= 0) *id = stands_for[index(*id)];
      out.instructions.push_back(inst);
    }
    for (Loop& loop : out.loops) {
      loop.first = position[index(loop.first)];
      loop.last = position[index(loop.last)];
    }
    settle_lives(out, position, again);
  }

  constexpr void append(Schedule& out, const Event& event, Array<int>& transfer, Array<int>& again,
                        Array<int>& stands_for) const {
    const Item& item = items_[event.item];
    const int at = static_cast<int>(out.instructions.size());
    int buffer = item.buffer;
    if (event.op == Op::write_begin) {
      transfer[event.item] = static_cast<int>(out.transfers.size());
      out.transfers.push_back({buffers_[index(buffer)].activation, out.store_bytes, item.bytes});
      out.store_bytes += item.bytes;
    } else if (event.op == Op::write_wait) {
      out.buffers[index(buffer)].last = at;
    } else {
      if (event.op == Op::read_begin) {
        again[event.item] = static_cast<int>(out.buffers.size());
        stands_for[index(buffer)] = again[event.item];
        Buffer back = buffers_[index(buffer)];
        back.first = at;
        out.buffers.push_back(back);
      }
      buffer = again[event.item];
    }
    Instruction inst{event.op, false, buffers_[index(item.buffer)].activation};
    inst.blob = buffer;
    inst.transfer = transfer[event.item];
    out.instructions.push_back(inst);
  }

  /// Translates lives to the new instructions. A buffer sent to the store lives twice.
  constexpr void settle_lives(Schedule& out, const Array<int>& position,
                              const Array<int>& again) const {
    Array<int> sent_as(buffers_.size());
    for (int& item : sent_as) item = -1;
    for (std::size_t k = 0; k < items_.size(); ++k)
      if (items_[k].waited >= 0) sent_as[index(items_[k].buffer)] = static_cast<int>(k);
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      Buffer& buffer = out.buffers[b];
      if (buffers_[b].first < 0) continue;
      buffer.first = position[index(buffers_[b].first)];
      const int last = position[index(buffers_[b].last)];
      const int item = sent_as[b];
      if (item >= 0) out.buffers[index(again[index(item)])].last = last;
      else buffer.last = last, buffer.travels = false;
    }
  }

  const Graph& graph_;
  const Schedule& in_;
  Array<Buffer> buffers_;  ///< copied from in_, with traveling buffers marked
  int forward_end_ = 0;    ///< the first instruction of backward
  Array<Item> items_;      ///< by where they can be sent
  Array<std::size_t> live_, back_;
  Array<std::size_t> order_;  ///< items sent, by where they are wanted
};

}}  // namespace adacc::v0_1
