// SPDX-License-Identifier: MIT
// warns: ignoring return
#include <adacc/core/error.hpp>

adacc::Result<int> count();

void print() {
#ifdef SHOULD_FAIL
  count();
#else
  if (!count()) return;
#endif
}
