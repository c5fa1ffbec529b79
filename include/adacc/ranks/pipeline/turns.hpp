// SPDX-License-Identifier: MIT
/// How a stage of a Pipeline takes turns, whole or in slices, and the numbers exchanged around turns.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pipeline.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::open(AnyView input, AnyView targets, Call call) {
  if (broken_) return broken_;
  if (next_) return under_way();
  if (turn_ == 2 * micro_batches_)
    return Error::misuse("all ", micro_batches_, " micro-batches are summed: update() first");
  if (turn_ == 0) {
    if (const Error why = detail::meet_in_call(group_, call, calls_)) return broken_ = why;
    if (!clear_) context_.fill(gradients_.view(), Wide<T>{});
    clear_ = false;
    context_.key.step = static_cast<std::uint32_t>(updates_);
    losses_ = 0;
    counted_ = {};
    mean_known_ = false;
    declined_ = {};
    if (!is_first())
      for (int b = 0; b < inputs(); ++b) receive_activation(b);
    if (!is_last()) receive_gradient();
  }
  input_ = input, targets_ = targets;
  sequences_[slot_of(turn().micro_batch)] = Sequences::of(context_);
  next_ = true;
  return {};
}

template <class T, class Context, class Optimizer>
template <class Clock>
Result<Slice> Pipeline<T, Context, Optimizer>::slice(Clock&& now, std::int64_t deadline) {
  if (broken_) return broken_;
  if (!next_) return Error::misuse("no micro-batch is under way: begin() it before slice()");
  Slice all;
  while (next_) {
    poll();
    if (!running_) {
      all.waiting = !arrived(turn().backward ? gradient_in() : activation_in(turn().micro_batch));
      if (all.waiting) return all;
      if (const Error why = begin_turn()) return give_up(why);
    }
    Cursor<T, Context>& cursor = cursor_of(turn().micro_batch);
    if (!turn_ran()) {
      const Result<Slice> ran = in_batch(turn().micro_batch, [&] {
        return cursor.run_until(context_, now, deadline, end_of_turn());
      });
      if (!ran) return give_up(ran.error);
      all.parts += ran->parts;
      all.longest = ran->longest;
      all.stalled = ran->stalled && all.parts == 0;
      if (!turn_ran()) return all;
    }
    all.waiting = !arrived(turn().backward ? gradient_out() : activation_out());
    if (all.waiting) return all;
    if (const Error why = end_turn()) return give_up(why);
  }
  all.ended = true;
  return all;
}

