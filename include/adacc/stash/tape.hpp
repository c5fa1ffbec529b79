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
#include "tape_description.hpp"

namespace adacc { inline namespace v0_1 {

struct TapeStart;

template <class T = float, class Context = Cpu>
class Tape : private detail::TapeDescription<T, Context> {
  static constexpr bool on_host = !context_traits<Context>::own_memory;
  using Description = detail::TapeDescription<T, Context>;
  using Description::activations_;
  using Description::at;
  using Description::base_;
  using Description::carried_;
  using Description::described_;
  using Description::entries_;
  using Description::groups_;
  using Description::items_;
  using Description::kept_as;
  using Description::known;
  using Description::none;
  using Description::now_;
  using Description::shown_as;
  using Description::watched_;
  using typename Description::Activation;
  using typename Description::Entry;
  using typename Description::Gradient;
  using typename Description::Group;
  using typename Description::Size;

 public:
  using Kernel = TapeKernel<T, Context>;

  Tape() = default;
  /// Messages number kernels and activations from `first` on, as the caller does.
  explicit Tape(int first) : Description(first) {}
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
    const int first = this->template add<Function>(call, outputs, function);
    return detail::ids_from<outputs>(first);
  }
  /// A kernel of any number of outputs; the id of the first one, -1 if there is none.
  template <class Function>
  int kernel_of_any(const Kernel& call, const Function& function) {
    return this->template add<Function>(call, call.writes.size(), function);
  }

  /// Memory of the trainer not to be changed by kernels that run again, such as running means: start() with
  /// `check` looks at it. `name` and the memory must outlive the tape.
  void watch(const char* name, ConstBytes memory) { watched_.push_back({name, memory}); }

  /// Kernels so far: they are numbered from 0 in the order of forward.
  using Description::kernels;
  /// The number of the kernel for activation `id`; -1 if there is no such activation.
  using Description::kernel_of;
  using Description::name_of_kernel;

  /// Measures kernels and codecs, plans and takes memory: stash/tape_start.hpp.
  ///
  /// step() runs one step of the trainer from begin() to end(), with all kernels, on a fixed batch, from gradients
  /// of zero and without an update. It returns the gradients of parameters as a Result<Array<View<const Wide<T>>>>.
  template <class TrainStep>
  Error start(Context& context, const TapeStart& how, const TrainStep& step);

  // ---- A step ----

  /// Begins a step; a step under way is given up. `context` must live until end(). With `items`, fewer than
  /// TapeStart::items, outputs that are per item are smaller in this step. The first step of so many items plans
  /// within the same budget, and allocates; later ones neither plan nor allocate.
  Error begin(Context& context, int items = 0) {
    failed_ = {};
    if (!started_) return failed_ = not_started();
    if (described_) return failed_ = described_;  // a kernel too late
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
    if (next_ == 0)
      return fail(Error::misuse("backward() before run(): no kernel has run in this step"));
    if (k >= next_)
      return fail(Error::misuse("kernel ", shown_as(k), " (", name_of_kernel(k),
                                ") has no backward in this step: forward ended ",
                                "before it, with kernel ", shown_as(next_ - 1)));
    if (backward_ != none && k > backward_)
      return fail(Error::misuse("the backward of ", kernel_named(k), " comes behind that of ",
                                kernel_named(backward_),
                                ": backward goes from the last kernel to the first"));
    if (backward_ == none) {
      if (Error why = check_forward_end()) return fail(why);
      if (Error why = finish_pending()) return fail(why);
      if (next_ < kernels())
        if (Error why = with([&](auto& stash) { return stash.stop_forward(); })) return fail(why);
    }
    if (Error why = with([&](auto& stash) { return stash.enter(k); })) return fail(why);
    if (now_.mistake) return fail(now_.mistake);
    backward_ = k;
    return {};
  }

  /// The backward of the kernel for activation `id` begins.
  Error backward_of(int id) {
    if (failed_ || known(id)) return backward(kernel_of(id));
    return fail(none_such(id));
  }

