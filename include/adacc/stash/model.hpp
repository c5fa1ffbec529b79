// SPDX-License-Identifier: MIT
/// A trainer written by hand describes its activations; a graph follows from the description.
///
/// For trainers with kernels and a training loop of their own, without layers and combinators. Each
/// kernel() called by forward is described, in order: the activations read and made, the activations
/// read by backward, the callable for recomputing. The result is a Graph like any other, so plan,
/// schedule and layout are those of every other step. A Tape (stash/tape.hpp) describes its kernels here.
///
/// Beneath kernel() are single calls (stash/single_calls.hpp), for backwards whose stages are no groups of kernels.
///
/// Backward stages are the trainer's own units (its layers, say), numbered from 0; backward runs them
/// from the highest to the lowest. All activations of a stage are in memory together, beside the
/// stage's own bytes (stage_bytes) and the gradients carried from stage to stage (carry).
///
/// Forward's values are the trainer's own memory unless hold() puts them into the arena: then they
/// come and go there, and the budget covers values, kept activations and a stage's gradients.
///
/// Activations registered alike (name, shape, codecs, type of the callable and shapes of sources) are
/// copies of one, like the activations of a trainer's equal layers: measurements and probes of one
/// hold for all.
#pragma once

#include <cstddef>

#include "../core/cpu.hpp"
#include "../model/graph.hpp"
#include "../step/dispatch_table.hpp"
#include "kernel.hpp"
#include "registry.hpp"
#include "single_calls.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float, class Context = Cpu>
class StashModel : public StashSingleCalls<T, Context> {
  using Calls = StashSingleCalls<T, Context>;
  using Calls::add_raw;
  using Calls::add_stage_bytes;
  using Calls::check_sources;
  using Calls::dispatch_;
  using Calls::entry;
  using Calls::error_;
  using Calls::fail;
  using Calls::known;
  using Calls::maker;
  using Calls::registry_;
  using typename Calls::Entry;

 public:
  using Calls::activation_count;
  using Calls::add;
  using Calls::add_bytes;
  using Calls::most_stages;
  using Calls::recompute;
  using Calls::recompute_by;
  using Calls::recompute_together;

  /// Describes the next call of a kernel in forward, which makes `outputs` activations, and returns
  /// their ids, as an array if there are several. `again` makes them once more, like the callable of
  /// recompute(), or of recompute_together() if there are several, from `call.reads`, in this order,
  /// and must outlive everything made of the model.
  ///
  ///     const auto [n, rstd] = model.kernel<2>({.reads = {h},
  ///                                             .writes = {{"n", shape}, {"rstd", Shape(rows)}},
  ///                                             .backward_reads = {h, "rstd"}}, make_norm);
  ///
  /// Backward stages and their reads follow; stage_of(id) is the stage of the kernel that makes `id`.
  /// graph() refuses a kernel that reads an activation made by no kernel before, a kernel whose
  /// backward would run behind that of a source, and an output neither read nor held. Single calls may
  /// be mixed with kernel().
  template <std::size_t outputs = 1, class Function>
  constexpr auto kernel(const StashKernel<StashModel>& call, const Function& again) {
    const int first = describe(call, outputs, true);
    if constexpr (outputs == 1) {
      if (!error_) recompute(first, call.reads, again, call.needs);
    } else {
      if (!error_) recompute_together(from(first, outputs), call.reads, again, call.needs);
    }
    return detail::ids_from<outputs>(first);
  }
  template <std::size_t outputs = 1, class Function>
  constexpr auto kernel(const StashKernel<StashModel>&, const Function&&) = delete;

  /// Describes a kernel that never runs again: an input, or one too expensive. Or a kernel without
  /// outputs for backward, such as a loss; the result is then no id.
  template <std::size_t outputs = 1>
  constexpr auto kernel(const StashKernel<StashModel>& call) {
    return detail::ids_from<outputs>(
        describe(call, outputs == 1 && call.writes.empty() ? 0 : outputs, false));
  }

  /// Describes a kernel with any number of outputs, and a callable of erased type; how.call may be
  /// null for a kernel that never runs again. Returns the id of the first output.
  constexpr int kernel_by(const StashKernel<StashModel>& call, const StashRecompute<T>& how) {
    const int first = describe(call, call.writes.size(), how.call != nullptr);
    if (!error_ && how.call != nullptr)
      recompute_by(from(first, call.writes.size()), call.reads, how, call.needs);
    return first;
  }

