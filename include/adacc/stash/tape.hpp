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
/// a trainer without a tape. A step may end forward early (a shorter sequence): kernels that did not run have no
/// backward in that step. A step may have fewer items (a smaller batch): begin(context, items).
///
/// After an error, every call of a step does nothing and returns the same error, or an empty view, until end().
/// On a device (Tape<float, Cuda>) callables launch their kernels on the context's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/block.hpp"
#include "check.hpp"
#include "evolving_stash.hpp"
#include "tape_group.hpp"
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
  void watch(const char* name, ConstBytes memory) { watched_.push_back({name, memory}); }

  /// Kernels so far: they are numbered from 0 in the order of forward.
  int kernels() const { return static_cast<int>(entries_.size()); }
  /// The number of the kernel for activation `id`; -1 if there is no such activation.
  int kernel_of(int id) const { return known(id) ? activations_[at(id)].kernel : -1; }
  const char* name_of_kernel(int k) const { return entries_[at(k)]->call.name; }

  /// Measures kernels and codecs, plans and takes memory: stash/tape_start.hpp.
  ///
  /// step() runs one step of the trainer from begin() to end(), with all kernels, on a fixed batch, from gradients
  /// of zero and without an update. It returns the gradients of parameters as a Result<Array<View<const T>>>.
  template <class TrainStep>
  Error start(Context& context, const TapeStart& how, const TrainStep& step);

  // ---- A step ----

  /// Begins a step; a step under way is given up. `context` must live until end(). With `items`, fewer than
  /// TapeStart::items, outputs that are per item are smaller in this step. The first step of so many items plans
  /// within the same budget, and allocates; later ones neither plan nor allocate.
  Error begin(Context& context, int items = 0) {
    failed_ = {};
    if (!started_)
      return failed_ = Error::misuse("a step of a tape begins, and start() has not planned it yet");
    forget_step();
    ran_ = 0;
    now_.context = &context;  // a stash that evolves may measure callables now
    Error why = choose(items);
    if (!why) why = with([&](auto& stash) { return stash.begin(context); });
    if (why) {
      forget_step();
      return failed_ = why;
    }
    return {};
  }

  /// Runs kernels first to last - 1 of forward. Outputs of the last one can be read by value() until the next call.
  Error run(int first, int last) {
    if (failed_) return failed_;
    if (now_.context == nullptr)
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
    if (now_.context == nullptr)
      return fail(Error::misuse("backward() before begin(): no step is under way"));
    if (k < 0 || k >= kernels())
      return fail(Error::misuse("there is no kernel ", shown_as(k), ": the tape has ", base_,
                                " to ", shown_as(kernels() - 1)));
    if (k >= next_)
      return fail(Error::misuse("kernel ", shown_as(k), " (", name_of_kernel(k),
                                ") has no backward in this step: forward ended ",
                                "before it, with kernel ", shown_as(next_ - 1)));
    if (backward_ == none) {
      if (Error why = check_forward_end()) return fail(why);
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
      detail::fill_bytes(*now_.context, *bytes, 0);
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
    const int there = stash_id(id);
    if (there < 0) return {};
    const Result<ConstBytes> bytes = with([&](auto& stash) { return stash.get_bytes(there); });
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
    const int there = stash_id(id);
    if (there < 0) return {};
    const Result<Bytes> bytes = with([&](auto& stash) { return stash.take_bytes(there); });
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
    const Result<Bytes> there =
        with([&](auto& stash) { return stash.carried_bytes(activations_[at(id)].carried); });
    if (!there) return static_cast<void>(fail(there.error)), View<T>();
    return {static_cast<T*>(static_cast<void*>(there->data())), view_shape(id)};
  }
  /// The gradient of an activation of another type than T, of that type.
  template <class U>
  U* grad_as(int id) {
    return static_cast<U*>(static_cast<void*>(grad(id).data()));
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
  /// which names the smallest possible budget. Steps of fewer items are planned anew when they come.
  Error set_budget(std::size_t bytes) {
    if (!started_) return Error::misuse("set_budget() of a tape comes after start()");
    if (now_.context != nullptr)
      return Error::misuse(
          "set_budget() of a tape comes between steps: end() ends the one under way");
    // No plan takes more than retaining everything.
    EvolvingStash<T, Context>& whole = sizes_[0]->stash;
    const std::size_t most = whole.outcome().retain_peak_bytes;
    const std::size_t budget = bytes < most ? bytes : most;
    if (Error why = grow(budget)) return why;
    if (Error why = whole.set_budget(budget)) return why;
    forget_sizes();
    return {};
  }

  /// The stash of the last step's items: its plan, outcome and bytes.
  const EvolvingStash<T, Context>& stash() const { return size_->stash; }
  const PlanOutcome& outcome() const { return stash().outcome(); }
  std::size_t arena_bytes() const { return stash().arena_bytes(); }
  /// The policy of activation `id`; "overwritten" if a kernel changes it in place.
  const char* policy_of(int id) const {
    const int there = activations_[at(id)].stash;
    return there < 0 ? "overwritten" : name_of(stash().plan()[there]);
  }

 private:
  static constexpr int none = -1;

  using Entry = detail::TapeEntry<T, Context>;
  using Group = detail::TapeGroup<T, Context>;

  struct Activation {
    const char* name = "";
    Shape shape;  ///< with all items; empty: `count` bytes
    std::size_t count = 0;
    TapeType type = TapeType::own;
    typename TapeOutput<T, Context>::Codecs codecs;
    bool per_item = false;
    int kernel = none;
    int last_reader = none;  ///< the last reader in forward
    int readers = 0;         ///< kernels that read it in forward
    bool saved = false;      ///< for some backward
    bool gradient = false;
    int carried = none;      ///< the gradient's number in the stash
    int stash = none;        ///< the number in the stash; none: a kernel overwrites it
    int overwritten = none;  ///< by this output of the next kernel
    void* value = nullptr;   ///< in forward

    bool is_raw() const { return shape.rank() == 0 || type != TapeType::own; }
  };

  /// The gradient of an activation: from the backward of kernel `first` to that of `last`, with a lower number.
  struct Gradient {
    int first = 0, last = 0;
    int activation = 0;
    bool zeroed = false;  ///< in this step
  };

  /// The tape with so many items in a batch, and the plan.
  struct Size {
    int items = 0;
    std::vector<detail::TapeExtent> extents;  ///< by activation
    StashModel<T, Context> model;
    EvolvingStash<T, Context> stash;
  };

  int shown_as(int number) const { return number + base_; }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  bool known(int id) const { return id >= 0 && at(id) < activations_.size(); }
  Shape view_shape(int id) const { return size_->extents[at(id)].view; }

  Error fail(const Error& why) { return failed_ = why; }
  /// No step is under way, and nothing of the last one is left to look at.
  void forget_step() {
    now_.context = nullptr;
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
    const int first = static_cast<int>(activations_.size());
    const auto refuse = [&](const auto&... why) { refuse_kernel(kernels(), call.name, why...); };
    if (started_ || closed_) return refuse("is added after start()"), none;
    if (call.writes.size() != outputs && !(call.writes.empty() && outputs == 1))
      refuse("writes ", call.writes.size(), " activations, and kernel<", outputs,
             "> is to return the ids of ", outputs);
    auto callable = std::make_unique<detail::TapeCallableOf<T, Function>>(function);
    auto entry = std::make_unique<Entry>();
    entry->call = call;
    entry->mark = callable->mark();
    entry->callable = std::move(callable);
    entry->first = first;
    describe_reads(*entry);
    for (std::size_t i = 0; i < call.writes.size(); ++i) describe_output(*entry, i);
    describe_saves(*entry);
    entries_.push_back(std::move(entry));
    return call.writes.empty() ? none : first;
  }

  template <class... Pieces>
  void refuse_kernel(int k, const char* name, const Pieces&... why) {
    if (!described_) described_ = Error::say("kernel ", shown_as(k), " (", name, ") ", why...);
  }

  void describe_reads(const Entry& entry) {
    const Kernel& call = entry.call;
    const auto refuse = [&](const auto&... why) { refuse_kernel(kernels(), call.name, why...); };
    if (call.writes.empty() && call.workspace_bytes > 0)
      refuse("writes nothing and has a workspace, which lies beside outputs");
    if (call.writes.empty() && call.reads.numbers().empty() && call.saves.empty() &&
        call.backward_bytes == 0)
      refuse("reads and writes nothing, nor does its backward");
    for (const int id : call.reads.numbers()) {
      if (!known(id)) {
        refuse("reads activation ", shown_as(id), ", which no kernel before it makes: they made ",
               activations_.size());
        continue;
      }
      Activation& read = activations_[at(id)];
      if (read.last_reader != kernels()) ++read.readers;
      read.last_reader = kernels();
    }
  }

  void describe_output(Entry& entry, std::size_t i) {
    const Kernel& call = entry.call;
    const TapeOutput<T, Context>& output = call.writes[i];
    const auto refuse = [&](const auto&... why) {
      refuse_kernel(kernels(), call.name, "writes ", output.described.name, ", ", why...);
    };
    Activation activation;
    activation.name = output.described.name;
    activation.kernel = kernels();
    activation.shape = output.described.shape;
    activation.count = output.described.bytes.count;
    activation.codecs = output.described.codecs;
    activation.per_item = has(output.options, TapeOutputs::per_item);
    activation.gradient = has(output.options, TapeOutputs::gradient);
    if (__builtin_strcmp(name_of(output.type), name_of(dtype_of<T>)) != 0)
      activation.type = output.type;
    entry.begins_as.push_back(none);
    if (const int input = output.in_place_of; input >= 0) {
      const Array<int>& reads = call.reads.numbers();
      for (std::size_t r = reads.size(); r-- > 0;)
        if (reads[r] == input) entry.begins_as[i] = static_cast<int>(r);
      if (entry.begins_as[i] < 0 || !known(input))
        return refuse("which takes the place of activation ", shown_as(input),
                      ", and the kernel does not read that one");
      for (std::size_t other = 0; other < i; ++other)
        if (call.writes[other].in_place_of == input)
          refuse("which takes the place of ", activations_[at(input)].name, ", as ",
                 call.writes[other].described.name, " does");
      if (has(output.options, TapeOutputs::zeroed))
        refuse("which is zeroed, and begins as ", activations_[at(input)].name);
      const Activation& from = activations_[at(input)];
      activation.shape = from.shape;
      activation.count = from.count;
      activation.type = from.type;
      activation.per_item = from.per_item;
    }
    const bool bytes = activation.shape.rank() == 0 || activation.type == TapeType::bytes;
    const char* const type = bytes                              ? "bytes"
                             : activation.type == TapeType::own ? name_of(dtype_of<T>)
                                                                : name_of(activation.type);
    if (activation.is_raw() && !activation.codecs.empty())
      refuse("of ", type, ", and codecs of this tape encode ", name_of(dtype_of<T>), " alone");
    if (activation.gradient && (bytes || activation.type == TapeType::i32))
      refuse("of ", type, ", and a gradient is asked for: gradients are of real numbers");
    activations_.push_back(activation);
  }

  void describe_saves(Entry& entry) {
    for (const StashRead& read : entry.call.saves) {
      int id = read.id;
      if (read.name != nullptr || read.output >= 0) {
        const int output = output_number(
            read, entry.call.writes,
            [](const TapeOutput<T, Context>& written) { return written.described.name; });
        if (output >= 0) id = entry.output(static_cast<std::size_t>(output));
        else if (read.name == nullptr)
          refuse_kernel(kernels(), entry.call.name, "has no output ", read.output, ": it writes ",
                        entry.call.writes.size());
        else
          refuse_kernel(kernels(), entry.call.name, "has ",
                        output == -1 ? "no output" : "several outputs", " called ", read.name,
                        ", which its backward is to read");
      } else if (id < 0 || id >= entry.first) {
        refuse_kernel(kernels(), entry.call.name, "saves activation ", shown_as(id),
                      ", which no kernel before it makes: they made ", entry.first,
                      ", and its own outputs are saved by name");
        id = none;
      }
      if (!known(id)) continue;
      activations_[at(id)].saved = true;
      entry.saves.push_back(id);
    }
  }

  /// The stash gets memory of `bytes`, if the tape has memory of its own, and less.
  Error grow(std::size_t bytes) {
    if (lent_.data() != nullptr || memory_.size() >= bytes) return {};
    auto larger = Block<std::byte>::make(bytes, "the memory of a tape");
    if (!larger) return larger.error;
    if (Error why = sizes_[0]->stash.bind(larger->view())) return why;
    forget_sizes();
    memory_ = std::move(*larger);
    return {};
  }

  /// Ends the description: gradients go from the last reader of an activation to the maker, and neighbours in place
  /// become groups. The tape of `items` is the only size.
  Error close(int items) {
    if (described_) return described_;
    if (!closed_) {
      for (std::size_t id = 0; id < activations_.size(); ++id) {
        Activation& activation = activations_[id];
        if (!activation.gradient) continue;
        if (activation.last_reader < 0)
          return described_ = Error::say(
                     "output ", activation.name, " of kernel ", shown_as(activation.kernel), " (",
                     name_of_kernel(activation.kernel),
                     ") asks for a gradient, and no kernel reads it: none flows there");
        activation.carried = static_cast<int>(carried_.size());
        carried_.push_back(
            {activation.last_reader, activation.kernel, static_cast<int>(id), false});
      }
      make_groups();
    }
    closed_ = true;
    items_ = items;
    sizes_.clear();
    Result<std::unique_ptr<Size>> whole = describe(items);
    if (!whole) return whole.error;
    sizes_.push_back(std::move(*whole));
    use(*sizes_[0]);
    return {};
  }

  /// Whether output i of kernel k can take the very memory of its input: nobody else wants that one.
  bool overwrites(int k, std::size_t i) const {
    const Entry& entry = *entries_[at(k)];
    if (entry.begins_as[i] < 0) return false;
    const Activation& input = activations_[at(entry.call.writes[i].in_place_of)];
    return input.kernel == k - 1 && input.readers == 1 && !input.saved;
  }

  void make_groups() {
    for (int k = 0; k < kernels(); ++k) {
      Entry& entry = *entries_[at(k)];
      bool joins = false;
      for (std::size_t i = 0; i < entry.call.writes.size(); ++i)
        if (overwrites(k, i)) {
          activations_[at(entry.call.writes[i].in_place_of)].overwritten = entry.output(i);
          joins = true;
        }
      if (!joins) {
        groups_.push_back(std::make_unique<Group>());
        groups_.back()->now = &now_;
        groups_.back()->first = k;
      }
      groups_.back()->last = k;
      entry.group = groups_.size() - 1;
    }
    int stash_id = 0;
    for (const auto& group : groups_) {
      for (int k = group->first; k <= group->last; ++k)
        for (std::size_t i = 0; i < entries_[at(k)]->call.writes.size(); ++i) {
          const int id = entries_[at(k)]->output(i);
          if (activations_[at(id)].overwritten >= 0) continue;
          activations_[at(id)].stash = stash_id++;
          group->writes.push_back(id);
        }
      for (int k = group->first; k <= group->last; ++k) wire(*group, k);
    }
  }

  void wire(Group& group, int k) {
    const Entry& entry = *entries_[at(k)];
    const auto output_of = [&](int id) {
      const int last = kept_as(id);
      std::size_t i = 0;
      while (group.writes[i] != last) ++i;
      return static_cast<int>(i);
    };
    typename Group::Member member{&entry, {}, {}};
    for (const int id : entry.call.reads.numbers()) {
      if (activations_[at(id)].kernel >= group.first) {
        member.inputs.push_back(-1 - output_of(id));
        continue;
      }
      std::size_t i = 0;
      while (i < group.reads.size() && group.reads[i] != id) ++i;
      if (i == group.reads.size()) group.reads.push_back(id);
      member.inputs.push_back(static_cast<int>(i));
    }
    for (std::size_t i = 0; i < entry.call.writes.size(); ++i)
      member.outputs.push_back(output_of(entry.output(i)));
    group.in.reserve(member.inputs.size());
    group.out.reserve(member.outputs.size());
    group.members.push_back(std::move(member));
  }

  /// The activation with the memory of `id`: the last one of those that overwrite each other.
  int kept_as(int id) const {
    while (activations_[at(id)].overwritten >= 0) id = activations_[at(id)].overwritten;
    return id;
  }

  /// The model of the tape with `items` in a batch.
  Result<std::unique_ptr<Size>> describe(int items) {
    auto size = std::make_unique<Size>();
    size->items = items;
    std::vector<Shape> shapes;
    for (const Activation& activation : activations_) {
      Shape shape = activation.shape;
      std::size_t first = shape.rank() == 0 ? activation.count : shape[0];
      if (activation.per_item) {
        const auto refuse = [&](const auto&... why) {
          return Error::misuse("output ", activation.name, " of kernel ",
                               shown_as(activation.kernel), " (", name_of_kernel(activation.kernel),
                               ") is per item, and ", why...);
        };
        if (items_ < 1) return refuse("start() was not told the items of a batch");
        if (first % static_cast<std::size_t>(items_) != 0)
          return refuse("its ", first, " rows are no multiple of the batch's ", items_, " items");
        first = first / static_cast<std::size_t>(items_) * static_cast<std::size_t>(items);
      }
      if (shape.rank() > 0) shape = shape.with_first(first);
      shapes.push_back(shape);
      const std::size_t each =
          activation.type == TapeType::own ? sizeof(T) : bytes_of(activation.type);
      const std::size_t bytes = shape.rank() == 0 ? first : shape.elems() * each;
      size->extents.push_back({activation.is_raw() ? Shape(bytes / sizeof(T)) : shape, bytes});
    }
    for (const auto& watched : watched_) size->model.watch(watched.name, watched.memory);
    for (const auto& group : groups_) describe(*size, shapes, *group);
    for (const Gradient& gradient : carried_) {
      const auto id = at(gradient.activation);
      const detail::TapeExtent& extent = size->extents[id];
      if (activations_[id].is_raw())
        size->model.carry(activations_[id].name, StashBytes{extent.bytes}, gradient.first,
                          gradient.last);
      else size->model.carry(activations_[id].name, extent.view, gradient.first, gradient.last);
    }
    return size;
  }

  void describe(Size& size, const std::vector<Shape>& shapes, const Group& group) const {
    using Said = StashKernel<StashModel<T, Context>>;
    const auto backward_of = [&](int k) {
      const Entry& entry = *entries_[at(k)];
      return Said{.name = entry.call.name, .stage = k, .backward_bytes = entry.call.backward_bytes};
    };
    Said said = backward_of(group.last);
    said.hold = true;
    for (const int id : group.reads) said.reads.push_back(activations_[at(id)].stash);
    for (const int id : group.writes) {
      const Activation& activation = activations_[at(id)];
      StashOutput<StashModel<T, Context>> output(activation.name, shapes[at(id)],
                                                 activation.codecs);
      if (activation.shape.rank() == 0) output.bytes = {size.extents[at(id)].bytes};
      if (activation.type != TapeType::own) output.elem_bytes = bytes_of(activation.type);
      said.writes.push_back(output);
    }
    const int first = group.writes.empty() ? none : activations_[at(group.writes[0])].stash;
    for (const int id : entries_[at(group.last)]->saves) {
      const int stash = activations_[at(id)].stash;
      said.backward_reads.push_back(
          first >= 0 && stash >= first ? StashRead::nth_output(stash - first) : StashRead(stash));
    }
    StashRecompute<T> how{&group, &Group::again};
    for (const typename Group::Member& member : group.members) {
      const Kernel& call = member.kernel->call;
      if (call.workspace_bytes > said.needs.workspace_bytes)
        said.needs.workspace_bytes = call.workspace_bytes;
      how.mark = how.mark * 1099511628211ULL + member.kernel->mark;
      if (call.once) how.call = nullptr;
    }
    if (group.writes.empty()) how.call = nullptr;
    size.model.kernel_by(said, how);
    for (int k = group.first; k < group.last; ++k) {  // they have backwards of their own
      Said backward = backward_of(k);
      for (const int id : entries_[at(k)]->saves)
        backward.backward_reads.push_back(activations_[at(id)].stash);
      static_cast<void>(size.model.kernel(backward));
    }
  }

  /// Later calls are about the tape of this size.
  void use(Size& size) {
    size_ = &size;
    now_.extents = size.extents.data();
  }
  /// The size of `items` becomes the one in use; 0: all items.
  Error choose(int items) {
    if (items == 0 || items == items_) return use(*sizes_[0]), Error();
    if (items_ == 0)
      return Error::misuse("a step of ", items,
                           " items begins, and start() of the tape was told none");
    if (items < 0 || items > items_)
      return Error::misuse("a step of ", items, " items begins, and the tape has 1 to ", items_);
    if (plain_ != nullptr || checked_ != nullptr)
      return Error::misuse("a step of start() has all ", items_, " items, and not ", items);
    for (const auto& size : sizes_)
      if (size->items == items) return use(*size), Error();
    return plan_size_(*this, items);
  }
  Error plan_size(int items);
  void forget_sizes() {
    sizes_.resize(1);
    use(*sizes_[0]);
  }

  Error run_one(int k) {
    if (Error why = finish_pending()) return why;
    const Entry& kernel = *entries_[at(k)];
    const Group& group = *groups_[kernel.group];
    inputs_.clear(), outputs_.clear();
    for (const int id : kernel.call.reads.numbers())
      inputs_.push_back({static_cast<const T*>(activations_[at(id)].value), view_shape(id)});
    for (std::size_t i = 0; i < kernel.call.writes.size(); ++i) {
      const int id = kernel.output(i), kept = kept_as(id);
      const int there = activations_[at(kept)].stash;
      void* const place = with([&](auto& stash) -> void* {
        return activations_[at(kept)].is_raw()
                   ? static_cast<void*>(stash.place_bytes(there, {}).data())
                   : static_cast<void*>(stash.place(there, {}).data());
      });
      if (place == nullptr)
        return Error::say("output ", activations_[at(id)].name, " of kernel ", shown_as(k), " (",
                          kernel.call.name, ") has no place");
      activations_[at(id)].value = place;
      outputs_.push_back({static_cast<T*>(place), view_shape(id)});
    }
    Bytes workspace;
    if (kernel.call.workspace_bytes > 0)
      workspace =
          with([&](auto& stash) { return stash.scratch(activations_[at(group.writes[0])].stash); });
    kernel.run(now_, inputs_.data(), outputs_.data(), workspace);
    pending_ = k;
    next_ = k + 1;
    return {};
  }

  /// Forward cannot end between a kernel and one that overwrites its output.
  Error check_forward_end() const {
    if (next_ == 0) return {};
    const Group& group = *groups_[entries_[at(next_ - 1)]->group];
    if (group.last < next_) return {};
    return Error::misuse("forward ended with kernel ", shown_as(next_ - 1), " (",
                         name_of_kernel(next_ - 1), "), whose output kernel ", shown_as(next_),
                         " (", name_of_kernel(next_), ") changes in place: the two run together");
  }

  /// Hands outputs of the last kernel to the stash, which frees memory no longer needed in forward.
  Error finish_pending() {
    if (pending_ == none) return {};
    const Group& group = *groups_[entries_[at(pending_)]->group];
    if (pending_ < group.last) return pending_ = none, Error();
    for (const int id : group.writes) {
      const Activation& activation = activations_[at(id)];
      const Error why = with([&](auto& stash) -> Error {
        if (activation.is_raw())
          return stash.put_bytes(activation.stash, {static_cast<const std::byte*>(activation.value),
                                                    Shape(size_->extents[at(id)].bytes)});
        return stash.put(activation.stash,
                         {static_cast<const T*>(activation.value), view_shape(id)});
      });
      if (why) return why;
    }
    pending_ = none;
    return {};
  }

  /// The number in the stash, for backward.
  int stash_id(int id) {
    if (!known(id)) {
      static_cast<void>(
          fail(Error::misuse("there is no activation ", shown_as(id), ": the tape has ", base_,
                             " to ", shown_as(static_cast<int>(activations_.size()) - 1))));
      return none;
    }
    const Activation& activation = activations_[at(id)];
    if (activation.overwritten >= 0)
      static_cast<void>(
          fail(Error::misuse("activation ", shown_as(id), " (", activation.name,
                             ") is gone: kernel ", shown_as(activation.kernel + 1), " (",
                             name_of_kernel(activation.kernel + 1), ") changed it in place")));
    return activation.stash;
  }

  const void* forward_value(int id) {
    if (known(id) && activations_[at(id)].value != nullptr) {
      const Activation& activation = activations_[at(id)];
      if (activation.kernel == pending_ || activation.last_reader >= next_ ||
          (activation.last_reader == pending_ && activation.overwritten < 0))
        return activation.value;
    }
    static_cast<void>(fail(Error::misuse("activation ", shown_as(id), " (",
                                         known(id) ? activations_[at(id)].name : "there is none",
                                         ") is not there: between run() and backward(), value() "
                                         "has the outputs of the last kernel, and activations ",
                                         "that it or a kernel to come reads")));
    return nullptr;
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
    return use(size_->stash);
  }

  int base_ = 0;  ///< the number of the first kernel, and of the first activation, in messages
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Activation> activations_;
  std::vector<Gradient> carried_;
  std::vector<typename StashModel<T, Context>::Watched> watched_;
  std::vector<std::unique_ptr<Group>> groups_;
  int items_ = 0;                             ///< in a whole batch; 0: unknown
  std::vector<std::unique_ptr<Size>> sizes_;  ///< planned so far; the first has all items
  Size* size_ = nullptr;                      ///< the one in use
  /// Plans for fewer items, and has them in use: of stash/tape_start.hpp.
  Error (*plan_size_)(Tape& tape, int items) = nullptr;
  PlanRequest request_;
  EvolvingStashOptions options_;
  void (*log_)(void* user, const char* line) = nullptr;
  void* log_user_ = nullptr;
  Block<std::byte> memory_;
  Bytes lent_;
  Error described_;  ///< the first mistake in a description
  bool closed_ = false, started_ = false;
  // The step under way:
  detail::TapeNow<Context> now_;
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
