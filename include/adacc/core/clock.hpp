// SPDX-License-Identifier: MIT
/// Time, as the caller lends it: seconds of any steady clock, and deadlines on it.
///
/// The library has no clock of its own. What takes time on purpose (planning, measuring) or looks
/// at how long steps take is given one; without one it takes the time that it needs, and its
/// results do not depend on the machine's speed. `adacc/core/steady_clock.hpp` has the usual one.
#pragma once

#include <type_traits>

namespace adacc { inline namespace v0_1 {

/// A reference to a callable that returns seconds as a double; by default there is none. Two words,
/// no ownership: a clock with state must outlive it.
class ClockRef {
 public:
  constexpr ClockRef() = default;

  /// A function, or a lambda that captures nothing.
  constexpr ClockRef(double (*function)()) : function_(function) {}  // implicit: a parameter type
  template <class Clock>
    requires std::is_convertible_v<const Clock&, double (*)()>
  constexpr ClockRef(const Clock& clock) : function_(clock) {}

  /// A callable with state, which may change when it is asked.
  template <class Clock>
    requires(!std::is_convertible_v<const Clock&, double (*)()> &&
             !std::is_same_v<std::remove_const_t<Clock>, ClockRef> &&
             requires(Clock& clock) { double{clock()}; })
  constexpr ClockRef(Clock& clock)
      : object_(const_cast<void*>(static_cast<const void*>(&clock))),  // cast back below
        call_([](void* object) -> double { return (*static_cast<Clock*>(object))(); }) {}

  constexpr explicit operator bool() const { return function_ != nullptr || call_ != nullptr; }

  /// Seconds since some moment that stays the same. There must be a clock.
  constexpr double operator()() const { return call_ != nullptr ? call_(object_) : function_(); }

 private:
  double (*function_)() = nullptr;
  void* object_ = nullptr;
  double (*call_)(void*) = nullptr;
};

/// A moment by which something is to end; never, if there is no clock.
class Deadline {
 public:
  /// Never.
  constexpr Deadline() = default;
  /// `seconds` from now on.
  constexpr Deadline(ClockRef clock, double seconds)
      : clock_(clock), start_(clock ? clock() : 0), end_(start_ + seconds) {}

  constexpr const ClockRef& clock() const { return clock_; }
  constexpr bool passed() const { return clock_ && clock_() >= end_; }
  /// Seconds until then, at least 0; without a clock, a very long time.
  constexpr double left() const {
    if (!clock_) return 1e300;
    const double left = end_ - clock_();
    return left > 0 ? left : 0;
  }
  /// Seconds since it was set; 0 without a clock.
  constexpr double elapsed() const { return clock_ ? clock_() - start_ : 0; }
  /// A deadline on the same clock when `share` of the time that is left has gone.
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

}}  // namespace adacc::v0_1
