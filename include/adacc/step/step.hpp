// SPDX-License-Identifier: MIT
/// Executes a compiled step inside an arena lent by the caller.
///
/// Set-up (make, bind) validates everything and reports errors as values. A step itself allocates nothing and throws
/// nothing. A failure in the middle of a step, of a codec or of a transfer to or from the store, ends the step with an
/// error value; nothing computed after the failure updates anything. A result that is not finite is no error: the
/// caller judges it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/any_view.hpp"
#include "../core/cpu.hpp"
#include "../core/vector_target.hpp"
#include "../program/abilities.hpp"
#include "../program/program.hpp"
#include "../store/transfers_under_way.hpp"
#include "arena.hpp"
#include "bound_program.hpp"
#include "complete_gradients.hpp"
#include "declining.hpp"
#include "dispatch.hpp"
#include "gradient_use.hpp"
#include "memory_check.hpp"
#include "program_check.hpp"
#include "watched_blobs.hpp"

namespace adacc { inline namespace v0_1 {

/// `Abilities` of the step's programs (program/abilities.hpp): all by default.
template <class T = float, class Context = Cpu, class Abilities = AllAbilities>
class Step {
  using Transfers =
      std::conditional_t<Abilities::transfers, detail::TransfersUnderWay, detail::NoTransfers>;
  using Declining =
      std::conditional_t<Abilities::declining, detail::Declining<T, Context>, detail::NoDeclining>;
  static constexpr bool reads_copies = context_traits<Context>::template reads_copies<T>;

 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  /// A step under way moves along; the step left behind is bound to nothing.
  Step(Step&& other) noexcept { take(other); }
  /// The step assigned to is given up if under way.
  Step& operator=(Step&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    const std::uint64_t begun = begun_, ended = ended_, programs = programs_;
    take(other);
    begun_ += begun + 1;  // no step of the program before has the number of one to come
    ended_ += ended;
    programs_ += programs + 1;
    return *this;
  }
  ~Step() { abandon(); }

  /// Exchanges programs and all that belongs to them with `other`; neither may be under way. Counts of steps, programs
  /// and bindings stay where they are and grow, so that nobody takes one program for the other.
  void exchange(Step& other) {
    Step held(static_cast<Step&&>(other));
    other.take(*this);
    take(held);
    const auto grow = [](std::uint64_t& here, std::uint64_t& there) {
      const std::uint64_t taken = here;
      here = there + 1;
      there = taken + 1;
    };
    grow(begun_, other.begun_);
    grow(ended_, other.ended_);
    grow(programs_, other.programs_);
    grow(bindings_, other.bindings_);
  }

  /// A step of `network`, which must outlive the step, laid out by `program` (for this network, scalar type and at
  /// least as many workers as the context will have).
  template <class Network>
  static Result<Step> make(const Network& network, Program program) {
    return make(make_dispatch<T, Context>(network), static_cast<Program&&>(program));
  }

  /// A step from a dispatch table, for plans with codecs that no type of the network names.
  static Result<Step> make(Dispatch<T, Context> dispatch, Program program) {
    if (const char* missing = detail::missing_in<Abilities>(program))
      return Error::misuse("the program ", missing,
                           ", and this Step has no code for that (its Abilities)");
    if (const Error why = detail::check_program<T, Context>(dispatch, program)) return why;
    if constexpr (!context_traits<Context>::own_memory) {
      if constexpr (dtype_of<T> == Dtype::bf16) {
        if (const Error& why = instruction_choice().error) return why;
      } else if constexpr (detail::chooses_target) {
        if (const Error& why = vector_choice().error) return why;
      }
    }
    return checked(dispatch, program);
  }

  template <class Network>
  static Result<Step> make(const Network&& temporary, Program) = delete;

  const Program& program() const { return at_.program; }
  const Graph& graph() const { return at_.program.graph; }
  const Dispatch<T, Context>& dispatch() const { return dispatch_; }
  std::size_t arena_bytes() const { return at_.program.peak_bytes(); }
  std::size_t instruction_count() const { return at_.program.schedule.instructions.size(); }

  /// Bytes of a store needed by the step; 0 if its plan sends nothing to a store.
  std::size_t store_bytes() const { return at_.program.schedule.store_bytes; }

