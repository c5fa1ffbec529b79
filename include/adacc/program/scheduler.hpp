// SPDX-License-Identifier: MIT
/// When things happen in a step: the rules, derived from graph and plan and told to a sink.
///
/// A pure function of both; no data is touched. The rules:
///
///   - an activation not needed in backward is dropped after the last reader in forward;
///   - an activation kept encoded is put away after the last reader in forward, so that forward is
///     exact, and brought back once, before the first reader in backward;
///   - a recomputed activation is produced again once, before the first reader, from all sources, and
///     then stays until the last reader; a node is not run again for outputs without readers. If the
///     policy allows several runs, the value is dropped once the run that it was made in has no more
///     use for it, if a value of fewer runs was made behind it, and is made again from the nearest
///     values when backward asks: so a run over many layers leaves a few values to go on from. If one
///     forward makes several activations (Node::made_by), the recomputed ones are produced together,
///     by one instruction each, the last of which runs the forward;
///   - values of a caller's forward in the arena (not Node::value_outside) come and go like the values
///     of layers; if one forward makes several, all are there from the first one on;
///   - dx takes dy's buffer if the layer allows it and no residual sum still needs dy;
///   - if a layer forms residual sums (Node::adds_residual, adds_gradient), the first sum behind forward, and the first
///     behind a backward that writes all other shares of its input's gradient, are part of that instruction. Graphs
///     alone decide about it, so a sum has the same bits under all plans;
///   - if several layers read one activation, backward of the last writes the gradient, and the others
///     add theirs; an activation read by a sum alone has the sum's gradient;
///   - where a residual sum's gradients meet, the gradient along the sum is added to the gradient of
///     the branch. With layers in parts the branch's is added to the sum's, if no other sum waits for
///     the latter: then one buffer goes from sum to sum, and the branch's gradient may die in a loop;
///   - backward ends where nothing before is trained: from there on no node has a gradient, nor has a
///     residual sum;
///   - the loss writes dx over x if allowed;
///   - if updates are fused, the gradient of a parameter lives from the first backward adding to it to
///     the last, and the update right behind (updates.hpp); a gradient handed from stage to stage of a
///     caller's backward lives from the first of the stages to the last;
///   - a policy still open (Policy::planned) costs nothing: the activation is gone after the last
///     reader in forward, and back, without an instruction, for readers in backward. Any later
///     decision takes more bytes at some instructions, and fewer at none: the bound wanted by a
///     search.
///
/// A sink is told of buffers and instructions, in order:
///
///     int  add_buffer(BufferKind, int activation, std::size_t bytes);   // its number
///     void append(const Instruction&);    // the buffers named there live until then
///     void touch(int buffer);             // this buffer, too; -1: none
///
/// ScheduleWriter (schedule.hpp) writes all of it down; Lifetimes keeps buffers alone.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/extremes.hpp"
#include "../model/graph.hpp"
#include "instruction.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

/// The cut of encoding and decoding activation `id`: into parts, like the layers, of as many items
/// as `codec` allows.
constexpr Cut codec_cut(const Graph& graph, int id, const CodecInfo& codec) {
  const Shape shape = graph.node(id).output;
  const std::size_t items =
      codec.split_items == nullptr ? 1 : codec.split_items(shape.rows(), shape.cols());
  return make_cut(Split::own, items, graph.parts < 1 ? 1 : static_cast<std::size_t>(graph.parts), 0,
                  0);
}

/// The cut of a residual sum of tensors of shape `shape`: like layers that keep the shape.
constexpr Cut sum_cut(const Graph& graph, Shape shape) {
  const std::size_t row_bytes = shape.cols() * bytes_of(graph.scalar);
  return make_cut(Split::rows, shape.rows(),
                  graph.parts < 1 ? 1 : static_cast<std::size_t>(graph.parts), row_bytes, row_bytes,
                  entry_rows_of(shape), row_unit(graph.scalar));
}

