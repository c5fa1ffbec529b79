// SPDX-License-Identifier: MIT
/// A network's forward pass alone: for its output, or for the loss.
///
/// A pass runs in a lent arena on lent parameters, a training's for example, or in memory of its own:
///
///     auto player = Inference<>::make(net, Shape(64, 14));
///     player->take_memory();
///     player->copy_parameters(training.params());
///     auto scores = player->infer(cpu, sights);       // a view of the arena
///
/// A pass draws no numbers (dropout is the identity), allocates nothing, and leaves the context unchanged.
/// Every Training has evaluate() and infer() for batches of its own shape.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "../core/any_view.hpp"
#include "../core/thread_stack.hpp"
#include "../step/step.hpp"
#include "beginnings.hpp"
#include "memory.hpp"
#include "parameters.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T, class Context>
class ForwardPasses;

/// A step without backward.
template <class T, class Context>
Result<Step<T, Context>> make_pass(
    Dispatch<T, Context> dispatch,
    Graph graph,  // moved on; NOLINT(performance-unnecessary-value-param)
    Mode mode) {
  Plan nothing_kept = retain_all(graph);
  Result<Program> program = make_program(std::move(graph), std::move(nothing_kept), mode);
  if (!program) return program.error;
  return Step<T, Context>::make(std::move(dispatch), std::move(*program));
}

}  // namespace detail

template <class T = float, class Context = Cpu>
class Inference {
 public:
  Inference() = default;

  /// A pass of `network`, which must outlive the pass, on inputs of shape `input`.
  template <class Network>
  static Result<Inference> make(const Network& network, Shape input,
                                const GraphOptions& options = {.scalar = dtype_of<T>}) {
    Result<Graph> graph = make_graph<Context>(network, input, options);
    if (!graph) return graph.error;
    return make(make_dispatch<T, Context>(network), std::move(*graph));
  }
  template <class Network>
  static Result<Inference> make(const Network&& temporary, Shape,
                                const GraphOptions& = {}) = delete;

  /// A pass of a graph, with a dispatch table for its layers. Mode::evaluate is for evaluate(), Mode::infer
  /// for infer().
  static Result<Inference> make(
      Dispatch<T, Context> dispatch,
      Graph graph,  // moved on; NOLINT(performance-unnecessary-value-param)
      Mode mode = Mode::infer) {
    if (const Error why = detail::check_stack<Context>()) return why;
    return set_up(std::move(dispatch), std::move(graph), mode);
  }

  const Graph& graph() const { return step_.graph(); }
  std::size_t arena_bytes() const { return step_.arena_bytes(); }  ///< for a pass, exactly

  /// Lends memory to the pass (Step::bind()).
  Error bind(Bytes arena, const ParameterBlock<Wide<T>>& params) {
    return step_.bind(arena, params);
  }
  /// Lends an arena shared with steps: no pass begins while a step is under way.
  Error bind(SharedArena& arena, const ParameterBlock<Wide<T>>& params) {
    return step_.bind(arena, params);
  }

  /// Takes an arena and a block of parameters, which are zeros.
  Error take_memory() {
    Error error;
    detail::take(arena_, arena_bytes(), "activations", error);
    params_.take(graph(), error);
    if (error) return error;
    return bind({arena_.data(), Shape(arena_.size())}, params_.lend());
  }
  /// Copies all parameters of the same network into the block taken by take_memory().
  Error copy_parameters(View<const Wide<T>> from) {
    if (from.size() != params_.lend().size())
      return Error::misuse("the block that was taken has ", params_.lend().size(),
                           " parameter elements, and got ", from.size());
    return params_.write(TrainingMemory<Context>(), [&](View<Wide<T>> to) {
      if (!from.empty()) std::memcpy(to.data(), from.data(), from.size() * sizeof(Wide<T>));
      return Error();
    });
  }

  /// The last activation: a view of the arena, valid until the arena is used next.
  Result<View<const T>> infer(Context& context, AnyView input) {
    if (step_.program().mode != Mode::infer)
      return Error::misuse("this pass was made to evaluate: make() one in Mode::infer to infer");
    if (const Error why = step_.run_aside(context, input, {}).error) return why;
    return step_.output();
  }

