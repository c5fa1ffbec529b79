/// From graph and plan to the instructions of a step.
///
/// A pure function. It decides when each activation is encoded, decoded or
/// produced again, and thereby how long each buffer lives; it touches no data. Rules:
///
///   - an activation that nothing in backward needs is dropped after its last reader in forward;
///   - a compressed one is encoded after its last reader in forward (so forward is exact) and
///     decoded once, before its first reader in backward;
///   - a recomputed one is produced again once, before its first reader, from whatever it needs
///     itself, and then stays until its last reader; what only feeds outputs that nobody reads is
///     not run again;
///   - dx takes dy's buffer where the layer allows it and no residual sum still needs dy;
///   - the loss writes its gradient over its input where it may.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "instruction.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

/// How encoding and decoding activation `id` is cut: like the layers, into runs of what `codec` can
/// be cut into.
constexpr Cut codec_cut(const Graph& graph, int id, const CodecInfo& codec) {
  const Shape shape = graph.node(id).output;
  const std::size_t items =
      codec.split_items == nullptr ? 1 : codec.split_items(shape.rows(), shape.cols());
  return make_cut(Split::own, items, graph.parts < 1 ? 1 : static_cast<std::size_t>(graph.parts), 0,
                  0);
}

namespace detail {

class Scheduler {
 public:
  constexpr Scheduler(const Graph& graph, const Plan& plan, Mode mode)
      : graph_(graph), plan_(plan), mode_(mode), states_(graph.nodes.size()) {
    link_adds();
    if (mode == Mode::train) mark_needed();
  }

  constexpr Schedule run() {
    const std::size_t nodes = graph_.nodes.size();
    out_.instructions.reserve(nodes * 5 + 8);
    out_.buffers.reserve(nodes * 5 + 8);
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (graph_.by_hand) {
        take_over(k);
      } else {
        produce(k, false);
        retire_forward_sources(k);
      }
    }
    if (!graph_.by_hand) finish_forward();
    if (mode_ == Mode::train)
      for (int k = graph_.node_count() - 1; k >= 0; --k) backward(k);
    return static_cast<Schedule&&>(out_);
  }

 private:
  /// What is known of one activation while instructions are appended.
  struct State {
    bool needed = false;  ///< some backward step, or a recomputation for one, reads it
    int value = -1;       ///< buffer with its value; -1 where it is not to be had
    int blob = -1;
    int aux = -1;
    int gradient = -1;
    int last_sum = -1;   ///< the last node whose residual sum reads it
    int first_add = -1;  ///< list of nodes whose residual sums read it, through next_add_
  };

  constexpr State& state(int id) { return states_[static_cast<std::size_t>(id)]; }

  constexpr void link_adds() {
    next_add_.resize(graph_.adds.size());
    add_node_.resize(graph_.adds.size());
    for (int k = 0; k < graph_.node_count(); ++k) {
      const Node& node = graph_.node(k);
      for (std::size_t i = 0; i < node.add_count; ++i) {
        const int source = graph_.add_source(node, i);
        if (source < 0) continue;
        const std::size_t edge = node.first_add + i;
        add_node_[edge] = k;
        next_add_[edge] = state(source).first_add;
        state(source).first_add = static_cast<int>(edge);
        state(source).last_sum = k;
      }
    }
  }

  /// Backward readers first; then, from the end, whatever a needed recomputation reads.
  constexpr void mark_needed() {
    for (int k = graph_.node_count() - 1; k >= 0; --k) {
      graph_.backward_reads(k, [&](int id) { state(id).needed = true; });
      if (!state(k).needed || plan_[k].kind != PolicyKind::recompute) continue;
      graph_.forward_reads(k, [&](int id) { state(id).needed = true; });
    }
  }

  constexpr int buffer(BufferKind kind, int activation, std::size_t bytes) {
    out_.buffers.push_back({kind, activation, bytes, -1, -1});
    return static_cast<int>(out_.buffers.size()) - 1;
  }

  constexpr int workspace(int activation, std::size_t bytes) {
    return bytes == 0 ? -1 : buffer(BufferKind::workspace, activation, bytes);
  }

  /// Appends an instruction; the buffers that it names live at least until then.
  constexpr void append(const Instruction& run) {
    out_.instructions.push_back(run);
    for (const int id : {run.x, run.y, run.dx, run.dy, run.aux, run.workspace, run.blob}) touch(id);
  }

