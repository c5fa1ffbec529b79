// SPDX-License-Identifier: MIT
/// What a trainer written by hand tells of its activations, and the graph that follows from it.
///
/// For those who have kernels and a training loop of their own and want neither layers nor
/// combinators. Every activation is registered, in the order in which forward produces them, with
/// its shape and the backward stages that read it; if forward can produce it again, with a
/// callable; if it may be kept encoded, with the codecs. That is a Graph like any other, so
/// plan, schedule and layout are those of every other step.
///
/// Stages are the trainer's own units of backward (its layers, say), numbered from 0; backward runs
/// them from the highest to the lowest. All that a stage reads is in memory together, beside the
/// bytes that it needs for itself (stage_bytes).
///
/// Forward's values are the trainer's own memory unless it has the arena hold() them: then they come
/// and go there, so that the budget is that of values, kept activations and a stage's gradients.
///
/// Activations that are registered alike (name, shape, codecs, the type of the callable and the
/// shapes that it reads) are copies of one, as those of a trainer's equal layers are: what is
/// measured and probed of one holds for all.
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

/// What a recomputation takes.
struct RecomputeNeeds {
  /// Scratch memory of the callable, 64-byte aligned, which it is given as its last argument.
  std::size_t workspace_bytes = 0;
  // For estimated_profile() alone; measure_stash() looks for itself.
  double operations = 0;   ///< multiplications and additions, each counted
  double moved_bytes = 0;  ///< read and written; 0: those of its sources and outputs

  friend constexpr bool operator==(const RecomputeNeeds&, const RecomputeNeeds&) = default;
};

/// How activations are produced again: a callable that somebody else owns.
template <class T>
struct StashRecompute {
  const void* function = nullptr;
  void (*call)(const void* function, const View<const T>* sources, const View<T>* outputs,
               Bytes workspace) = nullptr;
  /// What else tells callables of one kind from others that `call` calls, too.
  void (*kind)() = nullptr;
};

template <class T = float, class Context = Cpu>
class StashModel {
 public:
  static constexpr int most_stages = 1 << 20;
  /// An error that is yet to be probed.
  static constexpr double unknown = -1;

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

  /// Activation `id` can be produced again: function(sources, y) writes all of y, of the shape
  /// registered, from `sources`, a `const View<const T>*` to the activations named here in that
  /// order (and from what the callable captured and nobody changes until backward is over), with
  /// the same bits as forward. With a workspace it is function(sources, y, Bytes workspace). It may
  /// run in any order of activations, and is called while backward runs. `function` must outlive
  /// all that is made of the model. testing/checked_stash.hpp checks all of that.
  template <class Function>
  constexpr void recompute(int id, const StashList& sources, const Function& function,
                           const RecomputeNeeds& needs = {}) {
    constexpr bool scratch = requires(const View<const T>* from, View<T> y, Bytes workspace) {
      function(from, y, workspace);
    };
    static_assert(
        scratch || requires(const View<const T>* from, View<T> y) { function(from, y); },
        "adacc: a callable that recomputes an activation takes (const View<const T>* "
        "sources, View<T> y), and if it has a workspace, Bytes");
    const auto call = [](const void* f, const View<const T>* from, const View<T>* y,
                         [[maybe_unused]] Bytes workspace) {
      if constexpr (scratch) (*static_cast<const Function*>(f))(from, *y, workspace);
      else (*static_cast<const Function*>(f))(from, *y);
    };
    set_recompute({id}, sources, {&function, call}, needs, scratch);
  }
  template <class Function>
  constexpr void recompute(int, const StashList&, const Function&&,
                           const RecomputeNeeds& = {}) = delete;

