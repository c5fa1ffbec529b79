// SPDX-License-Identifier: MIT
/// From a model's types and functors to a Graph.
///
/// Layers form a chain: each reads the activation before it, unless a branch begins, and residual sums reach back. Only
/// this file knows of the chain: a Graph lists the activations read by each node, and later passes assume no chain.
#pragma once

#include <cstddef>

#include "../core/cpu.hpp"
#include "../core/no_memory.hpp"
#include "../policy/compress.hpp"
#include "erased_layer.hpp"
#include "frozen.hpp"
#include "graph.hpp"
#include "network.hpp"

namespace adacc { inline namespace v0_1 {

struct GraphOptions {
  Dtype scalar = Dtype::f32;  ///< activations' and their gradients'; parameters are wide() of this
  int workers = 1;            ///< workspaces have room for so many threads
  /// Splittable layers are cut into so many parts, for steps in slices; bits depend on `parts`.
  int parts = 1;
  /// Backward ends with the gradient of the step's input, in the arena (Step::input_gradient).
  bool input_gradient = false;
  /// The trained parameters, whatever types say; null: as types say. Must outlive the call.
  const TrainedSet* trained = nullptr;
  /// Whether steps say when gradients are complete (Step::lend_updates).
  Updates updates = Updates::separate;
  /// The form of the numbers in the block of parameters.
  ParameterForm parameters = ParameterForm::full;
  /// Frozen parameters that stay in a file, and have no room in the block; null: none. Outlives all that runs the graph.
  const StoredParameters* stored = nullptr;
  /// Attention by a library, lent to the contexts of steps on a CUDA device: workspaces have room for the library's.
  CudaAttention* attention = nullptr;
};

/// Collects nodes while a model is visited; the model types call layer(), residual sums and copies. Layers are asked
/// for their workspaces in `Context`.
template <class Context = Cpu>
class GraphBuilder {
 public:
  /// A model of more than `most_nodes` layers, copies included, is refused before taking memory.
  constexpr GraphBuilder(Shape input, const GraphOptions& options,
                         std::size_t most_nodes = Graph::most_nodes)
      : shape_(input), most_nodes_(most_nodes) {
    graph_.input = input;
    graph_.parts = options.parts;
    graph_.scalar = graph_.input_dtype = options.scalar;
    graph_.on_device = context_traits<Context>::own_memory;
    graph_.workers = options.workers;
    graph_.gives_input_gradient = options.input_gradient;
    trained_set_ = options.trained;
    updates_ = options.updates;
    parameter_form_ = options.parameters;
    stored_ = options.stored;
    attention_ = options.attention;
    check_size("the step's input", input);
  }

  /// Next in the chain: a layer of `functor`. The type goes no further than this.
  template <class PolicyType, class Functor>
  [[gnu::always_inline]] constexpr void layer(const Functor& functor) {
    add_layer(detail::TypedFunctor<Functor>{{&functor}, &functor},
              detail::layer_declarations<Functor, Context>, PolicyType::value);
  }

  /// Parts visited from now on are frozen at least so far; returns the setting before.
  constexpr Freeze freeze(Freeze what) {
    const Freeze before = freeze_;
    freeze_ = what;
    return before;
  }