  /// Buffer `id` lives at the instruction appended last.
  constexpr void touch(int id) {
    if (id < 0) return;
    Buffer& used = out_.buffers[static_cast<std::size_t>(id)];
    used.last = static_cast<int>(out_.instructions.size()) - 1;
    if (used.first < 0) used.first = used.last;
  }

  /// The caller's forward of node k is done: what of its output the arena takes over.
  constexpr void take_over(int k) {
    const Node& node = graph_.node(k);
    if (node.output_bytes == 0) return;
    State& mine = state(k);
    Instruction run{Op::forward, false, k};
    if (mine.needed && plan_[k].kind == PolicyKind::retain)
      mine.value = run.y = buffer(BufferKind::activation, k, node.output_bytes);
    append(run);
    retire(k);
  }

  /// Forward of node k and the sums that end there; its sources have values.
  constexpr void produce(int k, bool again) {
    const Node& node = graph_.node(k);
    State& mine = state(k);
    Instruction run{Op::forward, again, k, static_cast<int>(node.cut.parts())};
    run.x = k > 0 && !graph_.by_hand ? state(k - 1).value : -1;
    mine.value = run.y = buffer(BufferKind::activation, k, node.output_bytes);
    if (mine.aux < 0 && node.aux_bytes > 0) mine.aux = buffer(BufferKind::aux, k, node.aux_bytes);
    run.aux = mine.aux;
    run.workspace = workspace(k, node.forward_workspace);
    append(run);
    for (std::size_t i = 0; i < node.source_count; ++i)
      touch(state(graph_.listed_source(node, i)).value);
    for (std::size_t i = 0; i < node.add_count; ++i) {
      const int source = graph_.add_source(node, i);
      Instruction sum{Op::add, again, k, sum_parts(node)};
      sum.x = source < 0 ? -1 : state(source).value;
      sum.y = mine.value;
      append(sum);
    }
  }

  constexpr int codec_parts(int id) const {
    return static_cast<int>(codec_cut(graph_, id, *plan_[id].codec).parts());
  }

  /// A sum is cut like the layers, down to a few thousand elements.
  constexpr int sum_parts(const Node& node) const {
    const std::size_t most = div_up(node.output.elems(), 4096);
    const auto wanted = static_cast<std::size_t>(graph_.parts < 1 ? 1 : graph_.parts);
    return static_cast<int>(most < wanted ? most : wanted);
  }

  /// Once node k has run forward, some of what it read has no further reader there.
  constexpr void retire_forward_sources(int k) {
    const Node& node = graph_.node(k);
    if (k > 0 && state(k - 1).last_sum <= k) retire(k - 1);
    for (std::size_t i = 0; i < node.add_count; ++i) {
      const int source = graph_.add_source(node, i);
      if (source >= 0 && source != k - 1 && state(source).last_sum == k && first_mention(node, i))
        retire(source);
    }
  }

  /// Nested residuals may add one source twice; it retires once.
  constexpr bool first_mention(const Node& node, std::size_t i) const {
    for (std::size_t j = 0; j < i; ++j)
      if (graph_.add_source(node, j) == graph_.add_source(node, i)) return false;
    return true;
  }

  constexpr void retire(int id) {
    State& mine = state(id);
    const Policy& policy = plan_[id];
    if (mine.needed && policy.kind == PolicyKind::retain) return;
    if (mine.needed && policy.kind == PolicyKind::compress) {
      const Shape shape = graph_.node(id).output;
      mine.blob = buffer(BufferKind::encoded, id,
                         policy.codec->encoded_bytes(shape.rows(), shape.cols(), graph_.scalar));
      Instruction encode{Op::encode, false, id, codec_parts(id)};
      encode.x = mine.value;
      encode.blob = mine.blob;
      append(encode);
    }
    mine.value = -1;
  }

  constexpr void finish_forward() {
    const int last = graph_.node_count() - 1;
    State& mine = state(last);
    if (mode_ == Mode::infer) {
      out_.output = mine.value;
      return;
    }
    const bool train = mode_ == Mode::train;
    Instruction loss{train ? Op::loss_gradient : Op::loss, false, last,
                     static_cast<int>(graph_.loss.cut.parts())};
    loss.x = mine.value;
    loss.workspace =
        workspace(last, train ? graph_.loss.backward_workspace : graph_.loss.forward_workspace);
    if (train) {
      const bool in_place = graph_.loss.dx_overwrites_x && !mine.needed;
      mine.gradient = loss.dx = in_place ? mine.value : gradient(last);
    }
    append(loss);
    retire(last);
  }