  /// Lends memory to the step, while no step is under way. All is 64-byte aligned and apart from each other:
  ///   - an arena of at least arena_bytes(), aligned to transfer_alignment if store_bytes() is not 0;
  ///   - graph().parameter_elems parameters;
  ///   - for training, graph().lent_gradient_elems() gradients (fewer if some are frozen, none if updates are fused);
  ///   - a store of store_bytes() at least, if not 0, which outlives the binding, and is nobody else's during a step.
  ///
  /// The block of parameters is of Wide<T> or of bfloat16: see graph().parameter_form. A block with copies has
  /// graph().copy_elems() of them, and serves a graph without copies, too.
  Error bind(Bytes arena, const ParameterBlock<Wide<T>>& params, View<Wide<T>> gradients = {},
             StoreRef store = {}) {
    const Graph& graph = at_.program.graph;
    if (active_) return under_way();
    const bool has_form =
        params.form() == graph.parameter_form || (params.form() == ParameterForm::with_copies &&
                                                  graph.parameter_form == ParameterForm::full);
    const std::size_t copy_elems = Abilities::decoded_parameters ? graph.copy_elems() : 0;
    if (!has_form && graph.parameter_elems != 0)
      return Error::misuse("the program was made for parameters held in ",
                           name_of(dtype_in(graph.parameter_form, graph.scalar)),
                           copy_elems == 0 ? "" : " with copies in bf16", ", and got ",
                           name_of(dtype_in(params.form(), graph.scalar)),
                           ": set_parameters() of the graph says how they are held");
    using Traits = context_traits<Context>;
    if (params.form() == ParameterForm::bf16 && Traits::own_memory &&
        !Traits::template widens<Wide<T>>)
      return Error::misuse(
          "parameters can be held in bfloat16 on a device whose context decodes them (widen()), "
          "and this one does "
          "not: let them be held in full");
    if (copy_elems != 0 && !reads_copies)
      return Error::misuse(
          "copies of parameters in bfloat16 are for steps on a device whose activations are in "
          "bfloat16; let parameters be held in full");
    if (arena.size() < arena_bytes())
      return Error::misuse("the step needs an arena of ", shown(arena_bytes()), ", and got ",
                           shown(arena.size()));
    if (params.size() < graph.block_elems())
      return Error::misuse("the network has ", graph.block_elems(),
                           " parameter elements, padding included, and got ", params.size());
    if (at_.program.mode == Mode::train && gradients.size() < graph.lent_gradient_elems())
      return Error::misuse("training needs ", graph.lent_gradient_elems(),
                           " gradient elements, padding included, and got ", gradients.size());
    const detail::LentMemory whole{"bytes of the arena", arena.data(), arena_bytes()};
    const detail::LentMemory all{"parameters", params.data(), graph.block_bytes()};
    const detail::LentMemory copies{"copies of parameters", params.copies(),
                                    copy_elems * sizeof(bfloat16)};
    const detail::LentMemory trained{
        "gradients", gradients.data(),
        gradients.data() == nullptr ? 0 : graph.lent_gradient_elems() * sizeof(Wide<T>)};
    if (const Error why = detail::check_memory({whole, all, copies, trained})) return why;
    for (const detail::LentMemory& block : {whole, all, copies, trained})
      if (const Error why = detail::check_place<Context>(block)) return why;
    if (const Error why = detail::check_reach<Context>(store, store_bytes())) return why;
    if (const Error why = transfers_.bind(at_.program.schedule, arena, store)) return why;
    at_.arena = arena;
    at_.params = params;
    at_.gradients = gradients;
    shared_ = nullptr;
    bound_ = true;
    ++bindings_;
    return {};
  }

  /// bind() with an arena shared by several steps: begin() refuses if another step is under way there. The Arena must
  /// outlive the binding.
  Error bind(SharedArena& arena, const ParameterBlock<Wide<T>>& params,
             View<Wide<T>> gradients = {}, StoreRef store = {}) {
    if (const Error why = bind(arena.memory(), params, gradients, store)) return why;
    shared_ = &arena;
    return {};
  }

  /// Lent memory is the caller's again: the step runs no more until the next bind().
  void unbind() { bound_ = false; }

  /// Whether the program announces complete gradients: lend_updates() is then required.
  bool announces() const {
    return at_.program.mode == Mode::train && graph().updates != Updates::separate &&
           !graph().gradients.empty();
  }
  /// Lends the receiver of complete gradients for the steps that follow; `use` outlives them. In the middle of a step
  /// the receiver may change values of the parameters announced to it, and of no others. Not while a step is under way.
  Error lend_updates(const UpdateRef<Wide<T>, Context>& use) {
    if (active_) return under_way();
    updates_ = use;
    return {};
  }

