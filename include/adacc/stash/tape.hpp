// SPDX-License-Identifier: MIT
/// A trainer's kernels in the order of forward: the tape runs them, keeps or recomputes their outputs within a
/// budget, and has memory for gradients. Kernels and backward stay the trainer's own.
///
///     Tape<> tape;                                          // once
///     const int h = tape.kernel({.name = "gelu", .reads = {z}, .writes = {{"h", shape, grad}}, .saves = {z}},
///                               [](const TapeCall<float>& k) { gelu(k.in(0).data(), k.out(0).data()); });
///     tape.start(cpu, {.percent = 30}, step);               // stash/tape_start.hpp: measures, plans, takes memory
///
///     tape.begin(cpu);                                      // each step
///     tape.run();                                           // forward: the same callables as for recomputing
///     for (int k = tape.kernels(); k-- > 0;) {
///       tape.backward(k);                                   // activations that kernel k saves are back
///       gelu_backward(tape.value(z), tape.grad(h), tape.grad(z));
///     }
///     if (Error why = tape.end()) ...                       // the first error of the step
///
/// A Tape is a StashModel and an EvolvingStash (stash/stash.hpp) whose calls are made for the trainer. Forward's
/// values, kept activations, gradients and workspaces lie in one arena; plans without a loss give the bits of
/// a trainer without a tape. A step may end forward early (a shorter batch): kernels that did not run have no
/// backward in that step.
///
/// After an error, every call of a step does nothing and returns the same error, or an empty view, until end().
/// On a device (Tape<float, Cuda>) callables launch their kernels on the context's stream.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/block.hpp"
#include "check.hpp"
#include "evolving_stash.hpp"
#include "tape_kernel.hpp"

namespace adacc { inline namespace v0_1 {

struct TapeStart;

template <class T = float, class Context = Cpu>
class Tape {
  static constexpr bool on_host = !context_traits<Context>::own_memory;

 public:
  using Kernel = TapeKernel<T, Context>;

  Tape() = default;
  /// Messages number kernels and activations from `first` on, as the caller does.
  explicit Tape(int first) : base_(first) {}
  Tape(const Tape&) = delete;  // kernels know the tape's address
  Tape& operator=(const Tape&) = delete;

  // ---- Set-up ----

  /// Adds the next kernel of forward; the id of its output (-1 without outputs), an array for several. The
  /// tape copies the callable. start() tells mistakes in descriptions. Kernels with callables of one type, equal
  /// shapes and equal names of outputs are taken for copies of one: measured and probed together.
  ///
  /// The callable runs in forward and, if the plan recomputes an output, in backward. So all it reads, but
  /// for in(i), stays the same between the two. It writes all outputs whole, unless they are zeroed.
  template <std::size_t outputs = 1, class Function>
  auto kernel(const Kernel& call, const Function& function) {
    const int first = add<Function>(call, outputs, function);
    return detail::ids_from<outputs>(first);
  }
  /// A kernel of any number of outputs; the id of the first one, -1 if there is none.
  template <class Function>
  int kernel_of_any(const Kernel& call, const Function& function) {
    return add<Function>(call, call.writes.size(), function);
  }

  /// Memory of the trainer not to be changed by kernels that run again, such as running means: start() with
  /// `check` looks at it. `name` and the memory must outlive the tape.
  void watch(const char* name, ConstBytes memory) { model_.watch(name, memory); }

  /// Kernels so far: they are numbered from 0 in the order of forward.
  int kernels() const { return static_cast<int>(entries_.size()); }
  /// The number of the kernel for activation `id`; -1 if there is no such activation.
  int kernel_of(int id) const { return known(id) ? activations_[at(id)].kernel : -1; }
  const char* name_of_kernel(int k) const { return entries_[at(k)]->name; }

  /// Measures kernels and codecs, plans and takes memory: stash/tape_start.hpp.
  ///
  /// step() runs one step of the trainer from begin() to end(), with all kernels, on a fixed batch, from gradients
  /// of zero and without an update. It returns the gradients of parameters as a Result<Array<View<const T>>>.
  template <class TrainStep>
  Error start(Context& context, const TapeStart& how, const TrainStep& step);

  // ---- A step ----

  /// Begins a step; a step under way is given up. `context` must live until end().
  Error begin(Context& context) {
    failed_ = {};
    if (!started_)
      return failed_ = Error::misuse("a step of a tape begins, and start() has not planned it yet");
    forget_step();
    ran_ = 0;
    context_ = &context;  // a stash that evolves may measure callables now
    if (Error why = with([&](auto& stash) { return stash.begin(context); })) {
      forget_step();
      return failed_ = why;
    }
    return {};
  }