template <class Sink>
class Scheduler {
 public:
  /// Graph and sink must outlive the Scheduler.
  constexpr Scheduler(const Graph& graph, Mode mode, Sink& sink)
      : graph_(graph), mode_(mode), sink_(sink), nodes_(graph.nodes.data()), ids_(graph.ids.data()),
        states_(graph.nodes.size() + 1), at_(states_.data() + 1), next_add_(graph.ids.size()),
        add_node_(graph.ids.size()) {
    for (int k = 0; k < graph.node_count(); ++k) {
      const Node& node = graph.node(k);
      graph.forward_reads(k, [&](int id) { state(id).last_forward_reader = k; });
      for (const int id : graph.sources(k))
        if (state(id).first_layer < 0) state(id).first_layer = k;
      for (std::size_t i = 0; i < node.adds.count; ++i) {
        const std::size_t edge = node.adds.first + i;
        if (!wants_gradient(graph.ids[edge])) continue;
        add_node_[edge] = k;
        next_add_[edge] = state(graph.ids[edge]).first_add;
        state(graph.ids[edge]).first_add = static_cast<int>(edge);
      }
    }
    if (mode == Mode::train && graph.has_lasting_gradients()) list_lasting_gradients();
  }

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Tells the sink of a step under `plan`, which has passed examine(graph, plan) but for policies
  /// that are open. May be called again, with another plan.
  constexpr void run(const Plan& plan) {
    policies_ = plan.policies.data();
    nested_ = is_nested(plan);
    output_ = output_gradient_ = -1;
    for (State& state : states_) state.forget();
    const int last = graph_.node_count() - 1;
    if (last < 0) return;
    if (mode_ == Mode::train) mark_needed();
    if (!lasting_.empty())
      for (const LastingGradient& gradient : graph_.gradients)
        sink_.add_buffer(BufferKind::lasting_gradient, 0, gradient.bytes);
    // A caller's last activation, in a graph without a stage behind it, is just put.
    const Node& end = node_of(last);
    const bool finishes = !end.value_outside && (!end.gradient_outside || end.output_bytes == 0);
    for (int k = 0; k <= last; ++k) {
      const Node& node = node_of(k);
      if (node.value_outside) {
        if (node.output_bytes > 0) take_over(k);
        continue;
      }
      produce(k, false);
      if (node.gradient_outside) begin_together(k);
      retire_sources(k);
      if (state(k).last_forward_reader < 0 && (k != last || !finishes)) retire(k);
    }
    if (finishes) finish_forward(last);
    if (mode_ != Mode::train) return;
    for (int k = last; k >= 0; --k) backward(k);
    if (graph_.gives_input_gradient) sink_.touch(state(step_input).gradient);
    touch_lasting_gradients(-1);
  }

  /// Whether, in the run before, some backward step, or a recomputation for one, reads `id`.
  constexpr bool needed(int id) const { return at_[id].needed; }
  /// The buffer of the last activation, if handed out; -1 otherwise.
  constexpr int output() const { return output_; }
  /// The buffers of the gradients from outside, and of the gradients handed out; -1: none.
  constexpr int output_gradient() const { return output_gradient_; }
  constexpr int input_gradient() const {
    return graph_.gives_input_gradient ? at_[step_input].gradient : -1;
  }

 private:
  /// The state of one activation while the sink is told of instructions.
  struct State {
    bool needed = false;  ///< some backward step, or a recomputation for one, reads it
    int value = -1;       ///< buffer of the value; -1 if there is none
    int blob = -1;        ///< buffer of the encoded form
    int aux = -1;
    int gradient = -1;
    bool gradient_is_lent = false;  ///< by a sum with others to give the gradient to later
    // About a run in backward, if the plan is nested; between runs these values:
    bool wanted = false;   ///< read by the backward step that the run is for
    int last_in_run = -1;  ///< the last entry of the run that makes or reads the value
    // From the graph alone:
    int last_forward_reader = -1;
    int first_layer = -1;  ///< the first to read the activation in forward
    int first_add = -1;    ///< list of nodes with sums of the activation, through next_add_
    // The latest form, whose size may take long to compute:
    Form form;
    std::size_t form_bytes = 0;

    constexpr void forget() {
      needed = false;
      value = blob = aux = gradient = -1;
      gradient_is_lent = false;
    }
  };

  // Compilers count every call in a constant expression, so these go by pointers.
  /// The state of an activation, or of the step's input.
  constexpr State& state(int id) { return at_[id]; }
  constexpr const Node& node_of(int k) const { return nodes_[k]; }
  constexpr const Policy& policy(int id) const { return policies_[id]; }
  constexpr IdSpan list(const ListRange& range) const { return {ids_ + range.first, range.count}; }
  constexpr int value(int id) { return id == step_input ? -1 : state(id).value; }
  constexpr bool wants_gradient(int id) const {
    return id == step_input ? graph_.gives_input_gradient : nodes_[id].runs_backward;
  }

