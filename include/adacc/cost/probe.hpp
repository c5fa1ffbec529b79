// SPDX-License-Identifier: MIT
/// The effect of a codec on the gradient, measured by repeating a step: v = E|g' - g|^2 / |g|^2.
///
/// Two steps on one batch, whose plans differ in one class of activations, give two gradients; sketches tell their
/// distance (cost/gradient_sketch.hpp) without holding a second gradient. Errors of different activations add up, so
/// one probe compresses all copies of a layer and divides by their number. Codecs that round to nearest err the same
/// way on the same batch, so v is a mean over batches, and with stochastic rounding over keys as well.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../step/step.hpp"
#include "gradient_errors.hpp"

namespace adacc { inline namespace v0_1 {

/// Gradients of one batch under different plans, compared by their sketches.
///
/// Arena, parameters and gradients are lent as for Step::bind, by training between two steps; the probe itself holds
/// a sketch for each plan it ran. The contents of `gradients` are lost; in the end they are zeros, and the context is
/// restored. With fused updates, gradients are sketched as they come, and nothing is updated. `loss` is as for
/// Step::bind_loss. On a device, sketches are summed in the arena, between steps.
template <class T, class Context>
class GradientProbe {
 public:
  /// All arguments must outlive the probe.
  GradientProbe(Context& context, const Dispatch<T, Context>& dispatch, const Graph& graph,
                Bytes arena, const std::type_identity_t<ParameterBlock<Wide<T>>>& params,
                std::type_identity_t<View<Wide<T>>> gradients, AnyView input, AnyView targets,
                const typename Context::Loss& loss = {})
      : context_(context), before_(context), dispatch_(dispatch), graph_(graph), arena_(arena),
        params_(params), gradients_(gradients), input_(input), targets_(targets), loss_(loss) {}
  GradientProbe(const GradientProbe&) = delete;
  GradientProbe& operator=(const GradientProbe&) = delete;
  ~GradientProbe() {
    clear();
    context_ = before_;
  }

  /// Adds the error of one class on this batch to `errors`. `turn` chooses copies if the arena is too small for all
  /// at once.
  Error probe(const ErrorClass& what, GradientErrors& errors, int turn = 0) {
    const Result<ProbingPlans> pair = probing_plans(graph_, what, arena_.size(), turn);
    if (!pair) return pair.error;
    return known_.probe(what, *pair, errors, [&](const Plan& plan) { return sketch(plan); });
  }

  /// Steps run so far.
  int steps() const { return steps_; }

  /// The sketch of the batch's gradient under `plan`: one step.
  Result<GradientSketch> sketch(const Plan& plan) {
    if (!on_host && graph_.fuses_updates())
      return Error::misuse("gradients of fused updates are sketched by threads of the host");
    Result<Program> program = make_program(graph_, plan);
    if (!program) return program.error;
    auto step = Step<T, Context>::make(dispatch_, static_cast<Program&&>(*program));
    if (!step) return step.error;
    if (const Error why = step->bind(arena_, params_, gradients_)) return why;
    if (const Error why = step->bind_loss(loss_)) return why;
    step->judge_encodes(false);  // the codec's own error is wanted
    GradientSketch made;
    auto sketch_complete = [&](Context& context, const CompleteGradients<Wide<T>>& complete) {
      RandomKey key = before_.key;
      for (std::size_t i = 0; i < complete.size() && graph_.fuses_updates(); ++i) {
        key.activation = static_cast<std::uint32_t>(complete.number(i));  // a stream for each
        const auto part = sketch_in(Bytes(), context, complete.gradient(i), key);
        if (part) made.add(*part);
      }
    };
    if (const Error why = step->lend_updates(sketch_complete)) return why;
    clear();
    ++steps_;
    context_ = before_;
    const Result<double> loss = step->run(context_, input_, targets_);
    context_ = before_;
    if (!loss) return loss.error;
    if (!graph_.fuses_updates()) {
      const auto sketch = sketch_in(arena_, context_, gradients_, before_.key);
      if (!sketch) return sketch.error;
      made = *sketch;
    }
    if (!(made.squared_norm <= 1e300))
      return Error::say("the gradient of the probed batch is not finite");
    return made;
  }

 private:
  static constexpr bool on_host = !context_traits<Context>::own_memory;

  void clear() { context_.fill(gradients_, Wide<T>{}); }

  Context& context_;
  const Context before_;
  const Dispatch<T, Context>& dispatch_;
  const Graph& graph_;
  Bytes arena_;
  ParameterBlock<Wide<T>> params_;
  View<Wide<T>> gradients_;
  AnyView input_;
  AnyView targets_;
  typename Context::Loss loss_;
  KnownSketches known_;
  int steps_ = 0;
};

}}  // namespace adacc::v0_1
