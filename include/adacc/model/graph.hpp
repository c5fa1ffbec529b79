// SPDX-License-Identifier: MIT
/// A model as data: what each layer instance produces, reads and needs.
///
/// Lowering (graph_builder.hpp) takes types and functors to a flat list; everything after it (plan,
/// schedule, layout) works on this list alone and never sees a user's type. Node k produces
/// activation k and lists the activations that its forward and its backward read. If a caller
/// runs kernels of its own (stash/), nodes say so: their values, or gradients, lie outside of the
/// arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../policy/policy.hpp"
#include "contract.hpp"
#include "fingerprint.hpp"

namespace adacc { inline namespace v0_1 {

/// In a list of activations: the step's own input, which is the caller's memory.
inline constexpr int step_input = -1;

/// Where a node's list begins among those of all nodes (Graph::ids, candidates, parameters), and how long
/// it is. In 32 bits each: of a program in a device's memory, nodes are the largest part.
struct ListRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  constexpr ListRange() = default;
  constexpr ListRange(std::size_t begin, std::size_t end)
      : first(static_cast<std::uint32_t>(begin)), count(static_cast<std::uint32_t>(end - begin)) {}
};

/// A list of activations.
class IdSpan {
 public:
  constexpr IdSpan() = default;
  constexpr IdSpan(const int* first, std::size_t count) : first_(first), count_(count) {}

  constexpr std::size_t size() const { return count_; }
  constexpr bool empty() const { return count_ == 0; }
  constexpr int operator[](std::size_t i) const { return first_[i]; }
  constexpr const int* begin() const { return first_; }
  constexpr const int* end() const { return first_ + count_; }
  constexpr bool contains(int id) const {
    for (const int other : *this)
      if (other == id) return true;
    return false;
  }

 private:
  const int* first_ = nullptr;
  std::size_t count_ = 0;
};

/// Where copies of parameters in the scalar type are, if the block holds them in bfloat16: at the end
/// of the workspace, which has room for them then (set_parameters()).
struct ParameterWindow {
  std::size_t forward = 0, backward = 0;  ///< bytes
  bool by_rows = false;                   ///< the layer decodes them itself

  friend constexpr bool operator==(const ParameterWindow&, const ParameterWindow&) = default;
};

/// One instance of a layer, and the activation that it produces.
struct Node {
  const char* name = "";
  int layer = 0;  ///< index of the layer in the model; copies of a repeated block share it
  int copy = 0;   ///< which copy of the repeated block, 0 outside of Repeat
  /// The node before it whose forward makes this activation as well, and those in between; -1: its
  /// own. They run together, from the same sources.
  int made_by = -1;
  bool repeated = false;   ///< it is in a Repeat
  bool tolerated = false;  ///< its types say Compress<Tolerated>: `policy` has the first candidate
  /// What a layer declares of backward_reads: its own input, its own output.
  Reads reads = Reads::none;
  /// False if neither it nor what it is made from is trained: its activation needs no gradient.
  bool runs_backward = true;
  bool read_in_backward = false;  ///< some node's backward reads this activation
  bool takes_tokens = false;
  bool dx_overwrites_dy = false;
  bool accepts_empty_dx = false;
  bool draws_numbers = false;  ///< forward depends on the context's random key
  /// Forward writes to memory of the caller's, and only what is kept of the output is ours.
  bool value_outside = false;
  /// The caller runs forward and backward, and has the gradients.
  bool gradient_outside = false;
  bool recomputable = true;        ///< its forward can run again in backward
  bool shares_parameters = false;  ///< another node, or the loss, has one of its parameters, too
  Shape input;
  Shape output;
  ListRange sources;         ///< what forward reads: of a layer, its one input
  ListRange adds;            ///< what is added in place to the output: sums of residuals
  ListRange backward_reads;  ///< what backward reads
  ListRange parameters;
  ListRange candidates;
  Wanted wanted;                       ///< the gradients that its backward is asked for
  std::size_t output_bytes = 0;        ///< 0 of a stage of backward alone, which produces nothing
  Cut cut;                             ///< how its work is cut into parts
  std::size_t aux_bytes = 0;           ///< of all parts
  std::size_t part_aux_bytes = 0;      ///< of each part but the last; they lie 64-byte aligned
  std::size_t forward_workspace = 0;   ///< of the part that needs most
  std::size_t backward_workspace = 0;  ///< likewise, with what follows
  std::size_t discarded_bytes = 0;     ///< at its end, for gradients that nobody reads
  std::size_t forward_packed = 0;      ///< ForwardCall::packed, if it is cut into parts
  std::size_t backward_packed = 0;
  ParameterWindow window;
  Policy policy;  ///< as fixed in types; planned if left open
  /// Multiplications and additions of forward in products of matrices, for estimates.
  double operations = 0;
  /// The gradient's relative squared error over that of this activation as backward reads it, all
  /// copies of its layer together, for estimates (codec_traits.hpp).
  double sensitivity = 1;

