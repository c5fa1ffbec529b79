// SPDX-License-Identifier: MIT
/// A device's seconds of a recorded step, known once the device has done the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <c10/core/Device.h>

#include "step_record.hpp"
#include "stopwatch.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StepTimes {
 public:
  explicit StepTimes(c10::Device device) : watch_(device) {}

  /// Returns the moment's number (StepEvent::mark), or -1. If `apart`, the time since the last moment is no part of the
  /// step. Nothing waits.
  int mark(bool apart) noexcept {
    if (fails_) return -1;
    try {
      watch_.mark();
      apart_.push_back(apart ? 1 : 0);
      return static_cast<int>(apart_.size()) - 1;
    } catch (...) {  // the host's seconds have to do
      fails_ = true;
      return -1;
    }
  }

  /// Puts the device's seconds in the place of the host's. Waits for the device.
  void settle(StepRecord& record) const {
    if (fails_) return;
    const std::vector<double> laps = watch_.laps();
    if (laps.size() + 1 != apart_.size()) return;
    std::vector<double> since(apart_.size(), 0);
    for (std::size_t i = 1; i < since.size(); ++i)
      since[i] = since[i - 1] + (apart_[i] != 0 ? 0 : laps[i - 1]);
    for (StepEvent& event : record.events)
      if (event.mark >= 0) event.seconds = since[static_cast<std::size_t>(event.mark)];
    const auto at = [&](int event) {
      return record.events[static_cast<std::size_t>(event)].seconds;
    };
    for (StepBlock& block : record.blocks) {
      block.seconds = at(block.end_event) - at(block.begin_event);
      if (block.second_mark > 0) {
        block.second_run = laps[static_cast<std::size_t>(block.second_mark - 1)];
        block.seconds = std::min(block.seconds, block.second_run);
      }
      block.seconds = std::max(1e-9, block.seconds);
    }
    record.seconds = std::max(1e-9, since.back());
  }

 private:
  Stopwatch watch_;
  std::vector<char> apart_;
  bool fails_ = false;
};

}}}}  // namespace adacc::v0_1::torch::detail
