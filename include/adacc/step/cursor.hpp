// SPDX-License-Identifier: MIT
/// A step in slices: runs some of its parts now and goes on later, with the bits of a whole step.
///
/// A part is one call of a layer, a loss, a codec or a residual sum; `parts` of make_graph says
/// into how many of them these are cut, if they can be. Time is the caller's: a functor that
/// returns the ticks of any clock, as std::int64_t, and not the seconds that a ClockRef returns:
/// tiny devices count cycles, have no fast doubles, and look at the clock in front of each part; in a
/// game, frames have deadlines in ticks. The cursor remembers how long the parts of each
/// instruction took at most, in this step and in those before, and starts none that would, by that,
/// pass the deadline. A part that never ran starts whenever there is time left, so run one step
/// without a deadline before the first that has one.
///
///     auto cursor = Cursor<>::make(step);                          // once
///     cursor->begin(input, targets);                               // every step
///     auto slice = cursor->run_until(cpu, now, now() + 2'000'000); // every frame, until
///     if (slice && slice->ended) update(cursor->loss());           // the step has ended
/// The cursor of a step with trimmed Abilities names them as the step does (program/abilities.hpp).
///
/// One interruption by the operating system can make a part look longer than any slice, and then
/// no slice starts the part. A slice that starts nothing for that reason says so (`stalled`), and from
/// then on the time is doubted: it decays by a 32nd with each slice that it stalls, and with each part
/// that takes less, until a part takes as long. So a cursor recovers by itself: what looks ten times as
/// long as a slice starts after 73 slices. A part that is as long as it looked passes a deadline then,
/// once in so many slices as its time needs to decay: give slices more time, or cut the layers into more
/// parts. Who knows that a time is not to be believed can forget() it at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "step.hpp"

namespace adacc { inline namespace v0_1 {

/// What a slice did.
struct Slice {
  std::size_t parts = 0;  ///< that it ran
  bool ended = false;     ///< the step has ended
  bool stalled = false;   ///< it ran nothing, because by what is known the next part takes too long
  bool waiting = false;   ///< it ended early, because the store is not ready for the next part
  std::int64_t longest = 0;  ///< ticks that the next part has taken at most; 0 if it never ran
};

template <class T = float, class Context = Cpu, class Abilities = AllAbilities>
class Cursor {
 public:
  Cursor() = default;

  /// A cursor over the steps of `step`, which must stay where it is as long as the cursor is used.
  /// It needs instruction_count() times, which it keeps in `times` if that has room for them. If the
  /// step's program changes (Training::switch_to), begin() forgets them, and takes room for more.
  static Result<Cursor> make(Step<T, Context, Abilities>& step, Array<std::int64_t> times = {}) {
    if (step.instruction_count() == 0)
      return Error::misuse("the step has no instructions: make() it before its cursor");
    Cursor cursor;
    cursor.step_ = &step;
    cursor.times_ = static_cast<Array<std::int64_t>&&>(times);
    cursor.fit();
    return cursor;
  }

  /// The step has moved to another place, with what is under way in it: the cursor goes on there.
  void follow(Step<T, Context>& step) { step_ = &step; }

  /// Begins a step; input and targets stay untouched by the caller until it has ended.
  Error begin(AnyView input, AnyView targets) {
    if (step_ == nullptr) return Error::misuse("the cursor has no step: make() it of one");
    if (const Error why = step_->begin(input, targets)) return why;
    if (programs_ != step_->programs()) fit();
    number_ = step_->begun();
    at_ = {};
    return {};
  }