  /// Whether it is a stage of a caller's backward, and makes nothing.
  constexpr bool is_stage() const { return value_outside && output_bytes == 0; }
};

/// When an optimizer, or who sums gradients over ranks, may use the gradients of parameters.
enum class Updates : std::uint8_t {
  separate,   ///< behind the step: nobody is told before
  announced,  ///< the step says which are complete, right behind the last backward that adds to them
  fused,      ///< likewise; they are buffers of the step's arena, and gone once that was said
};

constexpr const char* name_of(Updates updates) {
  constexpr const char* names[] = {"separate", "announced", "fused"};
  return names[static_cast<int>(updates)];
}

/// A gradient that may outlive the backward of a node: that of a parameter that is trained, which tied
/// layers have in common, or one that a caller's stages of backward hand on from each to the next. Nodes
/// run backward from the last to the first; the loss, which comes before them all, has the number of
/// nodes as its own.
struct LastingGradient {
  int parameter = 0;  ///< into Graph::parameters: the one that owns the storage; -1: a caller's
  int begun = 0;      ///< the node whose backward is the first to write to it
  int complete =
      0;  ///< the node whose backward is the last; -1: one in front of this part of a graph
  std::size_t bytes = 0;

  friend constexpr bool operator==(const LastingGradient&, const LastingGradient&) = default;
};

/// The loss that ends the network; it reads the last activation.
struct LossNode {
  const char* name = "";
  Shape targets;
  Dtype target_dtype = Dtype::f32;
  bool dx_overwrites_x = false;
  bool draws_numbers = false;
  Cut cut;
  std::size_t forward_workspace = 0;
  std::size_t backward_workspace = 0;
  std::size_t discarded_bytes = 0;  ///< as of a node
  ParameterWindow window;
  bool shares_parameters = false;  ///< some node has one of its parameters, too
  ListRange parameters;
};

struct Graph {
  /// More nodes than that, or more ids in all lists together than most_ids() of it, are refused.
  static constexpr std::size_t most_nodes = std::size_t{1} << 24;
  static constexpr std::size_t most_ids(std::size_t nodes) { return 16 * nodes; }
  /// Codecs that candidates and types of one graph may name: sets of them are words of 64 bits.
  static constexpr std::size_t most_codecs = 64;

