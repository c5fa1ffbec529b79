// SPDX-License-Identifier: MIT
/// The seconds that this process has had of processors: what benchmarks of one thread report, because a
/// busy machine disturbs them less than those of the clock.
#pragma once

#include <ctime>

namespace support {

inline double processor_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace support
