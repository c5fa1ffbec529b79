// SPDX-License-Identifier: MIT
/// The activations of a trainer written by hand, kept under a plan, in memory lent by the trainer.
///
///     stash.begin(cpu);                            // each step
///     forward(..., h);  stash.put(H, h);           // as soon as forward has made an activation
///     stash.enter(stage);                          // where a backward stage begins
///     auto h = stash.get(H);                       // an activation read by the stage
///     stash.leave(stage);                          // where the stage ends
///
/// `put` copies, encodes or forgets; `enter` decodes or computes again every activation of the stage. Neither
/// allocates, throws or prints, and neither can pass the arena's size, known before. Uses out of order are
/// mistakes of the calling code (Error::misuse), and change nothing.
///
/// Memory from `get` is valid until leave(), the next enter() or begin(): later stages use the memory again.
/// A gradient carried from stage to stage (StashModel::carry) stays where carried() says until the last of
/// its stages ends. In debug builds, or after poison_dead(true), dead memory is NaN from then on;
/// stash/check.hpp looks at more.
///
/// Forward uses memory of its own, except for activations with hold() in the model. A forward that can
/// write anywhere should write to place(): retained activations then need no copy.
///
/// A plan may send activations to a store lent to bind() (docs/offload.md). They leave during forward and
/// come back during backward; `put` and `enter` wait for them where due, and return the store's error if a
/// transfer fails. The step can then only begin anew.
///
/// In the context of a device (Stash<float, Cuda>) all memory is the device's. `put` and `enter` queue their
/// work on the context's stream, beside the trainer's kernels and callables: nothing waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../program/program.hpp"
#include "../step/declining.hpp"
#include "../step/memory_check.hpp"
#include "../step/watched_blobs.hpp"
#include "../store/transfers_under_way.hpp"
#include "calls.hpp"
#include "model.hpp"
#include "queue.hpp"
#include "tables.hpp"
#include "work_times.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float, class Context = Cpu>
class Stash {
 public:
  Stash() = default;
  Stash(const Stash&) = delete;
  Stash& operator=(const Stash&) = delete;
  /// A step under way moves along; the other stash is left without memory.
  Stash(Stash&& other) noexcept { move_from(other); }
  /// A step under way here is given up.
  Stash& operator=(Stash&& other) noexcept {
    if (this == &other) return *this;
    drain();
    move_from(other);
    return *this;
  }
  ~Stash() { drain(); }

  /// A stash of the activations in `model` under `plan`. The model's callables must outlive the stash.
  static Result<Stash> make(const StashModel<T, Context>& model, Plan plan) {
    Result<Graph> graph = model.graph();
    if (!graph) return graph.error;
    Result<Program> program = make_program(static_cast<Graph&&>(*graph), static_cast<Plan&&>(plan));
    if (!program) return program.error;
    Stash stash;
    stash.program_ = static_cast<Program&&>(*program);
    stash.codecs_ = model.dispatch();
    for (const Policy& policy : stash.program_.plan.policies)
      if (policy.codec() != nullptr && stash.codecs_.find(policy.codec()) == nullptr)
        return Error::misuse("the plan uses the codec ", policy.codec()->name,
                             ", which no activation of the stash allows");
    stash.transfers_.reset(stash.program_.schedule);
    stash.tables_ = {model, stash.program_};
    stash.value_.resize(stash.tables_.raw.size());
    stash.sources_.resize(stash.tables_.most_sources);
    stash.outputs_.resize(stash.tables_.most_outputs);
    return static_cast<Stash&&>(stash);  // nvcc would copy it
  }

  const Program& program() const { return program_; }
  const Graph& graph() const { return program_.graph; }
  const Plan& plan() const { return program_.plan; }

  /// Bytes of memory for the stash, exactly: the peak.
  std::size_t arena_bytes() const { return program_.peak_bytes(); }

  /// Whether memory is filled with NaN as soon as it is dead: a stage is over, or forward has no more
  /// readers of it. The default is ADACC_POISONS (core/config.hpp).
  void poison_dead(bool poison) { poisons_ = poison; }

  /// Bytes of the store in use by the plan; 0 if nothing is sent there.
  std::size_t store_bytes() const { return program_.schedule.store_bytes; }

