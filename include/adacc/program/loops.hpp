// SPDX-License-Identifier: MIT
/// From runs of instructions that are cut alike to loops over their parts.
///
/// If layers are cut into parts (GraphOptions::parts), the parts of a tensor's rows can go through
/// several instructions one after the other. What is made and used up in between then needs the
/// bytes of one part instead of the whole; what else these instructions name lives as long as the
/// loop. In which order parts run changes no bit: each instruction still runs its own in order, and
/// no two add to the same parameter's gradient.
///
/// Which loops there are follows from graph and schedule alone. Each is as long as it can be, but
/// none passes the end of a segment (segments.hpp), and none stays that does not lower the bytes
/// that live at its worst instruction: loops make no step larger.
#pragma once

#include <cstddef>

#include "liveness.hpp"
#include "scheduler.hpp"
#include "segments.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Of every tensor that an instruction names, a call of it works on `part` of `whole` equal pieces,
/// which lie one after the other; the last call may have fewer. In lowest terms; {0, 0} if it does
/// not run so.
struct Share {
  std::size_t part = 0, whole = 0;

  friend constexpr bool operator==(const Share&, const Share&) = default;

  static constexpr Share of(std::size_t part, std::size_t whole) {
    if (part == 0 || part >= whole) return {};
    std::size_t a = whole, b = part;
    while (b != 0) {
      const std::size_t rest = a % b;
      a = b, b = rest;
    }
    return {part / a, whole / a};
  }

  constexpr explicit operator bool() const { return part != 0; }
  constexpr int parts() const { return static_cast<int>(div_up(whole, part)); }
  /// Bytes of such a part of `bytes`.
  constexpr std::size_t of(std::size_t bytes) const { return bytes / whole * part; }
};

/// What may run in one loop, by graph and plan. Graph must outlive it.
class LoopRules {
 public:
  constexpr explicit LoopRules(const Graph& graph)
      : graph_(graph), active_(graph.parts > 1 && !graph.has_outside()) {
    if (!active_) return;
    makers_.resize(graph.nodes.size());
    readers_.resize(graph.nodes.size());
    const Array<GraphSegment> segments = segments_of(graph);
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const int mine = static_cast<int>(s);
      for (int k = segments[s].first; k <= segments[s].last; ++k)
        makers_[index(k)] = readers_[index(k)] = mine;
      if (segments[s].has_output) readers_[index(segments[s].last)] = mine + 1;
    }
  }

  /// Whether there can be loops at all.
  constexpr bool active() const { return active_; }

  /// What of its tensors a part of `run` is, whose buffers are among `buffers`.
  constexpr Share share(const Instruction& run, const Plan& plan,
                        const Array<Buffer>& buffers) const {
    if (!active_ || run.parts < 2) return {};
    switch (run.op) {
      case Op::forward:
      case Op::backward: return of(graph_.node(run.node).cut);
      case Op::loss:
      case Op::loss_gradient: return of(graph_.loss.cut);
      case Op::add: return of(sum_cut(graph_, graph_.node(run.node).output));
      case Op::add_gradient: return of(sum_cut(graph_, shape_of(graph_, buffers[index(run.dx)])));
      case Op::encode:
      case Op::decode: return of_codec(run.node, *plan[run.node].codec());
      default: return {};
    }
  }

  /// The segment that an instruction belongs to, if the one in front of it belongs to `before`: how
  /// an activation is kept is up to that which reads it, and gradients meet where they were made.
  constexpr int segment(const Instruction& run, int before) const {
    if (run.op == Op::encode || run.op == Op::decode) return readers_[index(run.node)];
    return run.op == Op::add_gradient ? before : makers_[index(run.node)];
  }

  /// Whether it adds to gradients that others add to as well: their sums depend on the order.
  constexpr bool adds_to_shared(const Instruction& run) const {
    if (run.op == Op::backward) return graph_.node(run.node).shares_parameters;
    return run.op == Op::loss_gradient && graph_.loss.shares_parameters;
  }

  /// Whether a buffer can hold one part of a tensor alone, if it lives that short.
  static constexpr bool can_be_tile(const Buffer& buffer) {
    return buffer.kind == BufferKind::activation || buffer.kind == BufferKind::gradient;
  }

  static constexpr Shape shape_of(const Graph& graph, const Buffer& buffer) {
    return buffer.activation == step_input ? graph.input : graph.node(buffer.activation).output;
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  static constexpr Share of(const Cut& cut) {
    const bool of_rows = cut.split == Split::rows || cut.split == Split::batch ||
                         (cut.entry_items != 0 && cut.part_items % cut.entry_items == 0);
    return of_rows ? Share::of(cut.part_items, cut.items) : Share{};
  }
  constexpr Share of_codec(int id, const CodecInfo& codec) const {
    if (codec.item_elements == nullptr) return {};
    const Shape shape = graph_.node(id).output;
    return Share::of(codec_cut(graph_, id, codec).part_items * codec.item_elements(shape.cols()),
                     shape.elems());
  }

  const Graph& graph_;
  bool active_;
  Array<int> makers_, readers_;  ///< by activation: segments
};

