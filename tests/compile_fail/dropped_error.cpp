// SPDX-License-Identifier: MIT
// warns: ignoring return
#include <adacc/core/error.hpp>

adacc::Error save();

void close() {
#ifdef SHOULD_FAIL
  save();
#else
  if (save()) return;
#endif
}