  /// Lends the stash memory where the context's kernels run, 64-byte aligned, and, if store_bytes() is
  /// not 0, a store of at least that size which outlives the binding; memory must then be aligned to
  /// transfer_alignment. A step under way is forgotten.
  Error bind(Bytes arena, StoreRef store = {}) {
    if (arena.size() < arena_bytes())
      return Error::misuse("the stash needs an arena of ", shown(arena_bytes()), ", and got ",
                           shown(arena.size()));
    const detail::LentMemory memory{"bytes of the arena", arena.data(), arena_bytes()};
    if (const Error why = detail::check_memory({memory})) return why;
    if (const Error why = detail::check_place<Context>(memory)) return why;
    if (const Error why = detail::check_reach<Context>(store, store_bytes())) return why;
    drain();
    if (const Error why = transfers_.bind(program_.schedule, arena, store)) return why;
    now_ = {};
    now_.arena = arena;
    now_.bound = true;
    return {};
  }

  /// Begins a step; a step under way is forgotten. `context`, with the step's number in the key,
  /// must live until the last enter() or leave().
  Error begin(Context& context) {
    if (!now_.bound)
      return Error::misuse("bind() must lend the stash an arena before a step begins");
    if (const Error why = detail::check_order(context, transfers_.store())) return why;
    drain();
    for (int& value : value_) value = -1;
    now_.context = &context;
    now_.at = 0;
    now_.step = {};
    now_.step.under_way = true;
    work_.begin();
    declining_.begin(program_);
    return {};
  }

  /// Ends the step, or gives it up: nothing is under way. begin() does so, too. (Only a CheckedStash
  /// returns an error.)
  Error end() {
    drain();
    end_stage();
    now_.step = {};
    return {};
  }
  /// Between begin() and the last leave(), of stage 0, or else end(). A failed step is over.
  bool in_step() const { return now_.step.goes_on(); }

  /// The best place for forward to write activation `id`: in the arena, if the plan retains the activation,
  /// else `scratch`. From begin() until the put of `id`, in any order: before backward, the memory of a
  /// retained activation has no other use. Values there may be read until the first enter(). If the model
  /// holds values, or the plan sends activations to a store, the memory had other uses before: then only the
  /// next activation to be put has a place in the arena.
  ///
  /// A held activation is in the arena under every plan: from when it, or the first activation of one
  /// forward, is next to be put, until the last activation made from it is put.
  View<T> place(int id, View<T> scratch) const {
    void* const there = free_place(id, false);
    return there == nullptr ? scratch : View<T>(static_cast<T*>(there), graph().node(id).output);
  }

  /// The best place for an activation registered as bytes; see place().
  Bytes place_bytes(int id, Bytes scratch) const {
    void* const there = free_place(id, true);
    return there == nullptr
               ? scratch
               : Bytes(static_cast<std::byte*>(there), Shape(graph().node(id).output_bytes));
  }

  /// Scratch for forward to make the held activation `id` in, of the size told to recompute(), for as
  /// long as place() may be written. Empty for other activations.
  Bytes workspace(int id) const {
    if (!now_.step.under_way || id < now_.step.next || id >= activations()) return {};
    const int maker = graph().maker_of(id);
    const int memory = tables_.scratch[static_cast<std::size_t>(maker)];
    return memory < 0 || maker != now_.step.next ? Bytes() : bytes(memory);
  }

  /// Forward has produced activation `id`. The values stay the caller's, to be overwritten once
  /// put() returns (except at place(); on a device, by later work of the stream); they lie anywhere
  /// outside of the arena. Activations are put in the order of their registration, each once a
  /// step. A held activation made elsewhere is copied to its place.
  Error put(int id, View<const T> value) {
    if (const Error why = calls().check_put(id)) return why;
    if (!(value.shape() == graph().node(id).output) || tables_.raw[static_cast<std::size_t>(id)])
      return registered("put", id, name_of(dtype_of<T>), value.shape());
    return keep(id, value.data(), value);
  }

  /// Forward has produced activation `id`, registered as bytes; see put().
  Error put_bytes(int id, ConstBytes value) {
    if (const Error why = calls().check_put(id)) return why;
    if (value.size() != graph().node(id).output_bytes || !tables_.raw[static_cast<std::size_t>(id)])
      return registered("put", id, "bytes", value.shape());
    return keep(id, value.data(), {});
  }

  /// Forward ends here, earlier than in the model: a shorter batch, a sequence that ends. Activations not put
  /// have no backward in this step: no stage that reads one of them may be entered. Nothing changes if all
  /// activations were put.
  Error stop_forward() {
    if (const Error why = calls().check_stop()) return why;
    now_.step.made = now_.step.next;
    while (now_.step.next < activations()) {
      if (const Error why = end_forward({})) return why;
      ++now_.step.next;
    }
    return {};
  }

