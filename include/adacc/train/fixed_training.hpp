// SPDX-License-Identifier: MIT
/// Training and inference on a device: no heap, and every byte counted by the compiler.
///
///     constexpr auto make = [] { return adacc::make_program(net, adacc::Shape(16, 64, 3)); };
///     constinit adacc::FixedTraining<decltype(make), adacc::AdamW> training;
///     decltype(training)::Memory memory;                      // static: zeros, which need no place in flash
///     static_assert(sizeof training + sizeof memory <= 256 * 1024);
///
///     training.set_up(net, memory);                           // once; then initialize() or fill memory.params
///     training.step(cpu, input, targets, 1e-3);               // forward, backward, update
///     auto scores = training.infer(cpu, input);               // a view of the arena
///
/// Both modes share one arena and one graph. Steps have the bits of a Training with the same network, plan and
/// optimizer. A step in slices is a Cursor<float, Cpu, Abilities> over learner(), followed by counted() and
/// update().
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "../core/any_view.hpp"
#include "../model/class_targets.hpp"
#include "../optimizer/fixed_updates.hpp"
#include "../program/fixed_program.hpp"
#include "../step/arena.hpp"
#include "../step/fixed_dispatch.hpp"
#include "../step/step.hpp"
#include "initialize.hpp"

namespace adacc { inline namespace v0_1 {

/// - MakeProgram: type of a function object without state; its constexpr call returns Result<Program>, of a training
///   step with a loss
/// - Optimizer: with a constexpr state()
/// Set-up is not inlined, so that its frame is gone when steps run: stacks of devices are small.
/// The object stays where it is, as long as the network and the Memory given to set_up().
template <class MakeProgram, class Optimizer, class T = float, class Context = Cpu>
class FixedTraining {
  using Trained = FixedProgram<MakeProgram>;
  using Inferred = FixedMode<Trained, Mode::infer>;
  using Calls = FixedDispatch<T, Context, Trained::layer_count>;

 public:
  using Abilities = typename Trained::Abilities;
  using FixedStep = Step<T, Context, Abilities>;

 private:
  struct Steps {
    Calls learner_calls, inference_calls;
    SharedArena arena;
    Result<FixedStep> learner, inference;  // made in place: a step is large for a small stack

    template <class Network>
    Steps(const Network& network, Trained& trained, Inferred& inferred, Bytes memory)
        : arena(memory), learner(FixedStep::make(learner_calls.make(network), trained.program())),
          inference(FixedStep::make(inference_calls.make(network), inferred.program())) {}
  };

 public:
  static_assert(!Abilities::updates && !Abilities::decoded_parameters,
                "adacc: a FixedTraining updates parameters of its own type, between steps");

  static constexpr std::size_t parameter_elems = Trained::parameter_elems;
  static constexpr std::size_t gradient_elems = Trained::gradient_elems;
  /// Bytes of the arena, for both modes.
  static constexpr std::size_t arena_bytes =
      Trained::peak_bytes < Inferred::peak_bytes ? Inferred::peak_bytes : Trained::peak_bytes;
  /// Bytes of the optimizer's state.
  static constexpr std::size_t state_bytes = [] {
    const Result<Program> program = MakeProgram{}();
    return fixed_state_bytes(Optimizer{}, program->graph.parameters, dtype_of<T>);
  }();
  static_assert(parameter_elems != 0 && gradient_elems != 0,
                "adacc: nothing of this network is trained");

  /// All that is written: arena, parameters, gradients, the optimizer's state, and the steps. Zeros before set_up().
  struct Memory {
    alignas(64) std::byte arena[arena_bytes];
    alignas(64) T params[parameter_elems];
    alignas(64) T gradients[gradient_elems];
    alignas(64) std::byte state[state_bytes == 0 ? 1 : state_bytes];
    alignas(64) std::byte steps[sizeof(Steps)];
  };

  Optimizer optimizer;

  constexpr FixedTraining() : inferred_(trained_) {}
  constexpr ~FixedTraining() {
    if (steps_ != nullptr) steps_->~Steps();
  }
  FixedTraining(const FixedTraining&) = delete;
  FixedTraining& operator=(const FixedTraining&) = delete;

  /// Binds both modes to `memory`. Once; the network is the network of MakeProgram.
  template <class Network>
  [[gnu::noinline]] Error set_up(const Network& network, Memory& memory) {
    if (memory_ != nullptr) return Error::misuse("this training has been set up");
    memory_ = &memory;
    steps_ = ::new (static_cast<void*>(memory.steps))
        Steps(network, trained_, inferred_, Bytes(memory.arena, Shape(arena_bytes)));
    Error why = steps_->learner.error;
    if (!why) why = steps_->inference.error;
    if (!why) steps_->learner->divide_by_all(true);
    if (!why) why = steps_->learner->bind(steps_->arena, params(), gradients());
    if (!why) why = steps_->inference->bind(steps_->arena, params());
    return why;
  }

