// SPDX-License-Identifier: MIT
/// A stage: some of a network's nodes, one after the other, as a network of its own with open ends.
///
/// A stage reads the activation right before its first node, and hands out this activation's gradient. Unless the stage
/// has the network's end, it hands over its last activation and takes this one's gradient from outside. So stages in a
/// row compute the same as the whole network, each on a machine of its own. They run from the dispatch table of the
/// whole network, and draw the same random numbers.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "graph.hpp"
#include "segments.hpp"

namespace adacc { inline namespace v0_1 {

/// The nodes behind which `graph` can be cut into stages: only the activation of such a node is read across the cut, in
/// forward and in backward.
constexpr Array<int> cuts_of(const Graph& graph) {
  Array<int> cuts;
  if (graph.has_outside()) return cuts;
  int last_reader = 0;  // the last reader of the step's input
  for (int k = 0; k < graph.node_count(); ++k)
    if (graph.sources(k).contains(step_input) || graph.adds(k).contains(step_input))
      last_reader = k;
  for (const detail::GraphSegment& segment : detail::segments_of(graph))
    if (segment.has_output && segment.last >= last_reader && graph.node(segment.last).runs_backward)
      cuts.push_back(segment.last);
  return cuts;
}

namespace detail {

/// Copies nodes first..last of a graph.
class StageMaker {
 public:
  constexpr StageMaker(const Graph& graph, int first, int last)
      : graph_(graph), first_(first), last_(last), ends_(last + 1 == graph.node_count()) {}

  constexpr Result<Graph> make() {
    if (const Error why = check_place()) return why;
    if (const Error why = check_tied()) return why;
    out_.scalar = out_.input_dtype = graph_.scalar;
    out_.on_device = graph_.on_device;
    out_.workers = graph_.workers;
    out_.parts = graph_.parts;
    out_.parameter_form = graph_.parameter_form;
    if (first_ == 0) {
      out_.input = graph_.input;
      out_.input_dtype = graph_.input_dtype;
      out_.gives_input_gradient = graph_.gives_input_gradient;
    } else {
      out_.input = graph_.node(first_ - 1).output;
      out_.gives_input_gradient = true;
    }
    out_.has_loss = ends_ && graph_.has_loss;
    out_.first_node = graph_.first_node + first_;
    for (int k = first_; k <= last_; ++k) append(k);
    if (out_.has_loss) {
      out_.loss = graph_.loss;
      out_.loss.parameters = append_parameters(graph_.loss, -1);
    }
    place_parameters();
    if (const Error why = examine(out_)) return why;
    out_.fingerprint = fingerprint_of(out_);
    return static_cast<Graph&&>(out_);
  }

 private:
  constexpr Error check_place() const {
    const int count = graph_.node_count();
    if (graph_.has_outside())
      return Error::say("a network that is run by the caller is not cut into stages");
    if (first_ < 0 || last_ < first_ || last_ >= count)
      return Error::say("a stage of nodes ", first_, " to ", last_,
                        " of a network whose nodes are 0 to ", count - 1);
    const Array<int> cuts = cuts_of(graph_);
    for (const int k : {first_ - 1, last_}) {
      if (k < 0 || k + 1 == count) continue;
      int before = -1, behind = -1;
      bool found = false;
      for (const int cut : cuts) {
        found = found || cut == k;
        if (cut < k) before = cut;
        if (cut > k && behind < 0) behind = cut;
      }
      if (found) continue;
      Error error =
          Error::say("the network cannot be cut behind node ", k, " (", graph_.node(k).name,
                     "): more than its activation is read across, or nothing before is "
                     "trained; possible nearby are cuts behind");
      if (before >= 0) error.append(" node "), error.append(before);
      if (before >= 0 && behind >= 0) error.append(" and");
      if (behind >= 0) error.append(" node "), error.append(behind);
      if (before < 0 && behind < 0) error.append(" no nodes at all");
      return error;
    }
    return {};
  }

  constexpr bool inside(const Parameter& parameter) const {
    return parameter.node < 0 ? ends_ : first_ <= parameter.node && parameter.node <= last_;
  }
  constexpr const char* user_of(const Parameter& parameter) const {
    return parameter.node < 0 ? graph_.loss.name : graph_.node(parameter.node).name;
  }

