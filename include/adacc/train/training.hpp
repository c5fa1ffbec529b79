// SPDX-License-Identifier: MIT
/// A step with everything around it: a plan within a budget, memory for all of it, initial
/// parameters, an optimizer.
///
/// For users without a trainer of their own. Training only puts together public pieces:
/// take these (make_plan, Step, Evolution, AdamW, Block) if memory or loop are yours.
///
///     auto training = Training<>::make(net, Shape(256, 2), {.budget_bytes = 450 * KiB});
///     training->step(x, y, 1e-3);
///
/// make() of a network and a shape is in train/make.hpp, save() and load() are in train/save.hpp. Other functions
/// declared here are defined in train/training_set_up.hpp and train/training_updates.hpp.
/// <adacc/train.hpp> includes all of them. A plan made before comes as a Program.
///
/// Activations are of T; parameters, their gradients and the optimizer's state of Wide<T>: fp32 with
/// bfloat16, a type of devices.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "../core/any_view.hpp"
#include "../core/block.hpp"
#include "../core/clock.hpp"
#include "../core/thread_stack.hpp"
#include "../evolve/evolution.hpp"
#include "../optimizer/adamw.hpp"
#include "../optimizer/updater.hpp"
#include "../step/cursor.hpp"
#include "inference.hpp"
#include "memory.hpp"
#include "memory_use.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "parameters.hpp"
#include "plan_keeper.hpp"

namespace adacc { inline namespace v0_1 {

struct CheckpointInfo;  // io/checkpoint.hpp
struct Lengths;         // lengths.hpp
class CheckpointFile;

/// The parts of a checkpoint that load() restores.
enum class Restore : unsigned char {
  all,      ///< everything, plan and evolution too: training goes on bit for bit
  numbers,  ///< parameters, the optimizer's state, updates, data position and seed; the plan stays
};

namespace detail {
template <class T, class Context, class Optimizer>
class EvolvingPlan;
template <class T, class Context, class Optimizer>
class LengthPlans;

template <class T>
class SavedState;  // saved_state.hpp
}  // namespace detail

template <class T = float, class Context = Cpu, class Optimizer = AdamW>
class Training {
 public:
  using Options = TrainingOptions<Context, Optimizer>;
  using Outcome = TrainingOutcome;
  using CompiledStep = Step<T, Context>;

  Optimizer optimizer;              ///< options may change, but not the form of the state
  Clipping clip;                    ///< Options::clip at first; may change between updates
  std::uint64_t data_position = 0;  ///< yours: where the next batch begins, kept in checkpoints
  std::string model;                ///< the network's name in checkpoints (Options::model)

  Training() = default;

  /// Plans a training step of `network`, which must outlive the training, on inputs of shape `input`,
  /// takes memory, and draws the parameters. Fails if no plan fits the budget, and names
  /// the smallest possible budget.
  template <class Network>
  static Result<Training> make(const Network& network, Shape input, Options options = {});
  template <class Network>
  static Result<Training> make(const Network&& temporary, Shape, Options = {}) = delete;

  /// Trains on inputs of any length up to the largest, with a plan for each length class (train/lengths.hpp).
  template <class Network>
  static Result<Training> make(const Network& network, const Lengths& lengths,
                               Options options = {});
  template <class Network>
  static Result<Training> make(const Network&& temporary, const Lengths&, Options = {}) = delete;

  /// Trains a graph, with a dispatch table for its layers.
  static Result<Training> make(Dispatch<T, Context> dispatch, Graph graph, Options options = {});

  /// Trains `network`, which must outlive the training, under the caller's plan. Takes memory and draws
  /// the parameters.
  /// `context`: where steps run; has the seed.
  /// `arena_bytes`: the arena has at least as many, for other steps that borrow the arena.
  /// `moment_store`: its store, if there is one, has the optimizer's state.
  /// `store`: of offloaded activations; has room for program.schedule.store_bytes, outlives the training.
  template <class Network>
  static Result<Training> make(const Network& network, Program program,
                               const Context& context = Context{}, std::size_t arena_bytes = 0,
                               const Optimizer& optimizer = Optimizer{},
                               const MomentStore& moment_store = {}, StoreRef store = {}) {
    return make(make_dispatch<T, Context>(network), static_cast<Program&&>(program), context,
                arena_bytes, optimizer, moment_store, store);
  }
  template <class Network>
  static Result<Training> make(const Network&& temporary, Program, const Context& = Context{},
                               std::size_t = 0, const Optimizer& = Optimizer{},
                               const MomentStore& = {}, StoreRef = {}) = delete;