  /// The receiver has moved to `use`, perhaps in the middle of a step.
  void follow_updates(const UpdateRef<Wide<T>, Context>& use) { updates_ = use; }
  const UpdateRef<Wide<T>, Context>& lent_updates() const { return updates_; }

  /// From now on somebody changes parameters without their copies (ParameterBlock): each step begins by making the
  /// copies anew.
  void keep_no_copies() {
    if (!at_.params.keeps_copies()) return;
    at_.params.keep_no_copies();
    ++bindings_;  // a captured step does not make them
  }

  /// Sets the input and, if there is a loss (not in Mode::infer), the targets of the next step. Both stay the caller's,
  /// apart from the memory written by the step, until the step's end. The step is under way until its last instruction
  /// has run or abandon() is called; until then no other may begin.
  Error begin(AnyView input, AnyView targets = {}) {
    const Graph& graph = at_.program.graph;
    if (!bound_) return Error::misuse("bind() must lend the step an arena before it begins");
    if (active_) return under_way();
    if (announces() && !updates_)
      return Error::misuse(
          "the program's steps say when gradients are complete, and nobody is there to be told: "
          "lend_updates() first, or make the program of a graph whose updates are separate");
    const bool has_targets = graph.has_loss && at_.program.mode != Mode::infer;
    if (input.dtype() != graph.input_dtype || !(input.shape() == graph.input))
      return Error::misuse("the step takes an input of ", name_of(graph.input_dtype), " ",
                           graph.input, ", and got ", name_of(input.dtype()), " ", input.shape());
    if (has_targets &&
        (targets.dtype() != graph.loss.target_dtype || !(targets.shape() == graph.loss.targets)))
      return Error::misuse("the loss takes targets of ", name_of(graph.loss.target_dtype), " ",
                           graph.loss.targets, ", and got ", name_of(targets.dtype()), " ",
                           targets.shape());
    const detail::LentMemory read[] = {
        {"elements of the input", input.data(), input.bytes(), bytes_of(input.dtype())},
        {"targets", targets.data(), has_targets ? targets.bytes() : 0, bytes_of(targets.dtype())}};
    const std::size_t elems = at_.program.mode == Mode::train ? graph.lent_gradient_elems() : 0;
    for (const detail::LentMemory& block : read)
      if (const Error why =
              detail::check_memory({block,
                                    {"bytes of the arena", at_.arena.data(), arena_bytes()},
                                    {"gradients", at_.gradients.data(), elems * sizeof(Wide<T>)}}))
        return why;
    for (const detail::LentMemory& block : read)
      if (const Error why = detail::check_place<Context>(block)) return why;
    if constexpr (context_traits<Context>::loss_may_fail)
      if (graph.has_loss)
        if (const Error why = loss_.fault()) return why;
    if (has_targets)
      if (const Error why = count_targets(targets.data())) return why;
    if (shared_ != nullptr) {
      const std::uint64_t use = shared_->take();
      if (use == 0)
        return Error::misuse(
            "another step is under way in the arena: it must end, or be abandoned, "
            "before this one begins");
      use_ = use;
    }
    at_.input = input.data();
    at_.targets = targets.data();
    loss_.clear();
    error_ = {};
    declining_.begin(at_.program);
    active_ = true;
    ++begun_;
    return {};
  }

  /// Later steps divide the losses of rows by the number of all targets rather than of the counted ones, gradients too:
  /// so those of several batches add up. weight() of the step, or of all steps together, divides the sum. Only
  /// losses over classes differ between counted and all targets (model/class_targets.hpp). Not during a step.
  /// `all`: the number of all targets for this, if some of them only fill up the batch; 0: as many as the loss takes.
  void divide_by_all(bool does, std::size_t all = 0) {
    divides_by_all_ = does;
    all_targets_ = all;
  }
  /// Later steps write gradients, and do not add to what the block of gradients holds: nobody has to set the block to
  /// zero before. Gradients have the bits of sums begun at zero. Padding between gradients is not written. Not during
  /// a step.
  void write_gradients(bool does) { writes_gradients_ = does; }
  bool writes_gradients() const { return writes_gradients_; }
  /// Targets of the last step: how many, and how many of them counted. Both are 1 for a loss over something else than
  /// classes. On a device, known once the step has ended.
  TargetCount targets() const { return counted_; }

  /// Whether a step has begun and not ended.
  bool active() const { return active_; }
  /// Number of steps begun: names the step under way.
  std::uint64_t begun() const { return begun_; }
  /// Number of steps that ran to their end.
  std::uint64_t ended() const { return ended_; }
  /// Number of programs moved in here: to be watched by whoever keeps something by instruction.
  std::uint64_t programs() const { return programs_; }
  /// Number of successful calls of bind() and bind_loss(): to be watched by whoever keeps addresses.
  std::uint64_t bindings() const { return bindings_; }

