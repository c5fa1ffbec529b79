// SPDX-License-Identifier: MIT
/// A model as data: products, inputs and needs of each layer instance.
///
/// Lowering (graph_builder.hpp) takes types and functors to a flat list; everything after it (plan, schedule, layout)
/// works on this list alone and never sees a user's type. Node k produces activation k and lists the activations read
/// by its forward and its backward. If a caller runs kernels of its own (stash/), nodes say so: their values, or
/// gradients, lie outside of the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/same_text.hpp"
#include "../policy/policy.hpp"
#include "contract.hpp"
#include "fingerprint.hpp"

namespace adacc { inline namespace v0_1 {

/// The step's own input in a list of activations; its memory is the caller's.
inline constexpr int step_input = -1;

/// A node's list among the lists of all nodes (Graph::ids, candidates, parameters): beginning and length. 32 bits each,
/// because nodes are the largest part of a program in a device's memory.
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

/// Bytes for copies of parameters in the scalar type, if the block holds parameters in bfloat16 (set_parameters()), or if
/// some are stored in a file: at the end of the workspace, which then has room for them.
struct DecodeRoom {
  std::size_t forward = 0, backward = 0;  ///< bytes
  std::size_t tiles = 0;                  ///< of them at the beginning: LayerNeeds::decode_tiles
  bool by_rows = false;                   ///< the layer decodes them

  friend constexpr bool operator==(const DecodeRoom&, const DecodeRoom&) = default;
};

/// Bytes of a workspace for copies of parameters in bfloat16, if the block of parameters has none (LayerNeeds::copies).
struct CopyRoom {
  std::size_t forward = 0, backward = 0;

  friend constexpr bool operator==(const CopyRoom&, const CopyRoom&) = default;
};

/// One instance of a layer, and its activation.
struct Node {
  const char* name = "";
  int layer = 0;  ///< index of the layer in the model, the same in all copies of a block
  int copy = 0;   ///< which copy of the repeated block, 0 outside of Repeat
  /// An earlier node whose forward makes this activation as well, and those in between: they run together, from the
  /// same sources. -1: its own forward.
  int made_by = -1;
  bool repeated = false;   ///< in a Repeat
  bool tolerated = false;  ///< declared as Compress<Tolerated>: `policy` has the first candidate
  /// The layer's backward_reads: input, output.
  Reads reads = Reads::none;
  /// False if neither this node nor any before is trained: the activation needs no gradient.
  bool runs_backward = true;
  bool read_in_backward = false;  ///< some node's backward reads this activation
  bool takes_tokens = false;
  bool dx_overwrites_dy = false;
  bool accepts_empty_dx = false;
  bool draws_numbers = false;  ///< forward depends on the context's random key
  bool extends_sequences =
      false;  ///< forward of later positions alone is possible (KernelCall::carried)
  bool takes_padding =
      false;  ///< rows behind a sequence's end change no other row (KernelCall::lengths)
  bool adds_residual = false;  ///< forward adds the first of `adds` itself
  /// If backward makes all of the input's gradient but residual sums' shares, backward adds the first share, too.
  bool adds_gradient = false;
  /// Forward writes to the caller's memory, and the arena has only the kept form of the output.
  bool value_outside = false;
  /// The caller runs forward and backward, and has the gradients.
  bool gradient_outside = false;
  bool recomputable = true;        ///< forward can run again in backward
  bool shares_parameters = false;  ///< one of its parameters is another node's, or the loss's, too
  Shape input;
  Shape output;
  ListRange sources;         ///< read by forward as arguments; a layer has one
  ListRange adds;            ///< added in place to the output: sums of residuals
  ListRange backward_reads;  ///< read by backward
  ListRange parameters;
  ListRange candidates;
  Wanted wanted;                       ///< the gradients wanted from backward
  std::size_t output_bytes = 0;        ///< 0 for a backward stage, which produces nothing
  Cut cut;                             ///< into parts
  std::size_t aux_bytes = 0;           ///< all parts
  std::size_t part_aux_bytes = 0;      ///< each part but the last; they lie 64-byte aligned
  std::size_t forward_workspace = 0;   ///< the largest part's
  std::size_t backward_workspace = 0;  ///< the largest part's, with the discarded gradients
  std::size_t carried_bytes = 0;       ///< for each position of a sequence (KernelCall::carried)
  std::size_t discarded_bytes = 0;     ///< at its end, for unread gradients
  std::size_t forward_packed = 0;      ///< ForwardCall::packed, if there are several parts
  std::size_t backward_packed = 0;
  DecodeRoom decode_room;
  CopyRoom copies;
  Policy policy;  ///< fixed in types, or planned if left open
  /// Multiplications and additions of forward in products of matrices, for estimates.
  double operations = 0;
  /// The gradient's relative squared error over the one of this activation as read by backward, all copies of its layer
  /// together, for estimates (codec_traits.hpp).
  double sensitivity = 1;