  /// Runs kernels first to last - 1 of forward. Outputs of the last one can be read by value() until the next call.
  Error run(int first, int last) {
    if (failed_) return failed_;
    if (context_ == nullptr)
      return fail(Error::misuse("run() before begin(): no step is under way"));
    if (backward_ != none)
      return fail(Error::misuse("run(): backward has begun, and forward is over in this step"));
    if (first != next_ || last < first || last > kernels())
      return fail(Error::misuse("run of kernels ", shown_as(first), " to ", shown_as(last - 1),
                                ": kernel ", shown_as(next_), " is the next one, and there are ",
                                kernels()));
    for (int k = first; k < last; ++k)
      if (Error why = run_one(k)) return fail(why);
    return {};
  }
  /// Runs all remaining kernels.
  Error run() { return run(next_, kernels()); }

  /// The backward of kernel k begins, and with it the stash's stage k: value() has the saved activations, grad()
  /// the gradients flowing there. Kernels go from the last one to the first, and may be left out.
  Error backward(int k) {
    if (failed_) return failed_;
    if (context_ == nullptr)
      return fail(Error::misuse("backward() before begin(): no step is under way"));
    if (k < 0 || k >= kernels())
      return fail(Error::misuse("there is no kernel ", shown_as(k), ": the tape has ", base_,
                                " to ", shown_as(kernels() - 1)));
    if (k >= next_)
      return fail(Error::misuse("kernel ", shown_as(k), " (", name_of_kernel(k),
                                ") has no backward in this step: forward ended ",
                                "before it, with kernel ", shown_as(next_ - 1)));
    if (backward_ == none) {
      if (Error why = finish_pending()) return fail(why);
      if (next_ < kernels())
        if (Error why = with([&](auto& stash) { return stash.stop_forward(); })) return fail(why);
    }
    if (Error why = with([&](auto& stash) { return stash.enter(k); })) return fail(why);
    backward_ = k;
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      Gradient& gradient = carried_[i];
      if (gradient.zeroed || k > gradient.first || k < gradient.last) continue;
      gradient.zeroed = true;
      const Result<Bytes> bytes =
          with([&](auto& stash) { return stash.carried_bytes(static_cast<int>(i)); });
      if (!bytes) return fail(bytes.error);
      detail::fill_bytes(*context_, *bytes, 0);
    }
    return {};
  }

  /// Ends the step, or gives it up; the first error of the step.
  Error end() {
    const Error why = with([&](auto& stash) { return stash.end(); });
    const Error first = failed_ ? failed_ : why;
    failed_ = {};
    ran_ = next_;
    forget_step();
    return first;
  }

  /// The first error of the step; empty if there is none.
  const Error& error() const { return failed_; }

  /// Activation `id`. In forward: an output of the last kernel, or a source of a kernel to come. In backward:
  /// an activation saved by the current kernel. Not to be written.
  View<const T> value(int id) {
    if (failed_) return {};
    if (backward_ == none) {
      const void* const there = forward_value(id);
      return there == nullptr ? View<const T>()
                              : View<const T>(static_cast<const T*>(there), view_shape(id));
    }
    const Result<ConstBytes> bytes = with([&](auto& stash) { return get(stash, id); });
    if (!bytes) return static_cast<void>(fail(bytes.error)), View<const T>();
    return {static_cast<const T*>(static_cast<const void*>(bytes->data())), view_shape(id)};
  }
  /// In backward, an activation that the current kernel saves, to be overwritten: the kernel is the last reader.
  /// That is an error if a backward to come saves the activation too, or a plan may read it there to recompute
  /// another.
  View<T> take(int id) {
    if (failed_) return {};
    if (backward_ == none)
      return static_cast<void>(fail(Error::misuse(
                 "take() is for backward, and no backward of a kernel has begun in this step"))),
             View<T>();
    const Result<Bytes> bytes = with([&](auto& stash) { return stash.take_bytes(id); });
    if (!bytes) return static_cast<void>(fail(bytes.error)), View<T>();
    return {static_cast<T*>(static_cast<void*>(bytes->data())), view_shape(id)};
  }
  /// An activation of another type than T.
  template <class U>
  const U* value_as(int id) {
    return static_cast<const U*>(static_cast<const void*>(value(id).data()));
  }

