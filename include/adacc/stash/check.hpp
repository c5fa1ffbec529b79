// SPDX-License-Identifier: MIT
/// A stash with checks of the trainer's use of it, and of the callables, as they run.
///
/// A drop-in for Stash (stash/stash.hpp), for tests and for the first steps of a new trainer. It copies every
/// activation of forward: it takes the memory of all of them, and allocates. Under any plan, it finds
///
///   - callables without forward's bits: when all is put, once forward is over and its memory has been used
///     for other layers, and at the last stage that may want them. The reason may be other arithmetic (an
///     inlined copy, contracted or vectorized otherwise by the compiler), a source not listed, captured
///     scratch, parameters updated too early;
///   - callables changing memory in watch() of the model, such as running means;
///   - callables with unwritten outputs, with results from old contents of memory, or with writes to their
///     sources, or beyond outputs and workspace;
///   - backward keeping a pointer for longer than a stage: memory from get() turns to NaN (bytes of 0xFF) as
///     soon as the stage is left or the next one is entered, and is searched for late writes. So are a
///     stage's memory, carried gradients once their last stage is over, and held values once all activations
///     made from them are put;
///   - backward writing to memory given to read, or beyond a stage's memory or carried gradients, and forward
///     writing beyond a place.
///
/// Each is a misuse (Error::misuse) in the words of the activation, returned by the first call to
/// notice. check_stash() runs a whole step under two plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../codec/float_bits.hpp"
#include "../core/guarded.hpp"
#include "compare_steps.hpp"
#include "last_runs.hpp"
#include "stash.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

template <class T = float, class Context = Cpu>
class CheckedStash {
  static_assert(!adacc::context_traits<Context>::own_memory,
                "adacc: a CheckedStash reads and keeps values in the host's memory; on a device, "
                "compare_steps() finds such mistakes (stash/compare_steps.hpp)");

 public:
  CheckedStash() = default;

  /// A CheckedStash for `model` under `plan`. The model's callables must outlive the stash.
  static Result<CheckedStash> make(const StashModel<T, Context>& model, Plan plan) {
    Result<Stash<T, Context>> stash = Stash<T, Context>::make(model, static_cast<Plan&&>(plan));
    if (!stash) return stash.error;
    CheckedStash checked;
    checked.stash_ = static_cast<Stash<T, Context>&&>(*stash);
    const Graph& graph = checked.graph();
    for (int id = 0; id < model.activation_count(); ++id) {
      checked.copies_.emplace_back(graph.node(id).output_bytes);
      Copies& copy = checked.copies_.back();
      copy.raw = model.is_raw(id);
      copy.recompute = model.recompute_of(id);
    }
    for (const adacc::detail::StashCarried& said : model.carried())
      checked.carried_.push_back({said, GuardedBlock(said.bytes(), poison)});
    for (const auto& watched : model.watched())
      checked.watched_.push_back({watched.name, watched.memory});
    checked.last_runs_ = adacc::detail::last_runs(graph, model.activation_count());
    for (int k = 0; k < graph.node_count(); ++k)
      for (const int source : graph.sources(k)) checked.copies(source).last_forward_reader = k;
    return static_cast<CheckedStash&&>(checked);
  }

  const Program& program() const { return stash_.program(); }
  const Graph& graph() const { return stash_.graph(); }
  const Plan& plan() const { return stash_.plan(); }
  std::size_t arena_bytes() const { return stash_.arena_bytes(); }

  std::size_t store_bytes() const { return stash_.store_bytes(); }
  Error bind(Bytes arena, StoreRef store = {}) { return stash_.bind(arena, store); }
  void poison_dead(bool fill) { stash_.poison_dead(fill); }

  Error begin(Context& context) {
    if (const Error why = end()) return why;
    if (const Error why = stash_.begin(context)) return why;
    for (Copies& copies : copies_) copies.is_placed = copies.is_given = copies.is_taken = false;
    entered_ = false;
    next_ = 0;
    made_ = activations();
    begun_ = true;
    entered_stages_.assign(static_cast<std::size_t>(graph().node_count() - activations()), false);
    return {};
  }

