/// The activations of a trainer written by hand, kept as a plan says, in memory that it lends.
///
///     stash.begin(cpu);                            // each step
///     forward(..., h);  stash.put(H, h);           // as soon as forward has made an activation
///     auto h = stash.get(H);                       // where a backward stage reads it
///
/// `put` copies, encodes or forgets; `get` decodes or computes again what the next stages read.
/// Neither allocates, throws or prints, and neither can pass the arena's size, which was known
/// before. Uses out of order are errors, and change nothing.
///
/// Forward keeps its own memory. Where it can write wherever it is told, place() saves the copy of
/// what is retained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../program/program.hpp"
#include "model.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float, class Context = Cpu>
class Stash {
 public:
  Stash() = default;

  /// A stash of what `model` registers under `plan`. The model's callables must outlive it.
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
        return Error::say("the plan uses the codec ", policy.codec()->name,
                          ", which no activation of the stash allows");
    stash.lay_out(model);
    return stash;
  }

  const Program& program() const { return program_; }
  const Graph& graph() const { return program_.graph; }
  const Plan& plan() const { return program_.plan; }

  /// Bytes that the stash needs, exactly: its peak.
  std::size_t arena_bytes() const { return program_.peak_bytes(); }

  /// Lends the stash its memory, which starts 64-byte aligned.
  Error bind(Bytes arena) {
    if (arena.size() < arena_bytes())
      return Error::say("the stash needs an arena of ", shown(arena_bytes()), ", and got ",
                        shown(arena.size()));
    if (reinterpret_cast<std::uintptr_t>(arena.data()) % alignment != 0)
      return Error::say("the arena must start 64-byte aligned");
    arena_ = arena;
    bound_ = true;
    context_ = nullptr;
    return {};
  }

  /// A step begins; one that was under way is forgotten. `context`, whose key says which step it
  /// is, must live until the last get.
  Error begin(Context& context) {
    if (!bound_) return Error::say("bind() must lend the stash an arena before a step begins");
    context_ = &context;
    for (int& value : value_) value = -1;
    at_ = 0;
    next_ = 0;
    stage_ = graph().node_count();
    return {};
  }

  /// Where forward had best write activation `id`, the next to be put: in the arena, if it is
  /// retained, or else in `scratch`.
  View<T> place(int id, View<T> scratch) const {
    if (context_ == nullptr || id != next_ || id >= activations_) return scratch;
    const int y = program_.schedule.instructions[at_].y;
    return y < 0 ? scratch : View<T>(static_cast<T*>(address(y)), scratch.shape());
  }

  /// Forward has produced activation `id`. The values stay the caller's, who may overwrite them
  /// once this returns (but for what place() gave). What a codec is to encode starts 64-byte
  /// aligned. Activations are put in the order in which they were registered, each once a step.
  Error put(int id, View<const T> value) {
    if (const Error why = check_put(id)) return why;
    const Node& node = graph().node(id);
    if (!(value.shape() == node.output) || raw_[static_cast<std::size_t>(id)])
      return Error::say("put of ", node.name, ": it was registered as ", described(id), " ",
                        node.output, ", and got ", name_of(dtype_of<T>), " ", value.shape());
    return keep(id, value.data(), value);
  }

  /// The same for what was registered as bytes.
  Error put_bytes(int id, ConstBytes value) {
    if (const Error why = check_put(id)) return why;
    const Node& node = graph().node(id);
    if (value.size() != node.output_bytes || !raw_[static_cast<std::size_t>(id)])
      return Error::say("put of ", node.name, ": it was registered as ", described(id), " ",
                        node.output, ", and got bytes ", value.shape());
    return keep(id, value.data(), {});
  }

  /// Activation `id` for a backward stage that reads it, valid until the first get of a later
  /// stage that does not. Stages follow each other from the highest number to the lowest: a get
  /// belongs to the first of them, from the one that is on, that was registered to read `id`.
  Result<View<const T>> get(int id) {
    if (const Error why = reach(id)) return why;
    return View<const T>(static_cast<const T*>(address(value_[static_cast<std::size_t>(id)])),
                         graph().node(id).output);
  }
  Result<ConstBytes> get_bytes(int id) {
    if (const Error why = reach(id)) return why;
    return ConstBytes(static_cast<const std::byte*>(address(value_[static_cast<std::size_t>(id)])),
                      Shape(graph().node(id).output_bytes));
  }

 private:
  void lay_out(const StashModel<T, Context>& model) {
    activations_ = model.activation_count();
    const auto count = static_cast<std::size_t>(activations_);
    value_.resize(count);
    recompute_.resize(count);
    raw_.resize(count);
    std::size_t most_sources = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const Node& node = program_.graph.nodes[k];
      recompute_[k] = model.recompute_of(static_cast<int>(k));
      raw_[k] = node.output_bytes != node.output.elems() * sizeof(T);
      if (node.sources.count > most_sources) most_sources = node.sources.count;
    }
    sources_.resize(most_sources);
  }

  void* address(int buffer) const {
    return arena_.data() + program_.layout.offsets[static_cast<std::size_t>(buffer)];
  }
  Bytes bytes(int buffer) const {
    return {static_cast<std::byte*>(address(buffer)),
            Shape(program_.schedule.buffer(buffer).bytes)};
  }
  View<T> matrix(int id, int buffer) const {
    const Shape shape = graph().node(id).output;
    return {static_cast<T*>(address(buffer)), Shape(shape.rows(), shape.cols())};
  }
  /// An activation as callables see it.
  View<T> values(int id, int buffer) const {
    const Shape shape = graph().node(id).output;
    return {static_cast<T*>(address(buffer)),
            raw_[static_cast<std::size_t>(id)] ? Shape(shape.elems() / sizeof(T)) : shape};
  }
  const char* described(int id) const {
    return raw_[static_cast<std::size_t>(id)] ? "bytes" : name_of(dtype_of<T>);
  }

  Error check_known(const char* what, int id) const {
    if (context_ == nullptr)
      return Error::say(what, " of activation ", id, " before begin(): no step is under way");
    if (id < 0 || id >= activations_)
      return Error::say(what, " of activation ", id, ": the stash has activations 0 to ",
                        activations_ - 1);
    return {};
  }

  Error check_put(int id) const {
    if (const Error why = check_known("put", id)) return why;
    if (id < next_)
      return Error::say("put of ", graph().node(id).name, ": it was put already in this step");
    if (id > next_)
      return Error::say("put of ", graph().node(id).name, " before ", graph().node(next_).name,
                        ": activations are put in the order in which they were registered");
    return {};
  }

  /// Runs the instructions with which activation `id` leaves forward.
  Error keep(int id, const void* from, View<const T> value) {
    const Array<Instruction>& list = program_.schedule.instructions;
    const Instruction& forward = list[at_];
    if (at_ + 1 < list.size() && list[at_ + 1].op == Op::encode && list[at_ + 1].node == id) {
      context_->key.activation = static_cast<std::uint32_t>(id);
      const View<const T> x(value.data(), Shape(value.rows(), value.cols()));
      if (const Error why = codec(id).encode(*context_, x, bytes(list[at_ + 1].blob), {}))
        return why;
      ++at_;
    } else if (forward.y >= 0) {
      if (address(forward.y) != from)
        std::memcpy(address(forward.y), from, graph().node(id).output_bytes);
      value_[static_cast<std::size_t>(id)] = forward.y;
    }
    ++at_;
    ++next_;
    return {};
  }

  /// Goes on in backward until a stage that reads activation `id`.
  Error reach(int id) {
    if (const Error why = check_known("get", id)) return why;
    if (next_ < activations_)
      return Error::say("get of ", graph().node(id).name, ": forward is not over, ",
                        graph().node(next_).name, " was not put");
    if (stage_ < graph().node_count() && reads(stage_, id)) return {};
    int stage = stage_ - 1;
    while (stage >= activations_ && !reads(stage, id)) --stage;
    if (stage < activations_)
      return Error::say("get of ", graph().node(id).name,
                        ": of the backward stages that are left, none was registered to read it");
    for (bool there = false; !there; ++at_) {
      const Instruction& run = program_.schedule.instructions[at_];
      if (const Error why = execute(run)) return why;
      there = run.op == Op::backward && run.node == stage;
    }
    stage_ = stage;
    return {};
  }

  bool reads(int stage, int id) const {
    return graph().backward_reads(stage).contains(id);
  }

  /// One instruction of backward: what a stage itself does is the caller's.
  Error execute(const Instruction& run) {
    if (run.op == Op::backward) return {};
    const auto id = static_cast<std::size_t>(run.node);
    context_->key.activation = static_cast<std::uint32_t>(run.node);
    if (run.op == Op::decode) {
      const Error why =
          codec(run.node).decode(*context_, bytes(run.blob), matrix(run.node, run.y), {});
      if (why) return why;
    } else {
      const IdSpan sources = graph().sources(run.node);
      for (std::size_t i = 0; i < sources.size(); ++i)
        sources_[i] = values(sources[i], value_[static_cast<std::size_t>(sources[i])]);
      recompute_[id].call(recompute_[id].function, sources_.data(), values(run.node, run.y));
    }
    value_[id] = run.y;
    return {};
  }

  const CodecDispatch<T, Context>& codec(int id) const {
    return *codecs_.find(program_.plan[id].codec());
  }

  Program program_;
  Dispatch<T, Context> codecs_;
  Array<StashRecompute<T>> recompute_;
  Array<bool> raw_;               ///< by activation: registered as bytes
  Array<int> value_;              ///< by activation: the buffer that holds its value; -1 for none
  Array<View<const T>> sources_;  ///< of the callable that runs
  Bytes arena_;
  Context* context_ = nullptr;  ///< of the step under way
  std::size_t at_ = 0;          ///< the next instruction
  int activations_ = 0;
  int next_ = 0;   ///< the next activation to be put
  int stage_ = 0;  ///< the node of the backward stage that is on; node_count() before the first
  bool bound_ = false;
};

}}  // namespace adacc::v0_1