  /// The same for a callable that makes several activations at once, registered one after the
  /// other: function(sources, outputs) writes all of them, outputs[i] being that of ids[i]. What
  /// becomes of each is planned by itself; what is not wanted of a call is written to scratch.
  template <class Function>
  constexpr void recompute_together(const StashList& ids, const StashList& sources,
                                    const Function& function, const RecomputeNeeds& needs = {}) {
    constexpr bool scratch =
        requires(const View<const T>* from, const View<T>* outputs, Bytes workspace) {
      function(from, outputs, workspace);
    };
    static_assert(
        scratch || requires(const View<const T>* from,
                            const View<T>* outputs) { function(from, outputs); },
        "adacc: a callable that recomputes activations together takes (const View<const T>* "
        "sources, const View<T>* outputs), and if it has a workspace, Bytes");
    const auto call = [](const void* f, const View<const T>* from, const View<T>* outputs,
                         [[maybe_unused]] Bytes workspace) {
      if constexpr (scratch) (*static_cast<const Function*>(f))(from, outputs, workspace);
      else (*static_cast<const Function*>(f))(from, outputs);
    };
    set_recompute(ids, sources, {&function, call}, needs, scratch);
  }
  template <class Function>
  constexpr void recompute_together(const StashList&, const StashList&, const Function&&,
                                    const RecomputeNeeds& = {}) = delete;

  /// The same for a callable whose type is erased already: how.call(how.function, sources, outputs,
  /// workspace) makes `ids`, of which there may be one.
  constexpr void recompute_by(const StashList& ids, const StashList& sources,
                              const StashRecompute<T>& how, const RecomputeNeeds& needs = {}) {
    set_recompute(ids, sources, how, needs, true);
  }

  /// Forward's value of activation `id` lies in the arena: from before it is put until all that is
  /// made from it has been put, Stash::place() says where. Of what one callable makes together, some
  /// may be held and others not.
  constexpr void hold(int id) {
    if (known(id)) entry(id).held = true;
  }

  /// Forward makes activation `id`, which is never recomputed, from `sources`: whatever is made from
  /// what is held has to say so. Of all others recompute() says it.
  constexpr void made_from(int id, const StashList& sources) {
    if (!known(id)) return;
    if (!entry(id).sources.empty() || maker(id).recompute.call != nullptr)
      return fail(id, "has its sources listed twice");
    if (check_sources(id, sources)) entry(id).sources = sources.numbers();
  }

  /// Backward stage `stage` needs `bytes` of the arena for itself, as long as it is on, for gradients
  /// and scratch: Stash::stage_memory() is where. A caller that has memory of its own for that may
  /// say so, too: then the budget covers it.
  constexpr void stage_bytes(int stage, std::size_t bytes) {
    if (stage < 0 || stage >= most_stages)
      return fail(
          "a stage that has bytes for itself has a number that is negative, or a million "
          "and more");
    if (bytes > static_cast<std::size_t>(-1) >> 16)
      return fail("a stage has more bytes for itself than can be addressed");
    if (stage >= stages_) stages_ = stage + 1;
    while (stage_bytes_.size() < stage_count()) stage_bytes_.push_back(0);
    stage_bytes_[static_cast<std::size_t>(stage)] = bytes;
  }

  /// Activation `id` may be kept encoded by `Codec`. What a lossy one costs is yet to be probed
  /// (stash/probe.hpp); until then an estimate stands in.
  template <class Codec>
  constexpr void allow(int id) {
    allow_codec<Codec>(id, codec_info<Codec>.lossless ? 0 : unknown);
  }

  /// The same if that is known: the relative squared error of the gradient,
  /// E|g' - g|^2 / |g|^2 (docs/planning.md), if backward reads this activation decoded, or makes
  /// others from it.
  template <class Codec>
  constexpr void allow(int id, double error) {
    if (!known(id)) return;
    if (!(error >= 0)) return fail(id, "has a codec whose gradient error is negative, or NaN");
    if (error == 0 && !codec_info<Codec>.lossless)
      return fail(id, "has a lossy codec without a gradient error: leave out what is to be probed");
    allow_codec<Codec>(id, error);
  }

  /// Takes the choice from the planner.
  constexpr void fix(int id, Policy policy) {
    if (known(id)) entry(id).policy = policy;
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
    Array<Kind> kinds;
    for (const Entry& entry : entries_) lower(graph, entry, kinds);
    for (int stage = 0; stage < static_cast<int>(stage_count()); ++stage)
      lower_stage(graph, stage, static_cast<int>(kinds.size()) + stage);
    if (const Error why = check(graph)) return Error::misuse(why.text());
    graph.fingerprint = fingerprint_of(graph);
    return graph;
  }

  /// What was wrong with the first registration that made no sense; graph() says so, too.
  constexpr const Error& error() const { return error_; }