  static Result<Training> make(Dispatch<T, Context> dispatch, Program program,
                               const Context& context, std::size_t arena_bytes = 0,
                               const Optimizer& optimizer = Optimizer{},
                               const MomentStore& moment_store = {}, StoreRef store = {}) {
    if (const Error why = detail::check_stack<Context>()) return why;
    return make(std::move(dispatch), std::move(program), context, optimizer, arena_bytes, 0, store,
                moment_store);
  }

  /// accumulate() and update(): forward, backward and, if loss and gradient are finite, one
  /// update at the rate `lr`. After an error in the middle of the step (a codec's, the store's) nothing is
  /// updated. Once the cause is gone, the next step has the bits of a run without the error.
  ///
  /// If updates are fused, each parameter is updated during the step, and an error may come behind some
  /// updates. These updates were made from right gradients and stay; all other parameters and their
  /// moments keep their values. The error then counts the updates ("after updates of 3 of 12 parameters"),
  /// and updates() has grown by one, as if the step had been abandoned there. Training can go
  /// on, but only a checkpoint leads back to the bits of a run without an error.
  Result<Outcome> step(AnyView input, AnyView targets, double lr) {
    rate_ = lr;
    const bool normed = !fused() && clip.by == ClipBy::this_step;
    if (const Result<double> loss = run_batch(input, targets, normed); !loss) return loss.error;
    return update(lr);
  }

  /// Forward and backward of a micro-batch; returns its mean loss. gradients() is the sum over
  /// micro-batches since the last update, in their order, of the gradient of each mean loss. If targets are classes,
  /// some of them ignored, each mean in this sum is one over all targets, so that each counted target weighs
  /// as much as any other; update() divides by the counted share (targets()). Random
  /// numbers differ between micro-batches. After an error in the middle (a codec's), the sums
  /// are given up. Fused updates sum nothing: call step() then.
  Result<double> accumulate(AnyView input, AnyView targets) {
    if (fused())
      return Error::misuse(
          "gradients cannot be accumulated over micro-batches if updates are fused, which give "
          "each up "
          "as it comes: step() updates in the step, or let updates be separate "
          "(Updates::separate)");
    return run_batch(input, targets);
  }

  /// Begins accumulate() in slices. slice() runs the step; behind its end, update() or the next
  /// micro-batch follows. An abandoned step gives up the sums of gradients.
  Error begin(AnyView input, AnyView targets) {
    Error why = ready(input, targets);
    if (!why) why = cursor().begin(input, targets);
    if (why) return release(), why;
    sliced_ = true;
    return {};
  }

  /// Begins a step with fused updates at the rate `lr`. update(), with the same rate, then returns the
  /// outcome. An abandoned step has updated the parameters that backward had come to.
  Error begin(AnyView input, AnyView targets, double lr) {
    rate_ = lr;
    rated_ = true;
    return begin(input, targets);
  }

  /// Runs the begun step until the clock, `std::int64_t now()`, reads `deadline`, or the step ends
  /// (Slice::ended); the next call goes on from there. step/cursor.hpp says how the clock is used.
  template <class Clock>
  Result<Slice> slice(Clock&& now, std::int64_t deadline) {
    Result<Slice> slice = cursor().run_until(context_, now, deadline);
    if (slice && slice->ended)
      if (const Error why = settle()) return why;
    return slice;
  }
  /// The cursor of slice(): times of instructions, and slices by numbers of parts.
  Cursor<T, Context>& cursor() {
    cursor_.follow(step_);
    if (in_step_.training != nullptr) {  // the training may have moved since begin()
      in_step_.training = this;
      step_.follow_updates(in_step_);
    }
    return cursor_;
  }

