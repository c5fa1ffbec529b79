// SPDX-License-Identifier: MIT
/// From runs of instructions that are cut alike to loops over their parts.
///
/// If layers are cut into parts (GraphOptions::parts), each part of a tensor's rows can go through several
/// instructions before the next. A buffer made and used up in between then needs the bytes of one part
/// instead of the whole; all other buffers of these instructions live as long as the loop. The order of parts
/// changes no bit: each instruction still runs its own in order, and no two add to one parameter's gradient.
///
/// Loops follow from graph and schedule alone. Each is as long as possible, but none passes the end of a
/// segment (segments.hpp), and each lowers the bytes alive at its worst instruction: loops make no step
/// larger.
///
/// In backward two residual branches may be a pair, as attention and MLP of a transformer's block. If the
/// output of the first is computed again for the second, and the first's input is at hand, then one loop
/// takes a part of the rows through the first one's forward, the second one, and the first one's
/// backward. No tensor between the two then takes more bytes than one part. Pairs do not overlap, and a
/// pair stays if it takes fewer bytes than loops within each segment.
#pragma once

#include <cstddef>

#include "../../core/extremes.hpp"
#include "../../model/segments.hpp"
#include "../liveness.hpp"
#include "../scheduler.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// In every tensor of an instruction, one call works on `part` of `whole` equal pieces, one after
/// the other; the last call may have fewer. In lowest terms; {0, 0} if the instruction does not run
/// by parts.
struct PartRatio {
  std::size_t part = 0, whole = 0;

  friend constexpr bool operator==(const PartRatio&, const PartRatio&) = default;

  static constexpr PartRatio of(std::size_t part, std::size_t whole) {
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
  /// The bytes of one part of `bytes`.
  constexpr std::size_t of(std::size_t bytes) const { return bytes / whole * part; }
};

/// Whether segments a and b are a pair: `pairs` says so of each segment and the next one.
constexpr bool are_pair(const Array<bool>& pairs, int a, int b) {
  return (b - a == 1 || a - b == 1) && pairs[static_cast<std::size_t>(smaller(a, b))];
}

/// Which instructions may share a loop, by graph and plan. Graph must outlive the LoopRules.
class LoopRules {
 public:
  constexpr explicit LoopRules(const Graph& graph)
      : graph_(graph), active_(graph.parts > 1 && !graph.has_outside()) {
    if (!active_) return;
    makers_.resize(graph.nodes.size());
    readers_.resize(graph.nodes.size());
    const Array<GraphSegment> segments = segments_of(graph);
    Array<PartRatio> shares;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const int number = static_cast<int>(s);
      for (int k = segments[s].first; k <= segments[s].last; ++k)
        makers_[index(k)] = readers_[index(k)] = number;
      if (segments[s].has_output) readers_[index(segments[s].last)] = number + 1;
      ends_.push_back(segments[s].has_output ? segments[s].last : -1);
      shares.push_back(share_of(segments[s]));
    }
    may_pair_.resize(segments.size());
    for (std::size_t s = 0; s + 2 < segments.size(); ++s)  // the last one runs the loss
      may_pair_[s] = shares[s] && shares[s] == shares[s + 1];
  }

  /// Whether there can be loops at all.
  constexpr bool active() const { return active_; }

  /// The part of each tensor one call of `inst` works on. The buffers of `inst` are among `buffers`.
  constexpr PartRatio share(const Instruction& inst, const Plan& plan,
                            const Array<Buffer>& buffers) const {
    if (!active_ || inst.parts < 2) return {};
    switch (inst.op) {
      case Op::forward:
      case Op::backward: return of(graph_.node(inst.node).cut);
      case Op::loss:
      case Op::loss_gradient: return of(graph_.loss.cut);
      case Op::add: return of(sum_cut(graph_, graph_.node(inst.node).output));
      case Op::add_gradient: return of(sum_cut(graph_, shape_of(graph_, buffers[index(inst.dx)])));
      case Op::encode:
      case Op::decode: return of_codec(inst.node, *plan[inst.node].codec());
      default: return {};
    }
  }

  /// The segment of an instruction, if the one in front of it belongs to `before`. Forms of an
  /// activation belong to its reader's segment, and gradients meet where they were made.
  constexpr int segment(const Instruction& inst, int before) const {
    if (inst.op == Op::encode || inst.op == Op::decode) return readers_[index(inst.node)];
    return inst.op == Op::add_gradient ? before : makers_[index(inst.node)];
  }

