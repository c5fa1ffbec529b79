// SPDX-License-Identifier: MIT
/// A cost profile measured on the running machine: the times of forward, backward, encode and decode in place.
///
/// Steps run under a few plans (cost/measuring_plans.hpp) on the caller's batch, in turn, so a slowdown of the
/// machine hits all plans. Each instruction is timed in place, and medians make the profile. A median leaves out rare
/// delays, as by other programs on the machine, so all times are scaled to the time of a whole step. Measuring leaves
/// no trace: parameters are only read, gradients are zero afterwards, and the context is restored.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../core/clock.hpp"
#include "../step/step.hpp"
#include "cost_samples.hpp"
#include "evaluate.hpp"
#include "instruction_times.hpp"
#include "measuring_plans.hpp"

namespace adacc { inline namespace v0_1 {

struct MeasureOptions {
  int warm_up = 1;  ///< uncounted steps under each plan, >= 0
  int steps = 3;    ///< counted steps under each plan, >= 1
};

namespace detail {

/// Runs one step; `seconds` gets each instruction's time, with all its parts. An error of a codec or of the clock.
/// Without a loss, the last activation serves as its own gradient.
template <class T, class Context>
Error timed_step(Context& context, Step<T, Context>& step, AnyView input, AnyView targets,
                 InstructionTimes<Context>& times, Array<double>& seconds) {
  if (const Error why = step.begin(input, targets)) return why;
  times.begin(context, seconds);
  const std::size_t meeting = step.hand_over();
  for (Position at; at.instruction < step.instruction_count();) {
    const std::size_t instruction = at.instruction;
    at = step.execute(context, at);
    if (instruction == meeting) {
      context.fill(step.output_gradient(), T{});
      context.accumulate(step.output(), step.output_gradient());
    }
    times.after(context, instruction, seconds);
  }
  if (const Error why = times.end(context, seconds)) return why;
  return step.error();
}

}  // namespace detail

/// Measures steps of `graph`, which `dispatch` can run, between two steps of training. `graph` may be a stage
/// (model/stage.hpp), without a loss. Gradient errors and CostProfile::rest stay zero: errors are probed
/// (cost/probe.hpp), the rest is timed by the caller.
/// - arena: lent for the call, possibly by training. With measuring_bytes(graph) bytes the measurement is most like
///   training; with less, plans keep little; with less than least_measuring_bytes(graph), an error.
/// - params, gradients: as for Step::bind. The contents of `gradients` are lost, and zeros in the end.
/// - now: seconds of a steady clock
/// - loss: as for Step::bind_loss
/// is the caller's to time.
template <class T, class Context>
Result<CostProfile> measure(Context& context, const Dispatch<T, Context>& dispatch,
                            const Graph& graph, Bytes arena,
                            const std::type_identity_t<ParameterBlock<Wide<T>>>& params,
                            std::type_identity_t<View<Wide<T>>> gradients, AnyView input,
                            AnyView targets, ClockRef now, MeasureOptions options = {},
                            const typename Context::Loss& loss = {}) {
  if (!now) return Error::say("measuring needs a clock, and was given none");
  if (options.steps < 1 || options.warm_up < 0)
    return Error::say(
        "measuring takes at least 1 step of each kind and no fewer than 0 to warm up,"
        " and got ",
        options.steps, " and ", options.warm_up);
  const Result<MeasuringPlans> plans = measuring_plans(graph, arena.size());
  if (!plans) return plans.error;
  Array<Step<T, Context>> steps;
  std::size_t longest = 0;
  for (const Plan& plan : plans->plans) {
    Result<Program> program = make_program(graph, plan);
    if (!program) return program.error;
    auto step = Step<T, Context>::make(dispatch, static_cast<Program&&>(*program));
    if (!step) return step.error;
    if (const Error why = step->bind(arena, params, gradients)) return why;
    if (const Error why = step->bind_loss(loss)) return why;
    if (const Error why = step->lend_updates(detail::use_no_gradients)) return why;
    if (step->instruction_count() > longest) longest = step->instruction_count();
    steps.push_back(static_cast<Step<T, Context>&&>(*step));
  }

  CostSamples samples(graph);
  Array<Array<double>> totals(steps.size());
  Array<double> seconds(longest);
  detail::InstructionTimes<Context> times;
  if (const Error why = times.make(longest, now)) return why;
  const Context before = context;
  Error error;
  for (int round = -options.warm_up; round < options.steps && !error; ++round)
    for (std::size_t p = 0; p < steps.size() && !error; ++p) {
      error = detail::timed_step(context, steps[p], input, targets, times, seconds);
      if (error || round < 0) continue;
      const Program& program = steps[p].program();
      double total = 0;
      for (std::size_t i = 0; i < steps[p].instruction_count(); ++i) {
        samples.add(program.plan, program.schedule.instructions[i], seconds[i]);
        total += seconds[i];
      }
      totals[p].push_back(total);
    }
  context = before;
  context.fill(gradients, Wide<T>{});
  if (error) return error;
  CostProfile profile = samples.profile();
  Array<double> ratios;
  for (std::size_t p = 0; p < steps.size(); ++p) {
    const Program& program = steps[p].program();
    double sum = 0;
    for (const Instruction& inst : program.schedule.instructions)
      sum += seconds_of(profile, program.plan, inst);
    for (const double total : totals[p]) ratios.push_back(total / sum);
  }
  scale(profile, detail::median(ratios));
  return profile;
}

}}  // namespace adacc::v0_1