  template <class Loss, Freeze what>
  constexpr void loss(const Frozen<Loss, what, false>& frozen) {
    freeze_ = what;
    loss(frozen.loss);
  }
  template <class Loss>
  constexpr void loss(const Loss& functor) {
    using traits = layer_traits<Loss>;
    end(true);
    if (error_) return;
    LossNode& node = graph_.loss;
    node.name = traits::name();
    const detail::TypedFunctor<Loss> erased{{&functor}, &functor};
    constexpr detail::NeedsGetter needs = detail::Needs<Loss, Context>::getter();
    const LayerNeeds whole = ask(node, needs, erased, shape_, Pass::forward);
    if (error_) return;
    node.targets = traits::target_shape(functor, shape_);
    node.classes = traits::target_classes(functor, shape_);
    node.dx_overwrites_x = traits::facts().dx_overwrites_x;
    node.draws_numbers = traits::facts().draws_numbers;
    node.cut = cut(traits::split(), whole.split_items, node.name, node.targets,
                   bytes_of(graph_.scalar), 0);
    if (error_) return;
    const PassNeeds forward = pass_needs(node, needs, erased, Pass::forward, &whole);
    const PassNeeds backward = pass_needs(node, needs, erased, Pass::backward);
    node.forward_workspace = forward.workspace;
    node.backward_workspace = backward.workspace;
    node.tile_rows = whole.tile_rows;
    const std::size_t begin = graph_.parameters.size();
    parameters(erased, detail::parameter_getter<Loss>(), {-1, 0, 0}, -1, node.name);
    node.parameters = {begin, graph_.parameters.size()};
    if constexpr (!traits::has_reads_when) make_room_for_discarded(node);
    make_window(node, forward, backward, true);
    node.copies = {forward.copies, backward.copies};
    node.target_dtype = graph_.scalar;
    if constexpr (requires { typename Loss::target_type; })
      node.target_dtype = dtype_of<typename Loss::target_type>;
  }

  /// No loss: the gradient of the last activation comes from outside.
  constexpr void loss(const NoLoss&) { end(false); }

  /// The activation to be read by the next layer.
  constexpr int current() const { return branches_ ? branch_ : graph_.node_count() - 1; }

  /// Adds activation `source` to the output of the layer visited last.
  constexpr void add(int source) {
    if (error_) return;
    if (source == current()) return fail("Residual", Error::say("has no layers"));
    const Shape from = source < 0 ? graph_.input : graph_.node(source).output;
    const Node& last = graph_.nodes.back();
    if (source < 0 && graph_.input_dtype != graph_.scalar)
      return fail("Residual", Error::say("cannot add the step's tokens to an activation"));
    if (!(from == last.output))
      return fail("Residual",
                  Error::say("turns ", from, " into ", last.output, "; a sum needs equal shapes"));
    if (reads_output(last.reads))
      return fail("Residual", Error::say("ends with ", last.name,
                                         ", whose backward reads its output, but the sum takes "
                                         "that output's place; end it with another layer"));
    if (!has_room(1, 0, 1)) return fail_for_room("Residual", "is one sum");
    graph_.add(source);
  }

  /// The next layer reads activation `source` again, beside the layers visited since; a later sum reads their last
  /// activation.
  constexpr void branch(int source) {
    if (error_) return;
    if (source == current())
      return fail("ProjectedResidual", Error::say("has no layers in its projection"));
    if (source < 0 && graph_.input_dtype != graph_.scalar)
      return fail("ProjectedResidual", Error::say("cannot begin with the step's tokens"));
    settle_candidates(false, {}, 0);
    shape_ = source < 0 ? graph_.input : graph_.node(source).output;
    branch_ = source;
    branches_ = true;
  }

  /// Visits `block` `count` times; every copy has its own parameters and activations.
  template <class Block>
  constexpr void repeat(int count, const Block& block) {
    if (error_) return;
    if (count < 1)
      return fail("Repeat", Error::say("needs at least 1 copy of its block, and got ", count));
    const int layer = layer_, outer = copy_;
    const Shape shape = shape_;
    const std::size_t nodes = graph_.nodes.size(), ids = graph_.ids.size();
    ++depth_;
    for (int i = 0; i < count; ++i) {
      layer_ = layer;
      copy_ = outer * count + i;
      block.visit(*this);
      if (error_) return;
      if (!(shape_ == shape))
        return fail("Repeat", Error::say("needs a block that keeps its input's shape; this one "
                                         "turns ",
                                         shape, " into ", shape_));
      if (i > 0) continue;
      const std::size_t layers = graph_.nodes.size() - nodes;
      if (!has_room(static_cast<std::size_t>(count) - 1, layers, graph_.ids.size() - ids))
        return fail_for_room("Repeat", "asks for ", count, " copies of a block with ", layers,
                             " layers, which is");
    }
    copy_ = outer;
    --depth_;
  }

