// SPDX-License-Identifier: MIT
/// The runner: executes a compiled step inside the arena that the caller lends it.
///
/// Set-up (make, bind) validates everything and reports errors as values. A step itself allocates
/// nothing and throws nothing. What fails in the middle of it, a codec or a transfer to or from the
/// store, ends it as an error value; nothing is updated from what it computes after that. A result
/// that is not finite is no error, and the caller's to judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/any_view.hpp"
#include "../core/cpu.hpp"
#include "../program/abilities.hpp"
#include "../program/program.hpp"
#include "../store/transfers_under_way.hpp"
#include "arena.hpp"
#include "bound_program.hpp"
#include "complete_gradients.hpp"
#include "declining.hpp"
#include "dispatch.hpp"
#include "memory_check.hpp"
#include "program_check.hpp"
#include "watched_blobs.hpp"

namespace adacc { inline namespace v0_1 {

/// `Abilities` are those of the programs that it runs (program/abilities.hpp): by default, of any.
template <class T = float, class Context = Cpu, class Abilities = AllAbilities>
class Step {
  using Transfers =
      std::conditional_t<Abilities::transfers, detail::TransfersUnderWay, detail::NoTransfers>;
  using Declining =
      std::conditional_t<Abilities::declining, detail::Declining<T, Context>, detail::NoDeclining>;
  static_assert(
      dtype_of<T> != Dtype::bf16 || context_traits<Context>::own_memory,
      "adacc: activations are in bfloat16 on devices alone: on threads of the host they are "
      "float or double");

 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  /// A step that is under way moves along; what it leaves behind is not bound to anything.
  Step(Step&& other) noexcept { take(other); }
  /// The step that was here is given up if it was under way.
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

  /// A step of `network`, which must outlive it, as `program` lays it out (for this network,
  /// scalar type and at least as many workers as the context will have).
  template <class Network>
  static Result<Step> make(const Network& network, Program program) {
    return make(make_dispatch<T, Context>(network), static_cast<Program&&>(program));
  }

  /// The same from a dispatch table, for plans with codecs that no type of the network names.
  static Result<Step> make(Dispatch<T, Context> dispatch, Program program) {
    if (const char* missing = detail::missing_in<Abilities>(program))
      return Error::misuse("the program ", missing,
                           ", and this Step has no code for that (its Abilities)");
    if (const Error why = detail::check_program<T, Context>(dispatch, program)) return why;
    return checked(dispatch, program);
  }

  template <class Network>
  static Result<Step> make(const Network&& temporary, Program) = delete;

  const Program& program() const { return at_.program; }
  const Graph& graph() const { return at_.program.graph; }
  const Dispatch<T, Context>& dispatch() const { return dispatch_; }
  std::size_t arena_bytes() const { return at_.program.peak_bytes(); }
  std::size_t instruction_count() const { return at_.program.schedule.instructions.size(); }

  /// Bytes of a store that the step needs; 0 if its plan sends nothing there.
  std::size_t store_bytes() const { return at_.program.schedule.store_bytes; }