  /// The gradient of a parameter used by two stages would be a sum of both, in another order than the whole network's,
  /// and with other bits.
  constexpr Error check_tied() const {
    for (const Parameter& user : graph_.parameters) {
      if (user.owner) continue;
      for (const Parameter& owner : graph_.parameters) {
        if (!owner.owner || owner.offset != user.offset || inside(owner) == inside(user)) continue;
        return Error::say("the parameter '", owner.name, "' of ", user_of(owner),
                          " is also that of ", user_of(user), ", and a stage of nodes ", first_,
                          " to ", last_,
                          " has only one of them: untie them (tied_head = false of gpt::Config and "
                          "llama::Config), or have both in one stage");
      }
    }
    return {};
  }

  constexpr void append(int k) {
    Node node = graph_.node(k);
    const auto local = [&](IdSpan list) {
      const std::size_t begin = out_.ids.size();
      for (const int id : list) out_.ids.push_back(id < first_ ? step_input : id - first_);
      return ListRange(begin, out_.ids.size());
    };
    node.sources = local(graph_.sources(k));
    node.adds = local(graph_.adds(k));
    const std::size_t begin = out_.ids.size();
    for (const int id : graph_.backward_reads(k))
      if (id >= first_) out_.ids.push_back(id - first_);  // the step's input is always there
    node.backward_reads = {begin, out_.ids.size()};
    node.read_in_backward = false;
    const CodecSpan candidates = graph_.candidates_of(k);
    const std::size_t codecs = out_.candidates.size();
    for (std::size_t i = 0; i < candidates.count; ++i) out_.candidates.push_back(candidates[i]);
    node.candidates = {codecs, out_.candidates.size()};
    node.parameters = append_parameters(graph_.node(k), k - first_);
    out_.nodes.push_back(node);
    for (const int id : out_.backward_reads(k - first_))
      out_.nodes[static_cast<std::size_t>(id)].read_in_backward = true;
  }

  template <class AnyNode>
  constexpr ListRange append_parameters(const AnyNode& node, int user) {
    const std::size_t begin = out_.parameters.size();
    if (out_.parameters.empty())
      out_.first_parameter = graph_.first_parameter + node.parameters.first;
    for (std::size_t p = 0; p < node.parameters.count; ++p) {
      Parameter parameter = graph_.parameters[node.parameters.first + p];
      parameter.node = user;
      out_.parameters.push_back(parameter);
    }
    return {begin, out_.parameters.size()};
  }

  /// In the order of the whole network's block, without the parameters of other stages.
  constexpr void place_parameters() {
    Array<std::size_t> owners;
    for (std::size_t i = 0; i < out_.parameters.size(); ++i)
      if (out_.parameters[i].owner) owners.push_back(i);
    sort(owners, [&](std::size_t a, std::size_t b) {
      return out_.parameters[a].offset < out_.parameters[b].offset;
    });
    Array<std::size_t> before;
    for (const Parameter& parameter : out_.parameters) before.push_back(parameter.offset);
    for (const std::size_t i : owners) {
      Parameter& parameter = out_.parameters[i];
      parameter.offset = out_.parameter_elems;
      out_.parameter_elems += padded_elems(parameter.shape, out_.scalar);
      if (!parameter.frozen) out_.gradient_elems = out_.parameter_elems;
    }
    for (std::size_t i = 0; i < before.size(); ++i)
      for (const std::size_t owner : owners)
        if (!out_.parameters[i].owner && before[owner] == before[i])
          out_.parameters[i].offset = out_.parameters[owner].offset;
  }

  const Graph& graph_;
  int first_, last_;
  bool ends_;
  Graph out_;
};

}  // namespace detail

/// Nodes first..last of `graph` as a graph. Each end is the network's, or a cut by cuts_of(). The block has the stage's
/// parameters alone, in the order of the whole network's. An error if no cut is there, or a parameter is shared with a
/// node outside.
constexpr Result<Graph> stage_of(const Graph& graph, int first, int last) {
  if (graph.nodes.empty()) return graph_mistake(graph);
  return detail::StageMaker(graph, first, last).make();
}

/// Places in `graph` of the parameters of `stage`: visit(offset in the stage, offset in the whole network, elements)
/// for each owner of its storage, all in elements.
template <class Visit>
constexpr void each_stage_parameter(const Graph& graph, const Graph& stage, const Visit& visit) {
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    const Parameter& mine = stage.parameters[i];
    const std::size_t whole = stage.first_parameter - graph.first_parameter + i;
    if (mine.owner) visit(mine.offset, graph.parameters[whole].offset, mine.shape.elems());
  }
}

}}  // namespace adacc::v0_1
