// SPDX-License-Identifier: MIT
/// Seconds between moments: on the CPU by the clock, on another device by events on its current stream.
#pragma once

#include <cstddef>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../../core/steady_clock.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// Whether this version of libtorch tells the time between events.
template <class Event>
concept TellsTime = requires(const Event& event) {
  event.elapsedTime(event);
  event.synchronize();
};

/// Seconds from each event to the next, for which the host waits; none: libtorch does not tell.
template <class Event>
std::vector<double> seconds_between(const std::vector<Event>& events) {
  std::vector<double> seconds;
  if constexpr (TellsTime<Event>) {
    for (const Event& event : events) event.synchronize();
    for (std::size_t i = 1; i < events.size(); ++i)
      seconds.push_back(1e-3 * events[i - 1].elapsedTime(events[i]));
  }
  return seconds;
}

}  // namespace detail

class Stopwatch {
 public:
  explicit Stopwatch(c10::Device device)
      : device_(device), by_events_(!device.is_cpu() && detail::TellsTime<c10::Event>) {}

  /// A moment, in the order of the device's current stream. Nothing waits.
  void mark() {
    if (!by_events_) return times_.push_back(steady_seconds());
    events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    events_.back().record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  /// Whether the device has come to the first mark. Nothing waits.
  bool has_begun() const { return !by_events_ || events_.empty() || events_.front().query(); }
  /// Whether the device has come to the last mark. Nothing waits.
  bool has_ended() const { return !by_events_ || events_.empty() || events_.back().query(); }
  std::size_t marks() const { return by_events_ ? events_.size() : times_.size(); }

  /// Seconds from each mark to the next. Waits for the device.
  std::vector<double> laps() const {
    if (by_events_) return detail::seconds_between(events_);
    std::vector<double> seconds;
    for (std::size_t i = 1; i < times_.size(); ++i) seconds.push_back(times_[i] - times_[i - 1]);
    return seconds;
  }

 private:
  c10::Device device_;
  bool by_events_;
  std::vector<double> times_;
  std::vector<c10::Event> events_;
};

}}}  // namespace adacc::v0_1::torch