  /// Backward readers first; then, from the end, all sources of needed recomputations.
  constexpr void mark_needed() {
    for (int k = graph_.node_count() - 1; k >= 0; --k) {
      for (const int id : list(node_of(k).backward_reads)) state(id).needed = true;
      if (!state(k).needed || !policy(k).recomputes()) continue;
      for (const IdSpan ids : {list(node_of(k).sources), list(node_of(k).adds)})
        for (const int id : ids) state(id).needed = true;
    }
  }

  constexpr int value_buffer(int id) {
    return sink_.add_buffer(BufferKind::activation, id, node_of(id).output_bytes);
  }
  constexpr int gradient_buffer(int id) {
    const std::size_t bytes = id == step_input ? graph_.input.elems() * bytes_of(graph_.scalar)
                                               : node_of(id).output_bytes;
    return sink_.add_buffer(BufferKind::gradient, id, bytes);
  }
  constexpr int workspace(int id, std::size_t bytes) {
    return bytes == 0 ? -1 : sink_.add_buffer(BufferKind::workspace, id, bytes);
  }

  /// The caller's forward of node k is done: the arena takes over the needed output.
  constexpr void take_over(int k) {
    Instruction inst{Op::forward, false, k};
    if (state(k).needed && policy(k).keeps() && !policy(k).encodes())
      state(k).value = inst.y = value_buffer(k);
    sink_.append(inst);
    for (const int source : list(node_of(k).sources)) sink_.touch(value(source));
    begin_together(k);
    retire(k);
    retire_sources(k);
  }

  /// If the caller's forward of activation k makes those behind it, too: those in the arena are
  /// written before the first is handed over.
  constexpr void begin_together(int k) {
    if (node_of(k).made_by >= 0) return;
    for (int next = k + 1; next < graph_.node_count() && node_of(next).made_by == k; ++next) {
      if (node_of(next).value_outside) continue;
      state(next).value = value_buffer(next);
      sink_.touch(state(next).value);
    }
  }

  /// Forward of node k and the sums ending there; all sources have values.
  constexpr void produce(int k, bool again) {
    const Node& node = node_of(k);
    const IdSpan sources = list(node.sources);
    State& activation = state(k);
    Instruction inst{Op::forward, again, k, static_cast<int>(node.cut.parts())};
    if (!sources.empty()) inst.x = value(sources[0]);
    if (again || node.made_by < 0) activation.value = value_buffer(k);
    inst.y = activation.value;
    if (activation.aux < 0 && node.aux_bytes > 0)
      activation.aux = sink_.add_buffer(BufferKind::aux, k, node.aux_bytes);
    inst.aux = activation.aux;
    inst.workspace = workspace(k, node.forward_workspace);
    const int *added = ids_ + node.adds.first, *const end = added + node.adds.count;
    if (node.adds_residual && added != end) {
      inst.adds = true;
      inst.added = value(*added++);
    }
    sink_.append(inst);
    for (std::size_t i = 1; i < sources.size(); ++i) sink_.touch(value(sources[i]));
    for (; added != end; ++added) {
      Instruction sum{Op::add, again, k, sum_parts(node.output)};
      sum.x = value(*added);
      sum.y = activation.value;
      sink_.append(sum);
    }
  }

  constexpr int codec_parts(int id) const {
    if (graph_.parts <= 1) return 1;
    return static_cast<int>(codec_cut(graph_, id, *policy(id).codec()).parts());
  }

  constexpr int sum_parts(Shape shape) const {
    return graph_.parts <= 1 ? 1 : static_cast<int>(sum_cut(graph_, shape).parts());
  }

  /// Once node k has run forward, some sources have no further reader there.
  constexpr void retire_sources(int k) {
    for (const IdSpan ids : {list(node_of(k).sources), list(node_of(k).adds)})
      for (const int id : ids)
        if (state(id).last_forward_reader == k && state(id).value >= 0) retire(id);
  }

  /// Forward has no more use for activation `id`.
  constexpr void retire(int id) {
    State& activation = state(id);
    if (activation.needed && policy(id).keeps()) {
      if (!policy(id).encodes()) return;
      put_away(id);
    }
    activation.value = -1;
  }

