// SPDX-License-Identifier: MIT
/// Time lent by the caller: seconds of any steady clock, and deadlines.
///
/// The library has no clock of its own. Functions that take time on purpose (planning, measuring) or time a step are
/// given a clock. Without one they take the time they need, and results do not depend on the machine's speed.
/// `adacc/core/steady_clock.hpp` has the usual clock.
#pragma once

#include <cstddef>
#include <type_traits>

namespace adacc { inline namespace v0_1 {

/// A reference to a callable that returns seconds as a double; empty by default. Two words, no ownership: a clock
/// with state must outlive the reference.
class ClockRef {
 public:
  constexpr ClockRef() = default;

  /// A function, or a lambda without captures.
  constexpr ClockRef(double (*function)()) : function_(function) {}  // implicit: a parameter type
  template <class Clock>
    requires std::is_convertible_v<const Clock&, double (*)()>
  constexpr ClockRef(const Clock& clock) : function_(clock) {}

  /// A callable with state; the call operator may be non-const.
  template <class Clock>
    requires(!std::is_convertible_v<const Clock&, double (*)()> &&
             !std::is_same_v<std::remove_const_t<Clock>, ClockRef> &&
             requires(Clock & clock) { double{clock()}; })
  constexpr ClockRef(Clock& clock)
      : object_(const_cast<void*>(static_cast<const void*>(&clock))),  // cast back below
        call_([](void* object) -> double { return (*static_cast<Clock*>(object))(); }) {}

  constexpr explicit operator bool() const { return function_ != nullptr || call_ != nullptr; }

  /// Seconds since some fixed moment. There must be a clock.
  constexpr double operator()() const { return call_ != nullptr ? call_(object_) : function_(); }

 private:
  double (*function_)() = nullptr;
  void* object_ = nullptr;
  double (*call_)(void*) = nullptr;
};

/// A moment by which work is to end. Without a clock the deadline never passes.
class Deadline {
 public:
  /// Never passes.
  constexpr Deadline() = default;
  /// A deadline `seconds` from now on.
  constexpr Deadline(ClockRef clock, double seconds)
      : clock_(clock), start_(clock ? clock() : 0), end_(start_ + seconds) {}

  constexpr const ClockRef& clock() const { return clock_; }
  constexpr bool passed() const { return clock_ && clock_() >= end_; }
  /// Seconds until the deadline, at least 0; without a clock, a very long time.
  constexpr double left() const {
    if (!clock_) return 1e300;
    const double left = end_ - clock_();
    return left > 0 ? left : 0;
  }
  /// Whether the deadline is overrun by `share` of its whole duration plus `seconds`.
  constexpr bool passed_by(double share, double seconds) const {
    return clock_ && clock_() >= end_ + share * (end_ - start_) + seconds;
  }
  /// Seconds since the deadline was set; 0 without a clock.
  constexpr double elapsed() const { return clock_ ? clock_() - start_ : 0; }
  /// A deadline on the same clock, after `share` of the time left.
  constexpr Deadline part(double share) const {
    Deadline sooner = *this;
    if (clock_) sooner.end_ = clock_() + share * left();
    return sooner;
  }

 private:
  ClockRef clock_;
  double start_ = 0;
  double end_ = 0;
};

/// A deadline for loops that report their work: reads the clock once per fixed amount of work, and no more once time
/// is up. All work towards one deadline shares one pacer, so no part, be it many short loops or a long one, runs on
/// unwatched.
class Pacer {
 public:
  /// A pacer without a deadline: time is never up.
  constexpr Pacer() = default;
  constexpr explicit Pacer(const Deadline& deadline)
      : deadline_(deadline), timed_(static_cast<bool>(deadline.clock())) {}

  /// Reports `work` more work, in units of about ten nanoseconds; returns whether time is up.
  constexpr bool spend(std::size_t work) {
    if (!timed_ || passed_) return passed_;
    done_ += work;
    return done_ >= work_a_look && look();
  }
  /// Reads the clock; returns whether time is up.
  constexpr bool look() {
    done_ = 0;
    return passed_ = passed_ || deadline_.passed();
  }
  /// Whether time was up when the clock was last read.
  constexpr bool passed() const { return passed_; }
  constexpr const Deadline& deadline() const { return deadline_; }

 private:
  static constexpr std::size_t work_a_look = 10000;  ///< a tenth of a millisecond

  Deadline deadline_;
  bool timed_ = false;
  bool passed_ = false;
  std::size_t done_ = 0;  ///< since the clock was last read
};

/// A reference to a pacer; empty by default: time is never up.
class PacerRef {
 public:
  constexpr PacerRef() = default;
  constexpr PacerRef(Pacer& pacer) : pacer_(&pacer) {}  // implicit: a parameter type

  constexpr bool spend(std::size_t work) const { return pacer_ != nullptr && pacer_->spend(work); }
  constexpr bool look() const { return pacer_ != nullptr && pacer_->look(); }
  constexpr bool passed() const { return pacer_ != nullptr && pacer_->passed(); }

 private:
  Pacer* pacer_ = nullptr;
};

}}  // namespace adacc::v0_1
