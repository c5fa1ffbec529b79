// SPDX-License-Identifier: MIT
/// A step with everything around it: a plan within a budget, memory for all of it, initial
/// parameters, an optimizer.
///
/// For those who have no trainer of their own. It only puts together what is public elsewhere:
/// take its pieces (make_plan, Step, Evolution, AdamW, Block) if memory or loop are yours.
///
///     auto training = Training<>::make(net, Shape(256, 2), {.budget_bytes = 450 * KiB});
///     training->step(x, y, 1e-3);
///
/// make() of a network and a shape is in train/make.hpp, save() and load() are in train/save.hpp; what is only
/// declared here is in train/training_set_up.hpp and train/training_updates.hpp.
/// <adacc/train.hpp> has all of it. A plan that is already there comes as a Program.
///
/// Activations are of T; parameters, their gradients and the optimizer's state of Wide<T>: with bfloat16,
/// which devices have, fp32.
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
#include "../evolve/evolution.hpp"
#include "../optimizer/adamw.hpp"
#include "../optimizer/stored_moments.hpp"
#include "../optimizer/update_table.hpp"
#include "../step/step.hpp"
#include "memory.hpp"
#include "memory_use.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "plan_keeper.hpp"

namespace adacc { inline namespace v0_1 {

struct CheckpointInfo;  // io/checkpoint.hpp
class CheckpointFile;

/// What load() takes from a checkpoint.
enum class Restore : unsigned char {
  all,      ///< and goes on bit for bit: plan and all that evolved, too
  numbers,  ///< parameters, the optimizer's state, updates, data position and seed; the plan stays
};

namespace detail {
template <class T, class Context, class Optimizer>
class EvolvingPlan;

template <class T>
class SavedState;  // saved_state.hpp
}  // namespace detail

template <class T, class Context, class Optimizer>
class DataParallel;  // ranks/data_parallel/data_parallel.hpp

template <class T = float, class Context = Cpu, class Optimizer = AdamW>
class Training {
 public:
  using Options = TrainingOptions<Context, Optimizer>;
  using Outcome = TrainingOutcome;

  Optimizer optimizer;  ///< its options may change, but for what it keeps
  double clip = 0;      ///< gradients are scaled down to this L2 norm; 0 is off
  ClipBy clip_by = ClipBy::this_step;
  bool capture_steps = false;       ///< Options::capture_steps
  std::uint64_t data_position = 0;  ///< yours: where the next batch begins, kept in checkpoints
  std::string model;                ///< what checkpoints call the network (Options::model)

  Training() = default;

  /// Plans a training step of `network`, which must outlive it, on inputs of shape `input`, takes
  /// the memory for it, and draws the parameters. Fails if no plan fits the budget, and names
  /// the smallest that can be met.
  template <class Network>
  static Result<Training> make(const Network& network, Shape input, Options options = {});
  template <class Network>
  static Result<Training> make(const Network&& temporary, Shape, Options = {}) = delete;

  /// The same of a graph, with a dispatch table that can run it.
  static Result<Training> make(Dispatch<T, Context> dispatch, Graph graph, Options options = {});

  /// Under a plan that is there: takes the memory for a training step of `network` (which must
  /// outlive it) in `context` and with its seed, and draws the parameters. The arena is larger than
  /// the step needs if `arena_bytes` says so, for other steps that borrow it. The optimizer's state is
  /// in `moment_store`, if that has a store; what the plan offloads goes to `store`, which must have
  /// room for program.schedule.store_bytes and outlive the training.
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
    return make(std::move(dispatch), std::move(program), context, optimizer, arena_bytes, 0, store,
                moment_store);
  }

  /// accumulate() and update(): forward, backward and, if loss and gradient are finite, one
  /// update at the rate `lr`. After an error in the middle of it (a codec's, the store's) nothing is
  /// updated, and once its cause is gone the next step goes on with the bits of a run in which it
  /// never happened.
  ///
  /// If updates are fused each parameter is updated on the way, and an error may come behind some of
  /// them. Those were made from right gradients and stay; all others keep their values, and so do
  /// their moments. The error then says how many there were ("after updates of 3 of 12 parameters"),
  /// and updates() has grown by one. It is as if the step had been abandoned there: the training can go
  /// on, but only a checkpoint leads back to the bits of a run that did not fail.
  Result<Outcome> step(AnyView input, AnyView targets, double lr) {
    rate_ = lr;
    if (const Result<double> loss = run_batch(input, targets); !loss) return loss.error;
    return update(lr);
  }