  constexpr int activation_count() const { return static_cast<int>(entries_.size()); }

  /// Whether activation `id` was registered as bytes.
  constexpr bool is_raw(int id) const { return entry(id).elem_bytes == 1; }

  /// What was said of the gradient error of `codec`: `unknown` if that is yet to be probed, 0
  /// if the codec was not allowed.
  constexpr double error_of(int id, const CodecInfo* codec) const {
    for (const Allowed& allowed : entry(id).codecs)
      if (allowed.codec == codec) return allowed.error;
    return 0;
  }

  /// How activation `id` is made again, and what that takes: of those that are made together, as
  /// the first one is.
  constexpr const StashRecompute<T>& recompute_of(int id) const { return maker(id).recompute; }
  constexpr const RecomputeNeeds& needs_of(int id) const { return maker(id).needs; }
  constexpr const Dispatch<T, Context>& dispatch() const { return dispatch_; }

 private:
  struct Allowed {
    const CodecInfo* codec = nullptr;
    double error = 0;
    friend constexpr bool operator==(const Allowed&, const Allowed&) = default;
  };
  struct Entry {
    const char* name = "";
    Shape shape;
    std::size_t elem_bytes = 0;
    Policy policy;
    int made_by = -1;   ///< the first of those that one callable makes; -1: itself
    bool held = false;  ///< forward's value lies in the arena
    Array<int> stages;
    Array<int> sources;
    Array<Allowed> codecs;
    StashRecompute<T> recompute;
    RecomputeNeeds needs;
  };

  /// Activations that were registered alike.
  struct Kind {
    int first = 0;
    int copies = 0;
  };

  constexpr Entry& entry(int id) { return entries_[static_cast<std::size_t>(id)]; }
  constexpr const Entry& entry(int id) const { return entries_[static_cast<std::size_t>(id)]; }
  constexpr const Entry& maker(int id) const {
    const int made_by = entry(id).made_by;
    return entry(made_by < 0 ? id : made_by);
  }

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

