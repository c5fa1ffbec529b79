// SPDX-License-Identifier: MIT
/// How often the heap was asked for memory, to prove that the online half does not.
#pragma once

#include <cstddef>  // defines __GLIBC__, where that is the C library

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ANOLE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define ANOLE_SANITIZED
#endif

#ifndef ANOLE_SANITIZED
#include <support/count_allocations.hpp>
#endif

namespace anole {

#ifdef ANOLE_SANITIZED  // a sanitizer's malloc is its own
inline constexpr bool counts_heap_calls = false;
inline long heap_calls() { return 0; }
#else
inline constexpr bool counts_heap_calls = true;
inline long heap_calls() { return allocations; }
#endif

}  // namespace anole

#undef ANOLE_SANITIZED