  /// Gives up the step under way, if any, and waits for its transfers. Gradients already added stay added.
  void abandon() {
    if (active_) note(transfers_.finish());
    if (active_ && shared_ != nullptr) shared_->give(use_);
    active_ = false;
  }

  /// Number of calls of instruction i.
  std::size_t parts(std::size_t i) const {
    return static_cast<std::size_t>(at_.program.schedule.instructions[i].parts);
  }

  /// False if instruction i would wait for the store.
  bool ready(std::size_t i) const { return transfers_.ready(at_.program.schedule.instructions[i]); }

  /// Runs the part of an instruction at `at`, once begin() has succeeded, and returns the next position. Start at {0,
  /// 0}; at instruction_count() the step has ended.
  Position execute(Context& context, Position at) {
    const Schedule& schedule = at_.program.schedule;
    const Instruction& inst = schedule.instructions[at.instruction];
    context.training = at_.program.mode == Mode::train;
    context.key.activation = static_cast<std::uint32_t>(graph().first_node + inst.node);
    if (at.instruction == 0 && at.part == 0) make_copies(context);
    if (at.instruction == 0 && at.part == 0 && dispatch_.check_positions != nullptr &&
        (!context.positions.empty() || context.carried != nullptr))
      note(dispatch_.check_positions(context, graph(), at_.program.mode == Mode::infer));
    perform(context, inst, at.part);
    const Position next = schedule.next(at);
    if (next.instruction >= instruction_count()) end(context);
    return next;
  }

  /// One whole step; the mean loss. Gradients are added to the gradient block.
  Result<double> run(Context& context, AnyView input, AnyView targets) {
    if (graph().has_loss || at_.program.mode == Mode::infer)
      return run_all(context, input, targets, [](std::size_t) {});
    return Error::misuse(
        "the network has no loss: give run() a function that reads the last activation and writes "
        "its gradient");
  }

  /// run() that leaves the context's random key and mode unchanged.
  Result<double> run_aside(Context& context, AnyView input, AnyView targets) {
    const RandomKey key = context.key;
    const bool training = context.training;
    Result<double> loss = run(context, input, targets);
    context.key = key;
    context.training = training;
    return loss;
  }

  /// One whole step of a context that runs on its own (a stream): returns as soon as the whole step is queued. loss()
  /// waits for the step.
  Error submit(Context& context, AnyView input, AnyView targets) {
    if (!graph().has_loss && at_.program.mode == Mode::train)
      return Error::misuse("the network has no loss: run() its steps with a function");
    return queue_all(context, input, targets, [](std::size_t) {});
  }

  /// run() of a context that runs on its own: `then()` queues more behind the step before the host waits for both.
  template <class Then>
  Result<double> run_then(Context& context, AnyView input, AnyView targets, const Then& then) {
    if (const Error why = submit(context, input, targets)) return why;
    then();
    return outcome(context);
  }

  /// Runs the last step once more, from a recording of its queued work: `replay()` queues the recording, and returns
  /// the reason if that failed. Returns the mean loss. The caller knows that nothing in the recording has changed: the
  /// program, bound and lent memory, addresses of input and targets, and, if the step draws_numbers(), the random key.
  template <class Replay>
  Result<double> run_recorded(Context& context, AnyView input, AnyView targets,
                              const Replay& replay) {
    if (const Error why = begin(input, targets)) return why;
    note(replay());
    end(context);
    return outcome(context);
  }

  /// Whether results of a step depend on the context's random key: some layer or codec says so.
  bool draws_numbers() const {
    if (graph().has_loss && graph().loss.draws_numbers) return true;
    for (const Instruction& inst : at_.program.schedule.instructions)
      if ((inst.op == Op::forward && graph().node(inst.node).draws_numbers) ||
          (inst.op == Op::encode && at_.program.plan[inst.node].codec()->draws_numbers))
        return true;
    return false;
  }

  /// One whole step of a network without a loss: in the middle, `meet(View<const T> y, View<T> dy)` reads the last
  /// activation and writes the gradient of something with respect to y. Returns the value of `meet`, such as this loss.
  template <class Meet>
    requires requires(const Meet& meet, View<const T> y, View<T> dy) { double{meet(y, dy)}; }
  Result<double> run(Context& context, AnyView input, const Meet& meet) {
    if (graph().has_loss || at_.program.mode != Mode::train)
      return Error::misuse(
          "only a training step of a network without a loss hands its last "
          "activation over; this one takes targets");
    double met = 0;
    const std::size_t where = hand_over();
    const Result<double> ran = run_all(context, input, {}, [&](std::size_t i) {
      if (i == where) met = meet(output(), output_gradient());
    });
    return ran ? Result<double>(met) : ran;
  }