template <class T, class Context, class Optimizer>
Result<TrainingOutcome> Pipeline<T, Context, Optimizer>::update(double lr) {
  if (broken_) return broken_;
  if (next_) return under_way();
  if (turn_ != 2 * micro_batches_)
    return Error::misuse("accumulate() has not seen all ", micro_batches_,
                         " micro-batches of the update");
  if (const Error why = share_mean()) return give_up(why);
  if (const Error why = sum_over_stages(lr)) return give_up(why);
  turn_ = 0;
  if (told_[field] != 0) {
    const auto number = static_cast<std::size_t>(told_[field]) - 1;
    return detail::disagreement_of(optimizer, number, told_[asked + number],
                                   static_cast<int>(told_[who]), told_[theirs]);
  }
  if (const Error why = updater_.check_update(optimizer, graph(), lr, clip)) return why;
  TrainingOutcome outcome;
  outcome.loss = mean_;
  outcome.batches = static_cast<std::size_t>(micro_batches_);
  outcome.none_counted = weight_ == 0;
  outcome.declined = {count_of(exactly), count_of(milder), count_of(over_bound)};
  if (outcome.none_counted) return outcome;
  outcome.grad_norm = std::sqrt(told_[squares]) / weight_;
  outcome.finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (!outcome.finite) return outcome;
  ++updates_;
  const double scale = updater_.clip(clip, outcome.grad_norm) / weight_;
  const UpdateTerms terms = updater_.terms(updates_, lr, scale, context_.key.seed);
  if (const Error why =
          updater_.update(optimizer, context_, graph(), params_.lend(gradients()), terms))
    return give_up(why);
  clear_ = true;  // an update leaves zeros
  return outcome;
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::begin_turn() {
  const auto [batch, is_backward] = turn();
  Step<T, Context>& step = steps_[slot_of(batch)];
  running_ = true;
  if (!is_backward) {
    if (!is_first())
      if (const Error why = wait(activation_in(batch))) return why;
    return cursor_of(batch).begin(is_first() ? input_ : AnyView(received(batch)),
                                  is_last() ? targets_ : AnyView());
  }
  if (is_last()) return {};
  if (const Error why = wait(gradient_in())) return why;
  std::memcpy(step.output_gradient().data(), memory_of(gradient_in()).data(), out_bytes_);
  if (batch + 1 < micro_batches_) receive_gradient();
  return {};
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::end_turn() {
  const auto [batch, is_backward] = turn();
  Step<T, Context>& step = steps_[slot_of(batch)];
  running_ = false;
  if (step.error()) return step.error();
  if (is_backward) {
    declined_ = declined_ + step.declined_counts();
    if (is_last()) {
      losses_ += step.loss();
      counted_ = counted_ + step.targets();
    }
  }
  const int ticket = is_backward ? gradient_out() : activation_out();
  if (is_backward ? !is_first() : !is_last()) {
    if (const Error why = wait(ticket)) return why;
    const void* const result = is_backward ? step.input_gradient().data() : step.output().data();
    std::memcpy(memory_of(ticket).data(), result, is_backward ? in_bytes_ : out_bytes_);
    if (is_backward) send(ticket, stage_ - 1, gradients_channel);
    else send(ticket, stage_ + 1, activations);
  }
  if (is_backward && !is_first()) receive_activation(batch + inputs());
  next_ = ++turn_ < 2 * micro_batches_ && turn().backward;
  return {};
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::share_mean() {
  if (mean_known_) return {};
  for (const int ticket : {activation_out(), gradient_out()})
    if (const Error why = wait(ticket)) return why;
  double shared[2] = {};
  if (counted_.counted != 0) {
    shared[0] = counted_.weight(static_cast<std::size_t>(micro_batches_));
    shared[1] = losses_ / shared[0];
  }
  if (const Error why = hand_back(bytes_of(shared, 2))) return why;
  weight_ = shared[0];
  mean_ = shared[1];
  mean_known_ = true;
  return {};
}

template <class T, class Context, class Optimizer>
template <class Own>
Error Pipeline<T, Context, Optimizer>::pass_forward(AnyView input, const Own& own, double& loss) {
  if (broken_) return broken_;
  if (!idle()) return under_way();
  if (!is_first()) receive_activation(0);
  Error failed;
  if (!is_first())
    if (const Error why = wait(activation_in(0))) return give_up(why);
  const AnyView x = is_first() ? input : AnyView(received(0));
  if (is_last()) {
    failed = own(x);
  } else {
    const Bytes out = memory_of(activation_out());
    failed = passes_.infer(memory_, context_, arena(), params(), x,
                           View<T>(reinterpret_cast<T*>(out.data()), graph().output()));
    // The next stage waits for the activation, even after a failure.
    send(activation_out(), stage_ + 1, activations);
    if (const Error why = wait(activation_out())) return give_up(why);
  }
  double shared[2] = {};  // the number of the first stage that failed, from 1 on, and the loss
  const auto add = [&] {
    if (failed && shared[0] == 0) shared[0] = stage_ + 1;
    if (is_last()) shared[1] = loss;
  };
  if (const Error why = add_over_stages(bytes_of(shared, 2), add)) return give_up(why);
  loss = shared[1];
  if (failed || shared[0] == 0) return failed;
  return Error::say("stage ", static_cast<int>(shared[0]) - 1, " of the pipeline failed");
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::sum_over_stages(double rate) {
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    const Parameter& parameter = graph().parameters[updater_.table().owner(i)];
    norms_[i] = gradient_norm(context_, View<Wide<T>>(gradients_.data() + parameter.offset,
                                                      Shape(parameter.shape.elems())));
  }
  return add_over_stages(bytes_of(told_.data(), told_.size()), [&] {
    if (is_first())
      for (std::size_t i = 0; i < asked; ++i) told_[i] = 0;
    for (const double norm : norms_) told_[squares] += norm * norm;
    told_[exactly] += static_cast<double>(declined_.exactly);
    told_[milder] += static_cast<double>(declined_.milder);
    told_[over_bound] += static_cast<double>(declined_.over_bound);
    std::size_t at = asked;
    detail::each_asked(rate, clip, optimizer, [&](const char*, const char*, double value) {
      if (at == told_.size()) return;
      double& first = told_[at++];
      if (is_first()) first = value;
      if (told_[field] != 0 || std::memcmp(&first, &value, sizeof value) == 0) return;
      told_[field] = static_cast<double>(at - asked);
      told_[who] = stage_;
      told_[theirs] = value;
    });
  });
}

template <class T, class Context, class Optimizer>
template <class Add>
Error Pipeline<T, Context, Optimizer>::add_over_stages(Bytes shared, const Add& add) {
  if (!is_first())
    if (const Error why =
            exchange(number_in(), GroupMessage::Direction::receive, stage_ - 1, shared))
      return why;
  add();
  if (!is_last())
    if (const Error why = exchange(number_out(), GroupMessage::Direction::send, stage_ + 1, shared))
      return why;
  return hand_back(shared);
}

}}  // namespace adacc::v0_1