  /// From the value to the blob.
  constexpr void put_away(int id) {
    State& activation = state(id);
    if (!(activation.form == policy(id).form())) {
      activation.form = policy(id).form();
      activation.form_bytes = activation.form.bytes(node_of(id).output, graph_.scalar);
    }
    activation.blob = sink_.add_buffer(BufferKind::encoded, id, activation.form_bytes);
    Instruction encode{Op::encode, false, id, codec_parts(id)};
    encode.x = activation.value;
    encode.blob = activation.blob;
    sink_.append(encode);
  }

  /// Back to a value.
  constexpr void bring_back(int id) {
    State& activation = state(id);
    activation.value = value_buffer(id);
    if (policy(id).planned()) return;
    Instruction decode{Op::decode, false, id, codec_parts(id)};
    decode.blob = activation.blob;
    decode.y = activation.value;
    sink_.append(decode);
  }

  constexpr void finish_forward(int last) {
    State& activation = state(last);
    if (mode_ == Mode::infer || (mode_ == Mode::evaluate && !graph_.has_loss)) {
      output_ = activation.value;
      return;
    }
    const bool train = mode_ == Mode::train;
    Instruction loss{Op::loss, false, last};
    loss.x = activation.value;
    if (!graph_.has_loss) {
      loss.op = Op::hand_over;
      output_ = activation.value;
      activation.gradient = output_gradient_ = loss.dx = gradient_buffer(last);
    } else {
      if (train) loss.op = Op::loss_gradient;
      loss.parts = static_cast<int>(graph_.loss.cut.parts());
      loss.workspace =
          workspace(last, train ? graph_.loss.backward_workspace : graph_.loss.forward_workspace);
      if (train) {
        const bool in_place = graph_.loss.dx_overwrites_x && !activation.needed;
        activation.gradient = loss.dx = in_place ? activation.value : gradient_buffer(last);
      }
    }
    sink_.append(loss);
    touch_lasting_gradients(last + 1);
    retire(last);
  }

  /// Makes the value of activation `id` available in backward, with all its sources. An explicit
  /// stack: a chain may be longer than the recursion a constant expression allows.
  constexpr void materialize(int id) {
    stack_.push_back(id);
    while (!stack_.empty()) {
      const int top = stack_.back();
      if (state(top).value >= 0 || (nested_ && state(top).last_in_run >= 0)) {
        stack_.pop_back();
      } else if (!policy(top).recomputes()) {
        bring_back(top);
        stack_.pop_back();
      } else if (!push_missing_sources(top)) {
        if (nested_) add_to_run(top);
        else if (graph_.maker_of(top) != top || graph_.made_with_next(top)) produce_together(top);
        else produce(top, true);
        stack_.pop_back();
      }
    }
  }

  constexpr void produce_again(int id) {
    if (graph_.maker_of(id) != id || graph_.made_with_next(id)) produce_together(id);
    else produce(id, true);
  }

  /// Calls visit(id) for activation `id`, or for all that a forward making several makes again.
  template <class Visit>
  constexpr void each_made_with(int id, const Visit& visit) {
    for (int k = graph_.maker_of(id);; ++k) {
      if (k == id || (policy(k).recomputes() && state(k).needed)) visit(k);
      if (!graph_.made_with_next(k)) return;
    }
  }

  constexpr void add_to_run(int id) {
    const int entry = static_cast<int>(run_.size());
    run_.push_back(id);
    each_made_with(id, [&](int sibling) {
      state(sibling).wanted |= state(sibling).value >= 0;
      state(sibling).last_in_run = entry;
    });
    for (const IdSpan ids : {list(node_of(id).sources), list(node_of(id).adds)})
      for (const int source : ids)
        if (source != step_input && state(source).last_in_run >= 0)
          state(source).last_in_run = entry;
  }