  /// The instruction (Op::hand_over) once which has run the caller reads output() and writes
  /// output_gradient(), before the next one; instruction_count() if there is none.
  std::size_t hand_over() const {
    const Array<Instruction>& list = at_.program.schedule.instructions;
    std::size_t i = 0;
    while (i < list.size() && list[i].op != Op::hand_over) ++i;
    return i;
  }

  /// The mean loss of the last step.
  double loss() const { return loss_.value(); }

  /// Behind a step that has ended: targets() and error() learn of the targets as counted by a device, if its loss has
  /// a report. run() has done so; call it after submit(), or another way to wait for the step.
  void read_targets() {
    if constexpr (requires { loss_.report(); }) {
      const LossNode& loss = graph().loss;
      typename Context::TargetReport seen;
      if (!graph().has_loss || loss.classes == 0 || at_.program.mode == Mode::infer ||
          !loss_.read_report(seen))
        return;
      counted_.counted = static_cast<std::size_t>(seen.counted);
      if (seen.wrong_at != 0)
        note(detail::target_error(loss.name, seen.wrong,
                                  static_cast<std::size_t>(seen.wrong_at - 1), loss.targets,
                                  loss.classes));
    }
  }

  /// The first error of a codec or the store in the last step; none for codecs that keep their contract. Later results
  /// of this step are worthless.
  const Error& error() const { return error_; }

  /// Times the transfers of later steps by `clock`, read three times a transfer; without a clock, stops. Takes memory
  /// if there was no clock before.
  void time_transfers(ClockRef clock) { transfers_.time_with(clock); }
  /// Times of the last step's transfers; empty if not timed.
  decltype(auto) transfer_times() const { return transfers_.times(); }

  /// Lends the place where the losses of the steps land, for contexts whose losses need one. Not while
  /// a step is under way.
  Error bind_loss(const typename Context::Loss& loss) {
    if (active_) return under_way();
    loss_ = loss;
    ++bindings_;
    return {};
  }
  const typename Context::Loss& lent_loss() const { return loss_; }

  /// Later steps note the statistics of their encodes. If the host cannot read blobs, steps leave pieces in `memory`:
  /// watch_bytes() of the context's memory, which stays the caller's, and read_watched() is due after each step. Not
  /// during a step.
  Error watch(Bytes memory = {}) {
    return watched_.start(graph(), at_.program.plan, dispatch_, memory);
  }
  /// They do so no longer.
  void stop_watching() { watched_.stop(); }
  bool watches() const { return watched_.on(); }
  /// 0 if the host reads blobs itself.
  std::size_t watch_bytes() const {
    return detail::WatchedBlobs<T, Context>::bytes(graph(), at_.program.plan, dispatch_);
  }
  /// `copy` is a copy on the host of the memory lent to watch(), as left by the last step.
  void read_watched(ConstBytes copy) { watched_.read(graph(), at_.program.plan, dispatch_, copy); }

  /// Statistics of activation `id`'s codec in the last watched step; without elements if nothing was encoded, or the
  /// codec has no statistics.
  CodecStatistics statistics(int id) const { return watched_.of(id); }

  /// Whether later steps have codecs judge their encodes (codec/row_errors.hpp), and keep failed ones otherwise: by
  /// default they do. Not during a step.
  void judge_encodes(bool judges) { declining_.let(judges); }
  /// The outcome for activation `id` in the last step, if a codec judged the encode; and for all together.
  Declined declined(int id) const { return declined_of(at_.program.declinables, id); }
  DeclinedCounts declined_counts() const { return counts_of(at_.program.declinables); }

  /// The last activation: in Mode::infer valid from the end of the step until the next one, and in a training step
  /// without a loss once hand_over() has run, until the next instruction.
  View<const T> output() const { return tensor(at_.program.schedule.output, graph().output()); }
  /// Without a loss, the place for the last activation's gradient, at the same moment.
  View<T> output_gradient() const {
    return tensor(at_.program.schedule.output_gradient, graph().output());
  }
  /// The gradient of the step's input, if wanted (GraphOptions::input_gradient): valid from the end of the step until
  /// the next one.
  View<const T> input_gradient() const {
    return tensor(at_.program.schedule.input_gradient, graph().input);
  }

