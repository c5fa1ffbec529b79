/// What a trainer written by hand tells of its activations, and the graph that follows from it.
///
/// For those who have kernels and a training loop of their own and want neither layers nor
/// combinators. Every activation is registered, in the order in which forward produces them, with
/// its shape and the backward stages that read it; where forward can produce it again, with a
/// callable; where it may be kept encoded, with the codecs. That is a Graph like any other, so
/// plan, schedule and layout are those of every other step.
///
/// Stages are the trainer's own units of backward (its layers, say), numbered from 0; backward runs
/// them from the highest to the lowest.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/cpu.hpp"
#include "../model/graph.hpp"
#include "../step/dispatch_table.hpp"

namespace adacc { inline namespace v0_1 {

/// A list of ids or stages: {1, 2}, or {first, count}.
class StashList {
 public:
  constexpr StashList() = default;
  constexpr StashList(const int* first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) numbers_.push_back(first[i]);
  }
  constexpr StashList(std::initializer_list<int> list) : StashList(list.begin(), list.size()) {}

  constexpr const Array<int>& numbers() const { return numbers_; }

 private:
  Array<int> numbers_;
};

/// How an activation is produced again: a callable that somebody else owns.
template <class T>
struct StashRecompute {
  const void* function = nullptr;
  void (*call)(const void* function, const View<const T>* sources, View<T> y) = nullptr;
};

template <class T = float, class Context = Cpu>
class StashModel {
 public:
  static constexpr int most_stages = 1 << 20;

  /// Registers an activation of T that the backward stages `stages` read; its id, which counts
  /// from 0. `name` must outlive all that is made of the model.
  constexpr int add(const char* name, Shape shape, const StashList& stages) {
    return add(name, shape, bytes_of(dtype_of<T>), stages);
  }

  /// The same for `bytes` of anything, such as masks or indices, which no codec takes. Callables
  /// get it as a view of T over the same memory.
  constexpr int add_bytes(const char* name, std::size_t bytes, const StashList& stages) {
    return add(name, Shape(bytes), 1, stages);
  }

  /// Activation `id` can be produced again: function(sources, y) writes y, of the shape registered,
  /// from `sources`, a `const View<const T>*` to the activations named here in that order (and from
  /// what the callable captured), with the same bits as forward. It may run in any order of
  /// activations, and is called while backward runs. `function` must outlive all that is made of
  /// the model.
  template <class Function>
  constexpr void recompute(int id, const StashList& sources, const Function& function) {
    if (!known(id)) return;
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    if (entry.recompute.call != nullptr) return fail(id, "was given a way to be recomputed twice");
    entry.recompute.function = &function;
    entry.recompute.call = [](const void* f, const View<const T>* from, View<T> y) {
      (*static_cast<const Function*>(f))(from, y);
    };
    for (const int source : sources.numbers()) {
      if (source < 0 || source >= id)
        return fail(id, "can be recomputed from activations registered before it alone");
      entry.sources.push_back(source);
    }
  }
  template <class Function>
  constexpr void recompute(int, const StashList&, const Function&&) = delete;

  /// Activation `id` may be kept encoded by `Codec`. `error` is what a lossy one costs: the
  /// relative squared error of the gradient, E|g' - g|^2 / |g|^2 (docs/planning.md), where backward
  /// reads this activation decoded, or makes others from it.
  template <class Codec>
  constexpr void allow(int id, double error = 0) {
    if (!known(id)) return;
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    const CodecInfo* info = &codec_info<Codec>;
    if (!(error >= 0)) return fail(id, "has a codec with a negative error");
    if (error == 0 && !info->lossless)
      return fail(id, "has a lossy codec, and nothing says what gradient error it costs");
    if (entry.elem_bytes == 1) return fail(id, "was registered as bytes, which no codec takes");
    const std::size_t bytes =
        info->encoded_bytes(entry.shape.rows(), entry.shape.cols(), dtype_of<T>);
    if (bytes == 0 || bytes >= entry.shape.elems() * entry.elem_bytes) return;  // saves nothing
    dispatch_.template add_codec<Codec>();
    entry.codecs.push_back({info, error});
  }

  /// Takes the choice from the planner.
  constexpr void fix(int id, Policy policy) {
    if (known(id)) entries_[static_cast<std::size_t>(id)].policy = policy;
  }

