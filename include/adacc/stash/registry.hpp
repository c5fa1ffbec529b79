// SPDX-License-Identifier: MIT
/// All registrations of a StashModel, and the nodes of the graph made of them.
#pragma once

#include <cstddef>

#include "../core/same_text.hpp"
#include "../model/graph.hpp"
#include "kernel.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A codec allowed for an activation, and the gradient error.
struct StashAllowed {
  const CodecInfo* codec = nullptr;
  double error = 0;
  friend constexpr bool operator==(const StashAllowed&, const StashAllowed&) = default;
};

/// The registration of an activation.
template <class T>
struct StashActivation {
  const char* name = "";
  Shape shape;
  std::size_t elem_bytes = 0;
  bool raw = false;  ///< bytes, or elements of another type than T
  Policy policy;
  int made_by = -1;   ///< the first activation of one callable; -1: this one
  bool held = false;  ///< forward's value lies in the arena
  bool read = false;  ///< by forward of something
  int stage = -1;     ///< the stage of its kernel; -1: no kernel was described
  Array<int> stages;
  Array<int> sources;
  Array<StashAllowed> codecs;
  StashRecompute<T> recompute;
  RecomputeNeeds needs;
};

/// The registration of a gradient carried from stage to stage.
struct StashCarried {
  const char* name = "";
  Shape shape;
  std::size_t elem_bytes = 0;
  int first_stage = 0,
      last_stage = 0;  ///< in the order of backward: the first has the higher number

  constexpr bool raw() const { return elem_bytes == 1; }
  constexpr std::size_t bytes() const { return shape.elems() * elem_bytes; }
};

/// All registrations, in the order of forward.
template <class T>
class StashRegistry {
 public:
  Array<StashActivation<T>> activations;
  int stages = 0;
  Array<std::size_t> stage_bytes;  ///< by stage; may be shorter than `stages`
  Array<const char*> stage_names;  ///< by stage, as far as known: the stage's first named kernel
  Array<StashCarried> carried;

  constexpr int count() const { return static_cast<int>(activations.size()); }
  constexpr const StashActivation<T>& activation(int id) const {
    return activations[static_cast<std::size_t>(id)];
  }
  /// The first activation of the callable for `id`.
  constexpr const StashActivation<T>& maker(int id) const {
    const int made_by = activation(id).made_by;
    return activation(made_by < 0 ? id : made_by);
  }

  /// One node per activation and, behind them, one without output per stage; carried gradients in the
  /// order of registration. Nothing is checked.
  constexpr Graph graph() const {
    Graph graph;
    graph.has_loss = false;
    graph.scalar = graph.input_dtype = dtype_of<T>;
    graph.nodes.reserve(activations.size() + static_cast<std::size_t>(stages));
    Array<Kind> kinds;
    for (const StashActivation<T>& said : activations) lower(graph, said, kinds);
    for (int stage = 0; stage < stages; ++stage)
      lower_stage(graph, stage, static_cast<int>(kinds.size()) + stage);
    for (const StashCarried& said : carried)
      graph.gradients.push_back(
          {-1, count() + said.first_stage, count() + said.last_stage, said.bytes()});
    return graph;
  }

 private:
  /// Activations registered alike.
  struct Kind {
    int first = 0;
    int copies = 0;
  };

  /// `kinds` grows by activations unlike all before.
  constexpr void lower(Graph& graph, const StashActivation<T>& said, Array<Kind>& kinds) const {
    const int id = graph.node_count();
    std::size_t kind = 0;
    while (kind < kinds.size() && !alike(kinds[kind].first, id)) ++kind;
    if (kind == kinds.size()) kinds.push_back({id, 0});
    Node node;
    node.name = said.name;
    node.layer = static_cast<int>(kind);
    node.copy = kinds[kind].copies++;
    node.output = said.shape;
    node.output_bytes = said.shape.elems() * said.elem_bytes;
    node.policy = said.policy;
    node.recomputable = maker(id).recompute.call != nullptr;
    node.made_by = said.made_by;
    node.forward_workspace = said.needs.workspace_bytes;
    node.value_outside = !said.held;
    node.gradient_outside = true;
    const std::size_t begin = graph.candidates.size();
    if (!said.stages.empty() || read_again(id))
      for (const StashAllowed& allowed : said.codecs) graph.candidates.push_back(allowed.codec);
    node.candidates = {begin, graph.candidates.size()};
    graph.append(node, {said.sources.data(), said.sources.size()});
  }

  constexpr void lower_stage(Graph& graph, int stage, int layer) const {
    Node node;
    node.name = "stage";
    node.layer = layer;
    node.policy = retain();
    node.recomputable = false;
    node.value_outside = node.gradient_outside = true;
    const auto s = static_cast<std::size_t>(stage);
    if (s < stage_bytes.size()) node.backward_workspace = stage_bytes[s];
    if (s < stage_names.size() && *stage_names[s] != '\0') node.name = stage_names[s];
    Array<int> read;
    for (int id = 0; id < count(); ++id)
      for (const int reader : activation(id).stages)
        if (reader == stage) {
          read.push_back(id);
          break;
        }
    graph.append(node, {});
    graph.set_backward_reads(graph.node_count() - 1, {read.data(), read.size()});
  }

  /// Whether two activations were registered alike.
  constexpr bool alike(int one, int other) const {
    const StashActivation<T>& a = activation(one);
    const StashActivation<T>& b = activation(other);
    const StashActivation<T>& makes_a = maker(one);
    const StashActivation<T>& makes_b = maker(other);
    const int place_a = a.made_by < 0 ? 0 : one - a.made_by;
    const int place_b = b.made_by < 0 ? 0 : other - b.made_by;
    if (!detail::same_text(a.name, b.name) || !(a.shape == b.shape) ||
        a.elem_bytes != b.elem_bytes || a.raw != b.raw || a.held != b.held ||
        makes_a.recompute.call != makes_b.recompute.call ||
        makes_a.recompute.kind != makes_b.recompute.kind ||
        makes_a.recompute.mark != makes_b.recompute.mark || !(makes_a.needs == makes_b.needs) ||
        place_a != place_b || a.sources.size() != b.sources.size() ||
        a.codecs.size() != b.codecs.size())
      return false;
    for (std::size_t i = 0; i < a.codecs.size(); ++i)
      if (!(a.codecs[i] == b.codecs[i])) return false;
    for (std::size_t i = 0; i < a.sources.size(); ++i)
      if (!(activation(a.sources[i]).shape == activation(b.sources[i]).shape)) return false;
    return true;
  }

  /// Whether some recomputation reads activation `id`.
  constexpr bool read_again(int id) const {
    for (int k = id + 1; k < count(); ++k)
      for (const int source : activation(k).sources)
        if (source == id && maker(k).recompute.call != nullptr) return true;
    return false;
  }
};

}}}  // namespace adacc::v0_1::detail