  /// Draws initial parameters.
  void initialize(Context& context, std::uint64_t seed) {
    initialize_parameters(context, table(), params(), seed);
  }

  /// One micro-batch and its update; the mean loss. A failure leaves parameters as they are.
  Result<double> step(Context& context, AnyView x, AnyView y, double rate) {
    if (const Error why = ready(rate)) return why;
    const Result<double> loss = accumulate(context, x, y);
    if (!loss) return loss;
    if (const Error why = update(context, rate)) return why;
    return loss;
  }

  /// One micro-batch, whose gradients are added to those since the last update; the mean loss.
  Result<double> accumulate(Context& context, AnyView x, AnyView y) {
    if (const Error why = ready()) return why;
    set_key(context);
    Result<double> loss = steps_->learner->run(context, x, y);
    if (!loss) return loss;
    counted();
    // Losses of a step are divided by all targets, so that gradients of micro-batches may be added.
    return steps_->learner->targets().mean(*loss);
  }

  /// Updates parameters by the gradient of the mean loss over the counted targets of all micro-batches since the
  /// last update (model/class_targets.hpp). Changes nothing if no target counted, or a loss was not finite: these
  /// gradients are given up. (A gradient that is not finite below a finite loss is not looked for.)
  Error update(Context& context, double rate) {
    if (const Error why = ready(rate)) return why;
    if (batches_ == 0) return Error::misuse("update() comes after accumulate() or step()");
    if (steps_->arena.busy()) return Error::misuse("a step in slices is under way: end it first");
    const double counted_batches = targets_.weight(batches_);
    const bool finite = finite_;
    forget_batches();
    if (!finite) clear_gradients();
    if (!finite || counted_batches == 0) return {};
    ++updates_;
    update_fixed(optimizer, context, table(), params(), gradients(),
                 Bytes(memory_->state, Shape(state_bytes)),
                 {updates_,
                  rate,
                  1 / counted_batches,
                  {context.key.seed, static_cast<std::uint32_t>(updates_)}});
    return {};
  }

  /// The last activation: a view of the arena, valid until the next call. The context stays unchanged.
  Result<View<const T>> infer(Context& context, AnyView x) {
    if (const Error why = ready()) return why;
    const Result<double> ran = steps_->inference->run_aside(context, x, {});
    if (!ran) return ran.error;
    return steps_->inference->output();
  }

  /// Begins anew: gradients and the optimizer's state are zeros, no update was made. Parameters stay.
  void restart() {
    if (memory_ == nullptr) return;
    clear_gradients();
    std::memset(memory_->state, 0, sizeof memory_->state);
    updates_ = 0;
    forget_batches();
  }

  /// Sets the context's random key for the next micro-batch, where a Cursor runs it.
  void set_key(Context& context) const {
    context.key.step = static_cast<std::uint32_t>(updates_);
    context.key.micro_step = static_cast<std::uint16_t>(batches_);
    context.key.activation = 0;
  }
  /// Counts a micro-batch run by a Cursor.
  void counted() {
    ++batches_;
    targets_ = targets_ + steps_->learner->targets();
    finite_ = finite_ && std::isfinite(steps_->learner->loss());
  }

  std::uint64_t updates() const { return updates_; }  ///< made so far
  FixedStep& learner() { return *steps_->learner; }   ///< the training step
  const auto& table() const { return steps_->learner->graph().parameters; }
  View<T> params() { return {memory_->params, Shape(parameter_elems)}; }
  View<T> gradients() { return {memory_->gradients, Shape(gradient_elems)}; }

 private:
  Error ready() const {
    if (memory_ != nullptr) return {};
    return Error::misuse("this training has no memory: set_up() it first");
  }
  /// Before gradients are summed, and before an update.
  [[gnu::noinline]] Error ready(double rate) const {
    if (const Error why = ready()) return why;
    return detail::check_update(optimizer, rate);
  }

  void clear_gradients() {
    std::memset(static_cast<void*>(memory_->gradients), 0, sizeof memory_->gradients);
  }
  void forget_batches() {
    batches_ = 0;
    targets_ = {};
    finite_ = true;
  }

  Trained trained_{};
  Inferred inferred_;
  Memory* memory_ = nullptr;
  Steps* steps_ = nullptr;  ///< in the memory
  std::uint64_t updates_ = 0;
  std::size_t batches_ = 0;
  TargetCount targets_{};  ///< of these micro-batches
  bool finite_ = true;     ///< their losses are
};

}}  // namespace adacc::v0_1
