// SPDX-License-Identifier: MIT
/// Whether the calling thread's stack is large enough for a step, where the system tells its size.
///
/// The kernels of one instruction keep pieces of rows on the stack, up to 36 KB with their callers
/// (docs/devices.md). A smaller stack would overflow in the middle of a step, on many systems without a word.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__) || defined(__APPLE__)
#include <pthread.h>
#elif defined(_WIN32)
#include "windows_functions.hpp"
#endif

#include "context.hpp"
#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Bytes of stack that a thread on a system has at least, if it runs steps.
inline constexpr std::size_t least_stack = 64 * 1024;

/// Bytes of the calling thread's stack; 0: nothing is known, as on devices without a system, in a browser, and for code
/// that runs on a stack of its own (a fiber).
inline std::size_t stack_bytes() {
#if defined(__linux__)
  pthread_attr_t attributes;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  if (pthread_attr_getstack(&attributes, &lowest, &bytes) != 0) bytes = 0;
  pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return here - reinterpret_cast<std::uintptr_t>(lowest) < bytes ? bytes : 0;
#elif defined(__APPLE__)
  return pthread_get_stacksize_np(pthread_self());
#elif defined(_WIN32)
#if defined(_WIN64)
  unsigned long long lowest = 0, end = 0;
#else
  unsigned long lowest = 0, end = 0;
#endif
  GetCurrentThreadStackLimits(&lowest, &end);
  return static_cast<std::size_t>(end - lowest);
#else
  return 0;
#endif
}

/// An error if steps in `Context` run on the host, and the calling thread's stack is known to be smaller than least_stack.
/// Trainers ask before they take memory. A Step does not: the system may allocate while it tells the size.
template <class Context>
Error check_stack() {
  if constexpr (!context_traits<Context>::own_memory) {
    const std::size_t bytes = stack_bytes();
    if (bytes != 0 && bytes < least_stack)
      return Error::say("this thread's stack has ", bytes, " bytes, and a step needs ", least_stack,
                        ": give the thread that runs steps a larger one");
  }
  return {};
}

}}}  // namespace adacc::v0_1::detail