  /// The mean loss.
  Result<double> evaluate(Context& context, AnyView input, AnyView targets) {
    if (step_.program().mode != Mode::evaluate || !graph().has_loss)
      return Error::misuse(
          "to evaluate takes a network with a loss, and a pass made in Mode::evaluate");
    return step_.run_aside(context, input, targets);
  }

  const Step<T, Context>& step() const { return step_; }
  Step<T, Context>& step() { return step_; }

 private:
  template <class Element>
  using Block = typename TrainingMemory<Context>::template Block<Element>;
  friend class detail::ForwardPasses<T, Context>;

  /// make() by a trainer, which has asked for the stack's size.
  static Result<Inference> set_up(
      Dispatch<T, Context> dispatch,
      Graph graph,  // moved on; NOLINT(performance-unnecessary-value-param)
      Mode mode) {
    auto step = detail::make_pass(std::move(dispatch), std::move(graph), mode);
    if (!step) return step.error;
    Inference inference;
    inference.step_ = std::move(*step);
    return static_cast<Inference&&>(inference);  // nvcc would copy it
  }

  Block<std::byte> arena_;
  Parameters<T, Context> params_;
  Step<T, Context> step_;
};

namespace detail {

/// Refuses calls of a training that make() has not returned, or that was moved away; `graph` is its step's.
inline Error check_made(const Graph& graph) {
  if (!graph.nodes.empty()) return {};
  return Error::misuse("this training holds nothing: make() returns one, and a move takes it");
}

/// The passes of a trainer on batches of its own shape, in the arena of its steps, between steps.
template <class T, class Context>
class ForwardPasses {
 public:
  ForwardPasses() = default;
  /// Passes of the network of `step`. If a pass cannot be made, a call of the pass returns the reason.
  explicit ForwardPasses(const Step<T, Context>& step)
      : evaluation_(Inference<T, Context>::set_up(step.dispatch(), step.graph(), Mode::evaluate)),
        inference_(Inference<T, Context>::set_up(step.dispatch(), step.graph(), Mode::infer)) {}

  template <class Memory>
  Result<double> evaluate(Memory& memory, Context& context, Bytes arena,
                          const ParameterBlock<Wide<T>>& params, AnyView input, AnyView targets) {
    if (const Error why = bind(evaluation_, memory, arena, params)) return why;
    return evaluation_->evaluate(context, input, targets);
  }

  /// Copies the last activation to `output`, in the host's memory. `shape`: of the activation, without the positions
  /// behind the end of shorter sequences; empty: all of the activation.
  template <class Memory>
  Error infer(Memory& memory, Context& context, Bytes arena, const ParameterBlock<Wide<T>>& params,
              AnyView input, View<T> output, Shape shape = {}) {
    if (const Error why = bind(inference_, memory, arena, params)) return why;
    if (shape.rank() == 0) shape = inference_->graph().output();
    if (!(output.shape() == shape))
      return Error::misuse("the network's output is of shape ", shape, ", and the place for it of ",
                           output.shape());
    if (output.data() == nullptr)
      return Error::misuse("the place for the network's output has no address");
    const Result<View<const T>> last = inference_->infer(context, input);
    if (!last) return last.error;
    return memory.read(*last, [&](View<const T> from) {
      copy_beginnings(from.data(), inference_->graph().output(), output.data(), shape, sizeof(T));
      return Error();
    });
  }

 private:
  template <class Memory>
  static Error bind(Result<Inference<T, Context>>& pass, Memory& memory, Bytes arena,
                    const ParameterBlock<Wide<T>>& params) {
    if (!pass) return pass.error;
    if (arena.size() < pass->arena_bytes())
      return Error::say("a forward pass takes an arena of ", shown(pass->arena_bytes()),
                        ", and the training's has ", shown(arena.size()),
                        ": let it be larger (arena_bytes of the options)");
    if (const Error why = pass->bind(arena, params)) return why;
    return memory.bind(pass->step());
  }

  Result<Inference<T, Context>> evaluation_{Inference<T, Context>()};
  Result<Inference<T, Context>> inference_{Inference<T, Context>()};
};

}  // namespace detail

}}  // namespace adacc::v0_1