  /// Forward and backward of a micro-batch; its mean loss. gradients() is the sum of the gradients of
  /// the micro-batches since the last update, in their order, each of its own mean loss; random
  /// numbers differ between them. After an error in the middle of it (a codec's) what was summed
  /// is given up. Not if updates are fused, which sum nothing: step() then.
  Result<double> accumulate(AnyView input, AnyView targets) {
    if (fused())
      return Error::misuse(
          "gradients cannot be accumulated over micro-batches if updates are fused, which give "
          "each up "
          "as it comes: step() updates in the step, or let updates be separate "
          "(Updates::separate)");
    return run_batch(input, targets);
  }

  /// accumulate() in slices: begins it with `cursor`, which is one of compiled_step(). The cursor runs it,
  /// and once it has ended, update() or the next micro-batch follows. A step that is abandoned
  /// instead gives up what was summed.
  template <class StepCursor>
  Error begin(StepCursor& cursor, AnyView input, AnyView targets) {
    if (const Error why = ready(input, targets)) return why;
    if (const Error why = cursor.begin(input, targets)) return why;
    if (step_.begun() != begun_ + 1)
      return Error::misuse("the cursor is of another step: make it of compiled_step()");
    sliced_ = true;
    return {};
  }

  /// The same of a step whose updates are fused, at the rate `lr`: update(), with the same rate, then
  /// says what it did. One that is abandoned has updated what backward had come to.
  template <class StepCursor>
  Error begin(StepCursor& cursor, AnyView input, AnyView targets, double lr) {
    rate_ = lr;
    rated_ = true;
    return begin(cursor, input, targets);
  }

  /// One update from the mean of the gradients summed since the last one, clipped to `clip`, at the
  /// rate `lr`. If it, or a loss, is not finite nothing is updated, and the gradients are given
  /// up: the next batch starts from zeros. Between ranks gradients() may be reduced before it. Behind
  /// a step in slices that failed it is that step's error.
  Result<Outcome> update(double lr) {
    const Error failed = slices_ended() ? said_of_updates(step_.error()) : Error();
    if (const Error why = settle()) return why;
    if (failed) return failed;
    if (batches_ == 0)
      return Error::misuse("there are no gradients to update from: accumulate() some first");
    if (fused()) return outcome_of_step(lr);
    return update_from(lr, [&] {
      return detail::SummedBatches{losses_, norm_of_block(), batches_, declined_};
    });
  }

  /// What the first step would do before it runs, if costs are to be measured (Options): for those
  /// who want to know the plan then. Not while gradients are being summed.
  Error prepare(AnyView input, AnyView targets) {
    if (const Error why = settle()) return why;
    if (batches_ != 0) return Error::misuse("prepare() comes before accumulate()");
    clear();
    set_key();
    boundary_ = {};
    return keeper_ == nullptr ? Error{} : keeper_->prepare(*this, boundary_, input, targets);
  }

  /// The arena may be as large as this from the next update on, up or down. If no plan fits, that
  /// boundary() says so and the old budget stays.
  Error set_budget(std::size_t bytes) {
    if (keeper_ == nullptr)
      return Error::misuse("the plan is the caller's: switch_to() a program that fits");
    keeper_->evolution().set_budget(bytes);
    return {};
  }

  /// Between two steps: those that follow run under `program`, of the same network, and the arena
  /// is exchanged for one of the size it takes. The old one is given back first, so that memory
  /// never holds both; other steps that borrowed it must be bound again. If this fails, all is
  /// as it was; but if even the old arena cannot be had again, no step runs.
  Error switch_to(Program program);

  /// Saves parameters, the optimizer's state, plan, what evolved, updates, data position, seed and
  /// `notes` of yours (train/save.hpp). Between updates: gradients that are being summed are not
  /// saved.
  Error save(const std::string& path, const std::string& notes = {}) const;

