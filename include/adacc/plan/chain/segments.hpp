// SPDX-License-Identifier: MIT
/// A graph cut into a chain of segments, and each segment as a small graph of its own.
///
/// The two sides of a cut know little of each other: to the right, the stored activations of the left are a
/// sum of bytes, and perhaps the right asks for the activation right before the cut. So a segment's
/// instructions and bytes follow from the same scheduler run on the segment alone, between a stand-in for
/// the incoming activation and one for the reader of outgoing activations. cuts.hpp says where to cut.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"
#include "../../core/extremes.hpp"
#include "../../cost/profile.hpp"
#include "../../model/graph.hpp"
#include "../../program/scheduler.hpp"
#include "cuts.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A segment as a graph. Its first nodes stand for incoming activations: first the standing ones, which take no
/// bytes here, then those that the segment decides on. Unless the segment is the last one, the graph's last
/// node stands for the reader of outgoing activations.
inline Graph graph_of(const Graph& graph, const Segment& segment) {
  Graph out;
  out.scalar = graph.scalar;
  out.on_device = graph.on_device;
  out.workers = graph.workers;
  out.parts = graph.parts;
  out.has_loss = segment.has_reader || graph.has_loss;
  if (!segment.has_input) {
    out.input = graph.input;
    out.gives_input_gradient = graph.gives_input_gradient;
  }
  if (!segment.has_reader) out.loss = graph.loss;
  out.updates = graph.updates;
  // Activations read only by a caller's forward, of no use in backward, may be missing here.
  const auto append_local = [&](int id) {
    const int node = id == step_input ? step_input : segment.local(id);
    if (id == step_input || node >= 0) out.ids.push_back(node);
  };
  const auto local = [&](IdSpan list) {
    const std::size_t begin = out.ids.size();
    for (const int id : list) append_local(id);
    return ListRange(begin, out.ids.size());
  };
  const auto append = [&](Node node, CodecSpan candidates) {
    const std::size_t begin = out.candidates.size();
    for (std::size_t i = 0; i < candidates.count; ++i) out.candidates.push_back(candidates[i]);
    node.candidates = {begin, out.candidates.size()};
    out.nodes.push_back(node);
  };
  const int in_front = segment.in_front();
  const int standing = static_cast<int>(segment.standing_inputs.size());
  const int count =
      in_front + segment.last + 1 - segment.first + segment.stage_end - segment.first_stage;
  for (int i = 0; i < count; ++i) {
    const int k = segment.original(i);
    Node node = graph.node(k);
    if (i < in_front) {  // a stand-in has no gradient behind it, and reads nothing
      node = Node{};
      node.name = graph.node(k).name;
      node.takes_tokens = true;
      node.input = node.output = graph.node(k).output;
      node.cut = sum_cut(graph, node.output);
      node.gradient_outside = graph.node(k).gradient_outside;
      node.runs_backward = graph.node(k).runs_backward || segment.shares_input || i < standing;
      // The segment in front reads the activation last, whatever this segment does.
      if (segment.shares_input || i < standing) node.backward_reads = local({&k, 1});
      if (i < standing) {
        node.policy = retain();
        append(node, {});
        continue;
      }
      if (i > standing) node.made_by = standing;
      node.output_bytes = graph.node(k).output_bytes;
      node.policy = graph.node(k).policy;
      node.recomputable = graph.node(k).recomputable;
      node.value_outside = graph.node(k).value_outside;
    } else {
      if (node.made_by >= 0) node.made_by = segment.local(node.made_by);
      node.sources = local(graph.sources(k));
      node.adds = local(graph.adds(k));
      node.backward_reads = local(graph.backward_reads(k));
    }
    append(node, graph.candidates_of(k));
  }
  if (segment.has_reader) {
    const int from = segment.has_output ? segment.outputs[0] : segment.last;
    Node reader;
    reader.input = reader.output = graph.node(from).output;
    reader.cut = sum_cut(graph, reader.output);
    reader.gradient_outside = !segment.has_output || graph.node(from).gradient_outside;
    reader.accepts_empty_dx = true;  // no dx is wanted if nothing up to here is trained
    const std::size_t begin = out.ids.size();
    for (const int id : segment.standing) append_local(id);
    for (const int id : segment.outputs) append_local(id);
    reader.sources = {begin, out.ids.size()};
    reader.backward_reads = reader.sources;  // a pattern limits these (PatternLister::list_all)
    if (reader.sources.count > 0) reader.reads = Reads::input;
    append(reader, {});
  }
  if (!graph.has_lasting_gradients()) return out;
  // Gradients coming in from behind are there once the reader has run. Gradients completed in front stay to
  // the end.
  for (const LastingGradient& gradient : graph.gradients) {
    const int begun = segment.place_of(graph, gradient.begun);
    const int complete = segment.place_of(graph, gradient.complete);
    if (begun >= 0 && !(complete == count && segment.has_reader))
      out.gradients.push_back({0, begun, complete, gradient.bytes});
  }
  // Gradients in another order take the same bytes: sorted, they keep equal segments equal.
  sort(out.gradients, [](const LastingGradient& a, const LastingGradient& b) {
    if (a.begun != b.begun) return a.begun < b.begun;
    return a.complete != b.complete ? a.complete < b.complete : a.bytes < b.bytes;
  });
  return out;
}

