// SPDX-License-Identifier: MIT
/// How a Training runs its micro-batches, and updates parameters from their gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

#include "training.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Result<double> Training<T, Context, Optimizer>::run_batch(AnyView input, AnyView targets) {
  rated_ = true;
  ran_ = false;
  if (const Error why = ready(input, targets)) return why;
  const ClockRef clock = this->clock();
  const double start = clock ? clock() : 0;
  const Result<double> loss = memory_.run(step_, context_, input, targets);
  ran_ = step_.begun() != begun_;
  note_steps();
  if (!loss) {
    const Error why = said_of_updates(loss.error);
    if (ran_) give_up();
    return why;
  }
  count(*loss, clock ? clock() - start : 0);
  return loss;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::ready(AnyView input, AnyView targets) {
  if (const Error why = settle()) return why;
  if (stored_ != nullptr && stored_->failure()) return stored_->failure();
  if (fused())
    if (const Error why = ready_to_update()) return why;
  if (batches_ > 0xFFFF)
    return Error::misuse("65536 micro-batches were summed: update() before the next");
  clear();
  // Before the boundary, too: a probe draws numbers, and a resumed run draws the same.
  set_key();
  if (keeper_ != nullptr && batches_ == 0) {
    boundary_ = {};
    if (const Error why = keeper_->before(*this, boundary_, input, targets)) return why;
  }
  return fused() ? step_.lend_updates(in_step_) : Error{};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::settle() {
  if (step_.active())
    return Error::misuse(
        "a step is under way: run it to its end, or abandon() it, before the training goes on");
  if (step_.begun() == begun_) return {};
  const bool whole = slices_ended();
  note_steps();
  if (whole && !step_.error()) count(step_.loss(), 0);
  else give_up();
  return {};
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::update_complete(Context& context,
                                                       const CompleteGradients<Wide<T>>& complete) {
  bool finite = std::isfinite(step_.loss());
  for (std::size_t i = 0; i < complete.size(); ++i) {
    const double norm = memory_.norm(context, complete.gradient(i));
    squares_[complete.number(i)] = norm * norm;
    finite = finite && std::isfinite(norm);
  }
  (finite ? in_step_.updated : in_step_.skipped) += complete.size();
  if (!finite) return {};
  const UpdateTerms terms{updates_ + 1, rate_, in_step_.scale, rounding_key(updates_ + 1)};
  // Gradients are numbered as the table numbers the parameters that it has state of.
  const std::size_t first = complete.number(0);
  if (stored_ != nullptr)
    return update_stored(context, stored_->turns().first_turn(first),
                         stored_->turns().last_turn(first), terms,
                         [&](std::size_t o) { return complete.gradient(o - first).data(); });
  for (std::size_t i = 0; i < complete.size(); ++i)
    table_.update_one(optimizer, context, complete.parameter(i), complete.number(i),
                      UpdateTable::behind(params_.data(), complete.parameter(i).offset),
                      complete.gradient(i).data(), Bytes(state_.data(), Shape(state_.size())),
                      terms, UpdateTable::behind(held_.data(), complete.parameter(i).offset));
  return {};
}

template <class T, class Context, class Optimizer>
template <class Gradient>
Error Training<T, Context, Optimizer>::update_stored(Context& context, std::size_t first,
                                                     std::size_t last, const UpdateTerms& terms,
                                                     const Gradient& gradient) {
  const MomentTurns& turns = stored_->turns();
  return stored_->run(first, last, [&](std::size_t p, std::byte* state) {
    const MomentTurns::Piece& piece = turns.piece(p);
    const Parameter& parameter = step_.graph().parameters[table_.owner(piece.owner)];
    table_.update_piece(
        optimizer, context,
        ParameterPiece<Wide<T>>{parameter, piece.owner, piece.begin, piece.elems,
                                UpdateTable::behind(params_.data(), parameter.offset + piece.begin),
                                gradient(piece.owner) + piece.begin, state, turns.state_at(p),
                                UpdateTable::behind(held_.data(), parameter.offset + piece.begin)},
        terms);
  });
}

template <class T, class Context, class Optimizer>
Result<TrainingOutcome> Training<T, Context, Optimizer>::outcome_of_step(double lr) {
  if (lr != rate_)
    return Error::misuse(
        "the step has made its updates at another rate than update() was called with");
  Outcome outcome;
  outcome.batches = 1;
  outcome.loss = losses_;
  outcome.grad_norm = norm_of_squares();
  outcome.skipped = in_step_.skipped;
  outcome.declined = declined_;
  outcome.finite = std::isfinite(outcome.loss) && outcome.skipped == 0;
  if (std::isfinite(outcome.grad_norm)) previous_norm_ = outcome.grad_norm;
  const double seconds = seconds_;
  const bool updated = in_step_.updated > 0;
  give_up();
  if (keeper_ != nullptr && updated) keeper_->after(*this, seconds);
  return outcome;
}

template <class T, class Context, class Optimizer>
double Training<T, Context, Optimizer>::norm_of_block() {
  if (clip.by == ClipBy::this_step) return memory_.norm(context_, gradients());
  for (std::size_t o = 0; o < table_.owners(); ++o) {
    const Parameter& parameter = step_.graph().parameters[table_.owner(o)];
    const double norm = memory_.norm(
        context_, View<Wide<T>>(gradients().data() + parameter.offset, parameter.shape));
    squares_[o] = norm * norm;
  }
  return norm_of_squares();
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::ready_to_update() {
  if (!rated_)
    return Error::misuse("fused updates are made in the step: begin() it with their rate");
  rated_ = false;
  if (clip.before_all()) return detail::clip_before_all();
  if (batches_ != 0)
    return Error::misuse(
        "the step that has ended has made its updates: update() says what it did, before the "
        "next "
        "begins");
  in_step_ = {this, 0, 0, clip_scale(previous_norm_, clip.norm)};
  for (double& square : squares_) square = 0;
  return {};
}

template <class T, class Context, class Optimizer>
template <class Sum>
Result<TrainingOutcome> Training<T, Context, Optimizer>::update_from(double lr, const Sum& sum) {
  const ClockRef clock = this->clock();
  const double start = clock ? clock() : 0;
  const detail::SummedBatches all = sum();
  const auto n = static_cast<double>(all.batches);
  Outcome outcome;
  outcome.batches = all.batches;
  outcome.loss = all.losses / n;
  outcome.grad_norm = all.norm / n;
  outcome.declined = all.declined;
  if (const Error why = memory_.failure(context_)) return give_up(), why;
  outcome.finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (!outcome.finite) {
    give_up();
    return outcome;
  }
  ++updates_;
  const double norm = clip.by == ClipBy::previous ? previous_norm_ : outcome.grad_norm;
  previous_norm_ = outcome.grad_norm;
  if (const Error why =
          run_optimizer({updates_, lr, clip_scale(norm, clip.norm) / n, rounding_key(updates_)}))
    return give_up(), why;
  if (const Error why = memory_.failure(context_)) return give_up(), why;
  // `n` counts those of other ranks, too.
  const double mine = seconds_ / static_cast<double>(batches_ > 0 ? batches_ : 1);
  const double seconds = seconds_ > 0 ? mine + (clock ? clock() - start : 0) : 0;
  forget_batches();
  if (keeper_ != nullptr) keeper_->after(*this, seconds);
  return outcome;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::run_optimizer(const UpdateTerms& terms) {
  if constexpr (updates_in_steps)
    if (stored_ != nullptr)
      return update_stored(context_, 0, stored_->turns().turns().size(), terms, [&](std::size_t o) {
        return gradients_.data() + step_.graph().parameters[table_.owner(o)].offset;
      });
  if constexpr (updates_in_steps)
    if (given_out_) {
      for (std::size_t o = 0; o < table_.owners(); ++o) {
        const Parameter& parameter = step_.graph().parameters[table_.owner(o)];
        table_.update_one(optimizer, context_, parameter, o, params_.data() + parameter.offset,
                          given_to_[o], Bytes(state_.data(), Shape(state_.size())), terms);
      }
      return {};
    }
  optimizer_kernel<Optimizer, Context>::update(
      optimizer, context_, table_, step_.graph().parameters,
      UpdateMemory<Wide<T>>{
          params(), gradients(), {state_.data(), Shape(state_.size())}, held_.view()},
      terms);
  return {};
}

}}  // namespace adacc::v0_1