  constexpr Result<Graph> finish() {
    if (error_) return error_;
    if (context_traits<Context>::own_memory && graph_.stored_bytes != 0)
      return Error::say(
          "parameters stay in a file (GraphOptions::stored) where layers run on threads of the "
          "host; "
          "a device reads them from its own memory");
    if (const Error why = examine(graph_)) return why;
    if (const Error why = place_parameters()) return why;
    mark_shared_parameters();
    graph_.fingerprint = fingerprint_of(graph_);
    set_updates(graph_, updates_);
    set_parameters(graph_, parameter_form_);
    return static_cast<Graph&&>(graph_);
  }

 private:
  /// The needs of one pass over the parts of a layer's work.
  struct PassNeeds {
    std::size_t first_aux = 0,
                last_aux = 0;               ///< the first part's, and the last's, if shorter
    std::size_t workspace = 0, packed = 0;  ///< the largest part's
    std::size_t window = LayerNeeds::all_parameters;
    std::size_t tiles = 0;
    std::size_t copies = 0;
  };

  /// Trained parameters come first: gradients and moments mirror the start of the block. Stored ones have offsets behind
  /// the block, which differ, but for tied ones.
  constexpr Error place_parameters() {
    graph_.gradient_elems = graph_.parameter_elems;
    if (trained_set_ != nullptr && trained_set_->size() != graph_.parameters.size())
      return Error::misuse("the set of trained parameters is of a network with ",
                           trained_set_->size(), " parameters, and this one has ",
                           graph_.parameters.size());
    if (!freezes_) return {};
    if (!trains_ && !graph_.gives_input_gradient)
      return Error::say("all parameters are frozen: there is nothing to train");
    Array<std::size_t> before;
    for (const Parameter& parameter : graph_.parameters) before.push_back(parameter.offset);
    std::size_t next = 0;
    const auto place = [&](bool frozen, bool stored) {
      for (Parameter& parameter : graph_.parameters) {
        if (!parameter.owner || parameter.frozen != frozen) continue;
        if ((parameter.stored != nullptr) != stored) continue;
        parameter.offset = next;
        next += padded_elems(parameter.shape, graph_.scalar);
      }
      return next;
    };
    graph_.gradient_elems = place(false, false);
    graph_.parameter_elems = place(true, false);
    place(true, true);
    for (std::size_t i = 0; i < before.size(); ++i)
      for (std::size_t j = 0; j < i && !graph_.parameters[i].owner; ++j)
        if (graph_.parameters[j].owner && before[j] == before[i])
          graph_.parameters[i].offset = graph_.parameters[j].offset;
    for (Parameter& parameter : graph_.parameters)
      if (parameter.stored != nullptr) parameter.owner = false;
    return {};
  }

  /// Marks the users of each shared parameter, its owner's node included.
  constexpr void mark_shared_parameters() {
    const auto mark = [&](const Parameter& parameter) {
      if (parameter.node < 0) graph_.loss.shares_parameters = true;
      else graph_.nodes[static_cast<std::size_t>(parameter.node)].shares_parameters = true;
    };
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.owner || parameter.stored != nullptr) continue;
      mark(parameter);
      for (const Parameter& other : graph_.parameters)
        if (other.owner && other.offset == parameter.offset) mark(other);
    }
  }