  Shape input;
  Dtype input_dtype = Dtype::f32;
  Dtype scalar = Dtype::f32;  ///< of activations; parameters and their gradients are wide() of it
  int workers = 1;
  int parts = 1;  ///< into how many parts layers and codecs are cut, if they can be
  Array<Node> nodes;
  Array<int> ids;  ///< all lists of activations, one after the other
  /// Of each activation that backward reads, the codecs that all its readers tolerate and that make
  /// it smaller, in the order of its first reader: its own layer, or else the next.
  Array<const CodecInfo*> candidates;
  bool has_loss = true;               ///< false: the last activation's gradient comes from outside
  bool gives_input_gradient = false;  ///< the gradient of the step's input is handed out
  LossNode loss;
  Array<Parameter> parameters;
  std::size_t parameter_elems = 0;  ///< elements of the parameter block, padding included
  std::size_t gradient_elems = 0;   ///< the first of these: the parameters that are trained
  ParameterForm parameter_form = ParameterForm::full;  ///< of the block; see set_parameters()
  Updates updates = Updates::separate;
  /// Unless updates are separate, those of parameters, in the order of these: those that one backward
  /// completes follow each other, and so do their places in the block of gradients. If the caller runs
  /// backward, those that go from stage to stage.
  Array<LastingGradient> gradients;
  /// Of a stage (model/stage.hpp): the numbers of its first node and parameter in the whole network.
  /// Random numbers are drawn by those.
  int first_node = 0;
  std::size_t first_parameter = 0;
  Fingerprint fingerprint;  ///< set by who built it (fingerprint_of), when all else was there

  constexpr int node_count() const { return static_cast<int>(nodes.size()); }
  constexpr const Node& node(int id) const { return nodes[static_cast<std::size_t>(id)]; }

  constexpr IdSpan list(const ListRange& range) const {
    return {ids.data() + range.first, range.count};
  }
  /// What forward of node `k` reads as its arguments; may name step_input.
  constexpr IdSpan sources(int k) const { return list(node(k).sources); }
  /// What is added to the output of node `k`; may name step_input.
  constexpr IdSpan adds(int k) const { return list(node(k).adds); }
  /// What backward of node `k` reads.
  constexpr IdSpan backward_reads(int k) const { return list(node(k).backward_reads); }
  /// The one input of layer `k`: an activation, or step_input.
  constexpr int input_of(int k) const {
    const IdSpan from = sources(k);
    return from.empty() ? step_input : from[0];
  }

  /// The node whose forward makes activation `k`.
  constexpr int maker_of(int k) const { return node(k).made_by < 0 ? k : node(k).made_by; }
  /// Whether forward of the same node makes activation `k` and the one behind it.
  constexpr bool made_with_next(int k) const {
    return k + 1 < node_count() && maker_of(k + 1) == maker_of(k);
  }

  /// visit(id) for every activation that forward of node `k` reads; the step's input is none.
  template <class Visit>
  constexpr void forward_reads(int k, const Visit& visit) const {
    for (const int id : sources(k))
      if (id != step_input) visit(id);
    for (const int id : adds(k))
      if (id != step_input) visit(id);
  }

  /// Whether a step of it is run by the caller, or in part.
  constexpr bool has_outside() const {
    for (const Node& node : nodes)
      if (node.value_outside || node.gradient_outside) return true;
    return false;
  }

  constexpr CodecSpan candidates_of(const Node& node) const {
    return {candidates.data() + node.candidates.first, node.candidates.count};
  }
  constexpr CodecSpan candidates_of(int id) const { return candidates_of(node(id)); }
  constexpr Shape output() const { return nodes[nodes.size() - 1].output; }

  /// Of the block of parameters.
  constexpr std::size_t parameter_bytes() const {
    return parameter_elems * bytes_of(dtype_in(parameter_form, scalar));
  }

  constexpr bool fuses_updates() const { return updates == Updates::fused; }
  /// Whether `gradients` are buffers of the step's arena.
  constexpr bool has_lasting_gradients() const {
    return updates != Updates::announced && !gradients.empty();
  }
  /// Elements of the block of gradients that a training step adds to: none if they are in its arena.
  constexpr std::size_t lent_gradient_elems() const { return fuses_updates() ? 0 : gradient_elems; }

