/// Time by the clock.
#pragma once

#include <chrono>

/// Seconds since some moment that stays the same.
inline double wall_seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}
