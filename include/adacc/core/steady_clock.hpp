// SPDX-License-Identifier: MIT
/// The usual clock of programs: the system's steady one. Apart from clock.hpp, because <chrono> takes long to
/// compile.
#pragma once

#include <chrono>

namespace adacc { inline namespace v0_1 {

/// Seconds of std::chrono::steady_clock; a ClockRef takes it.
inline double steady_seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

}}  // namespace adacc::v0_1