  /// Backward stage `stage` begins: every activation it reads is there until the next stage begins.
  /// Forward is over by then. Stages follow each other from the highest number to the lowest, and
  /// may be left out. Entering the current stage again changes nothing.
  Error enter(int stage) {
    if (const Error why = calls().check_enter(stage)) return why;
    if (stage == now_.step.stage) return {};
    if (const Error why = check_queue(detail::StageName(graph(), activations(), stage),
                                      ": what was queued before it"))
      return why;
    end_stage();
    const int last = tables_.stage_at[static_cast<std::size_t>(stage)];
    for (; static_cast<int>(now_.at) <= last; ++now_.at) {
      if (const Error why = execute(program_.schedule.instructions[now_.at])) return why;
      if (static_cast<int>(now_.at) < last) bury(now_.at);
    }
    if (const Error why = check_queue(detail::StageName(graph(), activations(), stage),
                                      ": what brings back all it reads"))
      return why;
    now_.step.stage = stage;
    now_.step.left = false;
    return {};
  }

  /// The current backward stage, `stage`, ends: memory from get() and backward_workspace() is the stash's
  /// again. The next enter(), and begin(), do so, too.
  Error leave(int stage) {
    if (const Error why = calls().check_leave(stage)) return why;
    end_stage();
    now_.step.left = true;
    return {};
  }

  /// The memory of the current backward stage: the bytes of StashModel::stage_bytes, with any
  /// contents, until the stage ends.
  Result<Bytes> backward_workspace() const {
    if (!now_.step.stage_is_on())
      return Error::misuse("backward_workspace(): no backward stage is on; enter() begins one");
    const int at = tables_.stage_at[static_cast<std::size_t>(now_.step.stage)];
    if (at < 0) return Bytes();
    const int memory = program_.schedule.instructions[static_cast<std::size_t>(at)].workspace;
    return memory < 0 ? Bytes() : bytes(memory);
  }

  /// Gradient `id` of StashModel::carry: one place, to be read and written, from enter() of the first of
  /// its stages until the last one ends, also between two of them. At first the place has any contents.
  Result<View<T>> carried(int id) const {
    if (const Error why = calls().check_carried(tables_.carried, id)) return why;
    const detail::StashCarried& of = tables_.carried[static_cast<std::size_t>(id)];
    if (of.raw())
      return Error::misuse("carried gradient ", id, " (", of.name,
                           ") was registered as bytes: carried_bytes() has it");
    return View<T>(static_cast<T*>(address(id)), of.shape);
  }

  /// The carried gradient as bytes, whether registered as bytes or not.
  Result<Bytes> carried_bytes(int id) const {
    if (const Error why = calls().check_carried(tables_.carried, id)) return why;
    return bytes(id);
  }

  /// Activation `id` for the current backward stage, if registered as its reader; valid until
  /// leave(), the next enter() or begin().
  Result<View<const T>> get(int id) const {
    if (const Error why = calls().check_get(id)) return why;
    if (tables_.raw[static_cast<std::size_t>(id)])
      return registered("get", id, name_of(dtype_of<T>), graph().node(id).output);
    return View<const T>(static_cast<const T*>(address(value_[static_cast<std::size_t>(id)])),
                         graph().node(id).output);
  }

  /// Activation `id`, registered as bytes, for the current backward stage; see get().
  Result<ConstBytes> get_bytes(int id) const {
    if (const Error why = calls().check_get(id)) return why;
    return ConstBytes(static_cast<const std::byte*>(address(value_[static_cast<std::size_t>(id)])),
                      Shape(graph().node(id).output_bytes));
  }

  /// Activation `id` as get() has it, to be overwritten: for the last backward stage to read it, if no plan reads
  /// it later to recompute another.
  Result<View<T>> take(int id) const {
    const Result<View<const T>> there = get(id);
    if (!there) return there.error;
    if (const Error why = calls().check_take(tables_.last_runs, id)) return why;
    return values(id, value_[static_cast<std::size_t>(id)]);
  }
  Result<Bytes> take_bytes(int id) const {
    if (const Error why = calls().check_take(tables_.last_runs, id)) return why;
    return Bytes(static_cast<std::byte*>(address(value_[static_cast<std::size_t>(id)])),
                 Shape(graph().node(id).output_bytes));
  }