  /// Memory apart from the arena, to find writes beyond the place.
  View<T> place(int id, View<T> scratch) {
    if (stash_.place(id, scratch).data() == scratch.data()) return scratch;
    return values(id, hand_out(id));
  }
  Bytes place_bytes(int id, Bytes scratch) {
    if (stash_.place_bytes(id, scratch).data() == scratch.data()) return scratch;
    return hand_out(id).bytes();
  }

  Bytes workspace(int id) const { return stash_.workspace(id); }

  Error put(int id, View<const T> value) {
    if (const Error why = check_place(id)) return why;
    if (const Error why = stash_.put(id, value)) return why;
    return keep(id, value.data());
  }
  Error put_bytes(int id, ConstBytes value) {
    if (const Error why = check_place(id)) return why;
    if (const Error why = stash_.put_bytes(id, value)) return why;
    return keep(id, value.data());
  }

  Error stop_forward() {
    if (const Error why = stash_.stop_forward()) return why;
    made_ = next_;
    return {};
  }

  Error enter(int stage) {
    if (const Error why = check_stage_memory()) return why;
    if (entered_ && stage == stage_) return stash_.enter(stage);
    if (const Error why = stash_.enter(stage)) return why;
    end_stage();
    end_carried(stage);
    if (const Error why = check_callables(stage)) return why;
    entered_ = true;
    stage_ = stage;
    entered_stages_[static_cast<std::size_t>(stage)] = true;
    for (const int id : graph().backward_reads(activations() + stage)) {
      if (!program().exact[static_cast<std::size_t>(id)]) continue;
      const Result<ConstBytes> got = stash_.get_bytes(id);
      if (!got) return got.error;
      if (const std::size_t e = difference(id, got->data()); e < copies(id).forward.size())
        return Error::misuse(stage_name(stage), " would read ", name(id), " with byte ", e,
                             " other than forward put it");
    }
    stage_memory_ = GuardedBlock(graph().node(activations() + stage).backward_workspace, poison);
    return {};
  }

  Error leave(int stage) {
    if (const Error why = check_stage_memory()) return why;
    if (const Error why = stash_.leave(stage)) return why;
    end_stage();
    end_carried(stage - 1);
    return {};
  }

  Result<Bytes> backward_workspace() {
    const Result<Bytes> memory = stash_.backward_workspace();
    return memory ? Result<Bytes>(stage_memory_.bytes()) : memory;
  }

  /// Memory apart from the arena, valid until the last stage of the gradient ends.
  Result<View<T>> carried(int id) {
    const Result<View<T>> there = stash_.carried(id);
    if (!there) return there.error;
    return View<T>(hand_on(id).template as<T>(), there->shape());
  }
  Result<Bytes> carried_bytes(int id) {
    const Result<Bytes> there = stash_.carried_bytes(id);
    if (!there) return there.error;
    return hand_on(id).bytes();
  }

  /// A copy of the activation, valid until the next enter(), begin() or end().
  Result<View<const T>> get(int id) {
    const Result<View<const T>> got = stash_.get(id);
    if (!got) return got.error;
    return View<const T>(values(id, give(id, got->data())));
  }
  Result<ConstBytes> get_bytes(int id) {
    const Result<ConstBytes> got = stash_.get_bytes(id);
    if (!got) return got.error;
    return static_cast<const GuardedBlock&>(give(id, got->data())).bytes();
  }

  /// A copy to be overwritten.
  Result<View<T>> take(int id) {
    const Result<View<T>> taken = stash_.take(id);
    if (!taken) return taken.error;
    const auto values_taken = values(id, give(id, taken->data()));
    copies(id).is_taken = true;
    return values_taken;
  }
  Result<Bytes> take_bytes(int id) {
    const Result<Bytes> taken = stash_.take_bytes(id);
    if (!taken) return taken.error;
    GuardedBlock& copy = give(id, taken->data());
    copies(id).is_taken = true;
    return copy.bytes();
  }

  /// Ends the step, and checks the last stage. begin() does so, too.
  Error end() {
    if (const Error why = check_stage_memory()) return why;
    end_stage();
    end_carried(-1);
    return stash_.end();
  }