  /// Goes on where the training that saved `path` was, bit for bit: it was of the same network,
  /// input shape and options, and what changed the plan after it by the clock alone may change it at
  /// other steps (Options::watch_times). Options that differ hold: a plan that another budget or
  /// tolerance was asked for is made anew before the next update. A training under a program of the
  /// caller's keeps that. Moments that were saved in other forms are converted. Refuses checkpoints
  /// of other networks, graphs and optimizers, and then changes nothing.
  Result<CheckpointInfo> load(const std::string& path, Restore what = Restore::all);

  /// use(View<const T>) of the parameters, and fill(View<T>) of all of them, in memory of the host's,
  /// wherever they are: its error, or why they could not be copied. Between updates.
  template <class Use>
  Error read_parameters(const Use& use) const {
    return memory_.read(params(), use);
  }
  template <class Fill>
  Error write_parameters(const Fill& fill) {
    return memory_.write(params(), fill);
  }

  std::uint64_t updates() const { return updates_; }  ///< made so far; the step of the random key
  std::size_t batches() const { return batches_; }    ///< micro-batches summed since the last

  const Plan& plan() const { return step_.program().plan; }
  std::size_t peak_bytes() const { return step_.arena_bytes(); }  ///< of a step, exactly
  /// What the last boundary did to the plan.
  const PlanBoundary& boundary() const { return boundary_; }
  /// Steps so far that were launches of what was captured.
  std::uint64_t captured_steps() const { return memory_.captured_steps(); }
  /// Why steps under this plan are not captured; none if they are, or were not to be yet.
  Error capture_failure() const { return memory_.capture_failure(); }
  /// What is planned, expected and seen; null if the plan is the caller's.
  const Evolution* evolution() const {
    return keeper_ == nullptr ? nullptr : &keeper_->evolution();
  }
  Evolution* evolution() { return keeper_ == nullptr ? nullptr : &keeper_->evolution(); }

  Context& context() { return context_; }
  const Context& context() const { return context_; }
  const Step<T, Context>& compiled_step() const { return step_; }
  Step<T, Context>& compiled_step() { return step_; }
  Bytes arena() { return {arena_.data(), Shape(arena_.size())}; }
  /// The block of parameters; empty if it holds them in bfloat16.
  View<Wide<T>> params() { return params_.view(); }
  View<const Wide<T>> params() const { return params_.view(); }
  /// Likewise; empty if it does not.
  View<bfloat16> params_in_bf16() { return held_.view(); }
  View<const bfloat16> params_in_bf16() const { return held_.view(); }
  /// The block in either form, to be lent to other steps.
  ParameterBlock<Wide<T>> parameters() const {
    if (holds_bf16()) return params_in_bf16();
    return params();
  }
  /// Of the parameters that are trained: as many as Graph::gradient_elems, at the same offsets. Empty if
  /// updates are fused.
  View<Wide<T>> gradients() { return gradients_.view(); }
  /// Tensor i of the optimizer's state, of all parameters: as T if it is kept as it is, and as
  /// bytes in any form. It lies as table() says. Empty if it is in a store: copy_state() then.
  template <class Element = Wide<T>>
  View<Element> state(std::size_t i) {
    return state_part<Element>(state_.data(), i);
  }
  template <class Element = Wide<T>>
  View<const Element> state(std::size_t i) const {
    return state_part<const Element>(state_.data(), i);
  }
  /// All of it, wherever it is, to table().bytes() bytes at `to`. Between updates.
  Error copy_state(Bytes to) const {
    if (to.size() != table_.bytes())
      return Error::misuse("the state has ", table_.bytes(), " bytes, and was asked for as ",
                           to.size());
    std::size_t at = 0;
    return read_state([&](ConstBytes piece) {
      std::memcpy(to.data() + at, piece.data(), piece.size());
      at += piece.size();
      return Error();
    });
  }
  const UpdateTable& table() const { return table_; }

  /// What it holds, in bytes.
  TrainingMemoryUse memory_use() const;

 private:
  using Keeper = detail::PlanKeeper<Training>;
  static Result<Training> set_up(Dispatch<T, Context> dispatch, Graph graph, Options options);

  friend class detail::EvolvingPlan<T, Context, Optimizer>;
  friend class DataParallel<T, Context, Optimizer>;
  template <class Element>
  using Block = typename TrainingMemory<Context>::template Block<Element>;

