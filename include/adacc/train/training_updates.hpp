// SPDX-License-Identifier: MIT
/// How a Training runs its micro-batches, and updates parameters from their gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

#include "training.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Result<double> Training<T, Context, Optimizer>::run_batch(AnyView input, AnyView targets,
                                                          bool normed) {
  rated_ = true;
  ran_ = false;
  if (const Error why = ready(input, targets)) return release(), why;
  memory_.start(clock());
  const Result<double> loss =
      memory_.run(step_, context_, input, targets, normed ? gradients() : View<Wide<T>>());
  ran_ = step_.begun() != begun_;
  note_steps();
  release();
  if (!loss) {
    const Error why = said_of_updates(loss.error);
    if (ran_) give_up();
    return why;
  }
  count(*loss, memory_.elapsed(clock()));
  return step_.targets().mean(*loss);
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::ready(AnyView& input, AnyView& targets) {
  if (const Error why = settle()) return why;
  if (const Error why = updater_.failure()) return why;
  if (fused())
    if (const Error why = ready_to_update()) return why;
  if (batches_ > 0xFFFF)
    return Error::misuse("65536 micro-batches were summed: update() before the next");
  clear();
  // Before the boundary, too: a probe draws numbers, and a resumed run draws the same.
  set_key();
  if (const Error why = fit(input, targets).error) return why;
  if (keeper_ != nullptr && batches_ == 0) {
    boundary_ = {};
    if (const Error why = keeper_->before(*this, boundary_, input, targets)) return why;
  }
  if constexpr (writes_gradients) step_.write_gradients(batches_ == 0);
  return fused() ? step_.lend_updates(in_step_) : Error{};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::settle() {
  if (const Error why = detail::check_made(step_.graph())) return why;
  if (step_.active())
    return Error::misuse(
        "a step is under way: run it to its end, or give it up by compiled_step().abandon(), "
        "before the training goes on");
  if (step_.begun() == begun_) return {};
  const bool whole = slices_ended();
  note_steps();
  release();
  if (whole && !step_.error()) count(step_.loss(), 0);
  else give_up();
  return {};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::update_complete(Context& context,
                                                       const CompleteGradients<Wide<T>>& complete) {
  bool finite = std::isfinite(step_.loss());
  const TargetCount targets = step_.targets();
  if (targets.counted == 0) return {};
  const double counted = targets.weight(1);
  for (std::size_t i = 0; i < complete.size(); ++i) {
    const double norm = memory_.norm(context, complete.gradient(i)) / counted;
    updater_.note_norm(complete.number(i), norm);
    finite = finite && std::isfinite(norm);
  }
  (finite ? in_step_.updated : in_step_.skipped) += complete.size();
  if (!finite) return {};
  // Gradients have the table's numbers of parameters with state.
  const std::size_t first = complete.number(0);
  return updater_.update_some(
      optimizer, context, step_.graph(), params_.lend({}),
      ParameterUpdater::terms(updates_ + 1, rate_, in_step_.scale / counted, context_.key.seed),
      first, complete.size(), [&](std::size_t o) { return complete.gradient(o - first).data(); });
}

template <class T, class Context, class Optimizer>
Result<TrainingOutcome> Training<T, Context, Optimizer>::outcome_of_step(double lr) {
  if (lr != rate_)
    return Error::misuse(
        "the step has made its updates at another rate than update() was called with");
  Outcome outcome;
  outcome.batches = 1;
  outcome.loss = targets_.mean(losses_);
  outcome.none_counted = targets_.counted == 0;
  outcome.grad_norm = updater_.norm();
  outcome.skipped = in_step_.skipped;
  outcome.declined = declined_;
  outcome.finite = std::isfinite(outcome.loss) && outcome.skipped == 0;
  if (std::isfinite(outcome.grad_norm)) updater_.previous_norm = outcome.grad_norm;
  const double seconds = seconds_;
  const bool updated = in_step_.updated > 0;
  give_up();
  if (keeper_ != nullptr && updated) keeper_->after(*this, seconds);
  return outcome;
}

template <class T, class Context, class Optimizer>
double Training<T, Context, Optimizer>::norm_of_block() {
  if (clip.by == ClipBy::this_step) return memory_.norm(context_, gradients());
  for (std::size_t o = 0; o < table().owners(); ++o) {
    const Parameter& parameter = step_.graph().parameters[table().owner(o)];
    updater_.note_norm(
        o, memory_.norm(context_,
                        View<Wide<T>>(gradients().data() + parameter.offset, parameter.shape)));
  }
  return updater_.norm();
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::ready_to_update() {
  if (!rated_)
    return Error::misuse("fused updates are made in the step: begin() it with their rate");
  rated_ = false;
  if (const Error why = updater_.check_update(optimizer, step_.graph(), rate_, clip)) return why;
  if (clip.before_all()) return detail::clip_before_all();
  if (batches_ != 0)
    return Error::misuse(
        "the step that has ended has made its updates: update() says what it did, before the "
        "next "
        "begins");
  in_step_ = {this, 0, 0, clip_scale(updater_.previous_norm, clip.norm)};
  updater_.clear_norms();
  return {};
}

template <class T, class Context, class Optimizer>
template <class Sum>
Result<TrainingOutcome> Training<T, Context, Optimizer>::update_from(double lr, const Sum& sum) {
  if (const Error why = updater_.check_update(optimizer, step_.graph(), lr, clip))
    return give_up(), why;
  memory_.start(clock());
  const detail::SummedBatches all = sum();
  Outcome outcome;
  outcome.batches = all.batches;
  outcome.declined = all.declined;
  outcome.none_counted = all.targets.counted == 0;
  if (const Error why = memory_.failure(context_)) return give_up(), why;
  if (outcome.none_counted) return give_up(), outcome;
  const double n = all.weight();
  outcome.loss = all.losses / n;
  outcome.grad_norm = all.norm / n;
  outcome.finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (!outcome.finite) {
    give_up();
    return outcome;
  }
  ++updates_;
  const double scale = updater_.clip(clip, outcome.grad_norm) / n;
  if (const Error why =
          run_optimizer(ParameterUpdater::terms(updates_, lr, scale, context_.key.seed)))
    return give_up(), why;
  if (const Error why = memory_.failure(context_)) return give_up(), why;
  const double mine = seconds_ / static_cast<double>(batches_ > 0 ? batches_ : 1);
  const double seconds = seconds_ > 0 ? mine + memory_.elapsed(clock()) : 0;
  forget_batches();
  if (keeper_ != nullptr) keeper_->after(*this, seconds);
  return outcome;
}

}}  // namespace adacc::v0_1
