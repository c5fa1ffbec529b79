// SPDX-License-Identifier: MIT
/// Kernels compiled from one source for several vector widths, of which one runs: the program's instruction level.
///
/// A target has the width of its vectors, and call<function>(arguments...), which compiles the function with the target's
/// instructions: all that the function calls is inlined, so templates, lambdas and the compiler's vector types need no
/// attribute of their own. g++ inlines everything; clang only calls in functions between ADACC_TARGET_CODE_BEGIN and
/// ADACC_TARGET_CODE_END, where `function` and its callees therefore stand, and no caller of call(). Vectors are passed
/// by reference, or to functions that are always inlined: by value, the width of the caller's registers would change
/// the call.
///
/// BuildTarget has the instructions that the compiler's options allow everywhere; its call() is a plain call. Targets
/// below it are not compiled: such a program does not run on a lesser processor anyway. So a build with -march=native
/// compiles each kernel once.
#pragma once

#include <cstddef>

#include "instruction_level.hpp"
#include "simd.hpp"

// The level of the compiler's options.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__) && defined(__FMA__)
#define ADACC_BUILD_LEVEL avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define ADACC_BUILD_LEVEL avx2
#else
#define ADACC_BUILD_LEVEL plain
#endif

// Sanitizers check the build's own code: with more targets such a build would take three times as long.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ADACC_HAS_TARGETS 0
#endif
#endif
#if !defined(ADACC_HAS_TARGETS)
#if (defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
     defined(__AVX512DQ__) && defined(__FMA__)) ||                             \
    defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ADACC_HAS_TARGETS 0
#else
#define ADACC_HAS_TARGETS ADACC_HAS_LEVELS
#endif
#endif

#if defined(__clang__) && ADACC_HAS_TARGETS
#define ADACC_TARGET_CODE_BEGIN \
  _Pragma("clang attribute push(__attribute__((flatten)), apply_to = function)")
#define ADACC_TARGET_CODE_END _Pragma("clang attribute pop")
#elif defined(__clang__) && defined(__AVX512F__)
// With -march of an Intel processor, clang halves vectors of 64 bytes unless it is asked not to.
#define ADACC_TARGET_CODE_BEGIN \
  _Pragma("clang attribute push(__attribute__((min_vector_width(512))), apply_to = function)")
#define ADACC_TARGET_CODE_END _Pragma("clang attribute pop")
#elif ADACC_HAS_TARGETS
// g++ 12 takes arrays of vectors that BuildTarget has not got for uninitialized.
#define ADACC_TARGET_CODE_BEGIN \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define ADACC_TARGET_CODE_END _Pragma("GCC diagnostic pop")
#else
#define ADACC_TARGET_CODE_BEGIN
#define ADACC_TARGET_CODE_END
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// The level of the compiler's options.
inline constexpr InstructionLevel build_level = InstructionLevel::ADACC_BUILD_LEVEL;

struct BuildTarget {
#if defined(__AVX512F__)
  static constexpr std::size_t bytes = 64, registers = 32;
#elif defined(__AVX__)
  static constexpr std::size_t bytes = 32, registers = 16;
#elif defined(__aarch64__)
  static constexpr std::size_t bytes = 16, registers = 32;
#else
  static constexpr std::size_t bytes = 16, registers = 16;
#endif

  template <auto function, class... Args>
  static void call(Args&&... args) {
    function(args...);
  }
};

#if ADACC_HAS_TARGETS
struct Avx2Target {
  static constexpr std::size_t bytes = 32, registers = 16;

  template <auto function, class... Args>
  ADACC_AVX2 [[gnu::flatten, gnu::noinline]] static void call(Args&&... args) {
    function(args...);
  }
};

struct Avx512Target {
  static constexpr std::size_t bytes = 64, registers = 32;

  template <auto function, class... Args>
  ADACC_AVX512 [[gnu::flatten, gnu::noinline]] static void call(Args&&... args) {
    function(args...);
  }
};
#endif

/// Calls run(target) with the target of the level, which the processor has, or of the build, if this is higher. Where the
/// macro ADACC_INSTRUCTION_LEVEL fixes the level, no target above it is compiled.
template <class Run>
void with_target([[maybe_unused]] InstructionLevel level, const Run& run) {
#if ADACC_HAS_TARGETS
#if defined(ADACC_INSTRUCTION_LEVEL)
  constexpr InstructionLevel highest = InstructionLevel::ADACC_INSTRUCTION_LEVEL;
#else
  constexpr InstructionLevel highest = InstructionLevel::avx512;
#endif
  if constexpr (highest >= InstructionLevel::avx512)
    if (level >= InstructionLevel::avx512) return run(Avx512Target{});
  if constexpr (highest >= InstructionLevel::avx2 && build_level < InstructionLevel::avx2)
    if (level >= InstructionLevel::avx2) return run(Avx2Target{});
#endif
  run(BuildTarget{});
}

/// Whether the program chooses a target when it runs.
#if ADACC_HAS_TARGETS && defined(ADACC_INSTRUCTION_LEVEL)
inline constexpr bool chooses_target = InstructionLevel::ADACC_INSTRUCTION_LEVEL > build_level;
#else
inline constexpr bool chooses_target = ADACC_HAS_TARGETS;
#endif

/// The program's level, as far as it is above the build's: a program for one target does not ask the processor.
inline InstructionLevel target_level() {
  if constexpr (chooses_target) return vector_choice().level;
  else return build_level;
}

/// function(arguments...) with the instructions of the program's level.
template <auto function, class... Args>
void call_at_level(Args&&... args) {
  with_target(target_level(),
              [&]<class Target>(Target) { Target::template call<function>(args...); });
}

}}}  // namespace adacc::v0_1::detail