  /// Makes the values read by a backward step in one run. Values made on the way stay if the step reads
  /// them, or if no value of fewer runs is made behind them.
  constexpr void materialize_in_runs(IdSpan reads) {
    for (const int id : reads) state(id).wanted = true;
    for (const int id : reads) materialize(id);
    int least = most_runs + 1;
    for (std::size_t i = run_.size(); i-- > 0;) {
      each_made_with(run_[i], [&](int id) { detail::lower(least, policy(id).runs()); });
      each_made_with(run_[i], [&](int id) { state(id).wanted |= policy(id).runs() <= least; });
    }
    for (std::size_t i = 0; i < run_.size(); ++i) {
      const int entry = static_cast<int>(i);
      produce_again(run_[i]);
      const auto drop = [&](int id) {
        State& activation = state(id);
        if (activation.last_in_run != entry) return;
        if (!activation.wanted) activation.value = -1;
        activation.last_in_run = -1;
        activation.wanted = false;
      };
      each_made_with(run_[i], drop);
      for (const IdSpan ids : {list(node_of(run_[i]).sources), list(node_of(run_[i]).adds)})
        for (const int source : ids)
          if (source != step_input) drop(source);
    }
    run_.clear();
    for (const int id : reads) state(id).wanted = false;
  }

  /// Forward again of the node that makes activation `id` and others; its sources have values.
  /// Unwanted outputs go to scratch.
  constexpr void produce_together(int id) {
    const int maker = graph_.maker_of(id);
    const IdSpan sources = list(node_of(maker).sources);
    together_.clear();
    for (int k = maker;; ++k) {
      Instruction inst{Op::forward, true, k};
      if (!sources.empty()) inst.x = value(sources[0]);
      if (policy(k).recomputes() && state(k).needed) state(k).value = inst.y = value_buffer(k);
      else if (!policy(k).planned()) inst.y = workspace(k, node_of(k).output_bytes);
      together_.push_back(inst.y);
      const bool last = !graph_.made_with_next(k);
      if (last) inst.workspace = workspace(maker, node_of(maker).forward_workspace);
      sink_.append(inst);
      if (last) break;
    }
    for (const int output : together_) sink_.touch(output);
    for (std::size_t i = 1; i < sources.size(); ++i) sink_.touch(value(sources[i]));
  }

  constexpr bool push_missing_sources(int id) {
    const std::size_t before = stack_.size();
    for (const IdSpan list : {list(node_of(id).adds), list(node_of(id).sources)})
      for (std::size_t i = list.size(); i-- > 0;)
        if (list[i] != step_input && state(list[i]).value < 0 &&
            (!nested_ || state(list[i]).last_in_run < 0))
          stack_.push_back(list[i]);
    return stack_.size() != before;
  }

  constexpr void backward(int k) {
    const Node& node = node_of(k);
    if (!node.runs_backward) return;
    const IdSpan reads = list(node.backward_reads);
    if (node.gradient_outside && reads.empty() && node.backward_workspace == 0 &&
        !(node.is_backward_stage() && touches_lasting_gradients(k)))
      return touch_lasting_gradients(k);
    if (nested_) materialize_in_runs(reads);
    else
      for (const int id : reads) materialize(id);
    State& activation = state(k);
    if (activation.gradient < 0 && activation.first_add >= 0) take_gradient_of_sum(k);
    const int from = graph_.input_of(k);
    Instruction inst{Op::backward, false, k, static_cast<int>(node.cut.parts())};
    if (reads_input(node.reads)) inst.x = value(from);
    if (reads_output(node.reads)) inst.y = activation.value;
    inst.aux = activation.aux;
    inst.dy = activation.gradient;
    const bool wants_dx = !node.gradient_outside && !node.takes_tokens &&
                          (wants_gradient(from) || !node.accepts_empty_dx);
    // The gradient from layers behind with the same input.
    const int others = wants_dx && wants_gradient(from) ? state(from).gradient : -1;
    if (wants_dx) {
      const bool in_place = node.dx_overwrites_dy && !awaits_sum(k) && node.input == node.output &&
                            !activation.gradient_is_lent;
      inst.dx = in_place ? inst.dy : gradient_buffer(from);
      if (others < 0) state(from).gradient = inst.dx;
    }
    inst.workspace = workspace(k, node.backward_workspace);
    const bool meets_sums = wants_dx && state(from).first_layer == k;
    if (node.adds_gradient && meets_sums && others < 0 && state(from).first_add >= 0) {
      inst.adds = true;
      inst.added = gradient_along(state(from).first_add);
    }
    sink_.append(inst);
    for (const int id : reads) sink_.touch(state(id).value);
    touch_lasting_gradients(k);
    if (others >= 0) add_gradient(from, others, inst.dx);
    if (meets_sums) add_residual_gradients(from, inst.adds);
  }