 private:
  /// Made in the caller's place: a step is large, and a device has no room for code that moves steps.
  static Result<Step> checked(Dispatch<T, Context>& dispatch, Program& program) {
    Result<Step> made;
    made->dispatch_ = static_cast<Dispatch<T, Context>&&>(dispatch);
    made->at_.program = static_cast<Program&&>(program);
    made->transfers_.reset(made->at_.program.schedule);
    return made;
  }

  /// Checks targets that are classes, counts them, and sets the loss's divisor. A device's loss does both.
  Error count_targets(const void* targets) {
    const LossNode& loss = graph().loss;
    counted_ = {1, 1};
    at_.loss_divisor = 0;
    if (loss.classes == 0) return {};
    counted_ = {loss.targets.elems(), loss.targets.elems()};
    if (dispatch_.loss.count != nullptr)
      if (const Error why = dispatch_.loss.count(loss, targets, counted_)) return why;
    if (all_targets_ != 0) counted_.all = all_targets_;
    if (divides_by_all_) at_.loss_divisor = counted_.all;
    if (dispatch_.loss.count == nullptr) return {};
    if (!divides_by_all_) at_.loss_divisor = counted_.counted == 0 ? 1 : counted_.counted;
    return {};
  }

  Error under_way() const {
    return Error::misuse(
        "a step is under way: run it to its end, or abandon() it, before the next "
        "begins or memory changes");
  }

  void perform(Context& context, const Instruction& inst, std::size_t part) {
    if (inst.again || inst.op == Op::backward) declining_.mark(at_.program);
    switch (inst.op) {
      case Op::forward: return forward(context, inst, part);
      case Op::backward: return backward(context, inst, part);
      case Op::hand_over: return;  // the caller acts here
      case Op::update:
        // Results behind an error are finite more often than not, and always worthless.
        if constexpr (Abilities::updates)
          if (!error_ || updates_.even_if_failed()) note(updates_(context, complete(inst)));
        return;
      case Op::write_begin:
      case Op::write_wait:
      case Op::read_begin:
      case Op::read_wait:
        if constexpr (Abilities::transfers) {
          if (const Error why = detail::check_order(context, transfers_.store())) return note(why);
          note(transfers_.run(at_.program.schedule, inst, at_.bytes(inst.blob).data()));
        }
        return;
      case Op::add:
      case Op::add_gradient: {
        const auto sum = at_.of_sum(inst, part);
        return context.accumulate(sum.from, sum.to);
      }
      case Op::encode: return encode(context, inst, part);
      case Op::decode: return decode(context, inst, part);
      case Op::loss:
      case Op::loss_gradient: return loss(context, inst, part);
    }
  }

  void note(const Error& error) {
    if (error && !error_) error_ = error;
  }

  void encode(Context& context, const Instruction& inst, std::size_t part) {
    const View<const T> x = at_.matrix(inst.node, inst.x, part);
    const Bytes blob = at_.bytes(inst.blob);
    const Part piece = codec_part(inst, part);
    const bool last = part + 1 == static_cast<std::size_t>(inst.parts);
    RowErrors errors;
    note(codec(inst).encode(context, x, blob, piece));
    if constexpr (Abilities::declining)
      if (!error_)
        errors = declining_.judge(context, at_.program, codec(inst), inst.node, x, blob, piece);
    if (last && !error_)
      note(watched_.look(context, graph(), inst.node, codec(inst), x, blob, errors,
                         declining_.judges()));
    if constexpr (Abilities::declining)
      if (last && !error_) {
        note(declining_.decline(context, at_.program, dispatch_, inst.node, x, at_.arena));
        if (declining_.holds_unlike_rows(at_.program, inst.node)) watched_.rows_are_held(inst.node);
      }
  }

  void decode(Context& context, const Instruction& inst, std::size_t part) {
    const View<T> y = at_.matrix(inst.node, inst.y, part);
    if constexpr (Abilities::declining)
      if (const Declined* kept = declining_.kept(at_.program, inst.node))
        return note(declining_.bring_back(context, at_.program, dispatch_, *kept, inst, part,
                                          codec_part(inst, part), at_.arena, y));
    note(codec(inst).decode(context, at_.bytes(inst.blob), y, codec_part(inst, part)));
  }

  const CodecDispatch<T, Context>& codec(const Instruction& inst) const {
    return *dispatch_.find(at_.program.plan[inst.node].codec());
  }

