// SPDX-License-Identifier: MIT
/// Refuses options of nvcc that loosen arithmetic on a device: --use_fast_math, -ftz=true, -prec-div=false and
/// -prec-sqrt=false, with which codecs would silently make other bytes than on the host.
///
/// No macro names these options. But the device's compiler replaces __nvvm_reflect() by the value of an option, after
/// macros are expanded and before unreachable code is removed. With a loosened option, the instruction below remains
/// in the kernel, and the assembler refuses and quotes it.
#pragma once

#include "config.hpp"

#if defined(__CUDACC__) && !defined(ADACC_ALLOW_FAST_MATH)
extern "C" __device__ int __nvvm_reflect(const char* option);
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// Called in each kernel whose bytes must equal the host's.
__device__ inline void require_exact_arithmetic() {
#if defined(__CUDA_ARCH__) && !defined(ADACC_ALLOW_FAST_MATH)
  if (__nvvm_reflect("__CUDA_FTZ") != 0 || __nvvm_reflect("__CUDA_PREC_DIV") == 0 ||
      __nvvm_reflect("__CUDA_PREC_SQRT") == 0)
    asm volatile("adacc_needs_nvcc_without_use_fast_math_ftz_prec_div_prec_sqrt;");
#endif
}

}}}  // namespace adacc::v0_1::detail
