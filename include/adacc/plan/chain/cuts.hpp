// SPDX-License-Identifier: MIT
/// Where planners cut a graph into a chain of segments.
///
/// Networks are cut where loops may end (model/segments.hpp), and at shared cuts. In a graph run by a caller,
/// several activations may be read across a cut, as no gradients have to cross. Most cuts have one such
/// activation, not always the last output of a kernel. Cuts with more are added only where a segment is
/// else too large to list patterns for (a time step with a state per layer, the encoder's output read by all
/// blocks of a decoder, the skips of a U-Net). Activations across more than one cut then stand: they are
/// retained from forward to backward. At each such cut, only one kernel's outputs may have other policies;
/// outputs of others stand. Plans with other policies are not listed: bounds allow for them (`restricted`).
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/extremes.hpp"
#include "../../model/graph.hpp"
#include "../../model/segments.hpp"
#include "../../program/passes/loops.hpp"
#include "../choices.hpp"
#include "../tuning.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A segment of a graph. Segments with equal `structure` have equal bytes and options. Segments with equal
/// `cost` also have equal seconds and errors.
struct Segment : GraphSegment {
  Array<int> standing_inputs;  ///< made in front, standing, and read here
  Array<int> inputs;    ///< made by one kernel of the segment in front, for this segment alone
  Array<int> outputs;   ///< the inputs of the next segment
  Array<int> standing;  ///< made here, retained until backward
  int structure = -1, cost = -1;
  bool pairs_before = false, pairs_behind = false;  ///< may be a pair with a neighbour (loops.hpp)

  /// The number of nodes in the segment's own graph (graph_of()) that stand for activations in front.
  constexpr int in_front() const {
    return static_cast<int>(standing_inputs.size() + inputs.size());
  }
  /// From a node of the segment's own graph to the node of the whole graph.
  constexpr int original(int node) const {
    const auto at = static_cast<std::size_t>(node);
    if (at < standing_inputs.size()) return standing_inputs[at];
    if (node < in_front()) return inputs[at - standing_inputs.size()];
    const int id = first + node - in_front();
    return id <= last ? id : first_stage + id - last - 1;
  }
  /// From activation `id` of the whole graph to the node of the segment's own graph; -1: none.
  constexpr int local(int id) const {
    if (first <= id && id <= last) return id - first + in_front();
    for (int node = 0; node < in_front(); ++node)
      if (original(node) == id) return node;
    return -1;
  }
  /// The place of activation or stage `k` of `graph` among the nodes of the segment's own graph; -1 if `k` lies
  /// in front of the segment, the number of nodes if behind.
  constexpr int place_of(const Graph& graph, int k) const {
    const bool stage = k < graph.node_count() && graph.node(k).is_backward_stage();
    const int activations = last + 1 - first + in_front();
    if (k < (stage ? first_stage : first)) return -1;
    if (k >= (stage ? stage_end : last + 1)) return activations + stage_end - first_stage;
    return stage ? activations + k - first_stage : k - first + in_front();
  }
};

/// An activation retained by listed plans, for which other plans may have other policies.
struct Restricted {
  int id = 0;
  bool longer = false;  ///< perhaps retained after its last reader in backward, or without a reader
};

/// A graph's segments in order, as small as they can be.
struct Cuts {
  Array<Segment> segments;
  Array<Restricted> restricted;
};

/// Cuts a graph run by a caller.
class OutsideCutter {
 public:
  /// Segments of more than `most_open` activations are cut further, until pieces have about as many patterns as
  /// `most_open / 2` activations.
  OutsideCutter(const Graph& graph, int most_open)
      : graph_(graph), outputs_(graph.node_count()), most_open_(most_open),
        few_(std::size_t{1} << most_open / 2) {
    while (outputs_ > 1 && graph.node(outputs_ - 1).is_backward_stage()) --outputs_;
    list_readers();
    list_places();
  }

