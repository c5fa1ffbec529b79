// SPDX-License-Identifier: MIT
/// A thread's floating-point mode as hosts set it: for tests.
#pragma once

#include <cfenv>
#include <cstdint>

/// The calling thread flushes subnormal numbers to zero and rounds upwards, while this lives; and traps overflows,
/// invalid operations and divisions by zero, if asked for and known to the system.
class HostMode {
 public:
  static constexpr bool known =
#if defined(__SSE__) || defined(__aarch64__)
      true;
#else
      false;
#endif

  explicit HostMode(bool traps = false) {
    std::fegetenv(&before_);
    std::feclearexcept(FE_ALL_EXCEPT);
    std::fesetround(FE_UPWARD);
#if defined(__SSE__)
    std::uint32_t word;
    asm volatile("stmxcsr %0" : "=m"(word));
    word |= 0x8040U;              // flush to zero, and read subnormal numbers as zeros
    if (traps) word &= ~0x0680U;  // of invalid operations, divisions by zero and overflows
    asm volatile("ldmxcsr %0" : : "m"(word) : "memory");
#elif defined(__aarch64__)
    std::uint64_t word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    word |= std::uint64_t{1} << 24 | (traps ? 0x700U : 0U);
    asm volatile("msr fpcr, %0" : : "r"(word) : "memory");
#else
    static_cast<void>(traps);
#endif
  }
  HostMode(const HostMode&) = delete;
  HostMode& operator=(const HostMode&) = delete;
  ~HostMode() { std::fesetenv(&before_); }

  /// Whether the calling thread computes as set: the smallest normal number halved is zero, and a third is rounded up.
  static bool holds() {
    volatile float smallest = 0x1p-126F, one = 1, three = 3;
    const float half = smallest * 0.5F;
    return half == 0 && one / three > 0x1.555554p-2F;
  }

 private:
  std::fenv_t before_;
};
