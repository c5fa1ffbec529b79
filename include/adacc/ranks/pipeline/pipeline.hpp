// SPDX-License-Identifier: MIT
/// One stage of a pipeline of ranks: steps, messages, and update.
///
/// plan_pipeline() (plan/pipeline/) cuts a network, and each rank of a group runs one stage, one
/// forward and one backward in turn (plan/pipeline/timing.hpp). Several micro-batches are in flight. Each
/// has a step of its own, and these steps share an arena (program/in_flight.hpp). Gradients are
/// summed over micro-batches in their order, and random numbers follow from the numbers of the whole network.
/// So losses and gradients have the bits of one rank accumulating the same micro-batches under the same
/// plan (Training::accumulate()).
///
///     auto plan = plan_pipeline(graph, profile, request);                       // the same on all ranks
///     auto stage = Pipeline<>::make(network, graph, *plan, micro_batches, context, group);
///     auto outcome = stage->step([&](int b) { return input(b); }, [&](int b) { return targets(b); }, lr);
///
/// Other functions are defined in set_up.hpp, turns.hpp, replan.hpp and save.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "../../core/any_view.hpp"
#include "../../core/block.hpp"
#include "../../core/cpu.hpp"
#include "../../cost/profile.hpp"
#include "../../model/stage.hpp"
#include "../../optimizer/adamw.hpp"
#include "../../optimizer/updater.hpp"
#include "../../plan/pipeline/request.hpp"
#include "../../step/cursor.hpp"
#include "../../train/inference.hpp"
#include "../../train/initialize.hpp"
#include "../../train/memory_use.hpp"
#include "../../train/outcome.hpp"
#include "../asked.hpp"
#include "../collectives.hpp"
#include "../first_call.hpp"
#include "../group.hpp"
#include "stage_hello.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float, class Context = Cpu, class Optimizer = AdamW>
class Pipeline {
 public:
  Optimizer optimizer;  ///< options may change, but not the form of the state
  double clip = 0;      ///< gradients are scaled down to this L2 norm of all stages; 0 is off
  std::uint64_t data_position = 0;  ///< yours: where the next batch begins, kept in checkpoints
  std::string model;                ///< the network's name in checkpoints

  Pipeline() = default;

  /// Stage group.rank() of `plan`. Takes the memory of the stage, draws parameters by the context's seed,
  /// and asks the neighbours whether they have the same network, seed, cuts and number of micro-batches.
  /// `graph`: of a micro-batch of `network`; the plan was made for this graph. The network outlives the pipeline.
  /// `group`: used by this pipeline alone, and outlives the pipeline.
  template <class Network>
  static Result<Pipeline> make(const Network& network, const Graph& graph,
                               const PipelineOutcome& plan, int micro_batches,
                               const Context& context, GroupRef group = {},
                               const Optimizer& optimizer = Optimizer{}) {
    return make(make_dispatch<T, Context>(network), graph, plan, micro_batches, context, group,
                optimizer);
  }
  template <class Network>
  static Result<Pipeline> make(const Network&& temporary, const Graph&, const PipelineOutcome&, int,
                               const Context&, GroupRef = {},
                               const Optimizer& = Optimizer{}) = delete;

  /// Makes a stage from a dispatch table of the whole network.
  static Result<Pipeline> make(Dispatch<T, Context> dispatch, const Graph& graph,
                               const PipelineOutcome& plan, int micro_batches,
                               const Context& context, GroupRef group = {},
                               const Optimizer& optimizer = Optimizer{}) {
    Pipeline pipeline(context, group);
    pipeline.optimizer = optimizer;
    if (const Error why = pipeline.set_up(dispatch, graph, plan, micro_batches)) return why;
    if (const Error why = pipeline.meet_neighbours(graph)) return why;
    return static_cast<Pipeline&&>(pipeline);  // nvcc would copy it
  }

