// SPDX-License-Identifier: MIT
/// A step in slices: runs some of its parts now and goes on later, with the bits of a whole step.
///
/// A part is one call of a layer, a loss, a codec or a residual sum, or a piece of such a call: `parts` of
/// make_graph says into how many pieces calls are cut. Time is the caller's: a functor returns the ticks of any
/// clock, as std::int64_t. Ticks take the place of a ClockRef's seconds because tiny devices count cycles, have no
/// fast doubles, and look at the clock in front of each part, and because frames of a game have deadlines in ticks.
/// The cursor remembers how long the parts of each instruction took at most, in this step and in earlier ones. A part
/// starts only if there is so much time before the deadline. A part without a time starts whenever any time is left,
/// so run one step without a deadline before the first step with one.
///
///     auto cursor = Cursor<>::make(step);                          // once
///     cursor->begin(input, targets);                               // every step
///     auto slice = cursor->run_until(cpu, now, now() + 2'000'000); // every frame, until
///     if (slice && slice->ended) update(cursor->loss());           // the step has ended
/// The cursor of a step with trimmed Abilities names them as the step does (program/abilities.hpp).
///
/// One interruption by the operating system can make a part look longer than any slice, and then
/// no slice starts the part. A slice that starts nothing for this reason says so (`stalled`), and from
/// then on the time is doubted: each stalled slice, and each shorter part, makes the time less by a 32nd, until
/// a part takes as long. So a cursor recovers without help: a part which looks ten times as long as a slice starts
/// after 73 slices. If a part is as long as it looked, it passes a deadline now and then, once in so many slices:
/// give slices more time, or cut the layers into more parts. forget() drops a wrong time at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "step.hpp"

namespace adacc { inline namespace v0_1 {

/// The result of a slice.
struct Slice {
  std::size_t parts = 0;     ///< that ran
  bool ended = false;        ///< the step has ended
  bool stalled = false;      ///< nothing ran, because the next part seems to take too long
  bool waiting = false;      ///< the slice ended early: the store is not ready for the next part
  std::int64_t longest = 0;  ///< most ticks of the next part so far; 0: unknown
};

template <class T = float, class Context = Cpu, class Abilities = AllAbilities>
class Cursor {
 public:
  Cursor() = default;

  /// A cursor over the steps of `step`, which must stay where it is as long as the cursor is used.
  /// The cursor keeps instruction_count() times, in `times` if there is room for so many. If the
  /// step's program changes (Training::switch_to), begin() forgets the times, and takes room for more.
  static Result<Cursor> make(Step<T, Context, Abilities>& step, Array<std::int64_t> times = {}) {
    if (step.instruction_count() == 0)
      return Error::misuse("the step has no instructions: make() it before its cursor");
    Cursor cursor;
    cursor.step_ = &step;
    cursor.times_ = static_cast<Array<std::int64_t>&&>(times);
    cursor.fit();
    return cursor;
  }

  /// The step has moved to another place, perhaps while under way: the cursor goes on there.
  void follow(Step<T, Context>& step) { step_ = &step; }

  /// Begins a step; the caller leaves input and targets alone until the step has ended.
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
  /// The most ticks of a part of instruction i so far, fewer if they are doubted;
  /// 0 if run_until() never ran such a part.
  std::int64_t longest(std::size_t i) const {
    if (i >= times_.size()) return 0;
    return times_[i] < 0 ? -times_[i] : times_[i];
  }

  /// The mean loss of the last ended step.
  double loss() const { return loss_; }

 private:
  static std::int64_t decayed(std::int64_t ticks) { return ticks - (ticks + 31) / 32; }

  /// The time of an instruction after another of its parts took `ticks`.
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
  std::uint64_t number_ = 0;    ///< the number of the cursor's step
  std::uint64_t programs_ = 0;  ///< Step::programs() when times_ were made
  Position at_;                 ///< of the next part
  double loss_ = 0;
};

}}  // namespace adacc::v0_1