  Part codec_part(const Instruction& inst, std::size_t part) const {
    if constexpr (!Abilities::parts) return {};
    const Cut cut = codec_cut(at_.program.graph, inst.node, *at_.program.plan[inst.node].codec());
    return {cut.first(part), cut.count(part), cut.items};
  }

  const LayerDispatch<T, Context>& layer(const Node& node) const {
    return dispatch_.layers[static_cast<std::size_t>(node.layer)];
  }

  void forward(Context& context, const Instruction& inst, std::size_t part) const {
    const Node& node = graph().node(inst.node);
    const ForwardCall<T> call = at_.forward(inst, part);
    decode_parameters(context, inst, part, node, call.params);
    layer(node).forward(layer(node).functor, context, call);
  }

  void backward(Context& context, const Instruction& inst, std::size_t part) const {
    const Node& node = graph().node(inst.node);
    BackwardCall<T> call = at_.backward(inst, part);
    if (part == 0)
      call.begun_here = begin_gradients(context, node, inst.node,
                                        layer(node).beside.writes_gradients, call.dparams);
    if constexpr (context_traits<Context>::own_memory) set_sums(inst, call);
    decode_parameters(context, inst, part, node, call.params);
    layer(node).backward(layer(node).functor, context, call);
  }

  /// If parameters are held in bfloat16, or stored: decodes those of `node` (or of the loss) into the workspace. In a
  /// loop, other layers have used this memory since the part before.
  template <class AnyNode>
  void decode_parameters(Context& context, const Instruction& inst, std::size_t part,
                         const AnyNode& node, const Params<const Wide<T>>& params) const {
    if constexpr (Abilities::decoded_parameters) {
      if (!params.has_window() || node.decode_room.by_rows || (part > 0 && inst.loop < 0)) return;
      params.decode(context);
    }
  }

  /// Makes copies of parameters, unless somebody else keeps them.
  void make_copies(Context& context) const {
    if constexpr (reads_copies) {
      const std::size_t elems = graph().copy_elems() == 0 ? 0 : graph().parameter_elems;
      if (!at_.params.keeps_copies())
        context.narrow("copies of parameters", View<const Wide<T>>(at_.params.full(), Shape(elems)),
                       View<bfloat16>(at_.params.copies(), Shape(elems)));
    } else {
      static_cast<void>(context);
    }
  }

  /// If the block of gradients holds nothing, or updates are fused: the gradients begun by node `k`, as in BackwardCall,
  /// for a layer that writes them. Every other layer adds, so its gradients are set to zero first.
  template <class AnyNode>
  std::uint64_t begin_gradients(Context& context, const AnyNode& node, int k, bool writes,
                                const Params<Wide<T>>& gradients) const {
    std::uint64_t begun = 0;
    if constexpr (Abilities::updates) {
      if (!writes_gradients_ && !graph().fuses_updates()) return 0;
      for (std::size_t i = 0; i < node.parameters.count; ++i) {
        const detail::GradientUse use = detail::use_of(graph(), node.parameters.first + i, k);
        if (use == detail::GradientUse::begun && writes && i < 64) begun |= std::uint64_t{1} << i;
        else if (use != detail::GradientUse::added) context.fill(gradients[i], Wide<T>{});
      }
    }
    return begun;
  }

  /// The gradient of the layer of `front` that is the sums of dy's columns, if it can be formed by the layer behind; -1:
  /// there is none.
  int summed_parameter(const Instruction& front) const {
    const Node& node = graph().node(front.node);
    const int place = layer(node).beside.dy_sums;
    if (place < 0) return -1;
    const int number = static_cast<int>(node.parameters.first) + place;
    const Parameter& parameter = graph().parameters[static_cast<std::size_t>(number)];
    return parameter.frozen || parameter.tied != nullptr ? -1 : number;
  }
  /// Sums of columns that two neighbours hand on (contract.hpp).
  void set_sums(const Instruction& inst, BackwardCall<T>& call) const {
    const Schedule& schedule = at_.program.schedule;
    const auto i = static_cast<std::size_t>(&inst - schedule.instructions.data());
    if (layer(graph().node(inst.node)).beside.sums_dx)
      if (const Instruction* const taker = detail::taker_of_dx(graph(), schedule, i))
        if (const int number = summed_parameter(*taker); number >= 0) {
          const Parameter& parameter = graph().parameters[static_cast<std::size_t>(number)];
          call.dx_sums = at_.gradients.data() + parameter.offset;
          call.dx_sums_begin = writes_gradients_;
        }
    if (summed_parameter(inst) < 0) return;
    const Instruction* const maker = detail::maker_of_dy(graph(), schedule, i);
    call.dy_is_summed = maker != nullptr && layer(graph().node(maker->node)).beside.sums_dx;
  }

