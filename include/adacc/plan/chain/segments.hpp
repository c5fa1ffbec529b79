/// A chain cut into segments, and each segment as a small graph of its own.
///
/// Where no residual sum spans an activation, and no backward step of what lies before reads it,
/// the two sides of a step know little of each other: what the left stores is a sum of bytes to
/// the right, and the right hands back one gradient, and perhaps asks for the activation itself.
/// So a segment's instructions and bytes follow from the same scheduler run on the segment alone,
/// between a stand-in for the activation that comes in and one for the reader of what goes out.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../cost/checkpointed.hpp"
#include "../../cost/profile.hpp"
#include "../../model/graph.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Nodes first..last of a graph. Segments with equal `form` have equal bytes and equal choices,
/// those with equal `cost` also equal seconds and errors.
struct Segment {
  int first = 0;
  int last = 0;
  int form = 0;
  int cost = 0;
};

/// Whether a chain may be cut behind each activation. The step's own input is always at hand, so
/// sums that read it span nothing.
inline Array<bool> cuts_of(const Graph& graph) {
  Array<bool> cuts(graph.nodes.size());
  for (const int k : checkpoint_sites(graph))
    cuts[static_cast<std::size_t>(k)] =
        k + 1 < graph.node_count() && !graph.backward_reads(k).contains(k);
  return cuts;
}

/// A segment as a graph: node 0 stands for the activation that comes in (except in the first
/// segment), and the last one for its reader behind the segment (except in the last, which has the
/// graph's own loss).
struct SegmentGraph {
  Graph graph;
  int first = 0;            ///< the graph's node that node 0 is: the incoming activation, or node 0
  bool has_input = false;   ///< node 0 is a stand-in
  bool has_output = false;  ///< the last node is a stand-in

  /// The node of the whole graph that `node` is.
  int original(int node) const { return first + node; }
};

inline SegmentGraph segment_graph(const Graph& graph, const Segment& segment) {
  SegmentGraph out;
  out.has_input = segment.first > 0;
  out.has_output = segment.last + 1 < graph.node_count();
  out.first = out.has_input ? segment.first - 1 : 0;
  out.graph.input = graph.input;
  out.graph.input_dtype = graph.input_dtype;
  out.graph.scalar = graph.scalar;
  out.graph.workers = graph.workers;
  out.graph.has_loss = out.has_output || graph.has_loss;
  out.graph.gives_input_gradient = !out.has_input && graph.gives_input_gradient;
  if (out.has_input) {
    const Node& source = graph.node(segment.first - 1);
    Node input;
    input.name = source.name;
    input.takes_tokens = true;  // no gradient behind it
    input.input = input.output = source.output;
    input.output_bytes = source.output_bytes;
    input.policy = source.policy;
    out.graph.append(input, {});
  }
  for (int k = segment.first; k <= segment.last; ++k) {
    const auto local = [&](int id) { return id == step_input ? step_input : id - out.first; };
    const int from = local(graph.input_of(k));
    Node node = graph.node(k);
    node.adds = {};
    out.graph.append(node, {&from, 1});
    for (const int source : graph.adds(k)) out.graph.add(local(source));
  }
  if (out.has_output) {
    Node output;
    output.input = graph.node(segment.last).output;
    output.output = output.input;
    output.reads = Reads::input;  // in backward, if a pattern has it do so
    const int from = out.graph.node_count() - 1;
    out.graph.append(output, {&from, 1});
  } else {
    out.graph.loss = graph.loss;
  }
  return out;
}

/// Whether nodes `a` and `b` bring the same bytes, choices and instructions.
inline bool same_form(const Graph& graph, int a, int b) {
  const Node& x = graph.node(a);
  const Node& y = graph.node(b);
  if (!(x.input == y.input && x.output == y.output && x.reads == y.reads &&
        x.takes_tokens == y.takes_tokens && x.dx_overwrites_dy == y.dx_overwrites_dy &&
        x.accepts_empty_dx == y.accepts_empty_dx && x.output_bytes == y.output_bytes &&
        x.aux_bytes == y.aux_bytes && x.forward_workspace == y.forward_workspace &&
        x.backward_workspace == y.backward_workspace && x.policy == y.policy &&
        x.adds.count == y.adds.count && x.candidate_count == y.candidate_count))
    return false;
  for (std::size_t i = 0; i < x.candidate_count; ++i)
    if (graph.candidates[x.first_candidate + i] != graph.candidates[y.first_candidate + i])
      return false;
  for (std::size_t i = 0; i < x.adds.count; ++i) {
    const int s = graph.adds(a)[i], t = graph.adds(b)[i];
    if ((s == step_input) != (t == step_input) || (s != step_input && a - s != b - t)) return false;
  }
  return true;
}

inline bool same_cost(const CostProfile& profile, int a, int b) {
  const NodeCost& x = profile.node(a);
  const NodeCost& y = profile.node(b);
  if (x.forward != y.forward || x.add != y.add) return false;
  for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
    const CodecCost& p = profile.codec_cost(a, static_cast<int>(c));
    const CodecCost& q = profile.codec_cost(b, static_cast<int>(c));
    if (p.encode != q.encode || p.decode != q.decode || p.error != q.error ||
        p.carried_error != q.carried_error)
      return false;
  }
  return true;
}

/// The segments of `graph` in order, with their classes. Only the latest representatives are
/// compared, so graphs in which nothing repeats cost no more than those in which everything does.
inline Array<Segment> segments_of(const Graph& graph, const CostProfile& profile) {
  constexpr std::size_t remembered = 16;
  Array<Segment> segments;
  Array<std::size_t> forms, costs;  // the first segment of each
  const Array<bool> cuts = cuts_of(graph);
  int first = 0;
  for (int k = 0; k < graph.node_count(); ++k) {
    if (k + 1 < graph.node_count() && !cuts[static_cast<std::size_t>(k)]) continue;
    Segment segment{first, k, -1, -1};
    first = k + 1;
    const bool inner = segment.first > 0 && k + 1 < graph.node_count();
    const auto equal = [&](std::size_t other, const auto& same) {
      const Segment& that = segments[other];
      if (!inner || that.first == 0 || that.last - that.first != k - segment.first) return false;
      for (int i = -1; i <= k - segment.first; ++i)
        if (!same(that.first + i, segment.first + i)) return false;
      return true;
    };
    for (std::size_t i = forms.size(), n = 0; i-- > 0 && n < remembered && segment.form < 0; ++n)
      if (equal(forms[i], [&](int a, int b) { return same_form(graph, a, b); }))
        segment.form = static_cast<int>(i);
    for (std::size_t i = costs.size(), n = 0; i-- > 0 && n < remembered && segment.cost < 0; ++n)
      if (segment.form >= 0 && segments[costs[i]].form == segment.form &&
          equal(costs[i], [&](int a, int b) { return same_cost(profile, a, b); }))
        segment.cost = static_cast<int>(i);
    if (segment.form < 0) {
      segment.form = static_cast<int>(forms.size());
      forms.push_back(segments.size());
    }
    if (segment.cost < 0) {
      segment.cost = static_cast<int>(costs.size());
      costs.push_back(segments.size());
    }
    segments.push_back(segment);
  }
  return segments;
}

}}}  // namespace adacc::v0_1::detail
