/// The one page of configuration: what a build may choose, and what is found out about it.
///
/// There is nothing to set. adacc has no feature macros, because two translation units that see
/// different definitions of one inline function are a bug that no linker reports. What differs from
/// build to build is told by the compiler:
///
///     ADACC_HD   before a function: it runs on the host and, where the file is compiled as CUDA,
///                on the device as well. Codecs put it before the arithmetic of one element, which
///                their CUDA twins (.cuh, the same stem) share, so that both make the same bytes
///                and tests on a CPU cover both. A function so marked calls none but such functions
///                and compiler built-ins, and touches only its arguments and constants.
///
/// Choices that belong to a program rather than to a build are elsewhere: options of codecs and
/// policies are template arguments, threads and memory are arguments.
#pragma once

#if defined(__CUDACC__)
#define ADACC_HD __host__ __device__
#else
#define ADACC_HD
#endif

namespace adacc::detail {

/// std::bit_cast, which is not for device code: the bits of `from`, read as a To.
template <class To, class From>
ADACC_HD constexpr To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "adacc: bits_as keeps the size");
  return __builtin_bit_cast(To, from);
}

}  // namespace adacc::detail
