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
    const MomentStore& moment_store, const bool* mine) {
  Result<Step<T, Context>> step = Step<T, Context>::make(std::move(dispatch), std::move(program));
  if (!step) return step.error;
  Training made(context);
  made.step_ = std::move(*step);
  const Graph& graph = made.step_.graph();
  if (graph.fuses_updates() && !ParameterUpdater::on_host)
    return Error::misuse(
        "fused updates run on threads of the host; on a device, let updates be separate");
  if (store && store == moment_store.store)
    return Error::misuse(
        "activations and the optimizer's state cannot share a store: lend one for each");
  made.optimizer = optimizer;
  if (const Error why = check_form(graph, optimizer)) return why;
  Result<ParameterUpdater> updater = ParameterUpdater::make(optimizer, graph, moment_store, mine);
  if (!updater) return updater.error;
  made.updater_ = std::move(*updater);
  made.least_arena_ = arena_bytes;
  made.store_ = store;
  const std::size_t needed = made.arena_for(made.step_);
  Error error;
  made.take_arena(needed > first_arena ? needed : first_arena, error);
  made.params_.take(graph, error);
  detail::take(made.gradients_, graph.lent_gradient_elems(), "gradients", error);
  made.updater_.take_state(error);
  if (error) return error;
  error = made.memory_.make(context);
  if (error) return error;
  error = made.bind(made.step_);
  if (error) return error;
  error = made.params_.each_form([&](auto params) {
    return made.memory_.initialize(made.context_, made.step_.graph().parameters, params,
                                   context.key.seed);
  });
  if (!error) error = made.params_.make_copies(made.memory_);
  if (error) return error;
  made.passes_ = detail::ForwardPasses<T, Context>(made.step_);
  auto cursor = Cursor<T, Context>::make(made.step_);
  if (!cursor) return cursor.error;
  made.cursor_ = std::move(*cursor);
  made.note_steps();
  return static_cast<Training&&>(made);  // nvcc would copy it
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::check_form(const Graph& graph, const Optimizer& optimizer) {
  if (graph.parameter_form != ParameterForm::bf16) return {};
  if (!ParameterUpdater::on_host)
    return Error::misuse(
        "parameters can be held in bfloat16 if threads of the host update them; on a device, let "
        "them be held in full");
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
  use.mapped = graph.stored_bytes;
  if (keeper_ != nullptr) use.padded = keeper_->held_bytes();
  if (updater_.stored() == nullptr) return use;
  use.moments = updater_.stored()->turns().window_bytes();
  use.stored = updater_.stored()->turns().store_bytes();
  return use;
}

}}  // namespace adacc::v0_1
