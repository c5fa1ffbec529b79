// SPDX-License-Identifier: MIT
/// Single calls about activations of a stash: details beneath StashModel::kernel(), which makes these calls.
///
/// A backward whose stages are no groups of kernels is described by them: add() registers an activation with a shape
/// and backward stages, recompute() has a callable by which forward can make the activation again, allow() a codec
/// that may keep the activation encoded. A Tape (stash/tape.hpp) needs none of them.
#pragma once

#include <cstddef>

#include "../core/cpu.hpp"
#include "../model/graph.hpp"
#include "../step/dispatch_table.hpp"
#include "kernel.hpp"
#include "registry.hpp"

namespace adacc { inline namespace v0_1 {

/// The part of a StashModel that registers single activations. Errors are kept until StashModel::graph().
template <class T, class Context>
class StashSingleCalls {
 public:
  static constexpr int most_stages = 1 << 20;
  /// A gradient error yet to be probed.
  static constexpr double unknown = -1;

  /// Registers an activation of T, read by the backward stages `stages`; the id. Ids count from 0.
  /// `name` must outlive everything made of the model.
  constexpr int add(const char* name, Shape shape, const StashList& stages) {
    return add_elements(name, shape, bytes_of(dtype_of<T>), stages);
  }

  /// Registers `bytes` of anything, such as masks or indices, which no codec takes. Callables get
  /// them as a view of T over the same memory.
  constexpr int add_bytes(const char* name, std::size_t bytes, const StashList& stages) {
    return add_raw(name, Shape(bytes), 1, stages);
  }

  /// Activation `id` can be produced again by function(sources, y), or function(sources, y, Bytes workspace):
  ///   - `sources`: a `const View<const T>*` to the activations named here, in order
  ///   - `y`: of the registered shape, written whole, with the bits of forward
  /// The callable runs during backward, in any order of activations. Captured memory may be read if nobody
  /// changes it before backward is over. The callable must outlive everything made of the model.
  /// stash/check.hpp checks all of this.
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

  /// Several activations, registered one after the other, can be produced by one call:
  /// function(sources, outputs) writes all of them, outputs[i] for ids[i]. Each has a policy of its
  /// own; unwanted outputs are written to scratch.
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

  /// One or several activations can be produced by a callable of erased type:
  /// how.call(how.function, sources, outputs, workspace) makes `ids`.
  constexpr void recompute_by(const StashList& ids, const StashList& sources,
                              const StashRecompute<T>& how, const RecomputeNeeds& needs = {}) {
    set_recompute(ids, sources, how, needs, true);
  }

  /// Forward's value of activation `id` lies in the arena, from before the put until the put of
  /// every activation made from it: Stash::place() says where. Outputs of one callable may be held
  /// one by one.
  constexpr void hold(int id) {
    if (known(id)) entry(id).held = true;
  }

  /// Forward makes activation `id`, which is never recomputed, from `sources`. Needed for each
  /// activation made from held ones, unless recompute() has the sources.
  constexpr void made_from(int id, const StashList& sources) {
    if (!known(id)) return;
    if (!entry(id).sources.empty() || maker(id).recompute.call != nullptr)
      return fail(id, "has its sources listed twice");
    if (check_sources(id, sources)) entry(id).sources = sources.numbers();
  }

  /// Backward stage `stage` needs `bytes` of the arena for itself during the stage, for gradients and
  /// scratch: Stash::backward_workspace() is where. A caller with memory elsewhere may call this, too: then
  /// the budget covers that memory.
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

  /// Activation `id` may be kept encoded by `Codec`. The gradient error of a lossy codec is yet to
  /// be probed (stash/probe.hpp); an estimate stands in until then.
  template <class Codec>
  constexpr void allow(int id) {
    allow_codec<Codec>(id, codec_info<Codec>.lossless ? 0 : unknown);
  }

  /// Activation `id` may be kept encoded by `Codec`, at a known gradient error, relative and squared,
  /// E|g' - g|^2 / |g|^2 (docs/planning.md), for a backward that reads it decoded, or makes others from it.
  template <class Codec>
  constexpr void allow(int id, double error) {
    if (!known(id)) return;
    if (!(error >= 0)) return fail(id, "has a codec whose gradient error is negative, or NaN");
    if (error == 0 && !codec_info<Codec>.lossless)
      return fail(id, "has a lossy codec without a gradient error: leave out what is to be probed");
    allow_codec<Codec>(id, error);
  }

  constexpr int activation_count() const { return registry_.count(); }

 protected:
  using Entry = detail::StashActivation<T>;

  constexpr Entry& entry(int id) { return registry_.activations[static_cast<std::size_t>(id)]; }
  constexpr const Entry& entry(int id) const { return registry_.activation(id); }
  constexpr const Entry& maker(int id) const { return registry_.maker(id); }

  constexpr int add_elements(const char* name, Shape shape, std::size_t elem_bytes,
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

  constexpr int add_raw(const char* name, Shape shape, std::size_t elem_bytes,
                        const StashList& stages) {
    const int id = add_elements(name, shape, elem_bytes, stages);
    entry(id).raw = true;
    return id;
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
    Entry& activation = entry(id);
    if (activation.raw) return fail(id, "was registered as bytes, which no codec takes");
    const std::size_t bytes =
        info->encoded_bytes(activation.shape.rows(), activation.shape.cols(), dtype_of<T>);
    if (bytes == 0 || bytes >= activation.shape.elems() * activation.elem_bytes)
      return;  // saves nothing
    dispatch_.template add_codec<Codec>();
    activation.codecs.push_back({info, error});
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

  detail::StashRegistry<T> registry_;
  Dispatch<T, Context> dispatch_;  ///< has codecs alone
  Error error_;
};

}}  // namespace adacc::v0_1