  /// Whether transfers of later steps are timed, and by which clock; the times of the last step
  /// (Step has the same).
  void time_transfers(ClockRef clock) { transfers_.time_with(clock); }
  const TransferTimes& transfer_times() const { return transfers_.times(); }

  /// Whether encodes, decodes and recomputations of later steps are timed: seconds of the last step, by
  /// instruction of program().schedule; negative if it did not run. On a device, seconds of queueing.
  void time_work(ClockRef clock) { work_.time_with(clock, program_.schedule.instructions.size()); }
  const Array<double>& work_seconds() const { return work_.seconds(); }

  /// Later steps are watched until stop_watching(): statistics() has what an activation's codec saw in
  /// the last one. On a device, steps write this to `memory`, watch_bytes() of the context's, and
  /// read_watched() takes a copy on the host (Step has the same).
  Error watch(Bytes memory = {}) { return watched_.start(graph(), program_.plan, codecs_, memory); }
  void stop_watching() { watched_.stop(); }
  std::size_t watch_bytes() const {
    return detail::WatchedBlobs<T, Context>::bytes(graph(), program_.plan, codecs_);
  }
  void read_watched(ConstBytes copy) { watched_.read(graph(), program_.plan, codecs_, copy); }
  CodecStatistics statistics(int id) const { return watched_.of(id); }

  /// Whether later steps judge encoded rows, and keep activations with rows over the bound in another form;
  /// the outcome for activation `id` in the last step, and counts of all (Step has the same).
  void judge_encodes(bool judges) { declining_.let(judges); }
  Declined declined(int id) const { return declined_of(program_.declinables, id); }
  DeclinedCounts declined_counts() const { return counts_of(program_.declinables); }

 private:
  /// The state changed by a step, apart from the arena and value_.
  struct State {
    Bytes arena;
    Context* context = nullptr;  ///< the step's
    std::size_t at = 0;          ///< the next instruction
    detail::StashProgress step;
    bool bound = false;
  };

  void move_from(Stash& other) {
    program_ = static_cast<Program&&>(other.program_);
    codecs_ = static_cast<Dispatch<T, Context>&&>(other.codecs_);
    tables_ = static_cast<detail::StashTables<T>&&>(other.tables_);
    value_ = static_cast<Array<int>&&>(other.value_);
    sources_ = static_cast<Array<View<const T>>&&>(other.sources_);
    outputs_ = static_cast<Array<View<T>>&&>(other.outputs_);
    transfers_ = static_cast<detail::TransfersUnderWay&&>(other.transfers_);
    work_ = static_cast<detail::StashWorkTimes&&>(other.work_);
    watched_ = static_cast<detail::WatchedBlobs<T, Context>&&>(other.watched_);
    declining_ = other.declining_;
    poisons_ = other.poisons_;
    now_ = other.now_;
    other.now_ = {};
  }

  int activations() const { return static_cast<int>(value_.size()); }
  detail::StashCalls calls() const { return {graph(), activations(), now_.step}; }

  /// The memory of an activation yet to be put, if retained or held; null if there is none.
  void* free_place(int id, bool raw) const {
    if (!now_.step.under_way || id < now_.step.next || id >= activations()) return nullptr;
    const auto k = static_cast<std::size_t>(id);
    if (tables_.place[k] < 0 || tables_.raw[k] != raw) return nullptr;
    const bool sends = !program_.schedule.transfers.empty();
    if (!graph().node(id).value_outside) {
      if (graph().maker_of(id) != graph().maker_of(now_.step.next)) return nullptr;
    } else if ((sends || tables_.holds) &&
               (id != now_.step.next || program_.schedule.buffer(tables_.place[k]).travels)) {
      return nullptr;
    }
    return address(tables_.place[k]);
  }

  /// Ends the current stage, if there is one.
  void end_stage() {
    if (!now_.step.stage_is_on()) return;
    const int at = tables_.stage_at[static_cast<std::size_t>(now_.step.stage)];
    if (at >= 0) bury(static_cast<std::size_t>(at));
  }

  /// Poisons buffers last named by instruction `at`, if the caller wants poison.
  void bury(std::size_t at) {
    if (!poisons_) return;
    for (std::size_t b = 0; b < program_.schedule.buffers.size(); ++b) {
      const Buffer& buffer = program_.schedule.buffers[b];
      if (buffer.first >= 0 && buffer.last == static_cast<int>(at) &&
          !detail::is_vacated(program_, b))  // others may wait there
        detail::fill_bytes(*now_.context, bytes(static_cast<int>(b)), 0xFF);
    }
  }