  [[gnu::noinline]] Cuts cut() {
    choose();
    return assemble();
  }

 private:
  static constexpr int most_crossing = 32;  ///< activations across an added cut

  struct Activation {
    int last_reader = 0;     ///< in forward; the activation's own node, if none
    int stage = -1;          ///< the reading stage with the lowest number: the last in backward
    int first_stage = -1;    ///< the reading stage with the highest number
    bool made_from = false;  ///< is a source of an activation that may be recomputed
    std::size_t options = 1;
  };
  /// A place for a cut, behind an activation.
  struct Place {
    int stage_end = 0;   ///< the stages up to here are on the left
    int crossing = 0;    ///< activations of the left read by forward on the right
    long long ids = 0;   ///< the sum of the ids of crossing activations
    int fixed = 0;       ///< crossing activations that cannot be retained
    bool valid = false;  ///< backward reads no other activations across
    bool chosen = false;
  };

  Activation& at(int id) { return activations_[static_cast<std::size_t>(id)]; }
  const Activation& at(int id) const { return activations_[static_cast<std::size_t>(id)]; }
  Place& place(int k) { return places_[static_cast<std::size_t>(k)]; }
  const Place& place(int k) const { return places_[static_cast<std::size_t>(k)]; }

  void list_readers() {
    activations_.resize(static_cast<std::size_t>(outputs_));
    for (int k = 0; k < outputs_; ++k) {
      at(k).last_reader = k;
      const Array<Policy> policies = policies_of(graph_, k);
      at(k).options = policies.size();
      const bool again = policies[policies.size() - 1].recomputes();
      graph_.forward_reads(k, [&](int id) {
        at(id).last_reader = k;
        at(id).made_from = at(id).made_from || again;
      });
    }
    for (int stage = outputs_; stage < graph_.node_count(); ++stage)
      for (const int id : graph_.backward_reads(stage)) {
        if (at(id).stage < 0) at(id).stage = stage;
        at(id).first_stage = stage;
      }
  }

  void list_places() {
    places_.resize(static_cast<std::size_t>(outputs_) + 1);
    for (int id = 0; id < outputs_; ++id) {
      const int end = at(id).last_reader;
      if (end == id) continue;
      const Policy& policy = graph_.node(id).policy;
      const int fixed = policy.planned() || policy == retain() ? 0 : 1;
      place(id).crossing += 1, place(end).crossing -= 1;
      place(id).ids += id, place(end).ids -= id;
      place(id).fixed += fixed, place(end).fixed -= fixed;
    }
    // A stage is on the left if one of its activations is not read on the right.
    Array<int> most_read;  // the last activation read by the stages up to each
    int most = -1;
    for (int stage = outputs_; stage < graph_.node_count(); ++stage) {
      int dead = outputs_;
      for (const int id : graph_.backward_reads(stage)) {
        lower(dead, at(id).last_reader);
        raise(most, id);
      }
      if (dead < outputs_) raise(place(dead).stage_end, stage + 1);
      most_read.push_back(most);
    }
    Place sum;
    sum.stage_end = outputs_;
    for (int k = 0; k + 1 < outputs_; ++k) {
      Place& here = place(k);
      raise(sum.stage_end, here.stage_end);
      sum.crossing += here.crossing, sum.ids += here.ids, sum.fixed += here.fixed;
      here = sum;
      const int on_left = sum.stage_end - outputs_;
      here.valid = !graph_.made_with_next(k) &&
                   (on_left == 0 || most_read[static_cast<std::size_t>(on_left) - 1] <= k);
    }
  }

  bool left_reads(int id, int k) const {
    return at(id).stage >= 0 && at(id).stage < place(k).stage_end;
  }
  bool right_needs(int id, int k) const { return at(id).first_stage >= place(k).stage_end; }
  /// The first reader in backward decodes an activation. At a shared cut, this must be the right side.
  bool can_share(int id, int k) const {
    const Policy& policy = graph_.node(id).policy;
    return right_needs(id, k) || !left_reads(id, k) ||
           (policy.planned() ? graph_.candidates_of(id).count == 0 : policy.codec() == nullptr);
  }