  /// Lends the step its memory: an arena of at least arena_bytes(), graph().parameter_elems
  /// parameters and, for training, graph().lent_gradient_elems() gradients (as many, unless some are
  /// frozen; none if updates are fused), all 64-byte aligned and apart from each other, and, if
  /// store_bytes() is not 0, a store
  /// of at least that size; the arena is then aligned to transfer_alignment. The store must outlive
  /// the binding, and nobody else uses it while a step is under way. Not while a step is under way.
  ///
  /// The block of parameters is of Wide<T> or of bfloat16, as graph().parameter_form says.
  Error bind(Bytes arena, const ParameterBlock<Wide<T>>& params, View<Wide<T>> gradients = {},
             StoreRef store = {}) {
    const Graph& graph = at_.program.graph;
    if (active_) return under_way();
    if (params.form() != graph.parameter_form && graph.parameter_elems != 0)
      return Error::misuse("the program was made for parameters held in ",
                           name_of(dtype_in(graph.parameter_form, graph.scalar)), ", and got ",
                           name_of(dtype_in(params.form(), graph.scalar)),
                           ": set_parameters() of the graph says how they are held");
    if (params.form() == ParameterForm::bf16 && context_traits<Context>::own_memory)
      return Error::misuse(
          "parameters can be held in bfloat16 where layers run on threads of the host; on a "
          "device, let them be held in full");
    if (arena.size() < arena_bytes())
      return Error::misuse("the step needs an arena of ", shown(arena_bytes()), ", and got ",
                           shown(arena.size()));
    if (params.size() < graph.parameter_elems)
      return Error::misuse("the network has ", graph.parameter_elems,
                           " parameter elements, padding included, and got ", params.size());
    if (at_.program.mode == Mode::train && gradients.size() < graph.lent_gradient_elems())
      return Error::misuse("training needs ", graph.lent_gradient_elems(),
                           " gradient elements, padding included, and got ", gradients.size());
    const detail::LentMemory whole{"bytes of the arena", arena.data(), arena_bytes()};
    const detail::LentMemory all{"parameters", params.data(), graph.parameter_bytes()};
    const detail::LentMemory trained{
        "gradients", gradients.data(),
        gradients.data() == nullptr ? 0 : graph.lent_gradient_elems() * sizeof(Wide<T>)};
    if (const Error why = detail::check_memory({whole, all, trained})) return why;
    for (const detail::LentMemory& block : {whole, all, trained})
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

  /// The same with an arena that several steps share: begin() refuses if another one is under way
  /// in it. The Arena must outlive the binding.
  Error bind(Arena& arena, const ParameterBlock<Wide<T>>& params, View<Wide<T>> gradients = {},
             StoreRef store = {}) {
    if (const Error why = bind(arena.memory(), params, gradients, store)) return why;
    shared_ = &arena;
    return {};
  }

  /// What was lent is the caller's again: the step runs no more until the next bind().
  void unbind() { bound_ = false; }

  /// Whether its program says when gradients are complete: someone must then be lent to be told.
  bool announces() const {
    return at_.program.mode == Mode::train && graph().updates != Updates::separate &&
           !graph().gradients.empty();
  }
  /// Who is told of complete gradients in the steps that follow; outlives them. What is told in the
  /// middle of a step may change values of the parameters that it is told of, and of no others. Not
  /// while a step is under way.
  Error lend_updates(const UpdateRef<Wide<T>, Context>& use) {
    if (active_) return under_way();
    updates_ = use;
    return {};
  }

  const UpdateRef<Wide<T>, Context>& lent_updates() const { return updates_; }

  /// Sets the input and, if there is a loss (not in Mode::infer), the targets of the next step;
  /// both stay the caller's, apart from the memory that the step writes, until its end. The step is
  /// under way until its last instruction has run or abandon() is called; until then no other may
  /// begin.
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

  /// Whether a step has begun and not ended.
  bool active() const { return active_; }
  /// How many steps have begun: names the one that is under way.
  std::uint64_t begun() const { return begun_; }
  /// How many of them ran to their end.
  std::uint64_t ended() const { return ended_; }
  /// How many programs were moved in here: who keeps something by instruction looks at it.
  std::uint64_t programs() const { return programs_; }
  /// How many calls of bind() and bind_loss() succeeded: likewise, of who keeps addresses.
  std::uint64_t bindings() const { return bindings_; }

  /// Gives up the step under way, if any, and waits for its transfers. Gradients keep what it has
  /// added to them.
  void abandon() {
    if (active_) note(transfers_.finish());
    if (active_ && shared_ != nullptr) shared_->give(use_);
    active_ = false;
  }

  /// Calls that instruction i is made of.
  std::size_t parts(std::size_t i) const {
    return static_cast<std::size_t>(at_.program.schedule.instructions[i].parts);
  }

  /// False if instruction i would wait for the store.
  bool ready(std::size_t i) const { return transfers_.ready(at_.program.schedule.instructions[i]); }

  /// Runs the part of an instruction at `at`, once begin() has succeeded, and returns what to run
  /// next: from {0, 0} on, until its instruction is instruction_count(). The step has then ended.
  Position execute(Context& context, Position at) {
    const Schedule& schedule = at_.program.schedule;
    const Instruction& inst = schedule.instructions[at.instruction];
    context.training = at_.program.mode == Mode::train;
    context.key.activation = static_cast<std::uint32_t>(graph().first_node + inst.node);
    perform(context, inst, at.part);
    const Position next = schedule.next(at);
    if (next.instruction >= instruction_count()) end(context);
    return next;
  }

  /// One whole step; the mean loss. Gradients are added to what the gradient block holds.
  Result<double> run(Context& context, AnyView input, AnyView targets) {
    if (graph().has_loss || at_.program.mode == Mode::infer)
      return run_all(context, input, targets, [](std::size_t) {});
    return Error::misuse(
        "the network has no loss: give run() a function that reads the last activation and writes "
        "its gradient");
  }

  /// One whole step of a context that runs on its own (a stream): returns as soon as all of it is
  /// queued. loss() waits for it.
  Error submit(Context& context, AnyView input, AnyView targets) {
    if (!graph().has_loss && at_.program.mode == Mode::train)
      return Error::misuse("the network has no loss: run() its steps with a function");
    return queue_all(context, input, targets, [](std::size_t) {});
  }

  /// The step that ran last, once more, from a recording of what it queued: `replay()` queues that, and
  /// returns why it could not. The mean loss. The caller knows that nothing has changed which the recording
  /// holds: the program, what is bound and lent, where input and targets lie, and, if the step
  /// draws_numbers(), the random key.
  template <class Replay>
  Result<double> run_recorded(Context& context, AnyView input, AnyView targets,
                              const Replay& replay) {
    if (const Error why = begin(input, targets)) return why;
    note(replay());
    end(context);
    return outcome(context);
  }

  /// Whether what a step computes depends on the context's random key: some layer or codec says so.
  bool draws_numbers() const {
    if (graph().has_loss && graph().loss.draws_numbers) return true;
    for (const Instruction& inst : at_.program.schedule.instructions)
      if ((inst.op == Op::forward && graph().node(inst.node).draws_numbers) ||
          (inst.op == Op::encode && at_.program.plan[inst.node].codec()->draws_numbers))
        return true;
    return false;
  }

  /// One whole step of a network without a loss: in the middle, `meet(View<const T> y, View<T> dy)` reads
  /// the last activation and writes the gradient of something with respect to it. Returns what
  /// `meet` returns, such as that loss.
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

  /// The mean loss of the step that ran last.
  double loss() const { return loss_.value(); }

  /// The first error that a codec or the store reported in the step that ran last; none for codecs
  /// that keep their contract. Behind it the step computed nothing that is worth anything.
  const Error& error() const { return error_; }

  /// Whether the transfers of the steps that follow are timed, and with what: a clock is read three
  /// times a transfer. Without one they are not. Takes memory if there was no clock before.
  void time_transfers(ClockRef clock) { transfers_.time_with(clock); }
  /// How those of the last step went; empty if they were not timed.
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

  /// The steps that follow note what codecs see of what they encode. If the host cannot read blobs, they
  /// leave it in `memory`, watch_bytes() of the context's, which stays the caller's, and read_watched() is
  /// due after each. Not during a step.
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
  /// `copy` is one, in the host's memory, of what the step that ended has left in that of watch().
  void read_watched(ConstBytes copy) { watched_.read(graph(), at_.program.plan, dispatch_, copy); }

  /// What the codec of activation `id` saw in the last step that was watched; without elements
  /// if nothing was encoded, or the codec does not say.
  CodecStatistics statistics(int id) const { return watched_.of(id); }

  /// Whether the steps that follow have codecs judge what they encode (codec/row_errors.hpp), and keep
  /// otherwise what does not pass: as they do unless they are told not to. Not during a step.
  void judge_encodes(bool judges) { declining_.let(judges); }
  /// What became of activation `id` in the step that ran last, if a codec judged it; and of all together.
  Declined declined(int id) const { return declined_of(at_.program.declinables, id); }
  DeclinedCounts declined_counts() const { return counts_of(at_.program.declinables); }

  /// The last activation: in Mode::infer valid from the end of the step until the next one, and in
  /// a training step without a loss once hand_over() has run, until the instruction behind it.
  View<const T> output() const { return tensor(at_.program.schedule.output, graph().output()); }
  /// Without a loss, where its gradient is to be written in the same moment.
  View<T> output_gradient() const {
    return tensor(at_.program.schedule.output_gradient, graph().output());
  }
  /// If the graph gives it (GraphOptions::input_gradient), the gradient of the step's input,
  /// valid from the end of the step until the next one.
  View<const T> input_gradient() const {
    return tensor(at_.program.schedule.input_gradient, graph().input);
  }

 private:
  /// Made where the caller wants it: a step is large, and a device has no room for code that moves it.
  static Result<Step> checked(Dispatch<T, Context>& dispatch, Program& program) {
    Result<Step> made;
    made->dispatch_ = static_cast<Dispatch<T, Context>&&>(dispatch);
    made->at_.program = static_cast<Program&&>(program);
    made->transfers_.reset(made->at_.program.schedule);
    return made;
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
      case Op::hand_over: return;  // what happens here is the caller's
      case Op::update:
        // What is computed behind an error is finite more often than not, and never worth anything.
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
    if (last) watched_.look(context, graph(), inst.node, codec(inst), blob, errors);
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
    if (part == 0) begin_gradients(context, node, inst.node);
    const BackwardCall<T> call = at_.backward(inst, part);
    decode_parameters(context, inst, part, node, call.params);
    layer(node).backward(layer(node).functor, context, call);
  }

  /// If parameters are held in bfloat16: those of `node` (or of the loss) into its workspace. In a loop,
  /// others have used that since the part before.
  template <class AnyNode>
  void decode_parameters(Context& context, const Instruction& inst, std::size_t part,
                         const AnyNode& node, const Params<const Wide<T>>& params) const {
    if constexpr (Abilities::bf16_parameters && !context_traits<Context>::own_memory) {
      if (!params.in_bf16() || node.window.by_rows || (part > 0 && inst.loop < 0)) return;
      params.decode(context);
    }
  }

  /// If updates are fused: backward adds to gradients, and those that node `k` begins hold who knows
  /// what.
  template <class AnyNode>
  void begin_gradients(Context& context, const AnyNode& node, int k) const {
    if (!Abilities::updates || !graph().fuses_updates()) return;
    for (std::size_t i = 0; i < node.parameters.count; ++i) {
      const int gradient = graph().parameters[node.parameters.first + i].gradient;
      if (gradient < 0) continue;
      const auto number = static_cast<std::size_t>(gradient);
      if (graph().gradients[number].begun == k)
        context.fill(at_.parameter_gradient(number), Wide<T>{});
    }
  }

  CompleteGradients<Wide<T>> complete(const Instruction& inst) const {
    const bool fused = graph().fuses_updates();
    return {graph(), static_cast<std::size_t>(inst.gradient),
            fused ? reinterpret_cast<Wide<T>*>(at_.arena.data()) : at_.gradients.data(),
            at_.program.layout.offsets.data()};
  }

  void loss(Context& context, const Instruction& inst, std::size_t part) {
    const auto runs = inst.op == Op::loss ? dispatch_.loss.loss : dispatch_.loss.loss_gradient;
    if (part == 0 && inst.op == Op::loss_gradient)
      begin_gradients(context, graph().loss, graph().node_count());
    const LossCall<T> call = at_.loss(inst, part);
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

  /// Of a step that has ended.
  Result<double> outcome(Context& context) {
    if (error_) return error_;
    const double loss = loss_.value();
    take_error(context);  // of what has only now run
    if (error_) return error_;
    return loss;
  }

  /// What kernels of the context could not return.
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
  Arena* shared_ = nullptr;     ///< the arena, if several steps share it
  std::uint64_t use_ = 0;       ///< of the shared arena
  std::uint64_t begun_ = 0;     ///< steps so far
  std::uint64_t ended_ = 0;     ///< of these, those that ran to their end
  std::uint64_t programs_ = 0;  ///< programs so far
  std::uint64_t bindings_ = 0;
  bool bound_ = false;
  bool active_ = false;
};

}}  // namespace adacc::v0_1