  /// The gradient of activation `id`, to be read and added to: zero when the backward of the last reader begins.
  View<T> grad(int id) {
    if (failed_) return {};
    if (!known(id) || activations_[at(id)].carried < 0)
      return static_cast<void>(
                 fail(Error::misuse("activation ", shown_as(id), " (",
                                    known(id) ? activations_[at(id)].name : "there is none",
                                    ") has no gradient: give its output TapeOutputs::gradient"))),
             View<T>();
    const Result<View<T>> there =
        with([&](auto& stash) { return stash.carried(activations_[at(id)].carried); });
    if (!there) return static_cast<void>(fail(there.error)), View<T>();
    return *there;
  }

  /// TapeKernel::backward_bytes of the kernel whose backward is on, with any contents.
  Bytes backward_workspace() {
    if (failed_) return {};
    const Result<Bytes> memory = with([&](auto& stash) { return stash.stage_memory(); });
    if (!memory) return static_cast<void>(fail(memory.error)), Bytes();
    return *memory;
  }

  // ---- Between steps ----

  /// Plans for another budget. The tape's own memory grows if too small; nothing changes after an error,
  /// which names the smallest possible budget.
  Error set_budget(std::size_t bytes) {
    if (!started_) return Error::misuse("set_budget() of a tape comes after start()");
    if (context_ != nullptr)
      return Error::misuse(
          "set_budget() of a tape comes between steps: end() ends the one under way");
    // No plan takes more than retaining everything.
    const std::size_t most = outcome().retain_peak_bytes;
    const std::size_t budget = bytes < most ? bytes : most;
    if (Error why = grow(budget)) return why;
    return stash_.set_budget(budget);
  }

  const EvolvingStash<T, Context>& stash() const { return stash_; }
  const PlanOutcome& outcome() const { return stash_.outcome(); }
  std::size_t arena_bytes() const { return stash_.arena_bytes(); }

 private:
  static constexpr int none = -1;

  struct Callable {
    Callable() = default;
    Callable(const Callable&) = delete;
    Callable& operator=(const Callable&) = delete;
    virtual ~Callable() = default;
    virtual void run(const TapeCall<T>& call) const = 0;
  };
  template <class Function>
  struct CallableOf final : Callable {
    explicit CallableOf(const Function& f) : function(f) {}
    void run(const TapeCall<T>& call) const override { function(call); }
    Function function;
  };

  /// A kernel of the tape.
  struct KernelEntry {
    Tape* tape = nullptr;
    const char* name = "";
    std::unique_ptr<Callable> callable;
    StashList reads;
    int first = none;  ///< the first output
    std::size_t outputs = 0;
    std::size_t workspace_bytes = 0;
    std::vector<bool> zeroed;  ///< by output

    /// For StashRecompute: the callable again, with other memory.
    template <class Function>
    static void again(const void* self, const View<const T>* inputs, const View<T>* outputs,
                      Bytes workspace) {
      const KernelEntry& kernel = *static_cast<const KernelEntry*>(self);
      kernel.call(inputs, outputs, workspace);
    }
    void call(const View<const T>* in, const View<T>* out, Bytes workspace) const {
      for (std::size_t i = 0; i < zeroed.size(); ++i)
        if (zeroed[i])
          detail::fill_bytes(*tape->context_,
                             {static_cast<std::byte*>(static_cast<void*>(out[i].data())),
                              Shape(out[i].size() * sizeof(T))},
                             0);
      callable->run({in, out, workspace});
    }
  };

  struct Activation {
    const char* name = "";
    int kernel = none;
    int last_reader = none;  ///< the last reader in forward
    bool gradient = false;
    int carried = none;  ///< the gradient's number in the stash
    Shape view;          ///< the shape seen by callables
    std::size_t bytes = 0;
    void* value = nullptr;  ///< in forward
  };

  /// The gradient of an activation: from the backward of kernel `first` to that of `last`, with a lower number.
  struct Gradient {
    int first = 0, last = 0;
    bool zeroed = false;  ///< in this step
  };

  int shown_as(int number) const { return number + base_; }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  bool known(int id) const { return id >= 0 && at(id) < activations_.size(); }
  Shape view_shape(int id) const { return activations_[at(id)].view; }

  Error fail(const Error& why) { return failed_ = why; }
  /// No step is under way, and nothing of the last one is left to look at.
  void forget_step() {
    context_ = nullptr;
    next_ = 0;
    pending_ = backward_ = none;
    for (Activation& activation : activations_) activation.value = nullptr;
    for (Gradient& gradient : carried_) gradient.zeroed = false;
  }

