// SPDX-License-Identifier: MIT
/// What sources that count their basic blocks call: to be compiled without counting.
#include "work_clock.hpp"

namespace work_clock {

std::uint64_t blocks = 0;

double seconds() {
  blocks += 20;
  return static_cast<double>(blocks) / blocks_a_second;
}

}  // namespace work_clock

extern "C" {
void __sanitizer_cov_trace_pc() {  // NOLINT(bugprone-reserved-identifier): the compilers' name
  ++work_clock::blocks;
}
}
