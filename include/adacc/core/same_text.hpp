// SPDX-License-Identifier: MIT
/// Whether two texts are the same, at compile time, too: not every compiler has a strcmp for that.
#pragma once

namespace adacc { inline namespace v0_1 { namespace detail {

constexpr bool same_text(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {}
  return *a == *b;
}

}}}  // namespace adacc::v0_1::detail