  /// The arena has at least `first_arena` bytes until the program changes. Only parameters that are
  /// `mine` are updated, as UpdateTable has it.
  static Result<Training> make(Dispatch<T, Context> dispatch, Program program,
                               const Context& context, const Optimizer& optimizer,
                               std::size_t arena_bytes, std::size_t first_arena,
                               StoreRef store = {}, const MomentStore& moment_store = {},
                               const bool* mine = nullptr);

  /// Memory for what steps that are watched leave to the host, if they leave it in that of the context;
  /// and has the host read it.
  Error take_watched();
  Error read_watched();

  void take_arena(std::size_t bytes, Error& error) {
    // What is sent away starts and ends where a disk can be written.
    detail::take(arena_, bytes, "activations", error, store_ ? huge_page : alignment);
  }

  Error bind(Step<T, Context>& step) {
    if (const Error why = step.bind(arena(), parameters(), gradients(), store_)) return why;
    return memory_.bind(step);
  }

  bool holds_bf16() const { return step_.graph().parameter_form == ParameterForm::bf16; }

  /// use(View) of the block of parameters, in the form that it has.
  template <class Use>
  Error each_form(const Use& use) {
    if constexpr (updates_in_steps)
      if (holds_bf16()) return use(params_in_bf16());
    return use(params());
  }

  /// What parameters in bfloat16 do not go with.
  static Error check_form(const Graph& graph, const Optimizer& optimizer);

  static void give_back(Block<std::byte>& block) {
    const Block<std::byte> gone = std::move(block);
    static_cast<void>(gone);
  }

  std::size_t arena_for(const Step<T, Context>& step) const {
    return step.arena_bytes() > least_arena_ ? step.arena_bytes() : least_arena_;
  }

  /// What checkpoints of it say, but for notes and what evolved, if `table` lays out its state.
  CheckpointInfo info(const UpdateTable& table) const;
  /// save() and load() with the state of all parameters, wherever it is: `state` as the last argument of
  /// save_checkpoint() and, if none of it is stored_, the memory that it is read into.
  template <class State>
  Error write(const std::string& path, const std::string& notes, const UpdateTable& table,
              const State& state) const;
  Result<CheckpointInfo> read(const std::string& path, Restore what, const UpdateTable& table,
                              Bytes state);
  Error read_stored(detail::SavedState<Wide<T>>& saved, CheckpointFile& file);

  ClockRef clock() const { return keeper_ == nullptr ? ClockRef{} : keeper_->clock(); }

  /// Whether steps make updates themselves.
  bool fused() const { return step_.graph().fuses_updates() && !given_out_; }

  /// One micro-batch, whole.
  Result<double> run_batch(AnyView input, AnyView targets);

  /// Updates parameters in the middle of steps: lent to them while they run.
  struct UpdateInStep {
    Training* training = nullptr;
    std::size_t updated = 0, skipped = 0;  ///< parameters, in this step
    double scale = 1;

    Error operator()(Context& context, const CompleteGradients<Wide<T>>& complete) {
      if constexpr (updates_in_steps) return training->update_complete(context, complete);
      else return {};
    }
  };
  static constexpr bool updates_in_steps = !context_traits<Context>::own_memory;

  Error update_complete(Context& context, const CompleteGradients<Wide<T>>& complete);

  /// The update of what is in the turns [first, last), with `gradient(o)` of the o-th parameter of the
  /// table.
  template <class Gradient>
  Error update_stored(Context& context, std::size_t first, std::size_t last,
                      const UpdateTerms& terms, const Gradient& gradient);

  /// Of a step that has made its updates itself.
  Result<Outcome> outcome_of_step(double lr);

  /// The norm of all gradients from the squares of each one's, in the order of the parameters: whenever
  /// they became known, it has the same bits.
  double norm_of_squares() const {
    double sum = 0;
    for (const double square : squares_) sum += square;
    return std::sqrt(sum);
  }
  double norm_of_block();

  /// What a step whose updates are fused needs to make them.
  Error ready_to_update();

  /// Everything is in place for a micro-batch: the plan, if it is the first of an update, zeros in
  /// the gradients, and the random key.
  Error ready(AnyView input, AnyView targets);

  void set_key() {
    context_.key.step = static_cast<std::uint32_t>(updates_);
    context_.key.micro_step = static_cast<std::uint16_t>(first_batch_ + batches_);
    context_.key.activation = 0;
  }