  /// An error if the last step was not whole: with a put of every activation, and an enter() of each stage
  /// with reads.
  Error check_whole_step() const {
    if (!begun_) return Error::misuse("the step never called begin() of the stash");
    if (next_ < activations()) return Error::misuse("the step never put ", name(next_));
    for (std::size_t stage = entered_stages_.size(); stage-- > 0;) {
      const IdSpan reads = graph().backward_reads(activations() + static_cast<int>(stage));
      if (!entered_stages_[stage] && !reads.empty())
        return Error::misuse("the step never entered ", stage_name(static_cast<int>(stage)),
                             ", which reads ", name(reads[0]));
    }
    return {};
  }

 private:
  static constexpr unsigned char poison = 0xFF;

  struct Copies {
    explicit Copies(std::size_t bytes) : forward(bytes), placed(bytes), given(bytes, poison) {}

    GuardedBlock forward;  ///< values of put()
    GuardedBlock placed;   ///< memory from place()
    GuardedBlock given;    ///< memory from get(); poison afterwards
    bool is_placed = false;
    bool is_given = false;
    bool is_taken = false;  ///< backward may write to `given`
    bool raw = false;
    int last_forward_reader = -1;  ///< the last activation made from this one; -1: none
    StashRecompute<T> recompute;
  };

  /// A carried gradient.
  struct Carried {
    adacc::detail::StashCarried said;
    GuardedBlock memory;  ///< poison, except from carried() to the last stage
    bool is_given = false;
  };

  /// Memory of the trainer not to be changed by recomputations.
  struct Watched {
    const char* name = "";
    ConstBytes memory;
    std::uint64_t before = 0;  ///< the hash before a recomputation
  };

  int activations() const { return static_cast<int>(copies_.size()); }
  Copies& copies(int id) { return copies_[static_cast<std::size_t>(id)]; }
  const Copies& copies(int id) const { return copies_[static_cast<std::size_t>(id)]; }
  ActivationName name(int id) const { return {graph(), id}; }
  adacc::detail::StageName stage_name(int stage) const { return {graph(), activations(), stage}; }

  template <class Block>
  auto values(int id, Block& block) const {
    const Shape shape = graph().node(id).output;
    return View(block.template as<T>(),
                copies(id).raw ? Shape(graph().node(id).output_bytes / sizeof(T)) : shape);
  }

  // Forward.

  GuardedBlock& hand_out(int id) {
    Copies& copy = copies(id);
    if (!copy.is_placed) copy.placed.fill(poison);
    copy.is_placed = true;
    return copy.placed;
  }

  Error check_place(int id) const {
    if (id < 0 || id >= activations() || !copies(id).is_placed || copies(id).placed.intact())
      return {};
    return Error::misuse("forward wrote beyond the place of ", name(id), ", which has ",
                         copies(id).placed.size(), " bytes");
  }

  Error keep(int id, const void* from) {
    std::memcpy(copies(id).forward.data(), from, copies(id).forward.size());
    ++next_;
    for (int k = 0; k <= id; ++k) {
      Copies& copy = copies(k);
      if (graph().node(k).value_outside || !copy.is_placed || copy.last_forward_reader > id)
        continue;
      copy.placed.fill(poison);  // dead for forward
      copy.is_placed = false;
    }
    if (graph().made_with_next(id)) return {};
    return check_callable(graph().maker_of(id),
                          "right after forward made it: another arithmetic, a source that is not "
                          "listed, or one that forward has changed since");
  }

  // Callables.

  Error check_callables(int stage) {
    const char* late =
        "once forward is over: it reads memory that was used again, such as scratch that it "
        "captured, or an activation that is not listed";
    const char* later =
        "at the last stage that may want it: what it captured has changed while backward ran";
    for (int id = made_; id-- > 0;) {
      if (graph().maker_of(id) != id) continue;
      if (entered_ && last_runs_[static_cast<std::size_t>(id)] != stage) continue;
      if (const Error why = check_callable(id, entered_ ? later : late)) return why;
    }
    return {};
  }