  int stage() const { return stage_; }
  int stages() const { return stages_; }
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ + 1 == stages_; }

  /// Forward and backward of all micro-batches; returns their mean loss, on every rank. gradients() is then
  /// the sum of this stage's gradients. `input(b)` returns the input of micro-batch b, on the first stage
  /// alone, and `targets(b)` the targets, on the last stage alone. After an error this
  /// pipeline runs no more: see the group contract.
  template <class Input, class Targets>
  Result<double> run(const Input& input, const Targets& targets) {
    if (!idle()) return under_way();
    turn_ = 0;
    for (int b = 0; b < micro_batches_; ++b)
      if (const Error why = accumulate(is_first() ? AnyView(input(b)) : AnyView(),
                                       is_last() ? AnyView(targets(b)) : AnyView())
                                .error)
        return why;
    return mean_;
  }

  /// run(), and an update from the mean gradient at the rate `lr`, unless loss or gradient are not finite.
  template <class Input, class Targets>
    requires requires(const Input& input, const Targets& targets) { AnyView(input(0)), targets(0); }
  Result<TrainingOutcome> step(const Input& input, const Targets& targets, double lr) {
    const Result<double> loss = run(input, targets);
    if (!loss) return loss.error;
    return update(lr);
  }
  /// One update with one micro-batch.
  Result<TrainingOutcome> step(AnyView input, AnyView targets, double lr) {
    if (micro_batches_ != 1)
      return Error::misuse("an update has ", micro_batches_,
                           " micro-batches: accumulate() each, then update()");
    if (const Result<double> loss = accumulate(input, targets); !loss) return loss.error;
    return update(lr);
  }

  /// The next micro-batch of the update. The first stage reads `input`, the last `targets`. Leave both
  /// untouched until update(): stages run other micro-batches before they come back to this one. Returns the
  /// mean loss of all micro-batches behind the last micro-batch; not a number before.
  Result<double> accumulate(AnyView input, AnyView targets) {
    if (const Error why = open(input, targets, Call::accumulate)) return why;
    while (next_) {
      if (const Error why = begin_turn()) return give_up(why);
      advance(turn().micro_batch, end_of_turn());
      if (const Error why = end_turn()) return give_up(why);
    }
    if (turn_ != 2 * micro_batches_) return std::numeric_limits<double>::quiet_NaN();
    if (const Error why = share_mean()) return give_up(why);
    return mean_;
  }

  /// Begins accumulate() in slices. slice() runs the micro-batch; behind its end, the next micro-batch or,
  /// behind the last, update() follows.
  Error begin(AnyView input, AnyView targets) { return open(input, targets, Call::begin); }

  /// Runs the begun micro-batch until the clock reads `deadline`, the micro-batch waits for another stage
  /// (Slice::waiting), or ends (Slice::ended).
  template <class Clock>
  Result<Slice> slice(Clock&& now, std::int64_t deadline);

  /// An update from the mean gradient of all micro-batches at the rate `lr`, the same on all ranks, unless loss
  /// or gradient are not finite. Only a stage with one step in flight has gaps in the arena to keep
  /// activations that a codec declined. If stages disagree on the rate, on clipping or on the optimizer's
  /// numbers, all return an error, and nothing is updated.
  Result<TrainingOutcome> update(double lr);

  /// The mean loss of a micro-batch at the present parameters, on every rank; changes nothing. All
  /// ranks call evaluate(), between updates. If one rank refuses the input, all return an error.
  Result<double> evaluate(AnyView input, AnyView targets) {
    double loss = 0;
    const Error why = pass_forward(
        input,
        [&](AnyView x) {
          const Result<double> mean =
              passes_.evaluate(memory_, context_, arena(), params(), x, targets);
          if (mean) loss = *mean;
          return mean.error;
        },
        loss);
    if (why) return why;
    return loss;
  }
  /// Copies the last activation to `output` on the last rank; changes nothing. All ranks call infer(), between updates.
  Error infer(AnyView input, View<T> output) {
    double nothing = 0;
    return pass_forward(
        input,
        [&](AnyView x) { return passes_.infer(memory_, context_, arena(), params(), x, output); },
        nothing);
  }

  /// Sets the budget of this rank's arena from now on. All ranks call set_budget(), between steps, each with
  /// a budget of its own. Stages keep their cuts and are planned anew. All change their plans, or
  /// none does (switch_to()); the error names the rank whose budget no plan fits, and the smallest possible.
  /// `costs`: of a micro-batch of the whole network (PlannedPipeline::profile; without nodes: estimates).
  /// `tolerance`: of all stages together.
  Error set_budget(std::size_t bytes, const CostProfile& costs = {}, double tolerance = 1e-2);

  /// Changes the plan of every stage. Each rank brings a plan of its graph(), or why there is none; all ranks
  /// call switch_to(), between steps. All ranks run their new plans from now on, or none does: after an error
  /// on one rank, all return an error and keep plan and arena (ranks/pipeline/replan.hpp). Exact plans
  /// change no bit of losses and parameters.
  Error switch_to(const Result<Plan>& mine);

  /// Rank 0 writes a checkpoint of the whole network, without a plan; all ranks call save()
  /// (ranks/pipeline/save.hpp), between steps. On an error, which all ranks get, a file of
  /// the name stays unchanged.
  Error save(const std::string& path, const std::string& notes = {});

  /// Goes on from the checkpoint at `path`, saved by a pipeline of any number of stages, or by one rank that
  /// added its micro-batches one after the other; bit for bit if plans before and now are exact. Rank 0
  /// reads the file; all ranks call load(), and if some train on instead, all get an error. Refuses checkpoints of
  /// other networks and optimizers, and then changes nothing; if the file fails in the middle, this pipeline runs no
  /// more.
  Error load(const std::string& path);

  /// This stage as a network of its own (model/stage.hpp).
  const Graph& graph() const { return steps_[0].graph(); }
  const Plan& plan() const { return steps_[0].program().plan; }
  int in_flight() const { return static_cast<int>(steps_.size()); }
  std::uint64_t updates() const { return updates_; }
  /// Micro-batches since the last update.
  std::size_t batches() const { return static_cast<std::size_t>(micro_batches_of(turn_)); }
  std::size_t peak_bytes() const { return arena_bytes(); }
  Context& context() { return context_; }

  Bytes arena() { return {arena_.data(), Shape(arena_.size())}; }
  View<Wide<T>> params() { return params_.full(); }
  View<const Wide<T>> params() const { return params_.full(); }
  View<Wide<T>> gradients() { return gradients_.view(); }

  /// Bytes of arena that all steps in flight take, exactly.
  std::size_t arena_bytes() const { return steps_[0].arena_bytes(); }
  /// Bytes of the buffers of messages between stages.
  std::size_t boundary_bytes() const { return boundary_.size(); }
  TrainingMemoryUse memory_use() const {
    return {params().size() * sizeof(Wide<T>), gradients_.size() * sizeof(Wide<T>),
            updater_.state().size(), arena_.size() + boundary_.size()};
  }

 private:
  static constexpr int activations = 0, gradients_channel = 1, numbers = 2;  // channels

  Pipeline(const Context& context, GroupRef group) : context_(context), group_(group) {}

  Error set_up(const Dispatch<T, Context>& dispatch, const Graph& graph,
               const PipelineOutcome& plan, int micro_batches);

  /// Gives up steps and arena, takes an arena for the steps of `stage`, and makes these.
  Error arrange(const Dispatch<T, Context>& dispatch, const InFlightProgram& stage);

  // Tickets, each with memory: inputs, one each of the other three, and for numbers.
  int inputs() const {
    const int flying = static_cast<int>(steps_.size());
    return flying < micro_batches_ ? flying + 1 : flying;
  }
  int activation_in(int batch) const { return batch % inputs(); }
  int activation_out() const { return inputs(); }
  int gradient_in() const { return inputs() + 1; }
  int gradient_out() const { return inputs() + 2; }
  int number_in() const { return inputs() + 3; }
  int number_out() const { return inputs() + 4; }
  int tickets() const { return inputs() + 5; }

  Bytes place(std::size_t offset, std::size_t bytes) {
    return {boundary_.data() + offset, Shape(bytes)};
  }
  Bytes memory_of(int ticket) {
    const std::size_t in = align_up(in_bytes_), out = align_up(out_bytes_);
    const auto count = static_cast<std::size_t>(inputs());
    if (ticket < inputs()) return place(static_cast<std::size_t>(ticket) * in, in_bytes_);
    if (ticket == gradient_out()) return place(count * in, in_bytes_);
    return place((count + 1) * in + (ticket == gradient_in() ? out : 0), out_bytes_);
  }

  void begin(int ticket, GroupMessage::Direction direction, int peer, int channel, Bytes memory) {
    group_.begin(ticket, {direction, peer, channel, memory});
    under_way_[static_cast<std::size_t>(ticket)] = true;
  }
  void send(int ticket, int peer, int channel) {
    begin(ticket, GroupMessage::Direction::send, peer, channel, memory_of(ticket));
  }
  void receive(int ticket, int peer, int channel) {
    begin(ticket, GroupMessage::Direction::receive, peer, channel, memory_of(ticket));
  }
  Error wait(int ticket) {
    bool& active = under_way_[static_cast<std::size_t>(ticket)];
    if (!active) return {};
    active = false;
    return group_.wait(ticket);
  }
  void receive_activation(int batch) {
    if (batch < micro_batches_) receive(activation_in(batch), stage_ - 1, activations);
  }
  void receive_gradient() { receive(gradient_in(), stage_ + 1, gradients_channel); }

  /// Whether no micro-batch is in flight.
  bool idle() const { return !next_ && (turn_ == 0 || mean_known_); }
  Error under_way() const {
    return Error::misuse(
        "micro-batches of an update are under way: accumulate() the rest of them, or ",
        "let slice() end the one that has begun");
  }

  /// A context's members about the sequences of a micro-batch.
  struct Sequences {
    View<const std::int32_t> lengths, positions;

    static Sequences of(const Context& context) { return {context.lengths, context.positions}; }
    void to(Context& context) const { context.lengths = lengths, context.positions = positions; }
  };

  /// The update's turn that comes next, or runs.
  PipelineTask turn() const { return task_of(stages_, stage_, micro_batches_, turn_); }
  /// The number of micro-batches in turns before turn `i`.
  int micro_batches_of(int i) const {
    int count = 0;
    for (int t = 0; t < i; ++t)
      count += task_of(stages_, stage_, micro_batches_, t).backward ? 0 : 1;
    return count;
  }
  std::size_t end_of_turn() const {
    return turn().backward ? steps_[0].instruction_count() : waits_ + 1;
  }
  /// Whether all instructions of the running turn have run.
  bool turn_ran() {
    Cursor<T, Context>& cursor = cursor_of(turn().micro_batch);
    return turn().backward ? !cursor.active() : cursor.instruction() >= end_of_turn();
  }
  Cursor<T, Context>& cursor_of(int batch) {
    const std::size_t slot = slot_of(batch);
    cursors_[slot].follow(steps_[slot]);
    return cursors_[slot];
  }
  bool arrived(int ticket) {
    return !under_way_[static_cast<std::size_t>(ticket)] || group_.done(ticket);
  }
  /// Gives messages a chance to move.
  void poll() {
    for (int ticket = 0; ticket < tickets(); ++ticket)
      if (under_way_[static_cast<std::size_t>(ticket)]) static_cast<void>(group_.done(ticket));
  }

  /// Runs the step of a micro-batch up to instruction `end`, and lets messages move meanwhile.
  void advance(int batch, std::size_t end) {
    Cursor<T, Context>& cursor = cursor_of(batch);
    in_batch(batch, [&] {
      while (cursor.active() && cursor.instruction() < end) {
        static_cast<void>(cursor.run(context_, 1));  // an error is the step's
        poll();
      }
    });
  }
  /// Calls run() with lengths and positions as they were in the context when the micro-batch began.
  template <class Run>
  decltype(auto) in_batch(int batch, const Run& run) {
    struct PutBack {
      Context& context;
      Sequences now;
      ~PutBack() { now.to(context); }
    };
    const PutBack put_back{context_, Sequences::of(context_)};
    context_.key.micro_step = static_cast<std::uint16_t>(batch);
    sequences_[slot_of(batch)].to(context_);
    return run();
  }
  std::size_t slot_of(int batch) const { return static_cast<std::size_t>(batch) % steps_.size(); }

  View<const T> received(int batch) {
    return {reinterpret_cast<const T*>(memory_of(activation_in(batch)).data()), graph().input};
  }

  /// Receives the turn's inputs from other stages, and begins the turn's part of a step.
  Error begin_turn();

  using Call = detail::RankCall;

  /// Begins a micro-batch.
  Error open(AnyView input, AnyView targets, Call call);

  /// Sends the turn's results to other stages. The next turn belongs to the same call, unless the turn needs
  /// another micro-batch.
  Error end_turn();

  /// Behind the last turn: waits for messages sent, and copies mean_ and weight_ of the last stage to all.
  Error share_mean();

  /// One forward pass through all stages: each calls its `own(x)`. The last stage's `loss` goes to all.
  template <class Own>
  Error pass_forward(AnyView input, const Own& own, double& loss);

  Error exchange(int ticket, GroupMessage::Direction direction, int peer, Bytes memory) {
    begin(ticket, direction, peer, numbers, memory);
    return wait(ticket);
  }
  static Bytes bytes_of(double* from, std::size_t count) {
    return {reinterpret_cast<std::byte*>(from), Shape(count * sizeof(double))};
  }

  /// Copies the last stage's numbers to all stages.
  Error hand_back(Bytes shared) {
    if (!is_last())
      if (const Error why =
              exchange(number_in(), GroupMessage::Direction::receive, stage_ + 1, shared))
        return why;
    if (is_first()) return {};
    return exchange(number_out(), GroupMessage::Direction::send, stage_ - 1, shared);
  }

  /// The numbers of told_, passed along the stages before an update:
  /// squares: of all gradients, summed in the order of the network's parameters, for the same bits everywhere
  /// exactly, milder, over_bound: declined activations
  /// field, who, theirs: the first disagreement with the first stage: number from 1 on, stage, value
  /// asked: all values of the first stage, from here on
  enum Told : std::size_t { squares, exactly, milder, over_bound, field, who, theirs, asked };
  std::size_t count_of(Told what) const { return static_cast<std::size_t>(told_[what]); }
  Error sum_over_stages(double rate);

  /// Each stage adds to `shared`, from the first to the last; the result goes back to all.
  template <class Add>
  Error add_over_stages(Bytes shared, const Add& add);

  Error meet_neighbours(const Graph& graph);

  // Checkpoints (ranks/pipeline/save.hpp): visit(const detail::SavedPiece&) of all pieces of a stage, in
  // order, and on rank 0 memory for any piece.
  using Passage = Block<std::byte>;
  template <class Visit>
  Error each_piece(const Visit& visit);
  Result<Passage> make_passage();

  Error give_up(const Error& why) {
    for (Step<T, Context>& step : steps_) step.abandon();
    broken_ = why;
    return why;
  }

  Context context_;
  GroupRef group_;
  int stage_ = 0, stages_ = 1, micro_batches_ = 1;
  int first_ = 0, last_ = 0;  ///< nodes
  Graph whole_;               ///< the network
  UpdateTable whole_table_;
  Array<int> last_nodes_;                     ///< by stage
  std::size_t in_bytes_ = 0, out_bytes_ = 0;  ///< in messages; 0 at the network's own ends
  Block<std::byte> arena_, boundary_;
  Parameters<T, Context> params_;
  Block<Wide<T>> gradients_;
  Updater<Wide<T>, Context> updater_;
  Array<double> told_;                 ///< numbers exchanged before an update
  Array<double> calls_;                ///< by rank: what it called first after an update
  Array<double> norms_;                ///< by parameter of the table: norms of gradients
  Array<Step<T, Context>> steps_;      ///< by micro-batch in flight
  Array<Cursor<T, Context>> cursors_;  ///< by step
  Array<Sequences> sequences_;         ///< by step
  TrainingMemory<Context> memory_;
  detail::ForwardPasses<T, Context> passes_;
  AnyView input_, targets_;  ///< for the micro-batch that has begun
  int turn_ = 0;             ///< number of the update's turn that comes next, or runs
  bool next_ = false;        ///< the turn belongs to the micro-batch that has begun
  bool running_ = false;     ///< the turn has begun
  bool mean_known_ = false;
  double mean_ = 0;        ///< loss of the micro-batches
  double weight_ = 0;      ///< divides sums of their losses and gradients (TargetCount::weight())
  std::size_t waits_ = 0;  ///< the last instruction of a forward
  Array<bool> under_way_;  ///< by ticket
  std::uint64_t updates_ = 0;
  double losses_ = 0;
  TargetCount counted_;      ///< targets of the micro-batches, on the last stage
  DeclinedCounts declined_;  ///< in the micro-batches of the update
  bool clear_ = true;        ///< the gradients are zeros
  Error broken_;
};

}}  // namespace adacc::v0_1

#include "set_up.hpp"
#include "turns.hpp"