  /// A list, appended to `ids`.
  constexpr ListRange append(IdSpan list) {
    const std::size_t begin = ids.size();
    for (const int id : list) ids.push_back(id);
    return {begin, ids.size()};
  }
  /// Appends `node`, whose forward reads `from` and whose backward reads what node.reads says.
  constexpr void append(Node node, IdSpan from) {
    const int id = node_count();
    node.sources = append(from);
    nodes.push_back(node);
    int read[2] = {};
    std::size_t count = 0;
    if (reads_input(node.reads) && input_of(id) != step_input) read[count++] = input_of(id);
    if (reads_output(node.reads)) read[count++] = id;
    set_backward_reads(id, {read, count});
  }
  /// Adds activation `source` to the output of the node appended last.
  constexpr void add(int source) {
    ListRange& sums = nodes.back().adds;
    const std::size_t begin = sums.count == 0 ? ids.size() : sums.first;
    ids.push_back(source);
    sums = {begin, ids.size()};
  }
  /// Backward of node `k` reads `list`.
  constexpr void set_backward_reads(int k, IdSpan list) {
    nodes[static_cast<std::size_t>(k)].backward_reads = append(list);
    for (const int id : list) nodes[static_cast<std::size_t>(id)].read_in_backward = true;
  }
};

/// Has steps of `graph` deal with gradients as `updates` says. Its plans govern it as before, with other
/// peaks if that is fused; profiles and fingerprints stay what they are.
constexpr void set_updates(Graph& graph, Updates updates) {
  graph.updates = updates;
  graph.gradients.clear();
  for (Parameter& parameter : graph.parameters) parameter.gradient = -1;
  if (updates == Updates::separate) return;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    Parameter& mine = graph.parameters[i];
    if (mine.frozen) continue;
    const int node = mine.node < 0 ? graph.node_count() : mine.node;
    if (mine.owner) {
      mine.gradient = static_cast<int>(graph.gradients.size());
      graph.gradients.push_back(
          {static_cast<int>(i), node, node, mine.shape.elems() * bytes_of(wide(graph.scalar))});
      continue;
    }
    for (LastingGradient& gradient : graph.gradients) {
      const auto owner = static_cast<std::size_t>(gradient.parameter);
      if (graph.parameters[owner].offset != mine.offset) continue;
      mine.gradient = graph.parameters[owner].gradient;
      if (node > gradient.begun) gradient.begun = node;
    }
  }
}

/// Has steps of `graph` read a block of parameters that is held in `form`. Plans govern it as before; in
/// bfloat16, workspaces are larger, by copies of what a layer reads of its parameters at a time.
constexpr void set_parameters(Graph& graph, ParameterForm form) {
  if (form == graph.parameter_form) return;
  graph.parameter_form = form;
  const auto resize = [&](std::size_t& workspace, std::size_t window) {
    if (form == ParameterForm::full) workspace -= window;
    else if (window != 0) workspace = align_up(workspace) + window;
  };
  for (Node& node : graph.nodes) {
    resize(node.forward_workspace, node.window.forward);
    resize(node.backward_workspace, node.window.backward);
  }
  resize(graph.loss.forward_workspace, graph.loss.window.forward);
  resize(graph.loss.backward_workspace, graph.loss.window.backward);
}

/// An activation as errors name it: "z", or if several are called so, "z (3 of 4)".
class ActivationName {
 public:
  constexpr ActivationName(const Graph& graph, int id) : graph_(graph), id_(id) {}

  constexpr void append_to(Error& error) const {
    const char* name = graph_.node(id_).name;
    int before = 0, all = 0;
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (__builtin_strcmp(graph_.node(k).name, name) != 0) continue;
      ++all;
      if (k < id_) ++before;
    }
    error.append(name);
    if (all < 2) return;
    error.append(" (");
    error.append(before + 1);
    error.append(" of ");
    error.append(all);
    error.append(")");
  }

 private:
  const Graph& graph_;
  int id_;
};