  /// Of update number `update`: the same however its micro-batches ran.
  RandomKey rounding_key(std::uint64_t update) const {
    return {context_.key.seed, static_cast<std::uint32_t>(update)};
  }

  /// Accounts for steps that ran since the last call: one in slices that has ended counts; anything
  /// else has left who knows what in the gradients.
  Error settle();

  /// Whether the step that begin() began has run to its end, and is not accounted for.
  bool slices_ended() const {
    return sliced_ && step_.begun() == begun_ + 1 && step_.ended() == ended_ + 1;
  }

  /// `why` a step failed, with what it had updated until then.
  Error said_of_updates(const Error& why) const {
    // State that is lost says itself what follows.
    if (!why || in_step_.updated == 0 || (stored_ != nullptr && stored_->failure())) return why;
    return Error::say("after updates of ", in_step_.updated, " of ", table_.owners(),
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
  }

  void clear() {
    if (!spoiled_) return;
    context_.fill(gradients(), Wide<T>{});
    spoiled_ = false;
  }

  /// The update that gradients() is ready for. `sum()` says what it is the sum of.
  template <class Sum>
  Result<Outcome> update_from(double lr, const Sum& sum);

  Error run_optimizer(const UpdateTerms& terms);

  /// put(ConstBytes) of the state, piece by piece in the order of table(); the first error.
  template <class Put>
  Error read_state(const Put& put) const {
    if (stored_ != nullptr) return stored_->read(put);
    return memory_.read(ConstBytes(state_.data(), Shape(state_.size())), put);
  }

  template <class Element, class Byte>
  View<Element> state_part(Byte* block, std::size_t i) const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;
    if (stored_ != nullptr) return {};
    const std::size_t begin = table_.begin(i), bytes = table_.begin(i + 1) - begin;
    return {static_cast<Element*>(static_cast<Pointer>(block + begin)),
            Shape(bytes / sizeof(Element))};
  }

  explicit Training(const Context& context) : context_(context) {}

  Context context_;
  StoreRef store_;
  TrainingMemory<Context> memory_;
  std::size_t least_arena_ = 0;   ///< bytes, for others that borrow it
  std::size_t set_up_bytes_ = 0;  ///< taken, and given back, before all else
  Block<std::byte> arena_;
  Block<Wide<T>> params_, gradients_;
  Block<bfloat16> held_;  ///< in place of params_, if parameters are in bfloat16
  UpdateTable table_;
  Block<std::byte> state_;
  std::unique_ptr<detail::StoredMoments> stored_;  ///< the state, in place of that block
  Step<T, Context> step_;  ///< goes before its memory: what is under way to a store is waited for
  Block<std::byte> watched_;        ///< lent to steps that are watched; none on the host
  std::unique_ptr<Keeper> keeper_;  ///< none: the plan is the caller's
  PlanBoundary boundary_;
  std::uint64_t updates_ = 0;
  std::uint64_t begun_ = 0, ended_ = 0;  ///< steps of step_ that are accounted for
  std::size_t batches_ = 0;              ///< whose gradients are summed
  std::size_t first_batch_ = 0;          ///< of an update's, on all ranks, that is this one's
  double losses_ = 0;                    ///< the sum of theirs
  DeclinedCounts declined_;              ///< and of what was declined in them
  double seconds_ = 0;                   ///< and of their times; 0: unknown
  double rate_ = 0;                      ///< of fused updates
  double previous_norm_ = -1;            ///< of the gradients of the update before; -1: unknown
  Array<double> squares_;                ///< of the gradients of each parameter that is trained
  UpdateInStep in_step_;                 ///< lent to step_ by each step that begins
  bool given_out_ = false;  ///< ranks take gradients out of each step, and say where they are then:
  Array<T*> given_to_;      ///< of each parameter of the table
  bool rated_ = false;      ///< rate_ is that of the step that begins
  bool ran_ = false;        ///< the micro-batch asked for last began to run
  bool sliced_ = false;     ///< begin() began the step that is not accounted for
  bool spoiled_ = false;    ///< the gradients hold something that is to be cleared
};

}}  // namespace adacc::v0_1

#include "training_set_up.hpp"
#include "training_updates.hpp"