  constexpr void add_layer(const detail::AnyFunctor& functor,
                           const detail::LayerDeclarations& declared, const Policy& policy) {
    const int layer = layer_++;
    if (error_) return;
    const detail::LayerSignature& signature = *declared.signature;
    // A layer reads one activation, and in backward up to two.
    if (!has_room(1, 1, 3)) return fail_for_room(signature.name, "is one layer");
    const int id = graph_.node_count();
    Node node;
    node.name = signature.name;
    node.layer = layer;
    node.copy = copy_;
    node.input = shape_;
    node.policy = policy;
    node.repeated = depth_ > 0;
    node.takes_tokens = declared.takes_tokens;
    node.dx_overwrites_dy = declared.facts.dx_overwrites_dy;
    node.accepts_empty_dx = declared.accepts_empty_dx;
    node.draws_numbers = declared.facts.draws_numbers;
    node.extends_sequences = declared.facts.extends_sequences;
    node.takes_padding = declared.takes_padding;
    // A part of a layer and one of a sum may be of different rows.
    node.adds_residual = declared.adds_residual && graph_.parts <= 1;
    node.adds_gradient = declared.adds_gradient && graph_.parts <= 1;
    if (node.takes_tokens) {
      if (id != 0) return fail(node, Error::say("takes tokens, so it must be the first layer"));
      if (graph_.gives_input_gradient)
        return fail(node, Error::say("takes tokens, so the step's input has no gradient"));
      graph_.input_dtype = declared.token_type;
    }
    const LayerNeeds whole = ask(node, declared.needs, functor, shape_, Pass::forward);
    if (error_) return;
    node.output = signature.output_for(functor, shape_);
    if (!check_size(node.name, node.output)) return;
    node.output_bytes = node.output.elems() * bytes_of(graph_.scalar);
    node.cut = cut(signature.split, whole.split_items, node.name, node.output,
                   node.takes_tokens ? 0 : bytes_of(graph_.scalar), bytes_of(graph_.scalar));
    node.cut.entry_items = whole.entry_items;
    node.carried_bytes = whole.carried;
    const bool wants_dx = trains_ || graph_.gives_input_gradient;  // for layers before this one
    const std::size_t begin = graph_.parameters.size();
    parameters(functor, signature.parameter,
               {declared.facts.in_place_of_loss ? -1 : layer, copy_, 0}, id, node.name);
    node.parameters = {begin, graph_.parameters.size()};
    if (freezes_) ask_for_gradients(node, id, wants_dx);
    node.reads = node.runs_backward ? signature.reads_for(functor, node.wanted) : Reads::none;
    const int from = current();
    if (!branches_)
      settle_candidates(reads_input(node.reads), declared.input_codecs, declared.input_sensitivity);
    else if (from != step_input && reads_input(node.reads))
      share_candidates(from, declared.input_codecs, declared.input_sensitivity);
    branches_ = false;
    tolerated_output_ = declared.output_codecs;
    node.sensitivity = reads_output(node.reads) ? declared.output_sensitivity : 0;
    const bool without_dx = !node.wanted.dx || (from == step_input && !graph_.gives_input_gradient);
    const PassNeeds forward = pass_needs(node, declared.needs, functor, Pass::forward, &whole);
    PassNeeds backward;
    if (node.runs_backward)
      backward = pass_needs(
          node, declared.needs, functor,
          without_dx && node.accepts_empty_dx ? Pass::backward_without_dx : Pass::backward);
    set_needs(node, forward, backward);
    if (freezes_ && node.runs_backward && signature.reads_when == nullptr)
      make_room_for_discarded(node);
    make_window(node, forward, backward, node.runs_backward);
    node.copies = {forward.copies, backward.copies};
    node.operations = whole.operations < 0 ? product_operations(node) : whole.operations;
    shape_ = node.output;
    graph_.append(node, {&from, 1});
  }

  /// Decides on the gradients wanted from backward of `node`, number `id`, in a network with something frozen.
  constexpr void ask_for_gradients(Node& node, int id, bool wants_dx) {
    const Parameter* const own = graph_.parameters.data() + node.parameters.first;
    node.wanted.parameters = trained_bits(own, node.parameters.count);
    if (wants_dx) return;
    bool trained = false;
    for (std::size_t i = 0; i < node.parameters.count; ++i) trained = trained || !own[i].frozen;
    node.wanted.dx = false;
    for (; first_backward_ < id; ++first_backward_)
      ask_for_nothing(graph_.nodes[static_cast<std::size_t>(first_backward_)]);
    if (trained) return;
    ask_for_nothing(node);
    first_backward_ = id + 1;
  }

  constexpr void ask_for_nothing(Node& node) const {
    node.wanted = {false, 0};
    node.runs_backward = node.read_in_backward = false;
    node.reads = Reads::none;
    node.backward_reads = {};
    node.backward_workspace = node.backward_packed = 0;
    node.discarded_bytes = node.decode_room.backward = node.copies.backward = 0;
    node.sensitivity = 0;
  }