  /// One update from the mean of the gradients summed since the last update, clipped to `clip`, at the
  /// rate `lr`. If the mean, or a loss, is not finite, nothing is updated, and the gradients are given
  /// up: the next batch starts from zeros. Ranks may reduce gradients() before update(). Behind
  /// a failed step in slices update() returns the step's error.
  Result<Outcome> update(double lr) {
    const Error failed = slices_ended() ? said_of_updates(step_.error()) : Error();
    if (const Error why = settle()) return why;
    if (failed) return failed;
    if (batches_ == 0)
      return Error::misuse("there are no gradients to update from: accumulate() some first");
    if (fused()) return outcome_of_step(lr);
    return update_from(lr, [&] {
      return detail::SummedBatches{losses_, norm_of_block(), batches_, declined_, targets_};
    });
  }

  /// The mean loss at the present parameters, without dropout. evaluate() changes no parameter, no
  /// state, no sum of gradients, no count. The pass runs in the arena, so not while a step is
  /// under way, and allocates nothing.
  Result<double> evaluate(AnyView input, AnyView targets) {
    if (const Error why = settle()) return why;
    const Result<Shape> output = fit(input, targets);
    if (!output) return output.error;
    const Result<double> loss =
        passes_.evaluate(memory_, context_, arena(), params_.lend(), input, targets);
    release();
    return loss;
  }

  /// Copies the last activation to `output`, in the host's memory; changes as little as evaluate(). For
  /// batches of another shape there is Inference (train/inference.hpp).
  Error infer(AnyView input, View<T> output) {
    if (const Error why = settle()) return why;
    AnyView no_targets;
    const Result<Shape> shape = fit(input, no_targets);
    if (!shape) return shape.error;
    const Error why =
        passes_.infer(memory_, context_, arena(), params_.lend(), input, output, *shape);
    release();
    return why;
  }

  /// Measures costs, if the options say so, and plans now rather than in the first step, for callers
  /// who want to know the plan. Not while gradients are being summed.
  Error prepare(AnyView input, AnyView targets) {
    if (const Error why = settle()) return why;
    if (batches_ != 0) return Error::misuse("prepare() comes before accumulate()");
    clear();
    set_key();
    boundary_ = {};
    if (keeper_ == nullptr) return {};
    const Result<Shape> output = fit(input, targets);
    if (!output) return output.error;
    const Error why = keeper_->prepare(*this, boundary_, input, targets);
    release();
    return why;
  }

  /// Sets the budget of the arena from the next update on, up or down. If no plan fits, boundary() of
  /// the update says so with the least possible budget, and the old budget stays. (Planning alone finds the least
  /// budget, from the costs and errors seen until the update.)
  Error set_budget(std::size_t bytes) {
    if (keeper_ == nullptr)
      return Error::misuse("the plan is the caller's: switch_to() a program that fits");
    keeper_->want_budget(bytes);
    return {};
  }

  /// Between two steps: later steps run under `program`, of the same network, and the arena
  /// is exchanged for one of the program's size. The old arena is given back first, so memory never
  /// holds both; other steps that borrowed the arena must be bound again. A failure changes
  /// nothing; but if even the old arena cannot be had again, no step runs.
  Error switch_to(Program program);

  /// Saves parameters, the optimizer's state, plan, evolution, updates, data position, seed and
  /// `notes` of yours (train/save.hpp). Between updates: sums of gradients are not
  /// saved.
  Error save(const std::string& path, const std::string& notes = {}) const;

  /// Goes on from the checkpoint at `path`, bit for bit if network, input shape and options are those
  /// of the training that saved the checkpoint. Changes of the plan by the clock alone may come at
  /// other steps (PlanningOptions::watch_times). Options that differ hold: for another budget or
  /// tolerance the plan is made anew before the next update. A training under the caller's program
  /// keeps the program. Moments saved in other forms are converted. Refuses checkpoints
  /// of other networks, graphs and optimizers, and then changes nothing.
  Result<CheckpointInfo> load(const std::string& path, Restore what = Restore::all);

  /// Calls use(View<const T>), or fill(View<T>), with all parameters in the host's memory, for any context
  /// and form. Returns the call's error, or why parameters could not be copied. Between updates.
  template <class Use>
  Error read_parameters(const Use& use) const {
    return params_.read(memory_, use);
  }
  template <class Fill>
  Error write_parameters(const Fill& fill) {
    return params_.write(memory_, fill);
  }

  std::uint64_t updates() const { return updates_; }  ///< made so far; the step of the random key
  std::size_t batches() const { return batches_; }    ///< micro-batches since the last update
  /// Targets of these micro-batches: all, and counted in the loss (Step::targets()).
  const TargetCount& targets() const { return targets_; }