  void* address(int buffer) const {
    return now_.arena.data() + program_.layout.offsets[static_cast<std::size_t>(buffer)];
  }
  Bytes bytes(int buffer) const {
    return {static_cast<std::byte*>(address(buffer)),
            Shape(program_.schedule.buffer(buffer).bytes)};
  }
  View<T> matrix(int id, int buffer) const {
    const Shape shape = graph().node(id).output;
    return {static_cast<T*>(address(buffer)), Shape(shape.rows(), shape.cols())};
  }
  /// An activation in the form seen by callables.
  View<T> values(int id, int buffer) const {
    const Shape shape = graph().node(id).output;
    return {static_cast<T*>(address(buffer)), tables_.raw[static_cast<std::size_t>(id)]
                                                  ? Shape(graph().node(id).output_bytes / sizeof(T))
                                                  : shape};
  }

  // Mistakes of the calling code.

  ActivationName name(int id) const { return {graph(), id}; }

  Error registered(const char* what, int id, const char* got, Shape shape) const {
    const bool raw = tables_.raw[static_cast<std::size_t>(id)];
    return Error::misuse(what, " of ", name(id), ": it was registered as ",
                         raw ? "bytes" : name_of(dtype_of<T>), " ", graph().node(id).output,
                         raw ? " (put_bytes, get_bytes)" : "", ", and got ", got, " ", shape);
  }

  /// An error unless values for put() lie outside of the arena, or in their place.
  Error check_values(int id, const void* from, std::size_t boundary, const void* place) const {
    if (place != nullptr && from == place) return {};
    const detail::LentMemory values{"values", from, graph().node(id).output_bytes, boundary};
    const detail::LentMemory arena{"bytes of the arena", now_.arena.data(), arena_bytes()};
    if (const Error why = detail::fault_of({values, arena}))
      return Error::misuse("put of ", name(id), ": ", why.text());
    if (const Error why = detail::check_place<Context>(values))
      return Error::say("put of ", name(id), ": ", why.text());
    return {};
  }

  /// A failure known of queued work ends the step. `what` names the work.
  template <class... Pieces>
  Error check_queue(const Pieces&... what) {
    const Error why = detail::queue_fault(*now_.context);
    if (why) now_.step.failed = Error::say(what..., " failed: ", why.text());
    return why ? now_.step.failed : Error();
  }

  /// Runs the instructions with which activation `id` leaves forward.
  Error keep(int id, const void* from, View<const T> value) {
    const int y = tables_.place[static_cast<std::size_t>(id)];
    void* const place = y < 0 ? nullptr : address(y);
    const std::size_t boundary = tables_.raw[static_cast<std::size_t>(id)] ? 1 : alignof(T);
    if (const Error why = check_values(id, from, boundary, place)) return why;
    if (const Error why = check_queue("put of ", name(id), ": what was queued before it"))
      return why;
    if (place != nullptr) {
      if (place != from) {
        const Shape whole(graph().node(id).output_bytes);
        detail::copy_bytes(*now_.context, {static_cast<const std::byte*>(from), whole},
                           {static_cast<std::byte*>(place), whole});
      }
      value_[static_cast<std::size_t>(id)] = y;
    }
    if (const Error why = end_forward(value)) return why;
    ++now_.step.next;
    return {};
  }

  /// Runs instructions behind a finished forward, up to the next forward, whose place is asked for later:
  /// encodes activations without further readers, and moves those that are due. `value` is the put one.
  Error end_forward(View<const T> value) {
    const Array<Instruction>& list = program_.schedule.instructions;
    for (;;) {
      bury(now_.at);
      if (++now_.at == list.size()) return {};
      const Instruction& inst = list[now_.at];
      if (is_transfer(inst.op)) {
        if (now_.step.was_made(inst.node))
          if (const Error why = transfer(inst)) return why;
      } else if (inst.op == Op::encode) {
        if (!now_.step.was_made(inst.node)) continue;
        const View<const T> x = inst.x < 0
                                    ? View<const T>(value.data(), Shape(value.rows(), value.cols()))
                                    : View<const T>(matrix(inst.node, inst.x));
        const double start = work_.start();
        now_.context->key.activation = static_cast<std::uint32_t>(inst.node);
        const Bytes blob = bytes(inst.blob);
        const auto& by = codec(inst.node);
        Error why = by.encode(*now_.context, x, blob, {});
        RowErrors errors;
        if (!why) errors = declining_.judge(*now_.context, program_, by, inst.node, x, blob, {});
        work_.end(now_.at, start);
        if (!why) {
          why = watched_.look(*now_.context, graph(), inst.node, by, x, blob, errors,
                              declining_.judges());
        }
        if (!why) {
          why = declining_.decline(*now_.context, program_, codecs_, inst.node, x, now_.arena);
          if (declining_.holds_unlike_rows(program_, inst.node)) watched_.rows_are_held(inst.node);
        }
        if (why) {
          --now_.at;  // a failed encode may be put again
          return named("put", inst.node, why);
        }
      } else {
        return {};
      }
    }
  }