  /// Activation `k` is read by one sum, and by no layer: the sum's gradient is also the activation's.
  constexpr void take_gradient_of_sum(int k) {
    State& activation = state(k);
    const int end = add_node_[static_cast<std::size_t>(activation.first_add)];
    activation.gradient = state(end).gradient;
    activation.gradient_is_lent = state(end).gradient_is_lent || !last_to_add(k, end);
  }

  /// Lists gradients by the nodes that begin and complete them; node -1 is in front of all.
  constexpr void list_lasting_gradients() {
    lasting_.resize(graph_.nodes.size() + 2);
    for (int& entry : lasting_) entry = -1;
    for (const LastingGradient& gradient : graph_.gradients)
      for (const int node : {gradient.begun, gradient.complete}) {
        int& first = lasting_[static_cast<std::size_t>(node + 1)];
        next_lasting_.push_back(first);
        first = static_cast<int>(next_lasting_.size()) - 1;
      }
  }

  /// Whether node k begins or completes any lasting gradient.
  constexpr bool touches_lasting_gradients(int k) const {
    return !lasting_.empty() && lasting_[static_cast<std::size_t>(k + 1)] >= 0;
  }

  /// Gradients begun or completed by node k live in the instruction told last.
  constexpr void touch_lasting_gradients(int k) {
    if (lasting_.empty()) return;
    for (int entry = lasting_[static_cast<std::size_t>(k + 1)]; entry >= 0;
         entry = next_lasting_[static_cast<std::size_t>(entry)])
      sink_.touch(entry / 2);
  }

  /// Whether a sum ending at node k still has to hand the gradient to the sum's source.
  constexpr bool awaits_sum(int k) const {
    for (const int source : list(node_of(k).adds))
      if (wants_gradient(source)) return true;
    return false;
  }

  /// Whether `source` is the last, of all sums ending at node `end`, to get their gradient.
  constexpr bool last_to_add(int source, int end) const {
    int same = 0;  // a Residual of a Residual adds its input twice
    for (const int other : list(node_of(end).adds)) {
      if (other < source && wants_gradient(other)) return false;
      same += other == source ? 1 : 0;
    }
    return same == 1;
  }

  /// The gradient of the sum at this edge.
  constexpr int gradient_along(int edge) {
    return state(add_node_[static_cast<std::size_t>(edge)]).gradient;
  }

  /// All of them, or all but the first.
  constexpr void add_residual_gradients(int source, bool but_first) {
    int edge = state(source).first_add;
    if (but_first) edge = next_add_[static_cast<std::size_t>(edge)];
    for (; edge >= 0; edge = next_add_[static_cast<std::size_t>(edge)]) {
      const int end = add_node_[static_cast<std::size_t>(edge)];
      int& gradient = state(source).gradient;
      int from = state(end).gradient;
      if (graph_.parts > 1 && last_to_add(source, end) && !state(end).gradient_is_lent) {
        const int along = from;
        from = gradient;
        gradient = along;
      }
      add_gradient(source, gradient, from);
    }
  }

  /// Adds buffer `from` to buffer `to`, both gradients of activation `id`.
  constexpr void add_gradient(int id, int to, int from) {
    const Shape shape = id == step_input ? graph_.input : node_of(id).output;
    Instruction sum{Op::add_gradient, false, id == step_input ? 0 : id, sum_parts(shape)};
    sum.dx = to;
    sum.dy = from;
    sink_.append(sum);
  }

  const Graph& graph_;
  Mode mode_;
  Sink& sink_;
  const Node* nodes_;
  const int* ids_;
  const Policy* policies_ = nullptr;
  Array<State> states_;  ///< the step's input first, then each activation
  State* at_;            ///< the state of activation 0
  Array<int> next_add_;  ///< by place in Graph::ids
  Array<int> add_node_;  ///< by place in Graph::ids: the node with the list
  Array<int> stack_;
  Array<int> together_;  ///< outputs of one forward
  Array<int> run_;       ///< activations to make again for one backward step, in order
  bool nested_ = false;  ///< the plan recomputes some activations more than once
  /// Lists of lasting gradients: by node, from -1 on, the first entry of a list through the other
  /// array. An entry is twice a gradient's number, or 1 more.
  Array<int> lasting_, next_lasting_;
  int output_ = -1;
  int output_gradient_ = -1;
};

}}  // namespace adacc::v0_1