/// Turns runs of a schedule's instructions into loops.
class LoopPass {
 public:
  /// `schedule` is that of a step of `graph` under `plan`.
  constexpr LoopPass(const LoopRules& rules, const Plan& plan, Schedule& schedule)
      : rules_(rules), plan_(plan), schedule_(schedule), seen_(schedule.buffers.size()) {}

  constexpr void run() {
    const LiveBytes live = live_bytes_of(schedule_);
    const int count = static_cast<int>(schedule_.instructions.size());
    int first = 0, segment = 0;  // of the run so far
    bool shared = false;         // it adds to a gradient that others add to
    Share share;
    for (int i = 0; i <= count; ++i) {
      const bool ends = i == count;
      const Share mine = ends ? Share{} : rules_.share(at(i), plan_, schedule_.buffers);
      const int where = ends ? -1 : rules_.segment(at(i), segment);
      const bool adds = !ends && rules_.adds_to_shared(at(i));
      if (mine && mine == share && where == segment && !(shared && adds)) {
        shared = shared || adds;
        continue;
      }
      if (share && i - 1 > first) consider({first, i - 1, share.parts()}, share, live);
      first = i, segment = where, shared = adds, share = mine;
    }
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }
  constexpr Instruction& at(int i) const { return schedule_.instructions[index(i)]; }
  constexpr Buffer& buffer(int id) const { return schedule_.buffers[index(id)]; }

  /// The loop stays if fewer bytes live at its worst instruction than did before.
  constexpr void consider(const Loop& loop, Share share, const LiveBytes& live) {
    collect(loop);
    changes_.clear();
    changes_.resize(index(loop.last - loop.first) + 2);
    const auto change = [&](int first, int last, std::size_t bytes) {
      changes_[index(first - loop.first)] += bytes;
      changes_[index(last - loop.first) + 1] -= bytes;
    };
    for (const int id : named_) {
      const Buffer& used = buffer(id);
      Buffer tile = used;
      tile.bytes = share.of(used.bytes);
      if (becomes_tile(id, loop)) change(used.first, used.last, tile.room() - used.room());
      else {
        if (used.first > loop.first) change(loop.first, used.first - 1, used.room());
        if (used.last < loop.last) change(used.last + 1, loop.last, used.room());
      }
    }
    std::size_t before = 0, after = 0, changed = 0;  // differences may wrap around
    for (int i = loop.first; i <= loop.last; ++i) {
      const std::size_t lived = live[index(i)];
      changed += changes_[index(i - loop.first)];
      if (lived > before) before = lived;
      if (lived + changed > after) after = lived + changed;
    }
    if (after < before) keep(loop, share);
  }

  /// The buffers that instructions of the loop name and that outlive a call.
  constexpr void collect(const Loop& loop) {
    named_.clear();
    for (int i = loop.first; i <= loop.last; ++i) {
      const Instruction& run = at(i);
      for (const int id : {run.x, run.y, run.dx, run.dy, run.aux, run.blob}) {
        if (id < 0 || seen_[index(id)] == loop.first + 1) continue;
        seen_[index(id)] = loop.first + 1;
        named_.push_back(id);
      }
    }
    // Every part adds to the gradients of parameters: they live as long as the loop.
    for (std::size_t id = 0; id < schedule_.buffers.size(); ++id) {
      const Buffer& used = schedule_.buffers[id];
      if (used.kind != BufferKind::parameter_gradient) break;  // they come first
      if (used.first >= 0 && used.first <= loop.last && used.last >= loop.first)
        named_.push_back(static_cast<int>(id));
    }
  }

  constexpr bool becomes_tile(int id, const Loop& loop) const {
    const Buffer& used = buffer(id);
    return LoopRules::can_be_tile(used) && loop.first <= used.first && used.last <= loop.last &&
           id != schedule_.output && id != schedule_.output_gradient &&
           id != schedule_.input_gradient;
  }

  constexpr void keep(const Loop& loop, Share share) {
    for (const int id : named_) {
      Buffer& used = buffer(id);
      if (becomes_tile(id, loop)) {
        used.tile = true;
        used.bytes = share.of(used.bytes);
      } else {
        if (used.first > loop.first) used.first = loop.first;
        if (used.last < loop.last) used.last = loop.last;
      }
    }
    for (int i = loop.first; i <= loop.last; ++i)
      at(i).loop = static_cast<int>(schedule_.loops.size());
    schedule_.loops.push_back(loop);
  }

  const LoopRules& rules_;
  const Plan& plan_;
  Schedule& schedule_;
  Array<int> seen_;  ///< by buffer: the loop that names it, by its first instruction plus 1
  Array<int> named_;
  Array<std::size_t> changes_;
};

}}}  // namespace adacc::v0_1::detail