  /// Whether two segments may be a pair: everything run there in backward, whatever the planners'
  /// policies, is cut into the same rows.
  constexpr bool may_pair(int a, int b) const { return active_ && are_pair(may_pair_, a, b); }

  /// By segment: whether `plan` makes a pair of this and the next. Empty without loops.
  constexpr Array<bool> pairs(const Plan& plan) const {
    Array<bool> pairs(ends_.size());
    if (!active_) return pairs;
    const Array<bool> needed = needed_in_backward(graph_, plan);
    const auto again = [&](std::size_t s) {
      const int id = ends_[s];
      return id >= 0 && needed[index(id)] && plan[id].recomputes();
    };
    for (std::size_t s = 0; s < ends_.size(); ++s)
      pairs[s] = may_pair_[s] && again(s) && !(s > 0 && again(s - 1)) && !again(s + 1);
    return pairs;
  }

  /// Whether `inst` adds to gradients shared with others: such sums depend on the order.
  constexpr bool adds_to_shared(const Instruction& inst) const {
    if (inst.op == Op::backward) return graph_.node(inst.node).shares_parameters;
    return inst.op == Op::loss_gradient && graph_.loss.shares_parameters;
  }

  /// Whether a buffer can hold one part of a tensor alone, given a life within a loop.
  static constexpr bool can_be_tile(const Buffer& buffer) {
    return buffer.kind == BufferKind::activation || buffer.kind == BufferKind::gradient;
  }

  static constexpr Shape shape_of(const Graph& graph, const Buffer& buffer) {
    return buffer.activation == step_input ? graph.input : graph.node(buffer.activation).output;
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  static constexpr PartRatio of(const Cut& cut) {
    const bool of_rows = cut.split == Split::rows || cut.split == Split::batch ||
                         (cut.entry_items != 0 && cut.part_items % cut.entry_items == 0);
    return of_rows ? PartRatio::of(cut.part_items, cut.items) : PartRatio{};
  }
  /// The share of all instructions of a segment in backward. {0, 0} if shares differ, or if the segment is
  /// no branch of a residual sum: the gradient between a pair's halves then lives as a whole for both.
  constexpr PartRatio share_of(const GraphSegment& segment) const {
    const IdSpan sums = graph_.adds(segment.last);
    if (!segment.has_input || sums.size() != 1 || sums[0] != segment.first - 1 ||
        !graph_.node(sums[0]).runs_backward)
      return {};
    const PartRatio share = of(sum_cut(graph_, graph_.node(segment.last).output));
    if (!share) return {};
    const auto decodes = [&](int id) {
      const Policy& fixed = graph_.node(id).policy;
      if (!fixed.planned() && fixed.codec() != nullptr && !(of_codec(id, *fixed.codec()) == share))
        return false;
      const CodecSpan candidates = graph_.candidates_of(id);
      for (std::size_t i = 0; fixed.planned() && i < candidates.count; ++i)
        if (!(of_codec(id, *candidates[i]) == share)) return false;
      return true;
    };
    if (!decodes(segment.first - 1)) return {};
    for (int k = segment.first; k <= segment.last; ++k) {
      const Node& node = graph_.node(k);
      if (!(of(node.cut) == share) || node.shares_parameters) return {};
      for (const IdSpan list : {graph_.sources(k), graph_.adds(k)})
        for (const int id : list)
          if (!(of(sum_cut(graph_, id == step_input ? graph_.input : graph_.node(id).output)) ==
                share))
            return {};
      if (!(k == segment.last && segment.has_output) && !decodes(k)) return {};
    }
    return share;
  }

  constexpr PartRatio of_codec(int id, const CodecInfo& codec) const {
    if (codec.item_elements == nullptr) return {};
    const Shape shape = graph_.node(id).output;
    return PartRatio::of(
        codec_cut(graph_, id, codec).part_items * codec.item_elements(shape.cols()), shape.elems());
  }

  const Graph& graph_;
  bool active_;
  Array<int> makers_, readers_;  ///< by activation: segments
  Array<bool> may_pair_;         ///< by segment, with the next one
  Array<int> ends_;  ///< by segment: the last activation if the next segment reads it; or -1
};

/// Turns runs of a schedule's instructions into loops.
class LoopPass {
 public:
  /// How pairs are decided.
  enum class Pairs : unsigned char { if_smaller, always };

  /// `schedule` is the step's under `plan`; `pairs` says by segment whether the next is the partner.
  constexpr LoopPass(const LoopRules& rules, const Plan& plan, const Array<bool>& pairs,
                     Schedule& schedule, Pairs how)
      : rules_(rules), plan_(plan), pairs_(pairs), how_(how), schedule_(schedule),
        seen_(schedule.buffers.size()) {}

