// SPDX-License-Identifier: MIT
/// Failed allocations, as errors.
///
/// Set-up allocates its tables by `new`, which throws. A program without exceptions ends there.
#pragma once

#ifdef __cpp_exceptions
#include <new>
#endif

#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The result of `call`, an Error or a Result. If memory runs out in the call, an error, which `what` completes.
template <class Call>
constexpr auto or_no_memory(const char* what, const Call& call) -> decltype(call()) {
#ifdef __cpp_exceptions
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error::say("there is not enough memory ", what);
  }
#else
  static_cast<void>(what);
  return call();
#endif
}

}}}  // namespace adacc::v0_1::detail
