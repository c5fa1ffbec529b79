// SPDX-License-Identifier: MIT
/// The clock of a MemoryStore with a speed, owned by the test.
#pragma once

namespace sample {

/// Stands still unless it is told to pass.
struct MadeUpClock {
  double time = 0;
  double operator()() const { return time; }
  static void pass(void* self, double until) { static_cast<MadeUpClock*>(self)->time = until; }
};

}  // namespace sample