  const Plan& plan() const { return step_.program().plan; }
  std::size_t peak_bytes() const { return step_.arena_bytes(); }  ///< for a step, exactly
  /// The plan's changes at the last boundary between updates.
  const PlanBoundary& boundary() const { return boundary_; }
  /// Steps so far that launched a captured step.
  std::uint64_t captured_steps() const { return memory_.captured_steps(); }
  /// Why steps under this plan are not captured; none if they are, or no capture was tried yet.
  Error capture_failure() const { return memory_.capture_failure(); }
  /// The plan with its expected and seen costs; null if the plan is the caller's.
  const Evolution* evolution() const {
    return keeper_ == nullptr ? nullptr : &keeper_->evolution();
  }
  Evolution* evolution() { return keeper_ == nullptr ? nullptr : &keeper_->evolution(); }

  Context& context() { return context_; }
  const Context& context() const { return context_; }
  const Step<T, Context>& compiled_step() const { return step_; }
  Step<T, Context>& compiled_step() { return step_; }
  Bytes arena() { return {arena_.data(), Shape(arena_.size())}; }
  /// The block of parameters in full; empty if they are in bfloat16. Once this view, through which you may write at any
  /// time, has been asked for, each step on a device in bfloat16 makes its copies of all parameters anew. The view of a
  /// const training, write_parameters() and load() cost nothing.
  View<Wide<T>> params() {
    params_.give_away();
    step_.keep_no_copies();
    return params_.full();
  }
  View<const Wide<T>> params() const { return params_.full(); }
  /// The block of parameters in bfloat16; empty if they are in full.
  View<bfloat16> params_in_bf16() { return params_.held(); }
  View<const bfloat16> params_in_bf16() const { return params_.held(); }
  /// The block of parameters in its form, to be lent to other steps.
  ParameterBlock<Wide<T>> parameters() const {
    ParameterBlock<Wide<T>> block = params_.lend();
    block.keep_no_copies();  // they may run when somebody has written parameters
    return block;
  }
  /// Gradients of trained parameters: Graph::gradient_elems numbers, at the parameters' offsets. Empty if
  /// updates are fused. Behind an update they are zeros, or, on a device, anything: the next step writes them.
  View<Wide<T>> gradients() { return gradients_.view(); }
  /// Tensor i of the optimizer's state, of all parameters: as Wide<T> if kept as is, as bytes in
  /// any form. table() has the layout. Empty if the state is in a store: copy_state() then.
  template <class Element = Wide<T>>
  View<Element> state(std::size_t i) {
    return state_part<Element>(updater_.state().data(), i);
  }
  template <class Element = Wide<T>>
  View<const Element> state(std::size_t i) const {
    return state_part<const Element>(updater_.state().data(), i);
  }
  /// Copies all state, in memory or in a store, to table().bytes() bytes at `to`. Between updates.
  Error copy_state(Bytes to) const {
    if (to.size() != table().bytes())
      return Error::misuse("the state has ", table().bytes(), " bytes, and was asked for as ",
                           to.size());
    std::size_t at = 0;
    return read_state([&](ConstBytes piece) {
      std::memcpy(to.data() + at, piece.data(), piece.size());
      at += piece.size();
      return Error();
    });
  }
  const UpdateTable& table() const { return updater_.table(); }

  /// Bytes of memory that the training holds.
  TrainingMemoryUse memory_use() const;

 protected:
  using Keeper = detail::PlanKeeper<Training>;
  static Result<Training> set_up(Dispatch<T, Context> dispatch, Graph graph, Options options);

  friend class detail::EvolvingPlan<T, Context, Optimizer>;
  friend class detail::LengthPlans<T, Context, Optimizer>;
  template <class Element>
  using Block = typename TrainingMemory<Context>::template Block<Element>;
  using ParameterUpdater = Updater<Wide<T>, Context, Block<std::byte>>;

  /// The arena has at least `first_arena` bytes until the program changes. Only parameters marked in
  /// `updated` are updated (UpdateTable).
  static Result<Training> make(Dispatch<T, Context> dispatch, Program program,
                               const Context& context, const Optimizer& optimizer,
                               std::size_t arena_bytes, std::size_t first_arena,
                               StoreRef store = {}, const MomentStore& moment_store = {},
                               const bool* updated = nullptr);

