/// Leave the choice to the plan; a plan made without a planner retains.
#pragma once

#include "policy.hpp"

namespace adacc {

struct Planned {
  static constexpr Policy value{PolicyKind::planned, nullptr};
};

}  // namespace adacc