  void choose() {
    long long before = -1;  // the activation across the cut before, if there is just one
    for (int k = 0; k + 1 < outputs_; ++k) {
      Place& here = place(k);
      if (!here.valid || here.crossing > 1) continue;
      if (here.crossing == 1 && (here.ids == before || !can_share(static_cast<int>(here.ids), k)))
        continue;
      here.chosen = true;
      before = here.crossing == 1 ? here.ids : -1;
    }
    for (int first = 0, k = 0; k < outputs_; ++k)
      if (k + 1 == outputs_ || place(k).chosen) {
        if (open(first, k) > most_open_) split(first, k);
        first = k + 1;
      }
  }

  int open(int first, int last) const {
    int count = 0;
    for (int id = first; id <= last; ++id) count += at(id).options > 1;
    return count;
  }
  bool is_large(int first, int last) const {
    std::size_t product = 1;
    for (int id = first; id <= last && product <= few_; ++id) product *= at(id).options;
    return product > few_;
  }

  /// Cuts at places with the fewest crossing activations, as long as pieces are large.
  void split(int first, int last) {
    struct Piece {
      int first, last;
    };
    Array<Piece> pieces;
    pieces.push_back({first, last});
    while (!pieces.empty()) {
      const Piece piece = pieces.back();
      pieces.pop_back();
      int least = most_crossing + 1;
      for (int k = piece.first; k < piece.last; ++k)
        if (can_split(k)) lower(least, place(k).crossing);
      if (least > most_crossing) continue;
      int begin = piece.first;
      for (int k = piece.first; k <= piece.last; ++k) {
        if (k < piece.last && can_split(k) && place(k).crossing == least) place(k).chosen = true;
        else if (k < piece.last) continue;
        if (is_large(begin, k)) pieces.push_back({begin, k});
        begin = k + 1;
      }
    }
  }

  /// Whether several activations may cross at `k`, one of them made by the kernel right before.
  bool can_split(int k) const {
    const Place& here = place(k);
    if (!here.valid || here.chosen || here.crossing < 2 || here.fixed > 0) return false;
    for (int id = graph_.maker_of(k); id <= k; ++id)
      if (at(id).last_reader > k) return true;
    return false;
  }

  Cuts assemble() {
    Cuts out;
    Array<int> segment_of(static_cast<std::size_t>(outputs_));
    for (int k = 0, segment = 0; k < outputs_; ++k) {
      segment_of[static_cast<std::size_t>(k)] = segment;
      segment += place(k).chosen;
    }
    const auto segment_at = [&](int id) { return segment_of[static_cast<std::size_t>(id)]; };
    Segment next;
    next.stage_end = outputs_;
    Array<int> crossing;  // standing activations across the cut in front
    for (int k = 0; k < outputs_; ++k) {
      const bool is_last = k + 1 == outputs_;
      if (!is_last && !place(k).chosen) continue;
      next.last = k;
      next.first_stage = next.stage_end;
      next.stage_end = is_last ? graph_.node_count() : place(k).stage_end;
      next.has_reader = !is_last;
      find_standing_inputs(next, crossing);
      Array<int> behind;
      if (!is_last) {
        choose_outputs(next, segment_at);
        for (const int id : crossing)
          if (at(id).last_reader > k) behind.push_back(id);
        for (int id = next.first; id <= k; ++id) {
          if (at(id).last_reader <= k ||
              IdSpan(next.outputs.data(), next.outputs.size()).contains(id))
            continue;
          if (!graph_.node(id).read_in_backward && !at(id).made_from) continue;
          next.standing.push_back(id);
          behind.push_back(id);
        }
      }
      next.has_output = !next.outputs.empty();
      out.segments.push_back(next);
      crossing = static_cast<Array<int>&&>(behind);
      Segment after;
      after.first = k + 1;
      after.stage_end = next.stage_end;
      after.inputs = next.outputs;
      after.has_input = next.has_output;
      after.shares_input = next.shares_output;
      next = static_cast<Segment&&>(after);
    }
    list_restricted(out);
    return out;
  }

