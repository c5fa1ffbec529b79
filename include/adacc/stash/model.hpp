// SPDX-License-Identifier: MIT
/// What a trainer written by hand tells of its activations, and the graph that follows from it.
///
/// For those who have kernels and a training loop of their own and want neither layers nor
/// combinators. Every kernel() that forward calls is described, in its order: what it reads and makes,
/// what its backward reads, how it is called again. Or every activation is registered by itself, with
/// its shape and the backward stages that read it; if forward can produce it again, with a
/// callable; if it may be kept encoded, with the codecs. Either is a Graph like any other, so
/// plan, schedule and layout are those of every other step.
///
/// Stages are the trainer's own units of backward (its layers, say), numbered from 0; backward runs
/// them from the highest to the lowest. All that a stage reads is in memory together, beside the
/// bytes that it needs for itself (stage_bytes) and the gradients that go from stage to stage (carry).
///
/// Forward's values are the trainer's own memory unless it has the arena hold() them: then they come
/// and go there, so that the budget is that of values, kept activations and a stage's gradients.
///
/// Activations that are registered alike (name, shape, codecs, the type of the callable and the
/// shapes that it reads) are copies of one, as those of a trainer's equal layers are: what is
/// measured and probed of one holds for all.
#pragma once

#include <array>
#include <cstddef>

#include "../core/cpu.hpp"
#include "../model/graph.hpp"
#include "../step/dispatch_table.hpp"
#include "kernel.hpp"
#include "registry.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float, class Context = Cpu>
class StashModel {
 public:
  static constexpr int most_stages = 1 << 20;
  /// An error that is yet to be probed.
  static constexpr double unknown = -1;

  /// Describes the next call of a kernel in forward, which makes `outputs` activations; their ids, an
  /// array of them if there are several. `again` makes them once more, as the callable of recompute()
  /// does, or of recompute_together() if there are several: its sources are what `call` reads, in that
  /// order. It must outlive all that is made of the model.
  ///
  ///     const auto [n, rstd] = model.kernel<2>({.reads = {h},
  ///                                             .writes = {{"n", shape}, {"rstd", Shape(rows)}},
  ///                                             .backward_reads = {h, "rstd"}}, make_norm);
  ///
  /// Backward's stages and who reads what in them follow; stage_of(id) is the stage of the kernel that
  /// makes `id`. Refused, by graph(), is a kernel that reads what none before it makes, one whose
  /// backward would run behind that of what it reads, and an output that nobody reads and that is
  /// not held either. What add() and others say of single activations may be mixed with that.
  template <std::size_t outputs = 1, class Function>
  constexpr auto kernel(const StashKernel<StashModel>& call, const Function& again) {
    const int first = describe(call, outputs, true);
    if constexpr (outputs == 1) {
      if (!error_) recompute(first, call.reads, again, call.needs);
    } else {
      if (!error_) recompute_together(from(first, outputs), call.reads, again, call.needs);
    }
    return ids_of<outputs>(first);
  }
  template <std::size_t outputs = 1, class Function>
  constexpr auto kernel(const StashKernel<StashModel>&, const Function&&) = delete;

  /// The same if nothing makes them again: an input, a kernel that is too expensive. Or if it makes
  /// nothing that backward wants, as a loss; then what is returned is no id.
  template <std::size_t outputs = 1>
  constexpr auto kernel(const StashKernel<StashModel>& call) {
    return ids_of<outputs>(
        describe(call, outputs == 1 && call.writes.empty() ? 0 : outputs, false));
  }

  /// The same for any number of outputs, made again by a callable whose type is erased already, or not
  /// at all if how.call is null; the id of the first of them.
  constexpr int kernel_by(const StashKernel<StashModel>& call, const StashRecompute<T>& how) {
    const int first = describe(call, call.writes.size(), how.call != nullptr);
    if (!error_ && how.call != nullptr)
      recompute_by(from(first, call.writes.size()), call.reads, how, call.needs);
    return first;
  }