  constexpr int gradient(int id) {
    return buffer(BufferKind::gradient, id, graph_.node(id).output_bytes);
  }

  /// Makes the value of activation `id` available in backward, with all that it is made from. An
  /// explicit stack: a chain may be longer than the recursion a constant expression allows.
  constexpr void materialize(int id) {
    stack_.push_back(id);
    while (!stack_.empty()) {
      const int top = stack_.back();
      State& mine = state(top);
      if (mine.value >= 0) {
        stack_.pop_back();
      } else if (plan_[top].kind == PolicyKind::compress) {
        Instruction decode{Op::decode, false, top, codec_parts(top)};
        decode.blob = mine.blob;
        mine.value = decode.y = buffer(BufferKind::activation, top, graph_.node(top).output_bytes);
        append(decode);
        stack_.pop_back();
      } else if (!push_missing_sources(top)) {
        produce(top, true);
        stack_.pop_back();
      }
    }
  }

  constexpr bool push_missing_sources(int id) {
    const Node& node = graph_.node(id);
    bool missing = false;
    for (std::size_t i = node.source_count; i-- > 0;) {
      if (state(graph_.listed_source(node, i)).value >= 0) continue;
      stack_.push_back(graph_.listed_source(node, i));
      missing = true;
    }
    for (std::size_t i = node.add_count; i-- > 0;) {
      const int source = graph_.add_source(node, i);
      if (source < 0 || state(source).value >= 0) continue;
      stack_.push_back(source);
      missing = true;
    }
    if (id > 0 && !graph_.by_hand && state(id - 1).value < 0) {
      stack_.push_back(id - 1);
      missing = true;
    }
    return missing;
  }

  constexpr void backward(int k) {
    const Node& node = graph_.node(k);
    State& mine = state(k);
    Instruction run{Op::backward, false, k, static_cast<int>(node.cut.parts())};
    if (reads_input(node.reads) && k > 0) {
      materialize(k - 1);
      run.x = state(k - 1).value;
    }
    if (reads_output(node.reads)) {
      materialize(k);
      run.y = mine.value;
    }
    for (std::size_t i = 0; i < node.read_count; ++i) materialize(graph_.listed_read(node, i));
    if (graph_.by_hand && node.read_count == 0) return;
    run.aux = mine.aux;
    run.dy = mine.gradient;
    const bool wants_dx = !node.takes_tokens && !(k == 0 && node.accepts_empty_dx);
    if (wants_dx && !graph_.by_hand) {
      run.dx =
          node.dx_overwrites_dy && !awaits_sum(node) && node.input == node.output
              ? run.dy
              : buffer(BufferKind::gradient, k - 1, node.input.elems() * bytes_of(graph_.scalar));
      if (k > 0) state(k - 1).gradient = run.dx;
    }
    run.workspace = workspace(k, node.backward_workspace);
    append(run);
    for (std::size_t i = 0; i < node.read_count; ++i)
      touch(state(graph_.listed_read(node, i)).value);
    if (k > 0 && !graph_.by_hand) add_residual_gradients(k - 1);
  }

  /// True where a sum that ends at `node` still has to hand its gradient to its source.
  constexpr bool awaits_sum(const Node& node) const {
    for (std::size_t i = 0; i < node.add_count; ++i)
      if (graph_.add_source(node, i) >= 0) return true;
    return false;
  }

  constexpr void add_residual_gradients(int source) {
    for (int edge = state(source).first_add; edge >= 0;
         edge = next_add_[static_cast<std::size_t>(edge)]) {
      Instruction sum{Op::add_gradient, false, source, sum_parts(graph_.node(source))};
      sum.dx = state(source).gradient;
      sum.dy = state(add_node_[static_cast<std::size_t>(edge)]).gradient;
      append(sum);
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  Mode mode_;
  Array<State> states_;
  Array<int> next_add_;
  Array<int> add_node_;
  Array<int> stack_;
  Schedule out_;
};

}  // namespace detail

/// The instructions of one step. `plan` must have passed check(graph, plan).
constexpr Schedule make_schedule(const Graph& graph, const Plan& plan, Mode mode = Mode::train) {
  return detail::Scheduler(graph, plan, mode).run();
}

}}  // namespace adacc::v0_1
