/// The runner: executes a compiled step inside the arena that the caller lends it.
///
/// Set-up (make, bind) validates everything and reports errors as values. A step itself allocates
/// nothing, throws nothing and cannot fail but by a result that is not finite, which is the
/// caller's to judge.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cpu.hpp"
#include "../plan/exact.hpp"
#include "dispatch.hpp"
#include "program.hpp"

namespace adacc::inline v0_1 {

template <class T = float, class Context = Cpu>
class Step {
 public:
  Step() = default;

  /// A step of `network`, which must outlive it, as `program` lays it out (for this network,
  /// scalar type and at least as many workers as the context will have).
  template <class Network>
  static Result<Step> make(const Network& network, Program program) {
    return make(make_dispatch<T, Context>(network), static_cast<Program&&>(program));
  }

  /// The same from a dispatch table, for plans with codecs that no type of the network names.
  static Result<Step> make(Dispatch<T, Context> dispatch, Program program) {
    if (program.graph.scalar != dtype_of<T>)
      return Error::say("the program computes in ", name_of(program.graph.scalar),
                        ", and this Step in ", name_of(dtype_of<T>));
    for (const Node& node : program.graph.nodes)
      if (static_cast<std::size_t>(node.layer) >= dispatch.layers.size())
        return Error::say("the program has a layer ", node.layer, ", and the network only ",
                          dispatch.layers.size(), " layers: it was made for another network");
    for (const Policy& policy : program.plan.policies)
      if (policy.codec != nullptr && dispatch.find(policy.codec) == nullptr)
        return Error::say("the plan uses the codec ", policy.codec->name,
                          ", which no type of the network names: add it to the dispatch table");
    Step step;
    step.exact_ = exact_in_backward(program.graph, program.plan);
    step.dispatch_ = static_cast<Dispatch<T, Context>&&>(dispatch);
    step.program_ = static_cast<Program&&>(program);
    return step;
  }

  template <class Network>
  static Result<Step> make(const Network&& temporary, Program) = delete;

  const Program& program() const { return program_; }
  const Graph& graph() const { return program_.graph; }
  std::size_t arena_bytes() const { return program_.peak_bytes(); }
  std::size_t instruction_count() const { return program_.schedule.instructions.size(); }

  /// Lends the step its memory: an arena of at least arena_bytes(), the parameters and, for
  /// training, their gradients, each graph().parameter_elems elements, all 64-byte aligned.
  Error bind(Bytes arena, View<const T> params, View<T> gradients = {}) {
    const Graph& graph = program_.graph;
    if (arena.size() < arena_bytes())
      return Error::misuse("the step needs an arena of ", shown(arena_bytes()), ", and got ",
                           shown(arena.size()));
    if (params.size() < graph.parameter_elems)
      return Error::misuse("the network has ", graph.parameter_elems,
                           " parameter elements, padding included, and got ", params.size());
    if (program_.mode == Mode::train && gradients.size() < graph.parameter_elems)
      return Error::say("training needs ", graph.parameter_elems,
                        " gradient elements, padding included, and got ", gradients.size());
    for (const void* start :
         {static_cast<const void*>(arena.data()), static_cast<const void*>(params.data()),
          static_cast<const void*>(gradients.data())})
      if (reinterpret_cast<std::uintptr_t>(start) % alignment != 0)
        return Error::say("arena, parameters and gradients must start 64-byte aligned");
    arena_ = arena;
    params_ = params;
    gradients_ = gradients;
    bound_ = true;
    return {};
  }

  /// Sets the input and, but for Mode::infer, the targets of the next step; both stay the caller's.
  template <class X, class Y>
  Error begin(View<X> input, View<Y> targets) {
    const Graph& graph = program_.graph;
    using Input = std::remove_const_t<X>;
    using Target = std::remove_const_t<Y>;
    if (!bound_) return Error::say("bind() must lend the step an arena before it begins");
    if (dtype_of<Input> != graph.input_dtype || !(input.shape() == graph.input))
      return Error::say("the step takes an input of ", name_of(graph.input_dtype), " ", graph.input,
                        ", and got ", name_of(dtype_of<Input>), " ", input.shape());
    if (program_.mode != Mode::infer &&
        (dtype_of<Target> != graph.loss.target_dtype || !(targets.shape() == graph.loss.targets)))
      return Error::say("the loss takes targets of ", name_of(graph.loss.target_dtype), " ",
                        graph.loss.targets, ", and got ", name_of(dtype_of<Target>), " ",
                        targets.shape());
    input_ = input.data();
    targets_ = targets.data();
    loss_ = 0;
    error_ = {};
    return {};
  }

  /// Runs instruction i, 0 <= i < instruction_count(), in order, once begin() has succeeded.
  void execute(Context& context, std::size_t i) {
    const Instruction& run = program_.schedule.instructions[i];
    context.training = program_.mode == Mode::train;
    context.key.activation = static_cast<std::uint32_t>(run.node);
    switch (run.op) {
      case Op::forward: return forward(context, run);
      case Op::backward: return backward(context, run);
      case Op::add: return accumulate(context, run.x < 0 ? input() : tensor(run.x), tensor(run.y));
      case Op::add_gradient: return accumulate(context, tensor(run.dy), tensor(run.dx));
      case Op::encode:
        return note(codec(run).encode(context, matrix(run.node, run.x), bytes(run.blob)));
      case Op::decode:
        return note(codec(run).decode(context, bytes(run.blob), matrix(run.node, run.y)));
      case Op::loss:
      case Op::loss_gradient: loss_ = loss(context, run); return;
    }
  }