  /// Runs the callable of activation `maker`, and those behind it, on copies.
  Error check_callable(int maker, const char* when) {
    const StashRecompute<T>& again = copies(maker).recompute;
    if (again.call == nullptr) return {};
    for (const unsigned char before : {poison, static_cast<unsigned char>(0x3F)}) {
      std::vector<GuardedBlock> inputs, results;
      std::vector<View<const T>> sources;
      std::vector<View<T>> outputs;
      for (const int source : graph().sources(maker)) {
        const GuardedBlock& forward = copies(source).forward;
        inputs.emplace_back(forward.size());
        std::memcpy(inputs.back().data(), forward.data(), forward.size());
        sources.push_back(values(source, inputs.back()));
      }
      for (int id = maker; id < activations() && graph().maker_of(id) == maker; ++id) {
        results.emplace_back(copies(id).forward.size(), before);
        outputs.push_back(values(id, results.back()));
      }
      GuardedBlock workspace(graph().node(maker).forward_workspace, before);
      for (Watched& watched : watched_) watched.before = hash_of(watched.memory);
      again.call(again.function, sources.data(), outputs.data(), workspace.bytes());
      for (const Watched& watched : watched_)
        if (hash_of(watched.memory) != watched.before)
          return Error::misuse("recomputing ", name(maker), " changes ", watched.name,
                               ", which forward changed already: this kernel can run once only");
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const int source = graph().sources(maker)[i];
        if (!inputs[i].intact() || !(inputs[i] == copies(source).forward))
          return Error::misuse("recomputing ", name(maker), " writes to ", name(source),
                               ", from which it is made");
      }
      if (!workspace.intact())
        return Error::misuse("recomputing ", name(maker), " writes beyond its workspace of ",
                             workspace.size(), " bytes");
      for (std::size_t i = 0; i < results.size(); ++i) {
        const int id = maker + static_cast<int>(i);
        if (!results[i].intact())
          return Error::misuse("recomputing ", name(maker), " writes beyond ", name(id),
                               ", which has ", results[i].size(), " bytes");
        const std::size_t e = difference(id, results[i].data());
        if (e >= results[i].size()) continue;
        if (before != poison)
          return Error::misuse("what recomputing ", name(maker), " gives in byte ", e, " of ",
                               name(id), " depends on what its memory held before");
        return Error::misuse("recomputing ", name(maker), " gives other bits than forward in byte ",
                             e, " of ", name(id), ", ", when);
      }
    }
    return {};
  }

  /// The first byte in which `data` differs from the values put as activation `id`; the size if none.
  std::size_t difference(int id, const std::byte* data) const {
    const GuardedBlock& forward = copies(id).forward;
    std::size_t e = 0;
    while (e < forward.size() && forward.data()[e] == data[e]) ++e;
    return e;
  }

  /// FNV-1a.
  static std::uint64_t hash_of(ConstBytes memory) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const std::byte byte : memory)
      hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211ULL;
    return hash;
  }

  // Backward.

  GuardedBlock& give(int id, const void* from) {
    Copies& copy = copies(id);
    if (!copy.is_given) std::memcpy(copy.given.data(), from, copy.given.size());
    copy.is_given = true;
    return copy.given;
  }

  /// Finds writes to memory given to read, to memory taken back, and beyond any memory handed out.
  Error check_stage_memory() {
    if (!stage_memory_.intact()) {
      stage_memory_ = GuardedBlock(0);
      return Error::misuse(stage_name(stage_), " wrote beyond the memory that it was said to ",
                           "need for itself");
    }
    for (Carried& gradient : carried_) {
      if (!gradient.memory.intact()) {
        gradient.memory = GuardedBlock(gradient.memory.size(), poison);
        gradient.is_given = false;
        return Error::misuse("backward wrote beyond ", gradient.said.name, ", which its stages ",
                             gradient.said.first_stage, " to ", gradient.said.last_stage,
                             " carry, and which has ", gradient.said.bytes(), " bytes");
      }
      if (gradient.is_given || is_poison(gradient.memory)) continue;
      gradient.memory.fill(poison);
      return Error::misuse(gradient.said.name, ", which backward stages ",
                           gradient.said.first_stage, " to ", gradient.said.last_stage,
                           " carry, was written to after the last of them was over, or before the "
                           "first of them asked for it");
    }
    for (int id = 0; id < activations(); ++id) {
      Copies& copy = copies(id);
      if (copy.is_placed && next_ > id && difference(id, copy.placed.data()) < copy.placed.size())
        return Error::misuse("forward wrote to the place of ", name(id), " after it was put");
      if (copy.is_given) {
        const Result<ConstBytes> got = stash_.get_bytes(id);
        if (!got) return got.error;
        const bool same =
            copy.is_taken || std::memcmp(copy.given.data(), got->data(), copy.given.size()) == 0;
        if (!copy.given.intact() || !same)
          return Error::misuse(stage_name(stage_), " wrote ", copy.is_taken ? "beyond " : "to ",
                               name(id),
                               copy.is_taken ? ", which it took" : ", which it was given to read");
      } else if (!copy.given.intact() || !is_poison(copy.given)) {
        copy.given.fill(poison);
        return Error::misuse(name(id), " was written to after the stage that had it was over");
      }
    }
    return {};
  }

  static bool is_poison(const GuardedBlock& block) {
    for (std::size_t i = 0; i < block.size(); ++i)
      if (block.data()[i] != std::byte{poison}) return false;
    return true;
  }

  /// Takes back all memory handed out.
  void end_stage() {
    for (Copies& copy : copies_) {
      if (copy.is_given) copy.given.fill(poison);
      if (copy.is_placed) copy.placed.fill(poison);
      copy.is_given = copy.is_placed = copy.is_taken = false;
    }
    stage_memory_.fill(poison);
  }

  GuardedBlock& hand_on(int id) {
    Carried& gradient = carried_[static_cast<std::size_t>(id)];
    gradient.is_given = true;
    return gradient.memory;
  }

  /// Takes back gradients carried by no stage from `stage` down.
  void end_carried(int stage) {
    for (Carried& gradient : carried_)
      if (gradient.is_given && gradient.said.last_stage > stage) {
        gradient.memory.fill(poison);
        gradient.is_given = false;
      }
  }

  Stash<T, Context> stash_;
  std::vector<Copies> copies_;
  Array<int> last_runs_;
  std::vector<Carried> carried_;
  std::vector<Watched> watched_;
  GuardedBlock stage_memory_{0};
  int next_ = 0;
  int made_ = 0;  ///< activations from this one on are not made in this step
  int stage_ = -1;
  bool begun_ = false;
  bool entered_ = false;
  std::vector<bool> entered_stages_;  ///< entered in the last step
};