  /// The backward stage of the kernel for activation `id`; -1 if there is no such kernel.
  constexpr int stage_of(int id) const {
    return id >= 0 && id < activation_count() ? entry(id).stage : -1;
  }

  /// A gradient of T carried from stage to stage, such as a residual stream's; the id, counted from 0. Its
  /// place in the arena, between the two stages, is Stash::carried().
  ///   - `name`: must outlive everything made of the model
  ///   - `from_backward_of`: the first to write; the higher number, since backward counts down, or the same
  ///   - `to_backward_of`: the last to read
  /// Stages up to `from_backward_of` exist from then on (see stage_bytes()): kernels with own stages come before.
  constexpr int carry(const char* name, Shape shape, int from_backward_of, int to_backward_of) {
    return carry({name, shape, bytes_of(dtype_of<T>), from_backward_of, to_backward_of});
  }

  /// A carried gradient of bytes of anything, such as another type: Stash::carried_bytes() says where.
  constexpr int carry(const char* name, StashBytes bytes, int from_backward_of,
                      int to_backward_of) {
    return carry({name, Shape(bytes.count), 1, from_backward_of, to_backward_of});
  }

  /// Memory of the trainer not to be changed by recomputations, such as running means: a CheckedStash looks
  /// at it around each. `name` and the memory must outlive everything made of the model.
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
  /// Fails at the first registration without sense.
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

  /// The fault of the first registration without sense; graph() returns it, too.
  constexpr const Error& error() const { return error_; }

  /// The gradients of carry().
  constexpr const Array<detail::StashCarried>& carried() const { return registry_.carried; }

  /// Whether activation `id` was registered as bytes, or as elements of another type than T.
  constexpr bool is_raw(int id) const { return entry(id).raw; }

  /// The gradient error given for `codec`: `unknown` if yet to be probed, 0 if the codec is not
  /// allowed.
  constexpr double error_of(int id, const CodecInfo* codec) const {
    for (const detail::StashAllowed& allowed : entry(id).codecs)
      if (allowed.codec == codec) return allowed.error;
    return 0;
  }

  /// The callable for activation `id`, and the needs; activations made together have those of the
  /// first.
  constexpr const StashRecompute<T>& recompute_of(int id) const { return maker(id).recompute; }
  constexpr const RecomputeNeeds& needs_of(int id) const { return maker(id).needs; }
  constexpr const Dispatch<T, Context>& dispatch() const { return dispatch_; }

 private:
  /// A kernel in errors: number, and first output.
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
  /// Describes `call` except for recomputation; the id of the first output, -1 if there is none.
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
    if (*call.name == '\0' && call.writes.empty() && call.reads.numbers().empty() &&
        call.backward_reads.empty() && call.backward_bytes == 0)
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
    // One call makes all outputs: their places are there together, rerun or not.
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
                   : output.elem_bytes != 0
                       ? add_raw(output.name, output.shape, output.elem_bytes, {})
                       : add(output.name, output.shape, {});
    entry(id).stage = stage < 0 ? 0 : stage;
    entry(id).held = call.hold;
    for (const StashCodec<StashModel>& codec : output.codecs) codec.allow(*this, id, codec);
  }

  /// The id behind `read`, for the backward of a kernel with first output `first`; -1 if there is none.
  constexpr int resolve(const StashRead& read, const StashKernel<StashModel>& call, int first,
                        const KernelName& name) {
    if (read.name == nullptr && read.output < 0) {
      if (read.id >= 0 && read.id < first) return read.id;
      fail(name, "reads activation ", read.id,
           " in its backward, which no kernel before it makes: ", "they made ", first,
           ", and its own outputs have no ids yet");
      return -1;
    }
    const int found = output_number(
        read, call.writes, [](const StashOutput<StashModel>& output) { return output.name; });
    if (found >= 0) return first + found;
    if (read.name == nullptr)
      fail(name, "has no output ", read.output, ": it writes ", call.writes.size());
    else
      fail(name, "has ", found == -1 ? "no output" : "several outputs", " called ", read.name,
           ", which its backward is to read");
    return -1;
  }

  template <class... Pieces>
  constexpr void fail(const KernelName& name, const Pieces&... why) {
    if (!error_) error_ = Error::say(name, " ", why...);
  }
  int kernels_ = 0;
  Array<Watched> watched_;
};

}}  // namespace adacc::v0_1