  template <class Function>
  int add(const Kernel& call, std::size_t outputs, const Function& function) {
    static_assert(
        requires(const TapeCall<T>& k) { function(k); },
        "adacc: the callable of a kernel on a tape takes (const TapeCall<T>&)");
    const int k = kernels();
    if (started_ || closed_) {
      if (!described_)
        described_ =
            Error::say("kernel ", shown_as(k), " (", call.name, ") is added after start()");
      return none;
    }
    auto entry = std::make_unique<KernelEntry>();
    entry->tape = this;
    entry->name = call.name;
    entry->callable = std::make_unique<CallableOf<Function>>(function);
    entry->reads = call.reads;
    entry->outputs = call.writes.size();
    entry->workspace_bytes = call.workspace_bytes;
    StashKernel<StashModel<T, Context>> said{.name = call.name,
                                             .reads = call.reads,
                                             .backward_reads = call.saves,
                                             .backward_bytes = call.backward_bytes,
                                             .needs = {.workspace_bytes = call.workspace_bytes},
                                             .hold = true};
    for (const TapeOutput<T, Context>& output : call.writes) {
      said.writes.push_back(output.described);
      entry->zeroed.push_back(has(output.options, TapeOutputs::zeroed));
    }
    if (call.writes.size() != outputs && !(call.writes.empty() && outputs == 1) && !described_)
      described_ =
          Error::say("kernel ", shown_as(k), " (", call.name, ") writes ", call.writes.size(),
                     " activations, and kernel<", outputs, "> is to return the ids of ", outputs);
    if (call.writes.empty() && call.workspace_bytes > 0 && !described_)
      described_ = Error::say("kernel ", shown_as(k), " (", call.name,
                              ") writes nothing and has a workspace, which lies beside outputs");
    StashRecompute<T> how;
    if (!call.once && !call.writes.empty())
      how = {entry.get(), &KernelEntry::template again<Function>, nullptr};
    if constexpr (requires { function.kind(); }) how.kind = function.kind();
    const int first = model_.kernel_by(said, how);
    entry->first = first;
    for (const int id : call.reads.numbers())
      if (known(id)) activations_[at(id)].last_reader = k;
    for (std::size_t i = 0; i < call.writes.size(); ++i) {
      const TapeOutput<T, Context>& output = call.writes[i];
      Activation activation;
      activation.name = output.described.name;
      activation.kernel = k;
      activation.gradient = has(output.options, TapeOutputs::gradient);
      const bool raw = output.described.shape.rank() == 0;
      activation.view =
          raw ? Shape(output.described.bytes.count / sizeof(T)) : output.described.shape;
      activation.bytes =
          raw ? output.described.bytes.count : output.described.shape.elems() * sizeof(T);
      if (raw && activation.gradient && !described_)
        described_ = Error::say(
            "output ", activation.name, " of kernel ", shown_as(k), " (", call.name,
            ") has bytes, and a gradient is asked for: gradients are of ", name_of(dtype_of<T>));
      activations_.push_back(activation);
    }
    entries_.push_back(std::move(entry));
    return first;
  }

  /// The stash gets memory of `bytes`, if the tape has memory of its own, and less.
  Error grow(std::size_t bytes) {
    if (lent_.data() != nullptr || memory_.size() >= bytes) return {};
    auto larger = Block<std::byte>::make(bytes, "the memory of a tape");
    if (!larger) return larger.error;
    if (Error why = stash_.bind(larger->view())) return why;
    memory_ = std::move(*larger);
    return {};
  }

  /// Ends the description: gradients go from the last reader of an activation to the maker.
  Error close() {
    if (closed_) return described_;
    if (described_) return described_;
    for (std::size_t id = 0; id < activations_.size(); ++id) {
      Activation& activation = activations_[id];
      if (!activation.gradient) continue;
      if (activation.last_reader < 0)
        return described_ =
                   Error::say("output ", activation.name, " of kernel ",
                              shown_as(activation.kernel), " (", name_of_kernel(activation.kernel),
                              ") asks for a gradient, and no kernel reads it: none flows there");
      activation.carried =
          model_.carry(activation.name, activation.view, activation.last_reader, activation.kernel);
      carried_.push_back({activation.last_reader, activation.kernel, false});
    }
    closed_ = true;
    return {};
  }

