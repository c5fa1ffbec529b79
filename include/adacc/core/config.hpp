// SPDX-License-Identifier: MIT
/// The one page of configuration: every macro of adacc.
///
/// Yours to define, before the first header of adacc and alike in the whole program (two translation units with
/// different definitions of one inline function are a bug that no linker reports):
///
///     ADACC_ASSERT(holds, text)   called with false and the text of the error, when adacc finds a
///                                 mistake of the calling code, before the Error is returned.
///                                 Default: assert() of <cassert>; nothing if NDEBUG is defined
///
///     ADACC_POISONS               whether a Stash fills memory with NaN once its user no longer owns
///                                 the memory, unless poison_dead() says otherwise. Default: true;
///                                 false if NDEBUG is defined
///
///     ADACC_SEPARATE_PLANNER      make_plan() and smallest_peak() are declared, not inline: one source
///                                 of the program includes <adacc/plan/planner.hpp>, which defines
///                                 them, and the others need not compile the planners. CMake's target
///                                 adacc::planner does both. Default: not defined
///
///     ADACC_INSTRUCTION_LEVEL     the level of kernels that choose their instructions at run time: plain,
///                                 avx2, avx512 or avx512_bf16 (core/instruction_level.hpp). Default: not
///                                 defined; the environment variable of this name, or the processor, chooses
///
///     ADACC_ALLOW_FAST_MATH       headers may be compiled with -ffast-math or similar options, which they
///                                 refuse otherwise: codecs would miss NaNs and round to other numbers,
///                                 in silence. For programs without codecs. Default: not defined
///
/// Ours:
///
///     ADACC_VERSION_MAJOR, _MINOR, _PATCH   the version; CMake reads these lines
///     ADACC_HD           before a function: it runs on the host and, if the file is compiled as
///                        CUDA, on the device as well. Codecs put it before the arithmetic of one
///                        element, which they share with their CUDA twins (.cuh, the same stem):
///                        both make the same bytes, and tests on a CPU cover both. Such a function
///                        calls only functions marked the same way and compiler built-ins, and
///                        touches only arguments and constants
///     ADACC_KERNEL_PART  in place of ADACC_HD before a function that is part of each kernel calling it, however little the
///                        device's compiler is asked to do
///     ADACC_UNROLL       before a loop whose arrays shall be registers of the device
///     ADACC_ROLL         before a loop that hardly ever runs: the device's compiler does not unroll it
///     ADACC_HAS_LEVELS   1 if functions for instruction levels above plain are compiled, else 0
///     ADACC_AVX2, ADACC_AVX512, ADACC_AVX512_BF16   before a function: it may use these instructions
///     ADACC_INTRINSICS_BEGIN, _END   around functions with intrinsics: g++ 12 warns of its own header
///     ADACC_ONE_LIBRARY  before functions that launch kernels: invisible outside of one shared
///                        library, so each library runs its own kernels (CUDA registers kernels by
///                        library)
///     ADACC_NO_ROOM      before a member that has no bytes if its type is empty, where the layout of classes can do it
///     ADACC_TRAP()       ends the program on the spot
///     ADACC_PREFETCH(address, writes, level)   asks for a cache line, for reading (0) or writing (1): into the first
///                        cache (3) or the second (2). Nothing for compilers without
///     ADACC_HAS_VECTORS, ADACC_CONVERT_LANES, ADACC_SHUFFLE_LANES, ADACC_CHOOSE_LANES   core/simd.hpp
///
/// There are no other feature macros. Choices of a program rather than of a build are elsewhere: options of codecs
/// and policies are template arguments, threads and memory are arguments.
#pragma once

#define ADACC_VERSION_MAJOR 0
#define ADACC_VERSION_MINOR 1
#define ADACC_VERSION_PATCH 0

// Each of these options decides comparisons with NaN in advance, or regroups sums whose rounding matters. (clang
// defines no macro for -fassociative-math or -funsafe-math-optimizations alone.)
#if !defined(ADACC_ALLOW_FAST_MATH)
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || defined(_M_FP_FAST)
#error \
    "adacc: with -ffast-math or /fp:fast codecs would be wrong in silence; put -fno-fast-math behind it, or define ADACC_ALLOW_FAST_MATH if the program uses none"
#endif
#endif

#if !defined(ADACC_ASSERT)
#if defined(NDEBUG)
#define ADACC_ASSERT(holds, text) static_cast<void>(0)
#else
#include <cassert>
#define ADACC_ASSERT(holds, text) assert((holds) && (text))
#endif
#endif

#if !defined(ADACC_POISONS)
#if defined(NDEBUG)
#define ADACC_POISONS false
#else
#define ADACC_POISONS true
#endif
#endif

#if defined(__CUDACC__)
#define ADACC_HD __host__ __device__
#define ADACC_KERNEL_PART __host__ __device__ __forceinline__
#else
#define ADACC_HD
#define ADACC_KERNEL_PART
#endif

#if defined(__CUDA_ARCH__)
#define ADACC_UNROLL _Pragma("unroll")
#define ADACC_ROLL _Pragma("unroll 1")
#else
#define ADACC_UNROLL
#define ADACC_ROLL
#endif

// Microsoft's cl.exe, which ignores attributes of gnu.
#if defined(_MSC_VER) && !defined(__clang__)
extern "C" __declspec(noreturn) void __fastfail(unsigned int);
#define ADACC_ONE_LIBRARY
#define ADACC_TRAP() __fastfail(7)
#define ADACC_PREFETCH(address, writes, level) static_cast<void>(address)
#else
#define ADACC_ONE_LIBRARY __attribute__((visibility("hidden")))
#define ADACC_TRAP() __builtin_trap()
#define ADACC_PREFETCH(address, writes, level) __builtin_prefetch(address, writes, level)
#endif

// In the layout of Windows only Microsoft's attribute counts, which clang has since 18.
#if __has_cpp_attribute(msvc::no_unique_address)
#define ADACC_NO_ROOM [[msvc::no_unique_address]]
#elif defined(_MSC_VER)
#define ADACC_NO_ROOM
#else
#define ADACC_NO_ROOM [[no_unique_address]]
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// std::bit_cast, which device code cannot call: the bits of `from`, read as a To.
template <class To, class From>
ADACC_HD constexpr To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "adacc: bits_as keeps the size");
  return __builtin_bit_cast(To, from);
}

}}}  // namespace adacc::v0_1::detail