  /// Whether this is a caller's backward stage, which makes nothing.
  constexpr bool is_backward_stage() const { return value_outside && output_bytes == 0; }
};

/// When an optimizer, or a sum over ranks, may use the gradients of parameters.
enum class Updates : std::uint8_t {
  separate,   ///< behind the step: nothing is said before
  announced,  ///< the step names complete ones, right behind the last backward adding to them
  fused,      ///< announced; they are buffers of the step's arena, and gone once announced
};

constexpr const char* name_of(Updates updates) {
  constexpr const char* names[] = {"separate", "announced", "fused"};
  return names[static_cast<int>(updates)];
}

/// A gradient that may outlive the backward of a node: a trained parameter's, shared by tied layers, or one handed on
/// by a caller's backward stages from each to the next. Nodes run backward from the last to the first; the loss, which
/// comes before them all, has the number node_count().
struct LastingGradient {
  int parameter = 0;  ///< into Graph::parameters: the owner of the storage; -1: a caller's
  int begun = 0;      ///< the node whose backward writes first
  int complete =
      0;  ///< the node whose backward is the last; -1: one in front of this part of a graph
  std::size_t bytes = 0;

  friend constexpr bool operator==(const LastingGradient&, const LastingGradient&) = default;
};

/// The loss at the end of the network, which reads the last activation.
struct LossNode {
  const char* name = "";
  Shape targets;
  Dtype target_dtype = Dtype::f32;
  std::size_t classes = 0;  ///< targets are class numbers below this; 0: they are something else
  bool dx_overwrites_x = false;
  bool draws_numbers = false;
  Cut cut;
  std::size_t forward_workspace = 0;
  std::size_t backward_workspace = 0;
  std::size_t discarded_bytes = 0;  ///< see Node
  std::size_t tile_rows = 0;        ///< LayerNeeds::tile_rows
  DecodeRoom decode_room;
  CopyRoom copies;
  bool shares_parameters = false;  ///< some node has one of its parameters, too
  ListRange parameters;
};

struct Graph {
  /// More nodes, or more ids than most_ids(nodes) in all lists together, are refused.
  static constexpr std::size_t most_nodes = std::size_t{1} << 24;
  static constexpr std::size_t most_ids(std::size_t nodes) { return 16 * nodes; }
  /// Codecs named by candidates and types of one graph: sets of them are words of 64 bits.
  static constexpr std::size_t most_codecs = 64;

  Shape input;
  Dtype input_dtype = Dtype::f32;
  Dtype scalar = Dtype::f32;  ///< activations'; parameters and gradients are wide() of this
  bool on_device = false;     ///< layers run on a device with memory of its own
  int workers = 1;
  int parts = 1;  ///< layers and codecs are cut into so many, if possible
  Array<Node> nodes;
  Array<int> ids;  ///< all lists of activations, one after the other
  /// For each activation read by backward, the codecs tolerated by all readers and encoding to fewer bytes. The first
  /// reader gives the order: the activation's own layer, or else the next.
  Array<const CodecInfo*> candidates;
  bool has_loss = true;               ///< false: the last activation's gradient comes from outside
  bool gives_input_gradient = false;  ///< the gradient of the step's input is handed out
  LossNode loss;
  Array<Parameter> parameters;
  std::size_t parameter_elems = 0;  ///< elements of the parameter block, padding included
  std::size_t gradient_elems = 0;   ///< elements at the block's start: the trained parameters
  std::size_t stored_bytes = 0;     ///< of frozen parameters in a file, in their form there
  std::size_t mapped_bytes = 0;     ///< most of these in the process at a time: fewer if streamed
  ParameterForm parameter_form = ParameterForm::full;  ///< the block's; see set_parameters()
  Updates updates = Updates::separate;
  /// Unless updates are separate: gradients of trained parameters, in the parameters' order; gradients completed by one
  /// backward are neighbours, here and in the block of gradients. If the caller runs backward: gradients handed on from
  /// backward stage to backward stage.
  Array<LastingGradient> gradients;
  /// For a stage (model/stage.hpp): the numbers of its first node and parameter in the whole network. Random numbers
  /// are drawn by those numbers.
  int first_node = 0;
  std::size_t first_parameter = 0;
  Fingerprint fingerprint;  ///< set last, by the graph's builder (fingerprint_of)