  /// The backward stage of the kernel that makes activation `id`; -1 if no kernel does.
  constexpr int stage_of(int id) const {
    return id >= 0 && id < activation_count() ? entry(id).stage : -1;
  }

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
  /// all that is made of the model. stash/check.hpp checks all of that.
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
    if (bytes > most_tensor_bytes)
      return fail("a stage has more bytes for itself than can be addressed");
    if (stage >= registry_.stages) registry_.stages = stage + 1;
    while (registry_.stage_bytes.size() < static_cast<std::size_t>(registry_.stages))
      registry_.stage_bytes.push_back(0);
    registry_.stage_bytes[static_cast<std::size_t>(stage)] = bytes;
  }

  /// A gradient of T that backward hands on from stage to stage, as that of a residual stream, lies in the
  /// arena from stage `first_stage`, whose backward is the first to write to it, to `last_stage`, the last
  /// to read it: Stash::carried() says where. Backward runs from the highest stage to the lowest, so
  /// `first_stage` is the higher number, or they are one. Its id; these count from 0 by themselves. `name`
  /// must outlive all that is made of the model. As with stage_bytes(), stages up to `first_stage` are
  /// there from then on: kernels that have a stage of their own come before.
  constexpr int carry(const char* name, Shape shape, int first_stage, int last_stage) {
    return carry({name, shape, bytes_of(dtype_of<T>), first_stage, last_stage});
  }

  /// The same for bytes of anything, such as gradients of another type: Stash::carried_bytes().
  constexpr int carry(const char* name, StashBytes bytes, int first_stage, int last_stage) {
    return carry({name, Shape(bytes.count), 1, first_stage, last_stage});
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

  /// Memory of the trainer's that no callable may change when it runs again, such as running means: a CheckedStash
  /// looks at it around every recomputation. `name` and the memory must outlive all that is made of the model.
  constexpr void watch(const char* name, ConstBytes memory) { watched_.push_back({name, memory}); }
  struct Watched {
    const char* name = "";
    ConstBytes memory;
  };
  constexpr const Array<Watched>& watched() const { return watched_; }

  /// Takes the choice from the planner.
  constexpr void fix(int id, Policy policy) {
    if (known(id)) entry(id).policy = policy;
  }

  /// The graph: one node per activation and, behind them, one without output per backward stage.
  /// Fails at the first registration that makes no sense.
  constexpr Result<Graph> graph() const {
    if (error_) return Error::misuse(error_.text());
    if (activation_count() == 0) return Error::misuse("the stash has no activations");
    for (int id = 0; id < activation_count(); ++id)
      if (const Entry& of = entry(id); of.stage >= 0 && !of.read && !of.held && of.stages.empty())
        return Error::misuse(
            "activation ", id, " (", of.name,
            ") is read by no kernel and by the backward of none: leave it out of what "
            "its kernel writes, or say who reads it");
    Graph graph = registry_.graph();
    if (const Error why = examine(graph)) return Error::misuse(why.text());
    graph.fingerprint = fingerprint_of(graph);
    return graph;
  }

  /// What was wrong with the first registration that made no sense; graph() says so, too.
  constexpr const Error& error() const { return error_; }

  constexpr int activation_count() const { return registry_.count(); }

  /// What carry() was told.
  constexpr const Array<detail::StashCarried>& carried() const { return registry_.carried; }

  /// Whether activation `id` was registered as bytes.
  constexpr bool is_raw(int id) const { return entry(id).elem_bytes == 1; }

  /// What was said of the gradient error of `codec`: `unknown` if that is yet to be probed, 0
  /// if the codec was not allowed.
  constexpr double error_of(int id, const CodecInfo* codec) const {
    for (const detail::StashAllowed& allowed : entry(id).codecs)
      if (allowed.codec == codec) return allowed.error;
    return 0;
  }

  /// How activation `id` is made again, and what that takes: of those that are made together, as
  /// the first one is.
  constexpr const StashRecompute<T>& recompute_of(int id) const { return maker(id).recompute; }
  constexpr const RecomputeNeeds& needs_of(int id) const { return maker(id).needs; }
  constexpr const Dispatch<T, Context>& dispatch() const { return dispatch_; }

 private:
  using Entry = detail::StashActivation<T>;

  /// A kernel in errors: its number, and what it makes first.
  struct KernelName {
    int number;
    const char* makes;
    constexpr void append_to(Error& error) const {
      error.append("kernel ");
      error.append(number);
      for (const char* piece : {*makes == '\0' ? "" : " (", makes, *makes == '\0' ? "" : ")"})
        error.append(piece);
    }
  };

  constexpr Entry& entry(int id) { return registry_.activations[static_cast<std::size_t>(id)]; }
  constexpr const Entry& entry(int id) const { return registry_.activation(id); }
  constexpr const Entry& maker(int id) const { return registry_.maker(id); }

  constexpr int add(const char* name, Shape shape, std::size_t elem_bytes,
                    const StashList& stages) {
    const int id = activation_count();
    Entry entry;
    entry.name = name;
    entry.shape = shape;
    entry.elem_bytes = elem_bytes;
    entry.stages = stages.numbers();
    registry_.activations.push_back(entry);
    std::size_t bytes = 0;
    if (shape.elems() == 0 || !multiply(shape.elems(), elem_bytes, bytes) ||
        bytes > most_tensor_bytes)
      fail(id, "has no elements, or too many to address");
    for (const int stage : stages.numbers()) {
      if (stage < 0 || stage >= most_stages) {
        fail(id, "is read by a stage whose number is negative, or a million and more");
        break;
      }
      if (stage >= registry_.stages) registry_.stages = stage + 1;
    }
    return id;
  }

  constexpr int carry(const detail::StashCarried& said) {
    const auto refuse = [&](const auto&... why) {
      if (!error_)
        error_ = Error::say("the gradient that stages carry as ", said.name, " ", why...);
    };
    std::size_t bytes = 0;
    if (said.shape.elems() == 0 || !multiply(said.shape.elems(), said.elem_bytes, bytes) ||
        bytes > most_tensor_bytes)
      refuse("has no elements, or too many to address");
    if (said.last_stage < 0 || said.first_stage < 0 || said.first_stage >= most_stages)
      refuse("goes from stage ", said.first_stage, " to stage ", said.last_stage,
             ": one of them is negative, or a million and more");
    else if (said.first_stage < said.last_stage)
      refuse("goes from stage ", said.first_stage, " to stage ", said.last_stage,
             ", and backward runs from the highest number to the lowest: its first stage is the "
             "higher one");
    else if (said.first_stage >= registry_.stages) registry_.stages = said.first_stage + 1;
    registry_.carried.push_back(said);
    return static_cast<int>(registry_.carried.size()) - 1;
  }

  static constexpr StashList from(int first, std::size_t count) {
    Array<int> ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(first + static_cast<int>(i));
    return {ids.data(), ids.size()};
  }
  template <std::size_t count>
  static constexpr auto ids_of(int first) {
    if constexpr (count == 1) {
      return first;
    } else {
      std::array<int, count> ids{};
      for (std::size_t i = 0; i < count; ++i) ids[i] = first + static_cast<int>(i);
      return ids;
    }
  }

  /// All of `call` but how it is made again; the id of its first output, -1 if there is none.
  constexpr int describe(const StashKernel<StashModel>& call, std::size_t outputs, bool again) {
    const int first = activation_count();
    const int stage =
        call.stage == StashKernel<StashModel>::own_stage ? registry_.stages : call.stage;
    const KernelName name{kernels_++, *call.name != '\0'    ? call.name
                                      : call.writes.empty() ? ""
                                                            : call.writes[0].name};
    if (stage < 0 || stage >= most_stages)
      fail(name, "has a stage whose number is negative, or a million and more");
    else if (stage >= registry_.stages) registry_.stages = stage + 1;
    if (*call.name != '\0' && stage >= 0 && stage < most_stages) {
      while (registry_.stage_names.size() <= static_cast<std::size_t>(stage))
        registry_.stage_names.push_back("");
      const char*& of_stage = registry_.stage_names[static_cast<std::size_t>(stage)];
      if (*of_stage == '\0') of_stage = call.name;
    }
    for (const StashOutput<StashModel>& output : call.writes) describe(output, call, stage);
    if (call.writes.size() != outputs)
      fail(name, "writes ", call.writes.size(), " activations, and kernel<", outputs,
           "> is to return the ids of ", outputs);
    if (call.writes.empty() && again) fail(name, "can be called again, and writes nothing");
    if (call.writes.empty() && call.reads.numbers().empty() && call.backward_reads.empty() &&
        call.backward_bytes == 0)
      fail(name, "reads and writes nothing, nor does its backward");
    for (const int id : call.reads.numbers()) {
      if (id < 0 || id >= first) {
        fail(name, "reads activation ", id, ", which no kernel before it makes: they made ", first);
        break;
      }
      entry(id).read = true;
      if (entry(id).stage > stage)
        fail(name, "has its backward in stage ", stage, ", and that of what it reads, activation ",
             id, " (", entry(id).name, "), is in stage ", entry(id).stage,
             ", which runs before: stages go from the highest number to the lowest");
      if (!again)
        for (std::size_t i = 0; i < call.writes.size(); ++i)
          entry(first + static_cast<int>(i)).sources.push_back(id);
    }
    // One call makes all of them: their places are there together, whether it can be called again or not.
    for (std::size_t i = 1; !again && i < call.writes.size(); ++i)
      entry(first + static_cast<int>(i)).made_by = first;
    for (const StashRead& read : call.backward_reads) {
      const int id = resolve(read, call, first, name);
      if (id < 0) break;
      entry(id).stages.push_back(stage);
    }
    if (call.backward_bytes > 0) add_stage_bytes(stage, call.backward_bytes);
    return call.writes.empty() ? -1 : first;
  }

  constexpr void describe(const StashOutput<StashModel>& output,
                          const StashKernel<StashModel>& call, int stage) {
    const int id = output.shape.rank() == 0 ? add_bytes(output.name, output.bytes.count, {})
                                            : add(output.name, output.shape, {});
    entry(id).stage = stage < 0 ? 0 : stage;
    entry(id).held = call.hold;
    for (const StashCodec<StashModel>& codec : output.codecs) codec.allow(*this, id, codec);
  }

  /// The id of what the backward of a kernel reads whose first output is `first`; -1 if there is none.
  constexpr int resolve(const StashRead& read, const StashKernel<StashModel>& call, int first,
                        const KernelName& name) {
    const int outputs = static_cast<int>(call.writes.size());
    if (read.name == nullptr && read.output < 0) {
      if (read.id >= 0 && read.id < first) return read.id;
      fail(name, "reads activation ", read.id,
           " in its backward, which no kernel before it makes: ", "they made ", first,
           ", and its own outputs have no ids yet");
      return -1;
    }
    int found = read.output < outputs ? read.output : -1, times = found < 0 ? 0 : 1;
    for (int i = 0; read.name != nullptr && i < outputs; ++i)
      if (__builtin_strcmp(call.writes[static_cast<std::size_t>(i)].name, read.name) == 0)
        found = i, ++times;
    if (times == 1) return first + found;
    if (read.name == nullptr) fail(name, "has no output ", read.output, ": it writes ", outputs);
    else
      fail(name, "has ", times == 0 ? "no output" : "several outputs", " called ", read.name,
           ", which its backward is to read");
    return -1;
  }

  constexpr void add_stage_bytes(int stage, std::size_t bytes) {
    const auto s = static_cast<std::size_t>(stage);
    const std::size_t before =
        stage >= 0 && s < registry_.stage_bytes.size() ? registry_.stage_bytes[s] : 0;
    stage_bytes(stage, bytes > static_cast<std::size_t>(-1) - before ? bytes : before + bytes);
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
    for (const int source : sources.numbers()) entry(source).read = true;
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

  constexpr bool known(int id) {
    if (id >= 0 && id < activation_count()) return true;
    if (!error_) error_ = Error::say("the stash has no activation ", id, " to say more about");
    return false;
  }

  template <class... Pieces>
  constexpr void fail(const KernelName& name, const Pieces&... why) {
    if (!error_) error_ = Error::say(name, " ", why...);
  }
  constexpr void fail(const char* why) {
    if (!error_) error_ = Error::say(why);
  }
  constexpr void fail(int id, const char* why) {
    if (!error_) error_ = Error::say("activation ", id, " (", entry(id).name, ") ", why);
  }

  detail::StashRegistry<T> registry_;
  int kernels_ = 0;
  Array<Watched> watched_;
  Dispatch<T, Context> dispatch_;  ///< its codecs alone
  Error error_;
};

}}  // namespace adacc::v0_1