  /// Runs parts until the clock, `std::int64_t now()`, reads `deadline`, the step ends, or instruction `stop`
  /// comes next.
  template <class Clock>
  Result<Slice> run_until(Context& context, Clock&& now, std::int64_t deadline,
                          std::size_t stop = static_cast<std::size_t>(-1)) {
    if (const Error why = examine()) return why;
    Slice slice;
    std::int64_t start = now();
    while (!slice.ended && at_.instruction < stop) {
      if (!step_->ready(at_.instruction)) {
        slice.waiting = true;
        return slice;
      }
      const std::int64_t known = longest(at_.instruction);
      if (start >= deadline || known > deadline - start) {
        slice.stalled = slice.parts == 0 && start < deadline;
        slice.longest = known;
        if (slice.stalled) times_[at_.instruction] = -decayed(known);
        return slice;
      }
      const std::size_t running = at_.instruction;
      advance(context, slice);
      const std::int64_t end = now();
      took(times_[running], end - start);
      start = end;
    }
    return slice.ended ? finish(slice) : Result<Slice>(slice);
  }

  /// Runs `count` parts, or as many as the step still has.
  Result<Slice> run(Context& context, std::size_t count) {
    if (const Error why = examine()) return why;
    Slice slice;
    while (slice.parts < count && !slice.ended && !slice.waiting) {
      slice.waiting = !step_->ready(at_.instruction);
      if (!slice.waiting) advance(context, slice);
    }
    if (!slice.ended) {
      slice.longest = longest(at_.instruction);
      return slice;
    }
    return finish(slice);
  }

  /// Whether a step of this cursor is under way.
  bool active() const { return step_ != nullptr && step_->active() && step_->begun() == number_; }

  /// Forgets how long the parts of the next instruction took.
  void forget() {
    if (at_.instruction < times_.size()) times_[at_.instruction] = 0;
  }
  /// Forgets all times: each instruction may then pass a deadline once.
  void forget_all() {
    for (std::int64_t& time : times_) time = 0;
  }

  /// The next instruction, and its next part.
  std::size_t instruction() const { return at_.instruction; }
  std::size_t part() const { return at_.part; }
  /// Ticks that a part of instruction i has taken at most, or what is left of them if they are doubted;
  /// 0 if run_until() never ran one.
  std::int64_t longest(std::size_t i) const {
    if (i >= times_.size()) return 0;
    return times_[i] < 0 ? -times_[i] : times_[i];
  }

  /// The mean loss of the step that ended last.
  double loss() const { return loss_; }

 private:
  static std::int64_t decayed(std::int64_t ticks) { return ticks - (ticks + 31) / 32; }

  /// What is known of an instruction after a part of it that took `ticks`.
  static void took(std::int64_t& time, std::int64_t ticks) {
    if (time < 0 && ticks < decayed(-time)) time = -decayed(-time);
    else if (ticks > time) time = ticks;
  }

  /// Times for the instructions of the step's program, none of which has run.
  void fit() {
    times_.clear();
    times_.resize(step_->instruction_count());
    programs_ = step_->programs();
    at_ = {};
  }

  Error examine() const {
    if (step_ == nullptr) return Error::misuse("the cursor has no step: make() it of one");
    if (number_ == 0) return Error::misuse("the cursor's step has not begun: begin() it first");
    if (step_->begun() != number_)
      return Error::misuse("another step has begun since the cursor's: begin() a new one");
    if (!step_->active())
      return Error::misuse("the cursor's step has ended: begin() another one before running it");
    return {};
  }

  void advance(Context& context, Slice& slice) {
    at_ = step_->execute(context, at_);
    ++slice.parts;
    slice.ended = at_.instruction == step_->instruction_count();
    if (slice.ended) at_ = {};
  }

  Result<Slice> finish(const Slice& slice) {
    loss_ = step_->loss();
    step_->read_targets();
    if (step_->error()) return step_->error();
    return slice;
  }

  Step<T, Context, Abilities>* step_ = nullptr;
  Array<std::int64_t> times_;   ///< by instruction; those below 0 are doubted
  std::uint64_t number_ = 0;    ///< which of the step's steps is ours
  std::uint64_t programs_ = 0;  ///< Step::programs() when times_ were made
  Position at_;                 ///< what runs next
  double loss_ = 0;
};

}}  // namespace adacc::v0_1