  /// Begins a transfer, or waits for one.
  Error transfer(const Instruction& inst) {
    const Schedule& schedule = program_.schedule;
    auto* const memory = static_cast<std::byte*>(address(inst.blob));
    const Error why = transfers_.run(schedule, inst, memory);
    if (why) return now_.step.failed = Error::say("offloading ", name(inst.node), ": ", why.text());
    if (inst.op == Op::read_wait && schedule.buffer(inst.blob).kind == BufferKind::activation)
      value_[static_cast<std::size_t>(inst.node)] = inst.blob;
    return {};
  }

  /// Waits for transfers under way. Their step is forgotten, and so are their errors.
  void drain() { static_cast<void>(transfers_.finish()); }

  /// One instruction of backward; the stage itself is the caller's.
  Error execute(const Instruction& inst) {
    if (inst.op == Op::backward || !now_.step.was_made(inst.node)) return {};
    if (is_transfer(inst.op)) return transfer(inst);
    const auto id = static_cast<std::size_t>(inst.node);
    const double start = work_.start();
    now_.context->key.activation = static_cast<std::uint32_t>(inst.node);
    if (inst.op == Op::decode) {
      const Declined* const kept = declining_.kept(program_, inst.node);
      const View<T> y = matrix(inst.node, inst.y);
      const Error why = kept != nullptr
                            ? declining_.bring_back(*now_.context, program_, codecs_, *kept, inst,
                                                    0, {}, now_.arena, y)
                            : codec(inst.node).decode(*now_.context, bytes(inst.blob), y, {});
      if (why) return named("decoding", inst.node, why);
      value_[id] = inst.y;
    } else {
      make_again(inst);
    }
    work_.end(now_.at, start);
    return {};
  }

  /// Forward again; a forward of several activations runs once all are named.
  void make_again(const Instruction& inst) {
    const int maker = graph().maker_of(inst.node);
    outputs_[static_cast<std::size_t>(inst.node - maker)] = values(inst.node, inst.y);
    if (program_.schedule.buffer(inst.y).kind == BufferKind::activation)
      value_[static_cast<std::size_t>(inst.node)] = inst.y;
    if (graph().made_with_next(inst.node)) return;
    const IdSpan sources = graph().sources(maker);
    for (std::size_t i = 0; i < sources.size(); ++i)
      sources_[i] = values(sources[i], value_[static_cast<std::size_t>(sources[i])]);
    const StashRecompute<T>& again = tables_.recompute[static_cast<std::size_t>(maker)];
    again.call(again.function, sources_.data(), outputs_.data(),
               inst.workspace < 0 ? Bytes() : bytes(inst.workspace));
  }

  /// The error of a codec that breaks its contract.
  Error named(const char* what, int id, const Error& why) const {
    return Error::say(what, " of ", name(id), ": ", why.text());
  }

  const CodecDispatch<T, Context>& codec(int id) const {
    return *codecs_.find(program_.plan[id].codec());
  }

  Program program_;
  Dispatch<T, Context> codecs_;
  detail::StashTables<T> tables_;
  Array<int> value_;              ///< by activation: the buffer of its value; -1: none
  Array<View<const T>> sources_;  ///< sources of the running callable
  Array<View<T>> outputs_;        ///< outputs of the running callable
  detail::TransfersUnderWay transfers_;
  detail::StashWorkTimes work_;
  detail::WatchedBlobs<T, Context> watched_;
  detail::Declining<T, Context> declining_;
  bool poisons_ = ADACC_POISONS;
  State now_;
};

}}  // namespace adacc::v0_1
