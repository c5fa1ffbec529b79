/// A step with everything around it: memory for all of it, initial parameters, AdamW.
///
/// For those who have no trainer of their own. It only puts together what is public elsewhere:
/// take its pieces (Step, AdamW, Block) where memory or optimizer are yours.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../step/step.hpp"
#include "adamw.hpp"
#include "../core/block.hpp"
#include "gradient_norm.hpp"
#include "initialize.hpp"

namespace adacc { inline namespace v0_1 {

template <class T = float>
class Training {
 public:
  struct Outcome {
    double loss = 0;       ///< the mean loss, before the update
    double grad_norm = 0;  ///< L2, over all parameters, before clipping
    bool finite = true;    ///< where false, nothing was updated
  };

  AdamW optimizer;
  double clip = 0;  ///< gradients are scaled down to this L2 norm; 0 is off

  /// Takes the memory for a training step of `network` (which must outlive it) on the threads and
  /// with the seed of `cpu`, and draws the parameters. The arena is larger than the step needs
  /// where `arena_bytes` says so, for other steps that borrow it.
  template <class Network>
  static Result<Training> make(const Network& network, Program program, const Cpu& cpu = Cpu{},
                               std::size_t arena_bytes = 0) {
    return make(make_dispatch<T, Cpu>(network), static_cast<Program&&>(program), cpu, arena_bytes);
  }
  template <class Network>
  static Result<Training> make(const Network&& temporary, Program, const Cpu& = Cpu{},
                               std::size_t = 0) = delete;

  static Result<Training> make(Dispatch<T, Cpu> dispatch, Program program, const Cpu& cpu,
                               std::size_t arena_bytes = 0) {
    Result<Step<T>> step = Step<T>::make(std::move(dispatch), std::move(program));
    if (!step) return step.error;
    Training made;
    made.cpu_ = cpu;
    made.step_ = std::move(*step);
    const std::size_t elems = made.step_.graph().parameter_elems;
    made.least_arena_ = arena_bytes;
    Error error;
    take(made.arena_, made.arena_for(made.step_), "activations", error);
    take(made.params_, elems, "parameters", error);
    take(made.gradients_, elems, "gradients", error);
    take(made.m_, elems, "first moments", error);
    take(made.v_, elems, "second moments", error);
    if (error) return error;
    error = made.step_.bind(made.arena(), made.params(), made.gradients());
    if (error) return error;
    initialize_parameters(made.cpu_, made.step_.graph().parameters, made.params(), cpu.key.seed);
    return made;
  }

  /// Forward, backward and, where loss and gradient are finite, one update at the rate `lr`.
  template <class X, class Y>
  Result<Outcome> step(View<X> input, View<Y> targets, double lr) {
    cpu_.key.step = static_cast<std::uint32_t>(updates);
    const Result<double> loss = step_.run(cpu_, input, targets);
    if (!loss) return loss.error;
    Outcome outcome;
    outcome.loss = *loss;
    outcome.grad_norm = gradient_norm(cpu_, gradients());
    outcome.finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
    if (!outcome.finite) return outcome;
    ++updates;
    optimizer.step(cpu_, params(), gradients(), m(), v(), step_.graph().parameters, updates, lr,
                   clip_scale(outcome.grad_norm, clip));
    return outcome;
  }

  /// Between two steps: those that follow run under `program`, of the same network, and the arena
  /// is exchanged for one of the size it takes. The old one is given back first, so that memory
  /// never holds both; other steps that borrowed it must be bound again. Where this fails, all is
  /// as it was; but where even the old arena cannot be had again, no step runs.
  Error switch_to(Program program) {
    Result<Step<T>> next = Step<T>::make(step_.dispatch(), std::move(program));
    if (!next) return next.error;
    if (next->graph().parameter_elems != step_.graph().parameter_elems ||
        next->program().mode != Mode::train)
      return Error::say("training goes on under programs for training the same network");
    const std::size_t before = arena_.size(), needed = arena_for(*next);
    Error error;
    if (needed != before) {
      give_back(arena_);
      take(arena_, needed, "activations", error);
    }
    if (!error) error = next->bind(arena(), params(), gradients());
    if (!error) {
      step_ = std::move(*next);
      return {};
    }
    step_.unbind();
    if (arena_.size() != before) {
      give_back(arena_);
      Error again;
      take(arena_, before, "activations", again);
      if (again) return again;
    }
    if (const Error why = step_.bind(arena(), params(), gradients())) return why;
    return error;
  }

  std::uint64_t updates = 0;  ///< made so far; the step of the random key

  Cpu& cpu() { return cpu_; }
  const Step<T>& compiled() const { return step_; }
  Step<T>& compiled() { return step_; }
  Bytes arena() { return {arena_.data(), Shape(arena_.size())}; }
  View<T> params() { return params_.view(); }
  View<T> gradients() { return gradients_.view(); }
  View<T> m() { return m_.view(); }
  View<T> v() { return v_.view(); }

 private:
  template <class Element>
  static void take(Block<Element>& block, std::size_t elems, const char* what, Error& error) {
    auto made = Block<Element>::make(elems, what);
    if (!made && !error) error = made.error;
    block = std::move(*made);
  }

  static void give_back(Block<std::byte>& block) {
    const Block<std::byte> gone = std::move(block);
    static_cast<void>(gone);
  }

  std::size_t arena_for(const Step<T>& step) const {
    return step.arena_bytes() > least_arena_ ? step.arena_bytes() : least_arena_;
  }

  Cpu cpu_;
  Step<T> step_;
  std::size_t least_arena_ = 0;  ///< bytes, for others that borrow it
  Block<std::byte> arena_;
  Block<T> params_, gradients_, m_, v_;
};

}}  // namespace adacc::v0_1