  /// Memory for the observations of watched steps, if steps leave these in the context's own memory;
  /// and has the host read the observations.
  Error take_watched();
  Error read_watched();

  void take_arena(std::size_t bytes, Error& error) {
    // Transfers to a store start and end where a disk can be written.
    detail::take(arena_, bytes, "activations", error, store_ ? huge_page : alignment);
  }

  Error bind(Step<T, Context>& step) {
    if (const Error why = step.bind(arena(), params_.lend(), gradients(), store_)) return why;
    step.divide_by_all(true);
    return memory_.bind(step);
  }

  /// Binds `next`, which runs instead of step_ from now on, in an arena of `needed` bytes. The old arena is given back
  /// first. After a failure step_ has its arena again.
  Error bind_in_arena(CompiledStep& next, std::size_t needed);

  /// Refuses graphs and optimizers that do not go with parameters in bfloat16.
  static Error check_form(const Graph& graph, const Optimizer& optimizer);

  static void give_back(Block<std::byte>& block) {
    const Block<std::byte> gone = std::move(block);
    static_cast<void>(gone);
  }

  std::size_t arena_for(const Step<T, Context>& step) const {
    return step.arena_bytes() > least_arena_ ? step.arena_bytes() : least_arena_;
  }

  /// The fields of a checkpoint, but for notes and evolution, if `table` lays out the state.
  CheckpointInfo info(const UpdateTable& table) const;
  /// save() and load() with the state of all parameters: `state` of write() is the last argument of
  /// save_checkpoint(); `state` of read() is the memory for the state, if none is in a store.
  template <class State>
  Error write(const std::string& path, const std::string& notes, const UpdateTable& table,
              const State& state) const;
  Result<CheckpointInfo> read(const std::string& path, Restore what, const UpdateTable& table,
                              Bytes state);
  Error read_stored(detail::SavedState<Wide<T>>& saved, CheckpointFile& file);

  ClockRef clock() const { return keeper_ == nullptr ? ClockRef{} : keeper_->clock(); }

  /// Whether steps make updates themselves.
  bool fused() const { return step_.graph().fuses_updates() && !updater_.gradients_are_lent(); }

  /// One micro-batch, whole. `normed`: the gradients' norm is asked for next.
  Result<double> run_batch(AnyView input, AnyView targets, bool normed = false);

  /// Updates parameters in the middle of steps; lent to running steps.
  struct UpdateInStep {
    Training* training = nullptr;
    std::size_t updated = 0, skipped = 0;  ///< parameters, in this step
    double scale = 1;

    Error operator()(Context& context, const CompleteGradients<Wide<T>>& complete) {
      if constexpr (ParameterUpdater::on_host) return training->update_complete(context, complete);
      else return {};
    }
  };

  Error update_complete(Context& context, const CompleteGradients<Wide<T>>& complete);

  /// The outcome of a step with fused updates.
  Result<Outcome> outcome_of_step(double lr);

  double norm_of_block();

  /// Prepares the updates of a step with fused updates.
  Error ready_to_update();

  /// Prepares a micro-batch: the plan, if the batch is the first of an update, zeros in
  /// the gradients, and the random key. `input` and `targets` become views that the program takes.
  Error ready(AnyView& input, AnyView& targets);

  /// Runs the program for a batch of this length from now on; PlanKeeper::fit() and release().
  Result<Shape> fit(AnyView& input, AnyView& targets) {
    return keeper_ == nullptr ? Shape() : keeper_->fit(*this, input, targets);
  }
  void release() {
    if (keeper_ != nullptr && !step_.active()) keeper_->release(*this);
  }

  void set_key() {
    context_.key.step = static_cast<std::uint32_t>(updates_);
    context_.key.micro_step = static_cast<std::uint16_t>(first_batch_ + batches_);
    context_.key.activation = 0;
  }

  /// Accounts for steps that ran since the last call: an ended step in slices counts; any other step
  /// has spoiled the gradients.
  Error settle();

  /// Whether the step of begin() has run to its end, and is not accounted for.
  bool slices_ended() const {
    return sliced_ && step_.begun() == begun_ + 1 && step_.ended() == ended_ + 1;
  }

  /// `why` a step failed, with the number of parameters updated until then.
  Error said_of_updates(const Error& why) const {
    // The error of a lost state says itself how to go on.
    if (!why || in_step_.updated == 0 || updater_.failure()) return why;
    return Error::say("after updates of ", in_step_.updated, " of ", table().owners(),
                      " parameters, which stay: ", why.text());
  }