  Error run_one(int k) {
    if (Error why = finish_pending()) return why;
    const KernelEntry& kernel = *entries_[at(k)];
    inputs_.clear(), outputs_.clear();
    for (const int id : kernel.reads.numbers())
      inputs_.push_back({static_cast<const T*>(activations_[at(id)].value), view_shape(id)});
    for (std::size_t i = 0; i < kernel.outputs; ++i) {
      const int id = kernel.first + static_cast<int>(i);
      void* const place = with([&](auto& stash) -> void* {
        return model_.is_raw(id) ? static_cast<void*>(stash.place_bytes(id, {}).data())
                                 : static_cast<void*>(stash.place(id, {}).data());
      });
      if (place == nullptr)
        return Error::say("output ", activations_[at(id)].name, " of kernel ", shown_as(k), " (",
                          kernel.name, ") has no place");
      activations_[at(id)].value = place;
      outputs_.push_back({static_cast<T*>(place), view_shape(id)});
    }
    Bytes workspace;
    if (kernel.workspace_bytes > 0)
      workspace = with([&](auto& stash) { return stash.scratch(kernel.first); });
    kernel.call(inputs_.data(), outputs_.data(), workspace);
    pending_ = k;
    next_ = k + 1;
    return {};
  }

  /// Hands outputs of the last kernel to the stash, which frees memory no longer needed in forward.
  Error finish_pending() {
    if (pending_ == none) return {};
    const KernelEntry& kernel = *entries_[at(pending_)];
    for (std::size_t i = 0; i < kernel.outputs; ++i) {
      const int id = kernel.first + static_cast<int>(i);
      const Activation& activation = activations_[at(id)];
      const Error why = with([&](auto& stash) -> Error {
        if (model_.is_raw(id))
          return stash.put_bytes(
              id, {static_cast<const std::byte*>(activation.value), Shape(activation.bytes)});
        return stash.put(id, {static_cast<const T*>(activation.value), activation.view});
      });
      if (why) return why;
    }
    pending_ = none;
    return {};
  }

  const void* forward_value(int id) {
    if (known(id) && activations_[at(id)].value != nullptr) {
      const Activation& activation = activations_[at(id)];
      if (activation.kernel == pending_ || activation.last_reader >= next_ ||
          activation.last_reader == pending_)
        return activation.value;
    }
    static_cast<void>(fail(Error::misuse("activation ", shown_as(id), " (",
                                         known(id) ? activations_[at(id)].name : "there is none",
                                         ") is not there: between run() and backward(), value() "
                                         "has the outputs of the last kernel, and activations ",
                                         "that it or a kernel to come reads")));
    return nullptr;
  }

  template <class AnyStash>
  Result<ConstBytes> get(AnyStash& stash, int id) {
    if (known(id) && model_.is_raw(id)) return stash.get_bytes(id);
    const Result<View<const T>> values = stash.get(id);
    if (!values) return values.error;
    return ConstBytes(static_cast<const std::byte*>(static_cast<const void*>(values->data())),
                      Shape(values->size() * sizeof(T)));
  }

  using Checked =
      std::conditional_t<on_host,
                         testing::CheckedStash<T, std::conditional_t<on_host, Context, Cpu>>,
                         Stash<T, Context>>;

  /// use(stash): with the plan's stash, or the stash of a step of start().
  template <class Use>
  auto with(const Use& use) {
    if (checked_ != nullptr) return use(*checked_);
    if (plain_ != nullptr) return use(*plain_);
    return use(stash_);
  }

  int base_ = 0;  ///< the number of the first kernel, and of the first activation, in messages
  StashModel<T, Context> model_;
  std::vector<std::unique_ptr<KernelEntry>> entries_;
  std::vector<Activation> activations_;
  std::vector<Gradient> carried_;
  EvolvingStash<T, Context> stash_;
  Block<std::byte> memory_;
  Bytes lent_;
  Error described_;  ///< the first mistake in a description
  bool closed_ = false, started_ = false;
  // The step under way:
  Context* context_ = nullptr;
  int next_ = 0;         ///< the next kernel of forward
  int ran_ = 0;          ///< kernels that ran in the last step to end
  int pending_ = none;   ///< a kernel with outputs not put yet
  int backward_ = none;  ///< the kernel whose backward is on
  Error failed_;
  std::vector<View<const T>> inputs_;
  std::vector<View<T>> outputs_;
  // While start() runs steps of its own:
  Stash<T, Context>* plain_ = nullptr;
  Checked* checked_ = nullptr;
};

}}  // namespace adacc::v0_1