  /// Gradients of frozen parameters, if the layer computes them all the same, go to the workspace.
  template <class AnyNode>
  constexpr void make_room_for_discarded(AnyNode& node) const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < node.parameters.count; ++i) {
      const Parameter& parameter = graph_.parameters[node.parameters.first + i];
      if (!parameter.frozen) continue;
      bytes = align_up(bytes) + parameter.shape.elems() * bytes_of(wide(graph_.scalar));
    }
    if (bytes == 0) return;
    node.discarded_bytes = bytes;
    node.backward_workspace = align_up(node.backward_workspace) + bytes;
  }

  /// Decides on the room for the parameters read by the layer at a time, in their decoded type. Stored ones have theirs
  /// in the workspace from now on.
  template <class AnyNode>
  constexpr void make_window(AnyNode& node, const PassNeeds& forward, const PassNeeds& backward,
                             bool runs_backward) {
    const Parameter* const own = graph_.parameters.data() + node.parameters.first;
    bool stored = false;
    std::size_t elems = 0, streamed = 0;
    for (std::size_t i = 0; i < node.parameters.count; ++i) {
      stored = stored || own[i].stored != nullptr;
      elems += padded_elems(own[i].shape, graph_.scalar);
      if (own[i].stored != nullptr && own[i].stored->streams())
        streamed += streamed_bytes(*own[i].stored, forward.window);
    }
    if (streamed > streamed_at_once_) streamed_at_once_ = streamed;
    count_mapped();
    DecodeRoom& room = node.decode_room;
    room.by_rows = forward.window != LayerNeeds::all_parameters && !(stored && forward.tiles != 0);
    if (room.by_rows) {
      room.forward = forward.window;
      room.backward = backward.window;
    } else {
      if (stored) {
        room.tiles = align_up(forward.tiles);
        elems = decoded_elems(own, node.parameters.count, graph_.scalar, room.tiles != 0);
      }
      room.forward = room.backward = room.tiles + elems * bytes_of(wide(graph_.scalar));
    }
    if (!runs_backward) room.backward = 0;
    if (!stored) return;
    constexpr ParameterForm decoded = ParameterForm::bf16;
    node.forward_workspace = detail::workspace_in(decoded, node.forward_workspace, room.forward, 0);
    node.backward_workspace =
        detail::workspace_in(decoded, node.backward_workspace, room.backward, 0);
  }

  /// Most bytes of a streamed parameter in the process, if a layer has it in a window of so many bytes. Without a window
  /// each thread looks up rows.
  constexpr std::size_t streamed_bytes(const StoredParameter& stored, std::size_t window) const {
    if (window == 0) return static_cast<std::size_t>(graph_.workers) * stored.bytes_of_rows(1);
    return stored.bytes_of_rows(window / bytes_of(wide(graph_.scalar)) / stored.cols());
  }

  constexpr void count_mapped() {
    graph_.mapped_bytes =
        graph_.stored_bytes - streamed_ + detail::smaller(streamed_, streamed_at_once_);
  }

  constexpr void end(bool has_loss) {
    if (error_) return;
    if (graph_.nodes.empty()) return fail("the model", Error::say("has no layers"));
    settle_candidates(false, {}, 0);
    graph_.has_loss = has_loss;
  }

  constexpr void fail(const char* who, const Error& why) {
    if (!error_) error_ = Error::say(who, ": ", why.text());
  }
  constexpr void fail(const LossNode& node, const Error& why) { fail(node.name, why); }
  constexpr void fail(const Node& node, const Error& why) {
    if (!error_) error_ = Error::say("layer ", node.layer, " (", node.name, "): ", why.text());
  }

  /// Whether `times` as many nodes and ids of activations still fit into the graph.
  constexpr bool has_room(std::size_t times, std::size_t nodes, std::size_t ids) const {
    const auto fits = [&](std::size_t there, std::size_t more, std::size_t most) {
      return there <= most && (more == 0 || times <= (most - there) / more);
    };
    return fits(graph_.nodes.size(), nodes, most_nodes_) &&
           fits(graph_.ids.size(), ids, Graph::most_ids(most_nodes_));
  }
  template <class... What>
  constexpr void fail_for_room(const char* who, const What&... what) {
    fail(who,
         Error::say(what..., " too many: a model may have at most ", most_nodes_,
                    " layers, which read at most ", Graph::most_ids(most_nodes_), " activations"));
  }

  /// Operations of the products of a layer's input with its parameter matrices: right for nearly all layers.
  constexpr double product_operations(const Node& node) const {
    if (node.takes_tokens) return 0;  // rows of a table, looked up
    double operations = 0;
    for (std::size_t p = 0; p < node.parameters.count; ++p) {
      const Shape shape = graph_.parameters[node.parameters.first + p].shape;
      if (shape.rank() >= 2)
        operations +=
            2.0 * static_cast<double>(shape.elems()) * static_cast<double>(node.output.rows());
    }
    return operations;
  }

  /// Called once all readers of the activation made last are known: the producing layer and, if `next_reads`, a layer
  /// tolerating `next`. Sets the codecs tolerated by both, and the harm done by their errors.
  constexpr void settle_candidates(bool next_reads, CodecSpan next, double next_sensitivity) {
    if (graph_.nodes.empty()) return;
    Node& node = graph_.nodes.back();
    if (next_reads) node.sensitivity += next_sensitivity;
    const bool own_reads = reads_output(node.reads);
    const CodecSpan own = tolerated_output_;
    const CodecSpan order = own_reads ? own : next_reads ? next : CodecSpan{};
    const std::size_t begin = graph_.candidates.size();
    for (std::size_t i = 0; i < order.count; ++i) {
      if (own_reads && next_reads && !next.tolerates(*order[i])) continue;
      if (shrinks(node, *order[i])) graph_.candidates.push_back(order[i]);
    }
    node.tolerated = node.policy.codec() == &detail::tolerated_codec;
    end_candidates(node, begin);
  }

  /// Another layer reads activation `id` in backward, and tolerates `codecs`.
  constexpr void share_candidates(int id, CodecSpan codecs, double sensitivity) {
    Node& node = graph_.nodes[static_cast<std::size_t>(id)];
    const bool first = !node.read_in_backward;
    const CodecSpan order = first ? codecs : graph_.candidates_of(node);
    Array<const CodecInfo*> shared;
    for (std::size_t i = 0; i < order.count; ++i)
      if (shrinks(node, *order[i]) && codecs.tolerates(*order[i])) shared.push_back(order[i]);
    node.sensitivity += sensitivity;
    const std::size_t begin = graph_.candidates.size();
    for (const CodecInfo* codec : shared) graph_.candidates.push_back(codec);
    end_candidates(node, begin);
  }

  constexpr bool shrinks(const Node& node, const CodecInfo& codec) const {
    const std::size_t bytes =
        codec.encoded_bytes(node.output.rows(), node.output.cols(), graph_.scalar);
    return bytes != 0 && bytes < node.output_bytes;
  }

  /// All candidates from number `begin` on are the node's; a policy Compress<Tolerated> takes the first.
  constexpr void end_candidates(Node& node, std::size_t begin) {
    node.candidates = {begin, graph_.candidates.size()};
    if (!node.tolerated) return;
    Form form = node.policy.form();
    form.codec = node.candidates.count == 0 ? nullptr : graph_.candidates[node.candidates.first];
    node.policy = keep(form);
  }

  /// Refuses empty tensors and sizes too large. examine(graph) looks at their sum.
  constexpr bool check_size(const char* who, Shape shape) {
    std::size_t bytes = shape.rank() > 0 ? 8 : 0;
    bool fits = true;
    for (int i = 0; i < shape.rank(); ++i) fits = fits && multiply(bytes, shape[i], bytes);
    if (!fits || bytes > most_tensor_bytes) {
      fail(who, Error::say("a tensor of shape ", shape, " is too large to address"));
      return false;
    }
    if (bytes == 0) fail(who, Error::say("a tensor of shape ", shape, " has no elements"));
    return bytes != 0;
  }

  /// The cut of work on shape_ into `items` (0: as counted by split.hpp). `output` is made from shape_, or read beside
  /// it. Elements have `in_bytes` and `out_bytes` in the arena, 0 if they are elsewhere.
  constexpr Cut cut(Split split, std::size_t items, const char* who, Shape output,
                    std::size_t in_bytes, std::size_t out_bytes) {
    if (items == 0) items = items_of(split, shape_);
    const bool runs = split == Split::rows || split == Split::batch;
    bool kept = items != 0;
    if (kept && runs && out_bytes != 0)
      kept = items == (split == Split::rows ? output.rows() : output[0]);
    if (kept && runs && out_bytes == 0) kept = output.elems() % items == 0;
    if (!kept) {
      fail(who, Error::say("its input ", shape_, " splits (", name_of(split), ") into ", items,
                           " items, and ", output, " does not"));
      return {};
    }
    return make_cut(split, items, graph_.parts < 1 ? 1 : static_cast<std::size_t>(graph_.parts),
                    runs ? shape_.elems() / items * in_bytes : 0,
                    runs ? output.elems() / items * out_bytes : 0,
                    split == Split::rows && items == shape_.rows() ? entry_rows_of(shape_) : 1,
                    split == Split::rows ? row_unit(graph_.scalar) : 1);
  }

  template <class AnyNode>
  constexpr LayerNeeds ask(const AnyNode& node, detail::NeedsGetter needs,
                           const detail::AnyFunctor& functor, Shape in, Pass pass) {
    if (needs == nullptr) return {};
    const LayerNeeds said = needs(functor, in, {graph_.scalar, graph_.workers, pass, attention_});
    if (said.error) fail(node, said.error);
    return said;
  }

  /// `whole` is the layer's answer for its whole input, if asked already.
  template <class AnyNode>
  constexpr PassNeeds pass_needs(const AnyNode& node, detail::NeedsGetter needs,
                                 const detail::AnyFunctor& functor, Pass pass,
                                 const LayerNeeds* whole = nullptr) {
    PassNeeds all;
    if (needs == nullptr) return all;
    const auto include = [&](const LayerNeeds& part) {
      all.last_aux = part.aux;
      if (part.workspace > all.workspace) all.workspace = part.workspace;
      if (part.packed > all.packed) all.packed = part.packed;
      all.window = part.decode_room;
      all.tiles = part.decode_tiles;
      all.copies = part.copies;
    };
    const Cut& cut = node.cut;
    const bool alike = cut.parts() == 1 || cut.split == Split::own;
    if (alike && whole != nullptr) include(*whole);
    else include(ask(node, needs, functor, cut.shape(shape_, cut.count(0)), pass));
    all.first_aux = all.last_aux;
    if (!alike)
      include(ask(node, needs, functor, cut.shape(shape_, cut.count(cut.parts() - 1)), pass));
    return all;
  }

  /// The parts' aux lie one after the other, each 64-byte aligned; parts use one workspace in turn.
  constexpr void set_needs(Node& node, const PassNeeds& forward, const PassNeeds& backward) {
    const std::size_t last = node.cut.parts() - 1;
    node.aux_bytes = forward.last_aux;
    if (last != 0 && node.cut.split != Split::own) {
      node.part_aux_bytes = forward.first_aux;
      if (!detail::add_aligned(node.part_aux_bytes, last, node.aux_bytes))
        return fail(node, Error::say("the bytes beside its output in ", last + 1,
                                     " parts are too many to address"));
    }
    node.forward_workspace = forward.workspace;
    node.backward_workspace = backward.workspace;
    if (last == 0) return;
    node.forward_packed = forward.packed;
    node.backward_packed = backward.packed;
  }

  /// `place`: of the first parameter.
  constexpr void parameters(const detail::AnyFunctor& functor, detail::ParameterGetter get,
                            StoredParameters::Place place, int node, const char* who) {
    ParameterSpec spec;
    for (std::size_t i = 0; get != nullptr && get(functor, shape_, i, spec); ++i, ++place.index)
      parameter(spec, stored_ == nullptr ? nullptr : stored_->find(place), node, who);
  }

  constexpr void parameter(const ParameterSpec& spec, const StoredParameter* stored, int node,
                           const char* who) {
    if (!check_size(who, spec.shape)) return;
    Parameter parameter;
    static_cast<ParameterSpec&>(parameter) = spec;
    parameter.node = node;
    const std::size_t earlier_ones = spec.tied == nullptr ? 0 : graph_.parameters.size();
    for (std::size_t i = 0; i < earlier_ones; ++i) {
      const Parameter& earlier = graph_.parameters[i];
      if (!earlier.owner || !same(spec.tied, earlier.tied)) continue;
      if (!(spec.shape == earlier.shape))
        return fail(who, Error::say("the tied parameter '", spec.tied, "' is ", earlier.shape,
                                    " in one layer and ", spec.shape, " in another"));
      parameter.offset = earlier.offset;
      parameter.frozen = earlier.frozen;
      parameter.stored = earlier.stored;
      parameter.owner = false;
    }
    if (parameter.owner) {
      parameter.offset = graph_.parameter_elems;
      std::size_t bytes = 0;
      if (!detail::add(parameter.offset, padded_elems(spec.shape, graph_.scalar),
                       graph_.parameter_elems) ||
          !multiply(graph_.parameter_elems, 8, bytes))
        return fail(who, Error::say("with its parameter '", spec.name, "' of shape ", spec.shape,
                                    ", the network's parameters are too large to address"));
      parameter.frozen = is_frozen(spec);
      if (parameter.frozen && stored != nullptr) {
        if (!(stored->shape == spec.shape))
          return fail(who, Error::say("its parameter '", spec.name, "' is ", spec.shape,
                                      ", and the stored one is ", stored->shape));
        parameter.stored = stored;
        graph_.stored_bytes += stored->bytes();
        if (stored->streams()) streamed_ += stored->bytes();
        count_mapped();
      }
    }
    (parameter.frozen ? freezes_ : trains_) = true;
    graph_.parameters.push_back(parameter);
  }

  /// Whether the next parameter is frozen.
  constexpr bool is_frozen(const ParameterSpec& spec) const {
    const std::size_t i = graph_.parameters.size();
    if (trained_set_ != nullptr) return i < trained_set_->size() && !(*trained_set_)[i];
    return spec.frozen || freeze_ == Freeze::all ||
           (freeze_ == Freeze::all_but_biases && !same("bias", spec.name));
  }

  static constexpr bool same(const char* a, const char* b) {
    if (b == nullptr) return false;
    while (*a != '\0' && *a == *b) ++a, ++b;
    return *a == *b;
  }

  Graph graph_;
  Shape shape_;
  std::size_t most_nodes_;
  int layer_ = 0;
  int copy_ = 0;
  int depth_ = 0;            ///< number of nested Repeats
  int branch_ = step_input;  ///< read by the next layer,
  bool branches_ = false;    ///< if not the activation made last
  const TrainedSet* trained_set_ = nullptr;
  Updates updates_ = Updates::separate;
  ParameterForm parameter_form_ = ParameterForm::full;
  const StoredParameters* stored_ = nullptr;
  CudaAttention* attention_ = nullptr;
  Freeze freeze_ = Freeze::nothing;
  bool freezes_ = false, trains_ = false;  ///< some parameter so far
  std::size_t streamed_ = 0;               ///< bytes of streamed parameters
  std::size_t streamed_at_once_ = 0;       ///< most of these that a layer has in the process
  int first_backward_ = 0;                 ///< nodes before it are asked for no gradients
  CodecSpan tolerated_output_;             ///< by the layer visited last
  Error error_;
};

/// Lowers `network` (model/network.hpp) for an input of shape `input`, for steps in `Context`. Errors name the layer
/// and the need.
template <class Context = Cpu, class Network>
constexpr Result<Graph> make_graph(const Network& network, Shape input,
                                   const GraphOptions& options = {}) {
  return detail::or_no_memory("to make the graph", [&]() -> Result<Graph> {
    GraphBuilder<Context> builder(input, options);
    network.model.visit(builder);
    builder.loss(network.loss);
    return builder.finish();
  });
}

}}  // namespace adacc::v0_1
