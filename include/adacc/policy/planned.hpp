/// Leave the choice to the plan; a plan made without a planner retains.
#pragma once

#include "policy.hpp"

namespace adacc::inline v0_1 {

struct Planned {
  static constexpr Policy value{PolicyKind::planned, nullptr};
};

}  // namespace adacc::inline v0_1