  /// Ends the step, or gives it up; the first error of the step.
  Error end() {
    const Error why = started_ ? with([&](auto& stash) { return stash.end(); }) : not_started();
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

  /// The gradient of activation `id`, to be read and added to: zero at the step's first call for it.
  View<T> grad(int id) { return gradient(id, GradientUse::add); }
  /// The gradient with any contents, to be written whole: for a backward that sets gradients instead of adding to
  /// them. An error if the gradient has contents in this step already.
  View<T> grad_to_write(int id) { return gradient(id, GradientUse::write); }
  /// The gradient of an activation of another type than T, of that type.
  template <class U>
  U* grad_as(int id) {
    return static_cast<U*>(static_cast<void*>(grad(id).data()));
  }

  /// TapeKernel::backward_bytes of the kernel whose backward is on, with any contents.
  Bytes backward_workspace() {
    if (failed_) return {};
    if (!started_) return static_cast<void>(fail(not_started())), Bytes();
    const Result<Bytes> memory = with([&](auto& stash) { return stash.backward_workspace(); });
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
  std::size_t arena_bytes() const { return started_ ? stash().arena_bytes() : 0; }
  /// The policy of activation `id`; "overwritten" if a kernel changes it in place.
  const char* policy_of(int id) const {
    const int there = activations_[at(id)].stash;
    return there < 0 ? "overwritten" : name_of(stash().plan()[there]);
  }

 private:
  Shape view_shape(int id) const { return size_->extents[at(id)].view; }

  Error fail(const Error& why) { return failed_ = why; }
  static Error not_started() {
    return Error::misuse("there is no step of this tape: start() has not planned it yet");
  }
  /// No step is under way, and nothing of the last one is left to look at.
  void forget_step() {
    now_.context = nullptr;
    now_.mistake = {};
    next_ = 0;
    pending_ = backward_ = none;
    for (Activation& activation : activations_) activation.value = nullptr;
    for (Gradient& gradient : carried_) gradient.begun = false;
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

  /// Ends the description; the tape of `items` is the only size.
  Error close(int items) {
    if (Error why = Description::end_description(items)) return why;
    sizes_.clear();
    Result<std::unique_ptr<Size>> whole = Description::describe(items);
    if (!whole) return whole.error;
    sizes_.push_back(std::move(*whole));
    use(*sizes_[0]);
    return {};
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
      workspace = with(
          [&](auto& stash) { return stash.workspace(activations_[at(group.writes[0])].stash); });
    kernel.run(now_, inputs_.data(), outputs_.data(), workspace);
    if (now_.mistake) return now_.mistake;
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

  /// The fault of a use of the gradient of activation `id`; empty if there is none.
  Error check_grad(int id) const {
    const Gradient& gradient = carried_[at(activations_[at(id)].carried)];
    if (backward_ == none || backward_ > gradient.first)
      return Error::misuse("the gradient of ", activation_named(id),
                           " begins with the backward of ", kernel_named(gradient.first),
                           ", the last reader, which is to come");
    if (backward_ < gradient.last)
      return Error::misuse("the gradient of ", activation_named(id), " is gone: the backward of ",
                           kernel_named(gradient.last), ", the maker, is over");
    return {};
  }

  /// A kernel or an activation in errors: "kernel 3 (gelu)".
  struct Named {
    const char* kind;
    int number;
    const char* name;
    constexpr void append_to(Error& error) const {
      error.append(kind);
      error.append(number);
      for (const char* piece : {" (", name, ")"}) error.append(piece);
    }
  };
  Named kernel_named(int k) const { return {"kernel ", shown_as(k), name_of_kernel(k)}; }
  Named activation_named(int id) const {
    return {"activation ", shown_as(id), activations_[at(id)].name};
  }

  enum class GradientUse : bool { add, write };
  View<T> gradient(int id, GradientUse use) {
    if (failed_) return {};
    if (!known(id) || activations_[at(id)].carried < 0)
      return static_cast<void>(
                 fail(Error::misuse("activation ", shown_as(id), " (",
                                    known(id) ? activations_[at(id)].name : "there is none",
                                    ") has no gradient: give its output TapeOutputs::gradient"))),
             View<T>();
    if (const Error why = check_grad(id)) return static_cast<void>(fail(why)), View<T>();
    const Result<Bytes> there =
        with([&](auto& stash) { return stash.carried_bytes(activations_[at(id)].carried); });
    if (!there) return static_cast<void>(fail(there.error)), View<T>();
    Gradient& flowing = carried_[at(activations_[at(id)].carried)];
    if (use == GradientUse::write && flowing.begun)
      return static_cast<void>(fail(Error::misuse("the gradient of ", activation_named(id),
                                                  " has contents, to be added to by grad(), and "
                                                  "grad_to_write() would lose them"))),
             View<T>();
    if (use == GradientUse::add && !flowing.begun) detail::fill_bytes(*now_.context, *there, 0);
    flowing.begun = true;
    return {static_cast<T*>(static_cast<void*>(there->data())), view_shape(id)};
  }

  Error none_such(int id) const {
    return Error::misuse("there is no activation ", shown_as(id), ": the tape has ", base_, " to ",
                         shown_as(static_cast<int>(activations_.size()) - 1));
  }

  /// The number in the stash, for backward.
  int stash_id(int id) {
    if (!known(id)) {
      static_cast<void>(fail(none_such(id)));
      return none;
    }
    const Activation& activation = activations_[at(id)];
    if (activation.overwritten >= 0)
      static_cast<void>(
          fail(Error::misuse("activation ", shown_as(id), " (", activation.name,
                             ") is gone: kernel ", shown_as(activation.kernel + 1), " (",
                             name_of_kernel(activation.kernel + 1), ") changed it in place")));
    bool saved = activation.overwritten >= 0;
    for (const int one : entries_[at(backward_)]->saves) saved = saved || one == id;
    if (saved) return activation.stash;
    static_cast<void>(
        fail(Error::misuse(activation_named(id), " is not there: ", kernel_named(backward_),
                           ", whose backward is on, does not save it")));
    return none;
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
  bool started_ = false;
  // The step under way:
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