  constexpr void set_recompute(const StashList& list, const StashList& sources,
                               const StashRecompute<T>& how, const RecomputeNeeds& needs,
                               bool scratch) {
    const Array<int>& ids = list.numbers();
    for (const int id : ids)
      if (!known(id)) return;
    if (ids.empty()) return fail("a callable makes activations together, and none is named");
    const int first = ids[0];
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != first + static_cast<int>(i))
        return fail(ids[i], "is made together with others that were not registered right before");
      if (entry(ids[i]).recompute.call != nullptr || entry(ids[i]).made_by >= 0)
        return fail(ids[i], "was given a way to be recomputed twice");
      if (!entry(ids[i]).sources.empty()) return fail(ids[i], "has its sources listed twice");
    }
    if (how.call == nullptr) return fail(first, "is recomputed by a callable that is null");
    if (needs.workspace_bytes > 0 && !scratch)
      return fail(first, "has a workspace, and its callable takes none");
    if (!(needs.operations >= 0 && needs.moved_bytes >= 0))
      return fail(first, "is recomputed at a cost that is negative, or NaN");
    if (!check_sources(first, sources)) return;
    entry(first).recompute = how;
    entry(first).needs = needs;
    for (const int id : ids) {
      entry(id).sources = sources.numbers();
      if (id != first) entry(id).made_by = first;
    }
  }

  constexpr bool check_sources(int id, const StashList& sources) {
    for (const int source : sources.numbers())
      if (source < 0 || source >= id) {
        fail(id, "can be made from activations registered before it alone");
        return false;
      }
    return true;
  }

  template <class Codec>
  constexpr void allow_codec(int id, double error) {
    if (!known(id)) return;
    const CodecInfo* info = &codec_info<Codec>;
    Entry& mine = entry(id);
    if (mine.elem_bytes == 1) return fail(id, "was registered as bytes, which no codec takes");
    const std::size_t bytes =
        info->encoded_bytes(mine.shape.rows(), mine.shape.cols(), dtype_of<T>);
    if (bytes == 0 || bytes >= mine.shape.elems() * mine.elem_bytes) return;  // saves nothing
    dispatch_.template add_codec<Codec>();
    mine.codecs.push_back({info, error});
  }

  constexpr std::size_t stage_count() const { return static_cast<std::size_t>(stages_); }

  /// `kinds` grows by activations that are like none before.
  constexpr void lower(Graph& graph, const Entry& entry, Array<Kind>& kinds) const {
    const int id = graph.node_count();
    std::size_t kind = 0;
    while (kind < kinds.size() && !alike(kinds[kind].first, id)) ++kind;
    if (kind == kinds.size()) kinds.push_back({id, 0});
    Node node;
    node.name = entry.name;
    node.layer = static_cast<int>(kind);
    node.copy = kinds[kind].copies++;
    node.output = entry.shape;
    node.output_bytes = entry.shape.elems() * entry.elem_bytes;
    node.policy = entry.policy;
    node.recomputable = maker(id).recompute.call != nullptr;
    node.made_by = entry.made_by;
    node.forward_workspace = entry.needs.workspace_bytes;
    node.value_outside = !entry.held;
    node.gradient_outside = true;
    node.first_candidate = graph.candidates.size();
    if (!entry.stages.empty() || read_again(id))
      for (const Allowed& allowed : entry.codecs) graph.candidates.push_back(allowed.codec);
    node.candidate_count = graph.candidates.size() - node.first_candidate;
    graph.append(node, {entry.sources.data(), entry.sources.size()});
  }

  constexpr void lower_stage(Graph& graph, int stage, int layer) const {
    Node node;
    node.name = "stage";
    node.layer = layer;
    node.policy = retain();
    node.recomputable = false;
    node.value_outside = node.gradient_outside = true;
    const auto s = static_cast<std::size_t>(stage);
    if (s < stage_bytes_.size()) node.backward_workspace = stage_bytes_[s];
    Array<int> read;
    for (int id = 0; id < activation_count(); ++id)
      for (const int reader : entry(id).stages)
        if (reader == stage) {
          read.push_back(id);
          break;
        }
    graph.append(node, {});
    graph.set_backward_reads(graph.node_count() - 1, {read.data(), read.size()});
  }

  /// Whether two activations were registered alike.
  constexpr bool alike(int one, int other) const {
    const Entry &a = entry(one), &b = entry(other);
    const Entry &makes_a = maker(one), &makes_b = maker(other);
    const int place_a = a.made_by < 0 ? 0 : one - a.made_by;
    const int place_b = b.made_by < 0 ? 0 : other - b.made_by;
    if (__builtin_strcmp(a.name, b.name) != 0 || !(a.shape == b.shape) ||
        a.elem_bytes != b.elem_bytes || a.held != b.held ||
        makes_a.recompute.call != makes_b.recompute.call ||
        makes_a.recompute.kind != makes_b.recompute.kind || !(makes_a.needs == makes_b.needs) ||
        place_a != place_b || a.sources.size() != b.sources.size() ||
        a.codecs.size() != b.codecs.size())
      return false;
    for (std::size_t i = 0; i < a.codecs.size(); ++i)
      if (!(a.codecs[i] == b.codecs[i])) return false;
    for (std::size_t i = 0; i < a.sources.size(); ++i)
      if (!(entry(a.sources[i]).shape == entry(b.sources[i]).shape)) return false;
    return true;
  }

  /// Whether some recomputation reads activation `id`.
  constexpr bool read_again(int id) const {
    for (int k = id + 1; k < activation_count(); ++k)
      for (const int source : entry(k).sources)
        if (source == id && maker(k).recompute.call != nullptr) return true;
    return false;
  }

  constexpr bool known(int id) {
    if (id >= 0 && id < activation_count()) return true;
    if (!error_) error_ = Error::say("the stash has no activation ", id, " to say more about");
    return false;
  }

  constexpr void fail(const char* why) {
    if (!error_) error_ = Error::say(why);
  }
  constexpr void fail(int id, const char* why) {
    if (!error_) error_ = Error::say("activation ", id, " (", entry(id).name, ") ", why);
  }

  Array<Entry> entries_;
  int stages_ = 0;
  Array<std::size_t> stage_bytes_;  ///< by stage; as many as were said
  Dispatch<T, Context> dispatch_;   ///< its codecs alone
  Error error_;
};

}}  // namespace adacc::v0_1
