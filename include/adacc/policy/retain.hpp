/// Keep the activation as it is until its last reader in backward.
#pragma once

#include "policy.hpp"

namespace adacc {

struct Retain {
  static constexpr Policy value{PolicyKind::retain, nullptr};
};

}  // namespace adacc
