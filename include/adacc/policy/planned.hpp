// SPDX-License-Identifier: MIT
/// Leave the choice to the plan; a plan made without a planner retains.
#pragma once

#include "policy.hpp"

namespace adacc { inline namespace v0_1 {

struct Planned {
  static constexpr Policy value{};
};

}}  // namespace adacc::v0_1