  CompleteGradients<Wide<T>> complete(const Instruction& inst) const {
    const bool fused = graph().fuses_updates();
    return {graph(), static_cast<std::size_t>(inst.gradient),
            fused ? reinterpret_cast<Wide<T>*>(at_.arena.data()) : at_.gradients.data(),
            at_.program.layout.offsets.data()};
  }

  void loss(Context& context, const Instruction& inst, std::size_t part) {
    const auto runs = inst.op == Op::loss ? dispatch_.loss.loss : dispatch_.loss.loss_gradient;
    LossCall<T> call = at_.loss(inst, part);
    if (part == 0 && inst.op == Op::loss_gradient)
      call.begun_here = begin_gradients(context, graph().loss, graph().node_count(),
                                        dispatch_.loss.beside.writes_gradients, call.dparams);
    decode_parameters(context, inst, part, graph().loss, call.params);
    runs(dispatch_.loss.functor, context, call, loss_);
  }

  View<T> tensor(int buffer, Shape shape) const { return at_.tensor(buffer, shape); }

  /// `after(i)` follows each part of instruction i.
  template <class After>
  Error queue_all(Context& context, AnyView input, AnyView targets, const After& after) {
    if (const Error why = begin(input, targets)) return why;
    for (Position at; at.instruction < instruction_count();) {
      const std::size_t i = at.instruction;
      at = execute(context, at);
      after(i);
    }
    return error_;
  }

  template <class After>
  Result<double> run_all(Context& context, AnyView input, AnyView targets, const After& after) {
    if (const Error why = queue_all(context, input, targets, after)) return why;
    return outcome(context);
  }

  /// All of a step has been queued.
  void end(Context& context) {
    take_error(context);
    abandon();
    ++ended_;
  }

  /// The result of a step that has ended.
  Result<double> outcome(Context& context) {
    if (error_) return error_;
    const double loss = loss_.value();
    read_targets();
    take_error(context);  // from kernels that have only now run
    if (error_) return error_;
    return loss;
  }

  /// Errors that kernels of the context could not return.
  void take_error(Context& context) {
    if constexpr (context_traits<Context>::returns_errors) note(context.take_error());
    else static_cast<void>(context);
  }

  void take(Step& other) {
    at_ = static_cast<detail::BoundProgram<T, Abilities>&&>(other.at_);
    dispatch_ = static_cast<Dispatch<T, Context>&&>(other.dispatch_);
    watched_ = static_cast<detail::WatchedBlobs<T, Context>&&>(other.watched_);
    declining_ = other.declining_;
    transfers_ = static_cast<Transfers&&>(other.transfers_);
    updates_ = other.updates_;
    divides_by_all_ = other.divides_by_all_;
    all_targets_ = other.all_targets_;
    writes_gradients_ = other.writes_gradients_;
    counted_ = other.counted_;
    loss_ = other.loss_;
    error_ = other.error_;
    shared_ = other.shared_;
    use_ = other.use_;
    begun_ = other.begun_;
    ended_ = other.ended_;
    programs_ = other.programs_;
    bindings_ = other.bindings_;
    bound_ = other.bound_;
    active_ = other.active_;
    other.shared_ = nullptr;
    other.bound_ = other.active_ = false;
  }

  detail::BoundProgram<T, Abilities> at_;
  Dispatch<T, Context> dispatch_;
  detail::WatchedBlobs<T, Context> watched_;
  Declining declining_;
  Transfers transfers_;
  UpdateRef<Wide<T>, Context> updates_;
  typename Context::Loss loss_;
  Error error_;
  TargetCount counted_{1, 1};      ///< targets of the last step
  std::size_t all_targets_ = 0;    ///< for TargetCount::all; 0: the loss's
  bool divides_by_all_ = false;    ///< the divisor of losses over classes
  bool writes_gradients_ = false;  ///< the block of gradients holds nothing when a step begins
  SharedArena* shared_ = nullptr;  ///< the arena, if several steps share it
  std::uint64_t use_ = 0;          ///< number of its use
  std::uint64_t begun_ = 0;        ///< steps so far
  std::uint64_t ended_ = 0;        ///< steps that ran to their end
  std::uint64_t programs_ = 0;     ///< programs so far
  std::uint64_t bindings_ = 0;
  bool bound_ = false;
  bool active_ = false;
};

}}  // namespace adacc::v0_1