  void note_steps() {
    begun_ = step_.begun();
    ended_ = step_.ended();
    sliced_ = false;
  }

  void count(double loss, double seconds) {
    // A step in slices, or without a clock, leaves the time of the update unknown.
    seconds_ = seconds > 0 && (batches_ == 0 || seconds_ > 0) ? seconds_ + seconds : 0;
    losses_ += loss;
    declined_ = declined_ + step_.declined_counts();
    targets_ = targets_ + step_.targets();
    ++batches_;
  }

  void give_up() {
    spoiled_ = !fused();
    if (in_step_.updated > 0) ++updates_;
    in_step_ = {};
    forget_batches();
  }
  void forget_batches() {
    batches_ = 0;
    losses_ = seconds_ = 0;
    declined_ = {};
    targets_ = {};
  }

  /// A device's steps write the first gradients of an update: nothing has to clear them.
  static constexpr bool writes_gradients = context_traits<Context>::own_memory;

  void clear() {
    if (writes_gradients || !spoiled_) return;
    context_.fill(gradients(), Wide<T>{});
    spoiled_ = false;
  }

  /// Updates from gradients(). `sum()` returns their losses, norm and number of batches.
  template <class Sum>
  Result<Outcome> update_from(double lr, const Sum& sum);

  Error run_optimizer(UpdateTerms terms) {
    terms.keeps_gradients = writes_gradients;
    return updater_.update(optimizer, context_, step_.graph(), params_.lend(gradients()), terms);
  }

  /// Calls put(ConstBytes) with the state, piece by piece in the order of table(). Returns the first error.
  template <class Put>
  Error read_state(const Put& put) const {
    if (updater_.stored() != nullptr) return updater_.stored()->read(put);
    return memory_.read(updater_.state(), put);
  }

  template <class Element, class Byte>
  View<Element> state_part(Byte* block, std::size_t i) const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;
    if (updater_.stored() != nullptr) return {};
    const std::size_t begin = table().begin(i), bytes = table().begin(i + 1) - begin;
    return {static_cast<Element*>(static_cast<Pointer>(block + begin)),
            Shape(bytes / sizeof(Element))};
  }

  explicit Training(const Context& context) : context_(context) {}

  Context context_;
  StoreRef store_;
  TrainingMemory<Context> memory_;
  std::size_t least_arena_ = 0;   ///< bytes, for steps that borrow the arena
  std::size_t set_up_bytes_ = 0;  ///< taken, and given back, before all else
  Block<std::byte> arena_;
  Parameters<T, Context> params_;
  Block<Wide<T>> gradients_;
  ParameterUpdater updater_;
  detail::ForwardPasses<T, Context> passes_;
  Step<T, Context> step_;           ///< destroyed before its memory: waits for transfers under way
  Cursor<T, Context> cursor_;       ///< runs step_ in slices
  Block<std::byte> watched_;        ///< lent to steps that are watched; none on the host
  std::unique_ptr<Keeper> keeper_;  ///< none: the plan is the caller's
  PlanBoundary boundary_;
  std::uint64_t updates_ = 0;
  std::uint64_t begun_ = 0, ended_ = 0;  ///< steps of step_ that are accounted for
  std::size_t batches_ = 0;              ///< micro-batches whose gradients are summed
  std::size_t first_batch_ = 0;  ///< number of the first one in the update; above 0 on some ranks
  double losses_ = 0;            ///< the sum of their losses, divided by the numbers of all targets
  DeclinedCounts declined_;      ///< the sum of their declined activations
  TargetCount targets_;          ///< the sum of their targets
  double seconds_ = 0;           ///< the sum of their times; 0: unknown
  double rate_ = 0;              ///< for fused updates
  UpdateInStep in_step_;         ///< lent to step_ by each step that begins
  bool rated_ = false;           ///< rate_ is the rate of the beginning step
  bool ran_ = false;             ///< the micro-batch asked for last began to run
  bool sliced_ = false;          ///< begin() began the step not accounted for yet
  bool spoiled_ = false;         ///< the gradients have to be cleared
};

}}  // namespace adacc::v0_1

#include "training_set_up.hpp"
#include "training_updates.hpp"
