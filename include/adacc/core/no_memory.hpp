// SPDX-License-Identifier: MIT
/// Memory that cannot be had, as an error.
///
/// Tables of set-up are made by `new`, which throws. A program without exceptions ends there.
#pragma once

#ifdef __cpp_exceptions
#include <new>
#endif

#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// What `call` returns, an Error or a Result; if memory runs out in it, that it did, before `what`.
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