  /// The graph: one node per activation and, behind them, one without output per backward stage.
  /// Fails at the first registration that makes no sense.
  constexpr Result<Graph> graph() const {
    if (error_) return Error::misuse(error_.text());
    if (entries_.empty()) return Error::misuse("the stash has no activations");
    Graph graph;
    graph.has_loss = false;
    graph.scalar = graph.input_dtype = dtype_of<T>;
    graph.nodes.reserve(entries_.size() + stage_count());
    for (const Entry& entry : entries_) lower(graph, entry);
    for (int stage = 0; stage < static_cast<int>(stage_count()); ++stage) lower_stage(graph, stage);
    if (const Error why = check(graph)) return Error::misuse(why.text());
    graph.fingerprint = fingerprint_of(graph);
    return graph;
  }

  constexpr int activation_count() const { return static_cast<int>(entries_.size()); }

  /// What codec_cost().error of a profile is to be; 0 for codecs that were not allowed.
  constexpr double error_of(int id, const CodecInfo* codec) const {
    for (const Allowed& allowed : entries_[static_cast<std::size_t>(id)].codecs)
      if (allowed.codec == codec) return allowed.error;
    return 0;
  }
  constexpr const StashRecompute<T>& recompute_of(int id) const {
    return entries_[static_cast<std::size_t>(id)].recompute;
  }
  constexpr const Dispatch<T, Context>& dispatch() const { return dispatch_; }

 private:
  struct Allowed {
    const CodecInfo* codec = nullptr;
    double error = 0;
  };
  struct Entry {
    const char* name = "";
    Shape shape;
    std::size_t elem_bytes = 0;
    Policy policy;
    Array<int> stages;
    Array<int> sources;
    Array<Allowed> codecs;
    StashRecompute<T> recompute;
  };

  constexpr int add(const char* name, Shape shape, std::size_t elem_bytes,
                    const StashList& stages) {
    const int id = activation_count();
    Entry entry;
    entry.name = name;
    entry.shape = shape;
    entry.elem_bytes = elem_bytes;
    entry.stages = stages.numbers();
    entries_.push_back(entry);
    std::size_t bytes = 0;
    if (shape.elems() == 0 || !multiply(shape.elems(), elem_bytes, bytes) ||
        bytes > static_cast<std::size_t>(-1) >> 16)
      fail(id, "has no elements, or too many to address");
    for (const int stage : stages.numbers()) {
      if (stage < 0 || stage >= most_stages) {
        fail(id, "is read by a stage whose number is negative, or a million and more");
        break;
      }
      if (stage >= stages_) stages_ = stage + 1;
    }
    return id;
  }

  constexpr std::size_t stage_count() const { return static_cast<std::size_t>(stages_); }

  constexpr void lower(Graph& graph, const Entry& entry) const {
    Node node;
    node.name = entry.name;
    node.layer = graph.node_count();
    node.output = entry.shape;
    node.output_bytes = entry.shape.elems() * entry.elem_bytes;
    node.policy = entry.policy;
    node.recomputable = entry.recompute.call != nullptr;
    node.value_outside = node.gradient_outside = true;
    node.first_candidate = graph.candidates.size();
    if (!entry.stages.empty() || read_again(graph.node_count()))
      for (const Allowed& allowed : entry.codecs) graph.candidates.push_back(allowed.codec);
    node.candidate_count = graph.candidates.size() - node.first_candidate;
    graph.append(node, {entry.sources.data(), entry.sources.size()});
  }

  constexpr void lower_stage(Graph& graph, int stage) const {
    Node node;
    node.name = "stage";
    node.layer = graph.node_count();
    node.policy = retain();
    node.recomputable = false;
    node.value_outside = node.gradient_outside = true;
    Array<int> read;
    for (int id = 0; id < activation_count(); ++id)
      for (const int reader : entries_[static_cast<std::size_t>(id)].stages)
        if (reader == stage) {
          read.push_back(id);
          break;
        }
    graph.append(node, {});
    graph.set_backward_reads(graph.node_count() - 1, {read.data(), read.size()});
  }

  /// Whether some recomputation reads activation `id`.
  constexpr bool read_again(int id) const {
    for (const Entry& entry : entries_)
      for (const int source : entry.sources)
        if (source == id) return true;
    return false;
  }

  constexpr bool known(int id) {
    if (id >= 0 && id < activation_count()) return true;
    if (!error_) error_ = Error::say("the stash has no activation ", id, " to say more about");
    return false;
  }

  constexpr void fail(int id, const char* why) {
    if (!error_)
      error_ = Error::say("activation ", id, " (", entries_[static_cast<std::size_t>(id)].name,
                          ") ", why);
  }

  Array<Entry> entries_;
  int stages_ = 0;
  Dispatch<T, Context> dispatch_;  ///< its codecs alone
  Error error_;
};

}}  // namespace adacc::v0_1