  /// Lists the standing activations that `segment` reads.
  void find_standing_inputs(Segment& segment, const Array<int>& crossing) const {
    for (const int id : crossing) {
      bool reads = false;
      for (int k = segment.first; k <= segment.last && !reads; ++k)
        graph_.forward_reads(k, [&](int source) { reads = reads || source == id; });
      for (int stage = segment.first_stage; stage < segment.stage_end && !reads; ++stage)
        reads = graph_.backward_reads(stage).contains(id);
      if (reads) segment.standing_inputs.push_back(id);
    }
  }

  /// Among activations across only the cut behind `segment`, chooses those of the kernel with most bytes.
  template <class SegmentOf>
  void choose_outputs(Segment& segment, const SegmentOf& segment_of) const {
    const int k = segment.last;
    const bool single = place(k).crossing == 1;
    std::size_t most = 0;
    Array<int> group;
    for (int id = segment.first; id <= k;) {
      const int maker = graph_.maker_of(id);
      Array<int> ids;
      std::size_t bytes = 0;
      for (; id <= k && graph_.maker_of(id) == maker; ++id) {
        if (at(id).last_reader <= k || segment_of(at(id).last_reader) != segment_of(k) + 1)
          continue;
        if (!single && !right_needs(id, k)) continue;
        ids.push_back(id);
        bytes += graph_.node(id).output_bytes;
      }
      if (bytes > most) most = bytes, group = static_cast<Array<int>&&>(ids);
    }
    segment.outputs = static_cast<Array<int>&&>(group);
    segment.shares_output = segment.outputs.size() > 1 ||
                            (segment.outputs.size() == 1 && left_reads(segment.outputs[0], k));
  }

  void list_restricted(Cuts& out) const {
    for (std::size_t s = 0; s < out.segments.size(); ++s) {
      const Segment& segment = out.segments[s];
      if (segment.outputs.size() > 1)
        for (const int id : segment.outputs) out.restricted.push_back({id, false});
      for (const int id : segment.standing)
        out.restricted.push_back(
            {id, at(id).stage < 0 || at(id).stage >= out.segments[s + 1].stage_end});
    }
  }

  const Graph& graph_;
  int outputs_;
  int most_open_;
  std::size_t few_;
  Array<Activation> activations_;
  Array<Place> places_;
};

/// The segments of `graph`. Loops go through shared cuts, so graphs with loops have no shared cuts.
inline Cuts cut(const Graph& graph, int most_open = ChainTuning{}.most_open) {
  const LoopRules rules(graph);
  bool outside = graph.node_count() > 0;
  for (const Node& node : graph.nodes) outside = outside && node.gradient_outside;
  if (outside) return OutsideCutter(graph, most_open).cut();
  Cuts out;
  const SharedCuts shared = rules.active() ? SharedCuts::no : SharedCuts::yes;
  for (const GraphSegment& segment : segments_of(graph, shared)) {
    out.segments.push_back({});
    static_cast<GraphSegment&>(out.segments.back()) = segment;
    if (segment.has_input) out.segments.back().inputs.push_back(segment.first - 1);
    if (segment.has_output) out.segments.back().outputs.push_back(segment.last);
  }
  for (std::size_t s = 0; s + 1 < out.segments.size(); ++s)
    out.segments[s].pairs_behind = out.segments[s + 1].pairs_before =
        rules.may_pair(static_cast<int>(s), static_cast<int>(s) + 1);
  return out;
}

}}}  // namespace adacc::v0_1::detail