  /// One whole step; the mean loss. Gradients are added to what the gradient block holds.
  template <class X, class Y>
  Result<double> run(Context& context, View<X> input, View<Y> targets) {
    if (const Error why = begin(input, targets)) return why;
    for (std::size_t i = 0; i < instruction_count(); ++i) execute(context, i);
    if (error_) return error_;
    return loss_;
  }

  /// The mean loss of the step that ran last.
  double loss() const { return loss_; }

  /// The first error that a codec reported in the step that ran last; none for codecs that keep
  /// their contract.
  const Error& error() const { return error_; }

  /// In Mode::infer, the last activation, valid until the next step.
  View<const T> output() const {
    return {tensor(program_.schedule.output).data(), program_.graph.output()};
  }

 private:
  Bytes bytes(int id) const {
    if (id < 0) return {};
    const auto i = static_cast<std::size_t>(id);
    return {arena_.data() + program_.layout.offsets[i], Shape(program_.schedule.buffers[i].bytes)};
  }

  /// A buffer as a flat tensor.
  View<T> tensor(int id) const {
    const Bytes raw = bytes(id);
    return {reinterpret_cast<T*>(raw.data()), Shape(raw.size() / sizeof(T))};
  }
  View<T> tensor(int id, Shape shape) const {
    return id < 0 ? View<T>{} : View<T>(tensor(id).data(), shape);
  }
  View<T> matrix(int node, int id) const {
    const Shape shape = program_.graph.node(node).output;
    return tensor(id, Shape(shape.rows(), shape.cols()));
  }
  View<const T> input() const {
    return {static_cast<const T*>(input_), Shape(program_.graph.input.elems())};
  }

  void note(const Error& error) {
    if (error && !error_) error_ = error;
  }

  const CodecDispatch<T, Context>& codec(const Instruction& run) const {
    return *dispatch_.find(program_.plan[run.node].codec);
  }

  void set_parameters(KernelArgs<T>& args, std::size_t first, std::size_t count) const {
    const Parameter* table = program_.graph.parameters.data() + first;
    args.params = {params_.data(), table, count};
    args.dparams = {gradients_.data(), table, count};
  }

  KernelArgs<T> arguments(const Instruction& run, const Node& node) const {
    KernelArgs<T> args;
    set_parameters(args, node.first_parameter, node.parameter_count);
    args.x_shape = node.input;
    args.x = run.x >= 0 ? tensor(run.x).data() : run.node == 0 ? input_ : nullptr;
    args.aux = bytes(run.aux);
    args.workspace = bytes(run.workspace);
    return args;
  }

  void forward(Context& context, const Instruction& run) const {
    const Node& node = program_.graph.node(run.node);
    KernelArgs<T> args = arguments(run, node);
    args.out = tensor(run.y, node.output);
    const auto& call = dispatch_.layers[static_cast<std::size_t>(node.layer)];
    call.forward(call.functor, context, args);
  }

  void backward(Context& context, const Instruction& run) const {
    const Node& node = program_.graph.node(run.node);
    KernelArgs<T> args = arguments(run, node);
    if (!reads_input(node.reads)) args.x = nullptr, args.x_shape = {};
    args.y = tensor(run.y, node.output);
    args.dy = tensor(run.dy, node.output);
    args.out = tensor(run.dx, node.input);
    say_what_is_exact(context, run.node);
    const auto& call = dispatch_.layers[static_cast<std::size_t>(node.layer)];
    call.backward(call.functor, context, args);
  }

  /// A layer that ran forward again did so on what backward reads, so all of it agrees.
  void say_what_is_exact(Context& context, int node) const {
    if constexpr (requires { context.exact_input, context.exact_output; }) {
      const auto k = static_cast<std::size_t>(node);
      const bool again = program_.plan[node].kind == PolicyKind::recompute &&
                         reads_output(graph().node(node).reads);
      context.exact_input = again || node == 0 || exact_[k - 1];
      context.exact_output = again || exact_[k];
    }
  }

  double loss(Context& context, const Instruction& run) const {
    const LossNode& node = program_.graph.loss;
    KernelArgs<T> args;
    set_parameters(args, node.first_parameter, node.parameter_count);
    args.x = tensor(run.x).data();
    args.x_shape = program_.graph.output();
    args.out = tensor(run.dx, args.x_shape);
    args.workspace = bytes(run.workspace);
    args.targets = targets_;
    args.targets_shape = node.targets;
    const auto call = run.op == Op::loss ? dispatch_.loss.loss : dispatch_.loss.loss_gradient;
    return call(dispatch_.loss.functor, context, args);
  }

  /// to += from, element by element, in tiles.
  static void accumulate(Context& context, View<const T> from, View<T> to) {
    constexpr std::size_t tile = 16 * KiB;
    const std::size_t size = to.size();
    const T* source = from.data();
    T* sum = to.data();
    context.parallel(div_up(size, tile), [=](std::size_t i, int) {
      const std::size_t end = (i + 1) * tile < size ? (i + 1) * tile : size;
      for (std::size_t e = i * tile; e < end; ++e) sum[e] += source[e];
    });
  }

  Program program_;
  Dispatch<T, Context> dispatch_;
  Array<bool> exact_;  ///< by activation
  Bytes arena_;
  View<const T> params_;
  View<T> gradients_;
  const void* input_ = nullptr;
  const void* targets_ = nullptr;
  double loss_ = 0;
  Error error_;
  bool bound_ = false;
};

}  // namespace adacc::inline v0_1