  constexpr int node_count() const { return static_cast<int>(nodes.size()); }
  constexpr const Node& node(int id) const { return nodes[static_cast<std::size_t>(id)]; }

  constexpr IdSpan list(const ListRange& range) const {
    return {ids.data() + range.first, range.count};
  }
  /// Activations read by forward of node `k` as its arguments; may name step_input.
  constexpr IdSpan sources(int k) const { return list(node(k).sources); }
  /// Activations added to the output of node `k`; may name step_input.
  constexpr IdSpan adds(int k) const { return list(node(k).adds); }
  /// How many of adds(k) forward of node `k` does not add itself.
  constexpr std::size_t separate_add_count(int k) const {
    const Node& adds = node(k);
    return adds.adds.count - (adds.adds_residual && adds.adds.count != 0 ? 1 : 0);
  }
  /// Activations read by backward of node `k`.
  constexpr IdSpan backward_reads(int k) const { return list(node(k).backward_reads); }
  /// The one input of layer `k`: an activation, or step_input.
  constexpr int input_of(int k) const {
    const IdSpan from = sources(k);
    return from.empty() ? step_input : from[0];
  }

  /// The node whose forward makes activation `k`.
  constexpr int maker_of(int k) const { return node(k).made_by < 0 ? k : node(k).made_by; }
  /// Whether one forward makes activation `k` and the one behind it.
  constexpr bool made_with_next(int k) const {
    return k + 1 < node_count() && maker_of(k + 1) == maker_of(k);
  }

  /// visit(id) for every activation read by forward of node `k`, without the step's input.
  template <class Visit>
  constexpr void forward_reads(int k, const Visit& visit) const {
    for (const int id : sources(k))
      if (id != step_input) visit(id);
    for (const int id : adds(k))
      if (id != step_input) visit(id);
  }

  /// Whether the caller runs some kernels of a step.
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

  /// Bytes of the block of parameters, without copies.
  constexpr std::size_t block_bytes() const {
    return block_elems() * bytes_of(dtype_in(parameter_form, scalar));
  }
  /// Bytes of the block of parameters and of its copies, if there are any.
  constexpr std::size_t parameter_bytes() const {
    return block_bytes() + copy_elems() * sizeof(bfloat16);
  }
  /// Elements of the block of parameters: more than they have where products of a device read them in bfloat16.
  constexpr std::size_t block_elems() const {
    return parameter_form == ParameterForm::bf16 ? readable_elems() : parameter_elems;
  }
  /// Elements of the block of copies.
  constexpr std::size_t copy_elems() const {
    return parameter_form == ParameterForm::with_copies ? readable_elems() : 0;
  }
  /// Elements of a block that a device's products read. The rows that a loss reads behind its matrix are the next
  /// parameters', or zeros at the block's end.
  constexpr std::size_t readable_elems() const {
    if (loss.parameters.count == 0) return parameter_elems;
    const std::size_t room =
        loss.copies.forward > loss.copies.backward ? loss.copies.forward : loss.copies.backward;
    const std::size_t end = parameters[loss.parameters.first].offset + room / sizeof(bfloat16);
    return end > parameter_elems ? end : parameter_elems;
  }

  constexpr bool fuses_updates() const { return updates == Updates::fused; }
  /// Whether `gradients` are buffers of the step's arena.
  constexpr bool has_lasting_gradients() const {
    return updates != Updates::announced && !gradients.empty();
  }
  /// Elements of the block of gradients that a training step adds to: none if they are in the step's arena.
  constexpr std::size_t lent_gradient_elems() const { return fuses_updates() ? 0 : gradient_elems; }

