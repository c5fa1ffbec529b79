// SPDX-License-Identifier: MIT
/// How a thread computes with floating-point numbers: rounding, subnormal numbers, traps.
///
/// A host may flush subnormal numbers to zero, round otherwise than to nearest, or trap overflows; each thread has a
/// setting of its own. Threads that share work take the mode of the thread that hands out the work
/// (core/executor.hpp), so results do not depend on the number of threads. Codecs compute in the plain mode, so their
/// bytes do not depend on the host's mode, and restore the mode afterwards.
///
/// SSE (x86) and aarch64 are supported. On other processors threads keep their mode.
#pragma once

#include <cstdint>

namespace adacc { inline namespace v0_1 { namespace detail {

class FloatMode {
 public:
  /// Rounding to nearest, with subnormal numbers, without traps: the mode in which a program starts.
  constexpr FloatMode() = default;

  /// The mode at the start, but subnormal numbers are zeros, in and out. Not on processors that keep their mode.
  static constexpr FloatMode without_subnormals() { return FloatMode(start | flush); }

  static FloatMode of_thread() { return FloatMode(read() & control); }
  friend constexpr bool operator==(FloatMode, FloatMode) = default;

 private:
  friend class FloatModeScope;

#if defined(__SSE__)
  using Word = std::uint32_t;
  static constexpr Word control = 0xFFC0, start = 0x1F80,
                        flush = 0x8040;  // the other bits are flags
  static Word read() {
    Word word;
    asm volatile("stmxcsr %0" : "=m"(word));
    return word;
  }
  static void write(Word word) { asm volatile("ldmxcsr %0" : : "m"(word) : "memory"); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word control = ~Word{0}, start = 0, flush = Word{1} << 24;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
  using Word = std::uint32_t;
  static constexpr Word control = 0, start = 0, flush = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  explicit constexpr FloatMode(Word word) : word_(word) {}

  Word word_ = start & control;
};

/// The calling thread computes in `mode` during the scope's life. If this changes the mode, exception flags raised in
/// the scope are lost when the scope ends.
class FloatModeScope {
 public:
  explicit FloatModeScope(FloatMode mode = {})
      : before_(FloatMode::read()), changed_(!(FloatMode(before_ & FloatMode::control) == mode)) {
    if (changed_) FloatMode::write(mode.word_);
  }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;
  ~FloatModeScope() {
    if (changed_) FloatMode::write(before_);
  }

 private:
  FloatMode::Word before_;
  bool changed_;
};

}}}  // namespace adacc::v0_1::detail
