// SPDX-License-Identifier: MIT
/// How many random graphs a test plans, and how many networks it steps: fewer under sanitizers, which are
/// twenty times slower.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ADACC_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ADACC_TEST_SANITIZED 1
#endif
#endif

#ifdef ADACC_TEST_SANITIZED
inline constexpr bool test_sanitized = true;
inline constexpr unsigned test_graphs = 40, test_networks = 66;
#else
inline constexpr bool test_sanitized = false;
inline constexpr unsigned test_graphs = 600, test_networks = 1000;
#endif
