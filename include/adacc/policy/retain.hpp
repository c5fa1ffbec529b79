// SPDX-License-Identifier: MIT
/// Keep the activation unencoded until the last reader in backward.
#pragma once

#include "policy.hpp"

namespace adacc { inline namespace v0_1 {

struct Retain {
  static constexpr Policy value = retain();
};

}}  // namespace adacc::v0_1