  /// A list, appended to `ids`.
  constexpr ListRange append(IdSpan list) {
    const std::size_t begin = ids.size();
    for (const int id : list) ids.push_back(id);
    return {begin, ids.size()};
  }
  /// Appends `node`. Forward reads `from`, and backward the tensors named by node.reads.
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

/// Sets the treatment of gradients in steps of `graph`. Plans govern the graph as before, with other peaks if updates
/// are fused; profiles and fingerprints are not changed.
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

namespace detail {

/// A workspace for parameters in full as one for parameters in `form`.
constexpr std::size_t workspace_in(ParameterForm form, std::size_t workspace, std::size_t window,
                                   std::size_t copies) {
  if (form == ParameterForm::full) return workspace;
  if (copies != 0) workspace = workspace > align_up(copies) ? workspace - align_up(copies) : 0;
  const bool decodes = form == ParameterForm::bf16 && window != 0;
  return decodes ? align_up(workspace) + window : workspace;
}
/// The reverse.
constexpr std::size_t workspace_from(ParameterForm form, std::size_t workspace, std::size_t window,
                                     std::size_t copies) {
  if (form == ParameterForm::bf16) workspace -= window;
  if (form == ParameterForm::full || copies == 0) return workspace;
  return workspace == 0 ? copies : align_up(copies) + workspace;
}

}  // namespace detail

/// Has steps of `graph` read a block of parameters in `form`. Plans govern the graph as before. In bfloat16, workspaces
/// are larger, by copies of the parameters read by a layer at a time. A device's are smaller where products find
/// parameters in bfloat16 in the block.
///
/// Parameters beside those in a file are held in full.
constexpr void set_parameters(Graph& graph, ParameterForm form) {
  if (form == graph.parameter_form || graph.stored_bytes != 0) return;
  const auto resize = [&](std::size_t& workspace, std::size_t window, std::size_t copies) {
    const std::size_t in_full =
        detail::workspace_from(graph.parameter_form, workspace, window, copies);
    workspace = detail::workspace_in(form, in_full, window, copies);
  };
  const auto resize_both = [&](auto& node) {
    resize(node.forward_workspace, node.decode_room.forward, node.copies.forward);
    resize(node.backward_workspace, node.decode_room.backward, node.copies.backward);
  };
  for (Node& node : graph.nodes) resize_both(node);
  resize_both(graph.loss);
  graph.parameter_form = form;
}

/// An activation as named by errors: "z", or if several have this name, "z (3 of 4)".
class ActivationName {
 public:
  constexpr ActivationName(const Graph& graph, int id) : graph_(graph), id_(id) {}

  constexpr void append_to(Error& error) const {
    const char* name = graph_.node(id_).name;
    int before = 0, all = 0;
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (!detail::same_text(graph_.node(k).name, name)) continue;
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

/// The inputs of plans of `graph`: the activations' sizes, their readers, and the codecs tolerated by those. The
/// numbers of parts and of threads do not matter.
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
  for (std::size_t i = 0; i < graph.parameters.size(); ++i)
    if (graph.parameters[i].frozen) all.mix(i);  // nobody asks for some gradients
  found.structure = all.value();
  return found;
}

namespace detail {

/// Whether `made_by` of node `k` names a node that may make its activation.
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

/// Whether std::size_t holds the bytes of the buffers of a step of `graph` if none shares memory with another: for each
/// node the value in forward, blob, value in backward and gradient; aux and workspaces, made again, too; and the
/// lasting gradients. No layout and no sum of live bytes is larger.
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

/// An error if the functions of program/ and plan/ cannot work on `graph`. They can on all graphs from make_graph() and
/// StashModel.
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
      return k >= 0 && k < graph.node_count() && graph.node(k).is_backward_stage();
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

/// The error of examine(), as a misuse: make_graph() and StashModel return no graph with an error, so such a graph is a
/// mistake of the calling code.
constexpr Error graph_mistake(const Graph& graph) {
  const Error why = examine(graph);
  return why ? Error::misuse(why.text()) : why;
}

}}  // namespace adacc::v0_1
