// SPDX-License-Identifier: MIT
/// A clock that moves by the work that is done: sources that are compiled with -fsanitize-coverage=trace-pc
/// count their basic blocks. So a test sees every loop that runs on behind a deadline, on any machine, and
/// however busy it is, in the same way.
#pragma once

#include <cstdint>

namespace work_clock {

/// Basic blocks that ran so far.
extern std::uint64_t blocks;

/// About as many as a core runs in a second.
inline constexpr double blocks_a_second = 5e8;

/// Seconds of that work. To look at the clock is work, too.
double seconds();

}  // namespace work_clock