/// Runs a trainer's step on a CheckedStash, under a plan to retain everything and a plan to recompute
/// everything recomputable, and compares the gradients, which must have the same bits. Returns the fault of
/// the step or of the callables in `model`; an empty error if there is none. The step must be whole: with
/// puts of all activations, and all stages that read any.
///
/// step(stash) is as for probe_stash(), for any type of stash: [&](auto& stash) { ... }.
template <class T, class Context, class TrainStep>
Error check_stash(const StashModel<T, Context>& model, const TrainStep& step) {
  const Result<Graph> graph = model.graph();
  if (!graph) return graph.error;
  using Gradients = adacc::detail::StepGradients<T>;
  const auto run = [&](const Plan& plan, Gradients& gradients) -> Error {
    auto stash = CheckedStash<T, Context>::make(model, plan);
    if (!stash) return stash.error;
    GuardedBlock block(stash->arena_bytes());
    if (const Error why = stash->bind(block.bytes())) return why;
    const Result<Array<View<const Wide<T>>>> parts = step(*stash);
    if (!parts) return parts.error;
    if (const Error why = stash->end()) return why;
    if (const Error why = stash->check_whole_step()) return why;
    if (!block.intact()) return Error::say("the stash wrote beyond its arena");
    gradients = Gradients(*parts);
    for (const View<const Wide<T>>& part : *parts)
      for (const Wide<T> value : part)
        if (!adacc::detail::is_number(value))
          return Error::misuse(
              "the gradients are not finite: backward reads what is NaN by now, because its stage "
              "is over, or forward does, or the step started from such values");
    return {};
  };
  const Plan retain = retain_all(*graph);
  Gradients first, second;
  if (const Error why = run(retain, first)) return why;
  if (const Error why = run(adacc::detail::recompute_all(*graph), second)) return why;
  if (first == second) return {};
  if (const Error why = run(retain, second)) return why;
  if (first != second) return adacc::detail::steps_differ();
  return Error::misuse(
      "recomputing changes the gradients, although all that backward was given has forward's "
      "bits: it reads something else, or keeps a pointer for longer than a stage");
}

}}}  // namespace adacc::v0_1::testing