  constexpr void run() {
    const LiveBytes live = live_bytes_of(schedule_);
    const int count = static_cast<int>(schedule_.instructions.size());
    int first = 0, segment = 0;  // the first instruction and the segment of the run so far
    bool shared = false;         // the run adds to a shared gradient
    bool backward = false;
    PartRatio share;
    pieces_.clear();
    for (int i = 0; i <= count; ++i) {
      const bool ends = i == count;
      const PartRatio own_share =
          ends ? PartRatio{} : rules_.share(at(i), plan_, schedule_.buffers);
      const int where = ends ? -1 : rules_.segment(at(i), segment);
      const bool adds = !ends && rules_.adds_to_shared(at(i));
      if (!ends && (at(i).op == Op::loss_gradient || at(i).op == Op::hand_over)) backward = true;
      const bool goes_on = own_share && own_share == share && !(shared && adds);
      if (goes_on && where == segment) {
        shared = shared || adds;
        continue;
      }
      if (share) pieces_.push_back({first, i - 1, share.parts()});
      const bool paired = goes_on && backward && are_pair(pairs_, where, segment);
      if (!paired) consider_pieces(share, live);
      first = i, segment = where, shared = adds || (paired && shared), share = own_share;
    }
  }

 private:
  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }
  constexpr Instruction& at(int i) const { return schedule_.instructions[index(i)]; }
  constexpr Buffer& buffer(int id) const { return schedule_.buffers[index(id)]; }

  /// The bytes alive at a run's worst instruction.
  struct Worst {
    std::size_t straight = 0, looped = 0;

    constexpr std::size_t least() const { return looped < straight ? looped : straight; }
  };

  /// Decides about consecutive runs on the same rows of one segment, or of a pair.
  constexpr void consider_pieces(PartRatio share, const LiveBytes& live) {
    if (pieces_.size() > 1) {
      const Loop all{pieces_[0].first, pieces_.back().last, share.parts()};
      std::size_t apart = 0;
      for (const Loop& piece : pieces_) {
        const std::size_t least = weigh(piece, share, live).least();
        if (least > apart) apart = least;
      }
      if (const Worst worst = weigh(all, share, live);
          how_ == Pairs::always || (worst.looped < worst.straight && worst.looped < apart)) {
        keep(all, share);
        pieces_.clear();
        return;
      }
    }
    for (const Loop& piece : pieces_) {
      const Worst worst = weigh(piece, share, live);
      if (worst.looped < worst.straight) keep(piece, share);
    }
    pieces_.clear();
  }

  constexpr Worst weigh(const Loop& loop, PartRatio share, const LiveBytes& live) {
    if (loop.first == loop.last) return {live[index(loop.first)], live[index(loop.first)]};
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
    Worst worst;
    std::size_t changed = 0;  // differences may wrap around
    for (int i = loop.first; i <= loop.last; ++i) {
      const std::size_t lived = live[index(i)];
      changed += changes_[index(i - loop.first)];
      if (lived > worst.straight) worst.straight = lived;
      if (lived + changed > worst.looped) worst.looped = lived + changed;
    }
    return worst;
  }

  /// Lists the buffers named by instructions of the loop that outlive a call.
  constexpr void collect(const Loop& loop) {
    named_.clear();
    ++collected_;
    for (int i = loop.first; i <= loop.last; ++i) {
      const Instruction& inst = at(i);
      for (const int id : {inst.x, inst.y, inst.dx, inst.dy, inst.aux, inst.blob, inst.added}) {
        if (id < 0 || seen_[index(id)] == collected_) continue;
        seen_[index(id)] = collected_;
        named_.push_back(id);
      }
    }
    // Every part adds to the gradients of parameters: they live as long as the loop.
    for (std::size_t id = 0; id < schedule_.buffers.size(); ++id) {
      const Buffer& used = schedule_.buffers[id];
      if (used.kind != BufferKind::lasting_gradient) break;  // they come first
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

  constexpr void keep(const Loop& loop, PartRatio share) {
    for (const int id : named_) {
      Buffer& used = buffer(id);
      if (becomes_tile(id, loop)) {
        used.part_buffer = true;
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
  const Array<bool>& pairs_;
  Pairs how_;
  Schedule& schedule_;
  Array<int> seen_;  ///< by buffer: the latest collect() that met it
  int collected_ = 0;
  Array<Loop> pieces_;  ///< in the run considered for one loop
  Array<int> named_;
  Array<std::size_t> changes_;
};

}}}  // namespace adacc::v0_1::detail