/// Whether two segments are bounded alike.
inline bool same_ends(const Segment& a, const Segment& b) {
  return a.pairs_before == b.pairs_before && a.pairs_behind == b.pairs_behind &&
         a.standing_inputs.size() == b.standing_inputs.size() &&
         a.inputs.size() == b.inputs.size() && a.outputs.size() == b.outputs.size() &&
         a.standing.size() == b.standing.size() && a.shares_input == b.shares_input &&
         a.shares_output == b.shares_output;
}

/// Whether the graphs of two segments have the same bytes, options and instructions.
inline bool same_structure(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size() || a.ids.size() != b.ids.size() ||
      a.candidates.size() != b.candidates.size() || a.has_loss != b.has_loss ||
      a.gives_input_gradient != b.gives_input_gradient || !(a.input == b.input) ||
      a.gradients.size() != b.gradients.size())
    return false;
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    if (!(a.gradients[i] == b.gradients[i])) return false;
  for (std::size_t k = 0; k < a.nodes.size(); ++k) {
    const Node &x = a.nodes[k], &y = b.nodes[k];
    if (!(x.input == y.input && x.output == y.output && x.output_bytes == y.output_bytes &&
          x.made_by == y.made_by && x.sources.count == y.sources.count &&
          x.adds.count == y.adds.count && x.backward_reads.count == y.backward_reads.count &&
          x.reads == y.reads && x.takes_tokens == y.takes_tokens &&
          x.dx_overwrites_dy == y.dx_overwrites_dy && x.accepts_empty_dx == y.accepts_empty_dx &&
          x.cut == y.cut && x.shares_parameters == y.shares_parameters &&
          x.value_outside == y.value_outside && x.gradient_outside == y.gradient_outside &&
          x.runs_backward == y.runs_backward && x.recomputable == y.recomputable &&
          x.aux_bytes == y.aux_bytes && x.forward_workspace == y.forward_workspace &&
          x.backward_workspace == y.backward_workspace && x.policy == y.policy &&
          x.candidates.count == y.candidates.count))
      return false;
  }
  for (std::size_t i = 0; i < a.ids.size(); ++i)
    if (a.ids[i] != b.ids[i]) return false;
  for (std::size_t i = 0; i < a.candidates.size(); ++i)
    if (a.candidates[i] != b.candidates[i]) return false;
  return true;
}

/// Whether two segments of one structure cost the same.
inline bool same_cost(const CostProfile& profile, const Segment& a, const Segment& b) {
  const int count = a.in_front() + a.last + 1 - a.first;
  for (int i = static_cast<int>(a.standing_inputs.size()); i < count; ++i) {
    const int k = a.original(i), l = b.original(i);
    const NodeCost &x = profile.node(k), &y = profile.node(l);
    if (x.forward != y.forward || x.add != y.add) return false;
    for (int c = 0; c < static_cast<int>(profile.codecs.size()); ++c) {
      const CodecCost &p = profile.codec_cost(k, c), &q = profile.codec_cost(l, c);
      if (p.encode != q.encode || p.decode != q.decode || p.error != q.error ||
          p.carried_error != q.carried_error)
        return false;
    }
  }
  return true;
}

/// The segments of a graph, in classes. Segment::structure and Segment::cost count from 0, in the order in
/// which new ones appear.
struct Segments {
  static constexpr std::size_t work_a_segment = 500;  ///< for a Pacer

  Array<Segment> all;
  Array<Restricted> restricted;
  Array<Graph> structures;

  Segments() = default;
  /// Only the `compared` latest classes are compared, so graphs without repetition cost no more than graphs of
  /// equal blocks. If time is up, classes are missing.
  [[gnu::noinline]] Segments(const Graph& graph, const CostProfile& profile, std::size_t compared,
                             PacerRef time = {}, int most_open = ChainTuning{}.most_open) {
    Cuts cuts = cut(graph, most_open);
    all = static_cast<Array<Segment>&&>(cuts.segments);
    restricted = static_cast<Array<Restricted>&&>(cuts.restricted);
    Array<std::size_t> firsts, costs;  // the first segment of each structure, and of each cost
    for (std::size_t j = 0; j < all.size() && !time.spend(work_a_segment); ++j) {
      Segment& segment = all[j];
      Graph own = graph_of(graph, segment);
      for (std::size_t i = structures.size(), n = 0;
           i-- > 0 && n < compared && segment.structure < 0; ++n)
        if (same_ends(all[firsts[i]], segment) && same_structure(structures[i], own))
          segment.structure = static_cast<int>(i);
      for (std::size_t i = costs.size(), n = 0; i-- > 0 && n < compared && segment.cost < 0; ++n)
        if (segment.structure == all[costs[i]].structure &&
            same_cost(profile, all[costs[i]], segment))
          segment.cost = static_cast<int>(i);
      if (segment.structure < 0) {
        segment.structure = static_cast<int>(structures.size());
        structures.push_back(static_cast<Graph&&>(own));
        firsts.push_back(j);
      }
      if (segment.cost < 0) {
        segment.cost = static_cast<int>(costs.size());
        costs.push_back(j);
      }
    }
  }
};

}}}  // namespace adacc::v0_1::detail