/// What plans of `graph` depend on: the activations' sizes, who reads them, and which codecs those
/// tolerate. Not into how many parts layers are cut, nor for how many threads.
constexpr Fingerprint fingerprint_of(const Graph& graph) {
  Fingerprint found;
  detail::Mixer all;
  all.mix(static_cast<std::uint64_t>(graph.scalar));
  all.mix((graph.has_loss ? 1U : 0U) | (graph.gives_input_gradient ? 2U : 0U));
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    found.bytes += node.output_bytes;
    all.mix(node.output.rows());
    all.mix(node.output.cols());
    all.mix(static_cast<std::uint64_t>(node.reads) | (node.recomputable ? 16U : 0U) |
            (node.made_by >= 0 ? 32U : 0U) |
            (node.gradient_outside && !node.value_outside ? 64U : 0U));
    if (node.gradient_outside && node.backward_workspace > 0) all.mix(node.backward_workspace);
    all.mix(node.candidates.count);
    for (const IdSpan list : {graph.sources(k), graph.adds(k), graph.backward_reads(k)}) {
      all.mix(list.size());
      for (const int id : list) all.mix(static_cast<std::uint64_t>(id));
    }
  }
  for (const CodecInfo* codec : graph.candidates) all.mix(codec->id);
  for (const LastingGradient& gradient : graph.gradients) {
    if (gradient.parameter >= 0) continue;
    all.mix(static_cast<std::uint64_t>(gradient.begun));
    all.mix(static_cast<std::uint64_t>(gradient.complete));
    all.mix(gradient.bytes);
  }
  if (graph.gradient_elems != graph.parameter_elems)  // nobody asks for some gradients
    for (std::size_t i = 0; i < graph.parameters.size(); ++i)
      if (graph.parameters[i].frozen) all.mix(i);
  found.structure = all.value();
  return found;
}

namespace detail {

/// Whether node `k` may be made by the node that it names.
constexpr bool made_by_fits(const Graph& graph, int k) {
  const Node& node = graph.node(k);
  if (node.made_by < 0 || node.made_by >= k || !node.gradient_outside) return false;
  const Node& maker = graph.node(node.made_by);
  const IdSpan mine = graph.sources(k), its = graph.sources(node.made_by);
  if (maker.made_by != -1 || !maker.gradient_outside || maker.recomputable != node.recomputable ||
      graph.maker_of(k - 1) != node.made_by || mine.size() != its.size())
    return false;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != its[i]) return false;
  return true;
}

/// Whether std::size_t holds what the buffers of a step of `graph` take if none shares memory with another:
/// of each node its value in forward, its blob, its value in backward and its gradient; its aux and its
/// workspaces, made again, too; and the gradients that last. No layout and no sum of live bytes is larger.
constexpr bool is_addressable(const Graph& graph) {
  std::size_t bytes = 0;
  bool fits = true;
  const auto count = [&](std::size_t block, std::size_t times) {
    fits = fits && add_aligned(block, times, bytes);
  };
  for (const Node& node : graph.nodes) {
    count(node.output_bytes, 4);
    for (const std::size_t block : {node.aux_bytes, node.forward_workspace, node.forward_packed})
      count(block, 2);
    count(node.backward_workspace, 1);
    count(node.backward_packed, 1);
  }
  count(graph.loss.forward_workspace, 1);
  count(graph.loss.backward_workspace, 1);
  for (const LastingGradient& gradient : graph.gradients) count(gradient.bytes, 1);
  if (graph.gives_input_gradient) count(graph.input.elems() * bytes_of(graph.scalar), 1);
  return fits;
}

}  // namespace detail

