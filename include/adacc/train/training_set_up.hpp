// SPDX-License-Identifier: MIT
/// How a Training takes memory, and exchanges its arena for that of another program.
#pragma once

#include <cstddef>
#include <utility>

#include "training.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::switch_to(Program program) {
  if (step_.active())
    return Error::misuse("a step is under way: it must end, or be abandoned, before another plan");
  Result<Step<T, Context>> next = Step<T, Context>::make(step_.dispatch(), std::move(program));
  if (!next) return next.error;
  if (next->graph().parameter_elems != step_.graph().parameter_elems ||
      next->graph().gradient_elems != step_.graph().gradient_elems ||
      next->graph().updates != step_.graph().updates ||
      next->graph().parameter_form != step_.graph().parameter_form ||
      next->program().mode != Mode::train)
    return Error::say(
        "training goes on under programs for training the same parameters of the same network, "
        "held in the same form, with updates of the same kind");
  if (const Error why = next->lend_updates(step_.lent_updates())) return why;
  if (const Error why = settle()) return why;
  if (const Error why = bind_in_arena(*next, arena_for(*next))) return why;
  step_ = std::move(*next);
  note_steps();
  return {};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::bind_in_arena(CompiledStep& next, std::size_t needed) {
  const std::size_t before = arena_.size();
  Error error;
  if (needed != before) {
    give_back(arena_);
    take_arena(needed, error);
  }
  if (!error) error = bind(next);
  if (!error) return {};
  step_.unbind();
  if (arena_.size() != before) {
    give_back(arena_);
    Error again;
    take_arena(before, again);
    if (again) return again;
  }
  if (const Error why = bind(step_)) return why;
  return error;
}

template <class T, class Context, class Optimizer>
Result<Training<T, Context, Optimizer>> Training<T, Context, Optimizer>::make(
    Dispatch<T, Context> dispatch, Program program, const Context& context,
    const Optimizer& optimizer, std::size_t arena_bytes, std::size_t first_arena, StoreRef store,
    const MomentStore& moment_store, const bool* updated) {
  Result<Step<T, Context>> step = Step<T, Context>::make(std::move(dispatch), std::move(program));
  if (!step) return step.error;
  Training training(context);
  training.step_ = std::move(*step);
  const Graph& graph = training.step_.graph();
  if (graph.fuses_updates() && !ParameterUpdater::on_host)
    return Error::misuse(
        "fused updates run on threads of the host; on a device, let updates be separate");
  if (store && store == moment_store.store)
    return Error::misuse(
        "activations and the optimizer's state cannot share a store: lend one for each");
  training.optimizer = optimizer;
  if (const Error why = check_form(graph, optimizer)) return why;
  if constexpr (requires { optimizer_kernel<Optimizer, Context>::refusal(optimizer); })
    if (const Error why = optimizer_kernel<Optimizer, Context>::refusal(optimizer)) return why;
  Result<ParameterUpdater> updater =
      ParameterUpdater::make(optimizer, graph, moment_store, updated);
  if (!updater) return updater.error;
  training.updater_ = std::move(*updater);
  training.least_arena_ = arena_bytes;
  training.store_ = store;
  const std::size_t needed = training.arena_for(training.step_);
  Error error;
  training.take_arena(needed > first_arena ? needed : first_arena, error);
  training.params_.take(graph, error);
  detail::take(training.gradients_, graph.lent_gradient_elems(), "gradients", error);
  training.updater_.take_state(error);
  if (error) return error;
  error = training.memory_.make(context);
  if (error) return error;
  error = training.bind(training.step_);
  if (error) return error;
  error = training.params_.each_form([&](auto params) {
    return training.memory_.initialize(training.context_, training.step_.graph().parameters, params,
                                       context.key.seed);
  });
  if (!error) error = training.params_.make_copies(training.memory_);
  if (error) return error;
  training.passes_ = detail::ForwardPasses<T, Context>(training.step_);
  auto cursor = Cursor<T, Context>::make(training.step_);
  if (!cursor) return cursor.error;
  training.cursor_ = std::move(*cursor);
  training.note_steps();
  return static_cast<Training&&>(training);  // nvcc would copy it
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::check_form(const Graph& graph, const Optimizer& optimizer) {
  if (graph.parameter_form != ParameterForm::bf16) return {};
  if (!detail::is_elementwise(optimizer))
    return Error::say("parameters can be held in bfloat16 by optimizers that are elementwise, and ",
                      optimizer.name, " needs all of a parameter at once: AdamW, SGD and Lion are");
  return {};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::take_watched() {
  Error error;
  detail::take(watched_, step_.watch_bytes(), "what codecs saw", error);
  return error;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::read_watched() {
  if (watched_.size() == 0) return {};
  return memory_.read(ConstBytes(watched_.data(), Shape(watched_.size())), [&](ConstBytes copy) {
    step_.read_watched(copy);
    return Error();
  });
}

template <class T, class Context, class Optimizer>
TrainingMemoryUse Training<T, Context, Optimizer>::memory_use() const {
  const Graph& graph = step_.graph();
  TrainingMemoryUse use{graph.parameter_bytes(), graph.lent_gradient_elems() * sizeof(Wide<T>),
                        table().bytes(), arena_.size(), set_up_bytes_};
  use.watched = watched_.size();
  use.captured = memory_.captured_bytes();
  use.mapped = graph.mapped_bytes;
  if (keeper_ != nullptr) use.padded = keeper_->held_bytes();
  if (updater_.stored() == nullptr) return use;
  use.moments = updater_.stored()->turns().window_bytes();
  use.stored = updater_.stored()->turns().store_bytes();
  return use;
}

}}  // namespace adacc::v0_1