/// An error if `graph` is none that the functions of program/ and plan/ can work on: those that
/// make_graph() and StashModel return are.
constexpr Error examine(const Graph& graph) {
  const auto fault = [&](int k, const auto&... what) {
    return Error::say("the graph's node ", k, " (", graph.node(k).name, ") ", what...);
  };
  if (graph.nodes.empty()) return Error::say("the graph has no layers");
  if (graph.nodes.size() > Graph::most_nodes ||
      graph.ids.size() > Graph::most_ids(Graph::most_nodes))
    return Error::say("the graph has ", graph.nodes.size(), " nodes that read ", graph.ids.size(),
                      " activations; at most ", Graph::most_nodes, " and ",
                      Graph::most_ids(Graph::most_nodes), " are possible");
  Array<int> layers(graph.nodes.size() + 1), sums(graph.nodes.size() + 1);  // from step_input on
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    for (const ListRange& range : {node.sources, node.adds, node.backward_reads})
      if (range.first > graph.ids.size() || range.count > graph.ids.size() - range.first)
        return fault(k, "has a list that lies beyond the end of the graph's ids");
    if (node.candidates.first > graph.candidates.size() ||
        node.candidates.count > graph.candidates.size() - node.candidates.first)
      return fault(k, "has a list that lies beyond the end of the graph's candidates");
    for (const IdSpan list : {graph.sources(k), graph.adds(k)})
      for (const int id : list)
        if (id < step_input || id >= k)
          return fault(k, "reads activation ", id, " in forward; it can read the step's input (",
                       step_input, ") and those before it");
    for (const int id : graph.backward_reads(k))
      if (id < 0 || id >= graph.node_count())
        return fault(k, "reads activation ", id, " in backward, and there are ",
                     graph.node_count());
    if (node.made_by != -1 && !detail::made_by_fits(graph, k))
      return fault(k, "is said to be made by node ", node.made_by,
                   ", which has to come right before it and what else it makes, have the same "
                   "sources, and be run by the caller");
    for (const int id : graph.sources(k)) ++layers[static_cast<std::size_t>(id + 1)];
    for (const int id : graph.adds(k)) ++sums[static_cast<std::size_t>(id + 1)];
    if (!node.gradient_outside && node.sources.count > 1)
      return fault(k, "has ", node.sources.count, " inputs; a layer has 1");
  }
  for (int k = 0; k + 1 < graph.node_count(); ++k) {
    const auto place = static_cast<std::size_t>(k + 1);
    if (graph.node(k).gradient_outside || layers[place] > 0 || sums[place] == 1) continue;
    return fault(k, "makes an activation that no layer reads and ", sums[place],
                 " sums add: its gradient could only be that of one sum");
  }
  for (const LastingGradient& gradient : graph.gradients) {
    const auto of_stage = [&](int k) {
      return k >= 0 && k < graph.node_count() && graph.node(k).is_stage();
    };
    if (gradient.parameter < 0 && !(of_stage(gradient.begun) && of_stage(gradient.complete) &&
                                    gradient.begun >= gradient.complete))
      return Error::say("the graph has a gradient of a caller's that goes from node ",
                        gradient.begun, " to node ", gradient.complete,
                        ", which have to be stages of backward, the second none behind the first");
  }
  const CodecInfo* known[Graph::most_codecs] = {};
  std::size_t count = 0;
  const auto name = [&](const CodecInfo* codec) {
    for (std::size_t i = 0; i < count; ++i)
      if (known[i] == codec) return true;
    if (count == Graph::most_codecs) return false;
    known[count++] = codec;
    return true;
  };
  bool fits = true;
  for (const CodecInfo* codec : graph.candidates) fits = fits && name(codec);
  for (const Node& node : graph.nodes)
    if (node.policy.codec() != nullptr) fits = fits && name(node.policy.codec());
  if (!fits)
    return Error::say("the graph's layers tolerate more than ", Graph::most_codecs,
                      " different codecs, which is the most that a plan can choose among");
  if (!detail::is_addressable(graph))
    return Error::say(
        "the graph's activations, gradients and workspaces together are too large to address: they "
        "need more than the ",
        static_cast<std::size_t>(-1), " bytes that can be counted here");
  return {};
}

/// The same for functions that are handed a graph. make_graph() and StashModel return none with an error:
/// such a graph is a mistake of the calling code.
constexpr Error graph_mistake(const Graph& graph) {
  const Error why = examine(graph);
  return why ? Error::misuse(why.text()) : why;
}

}}  // namespace adacc::v0_1
