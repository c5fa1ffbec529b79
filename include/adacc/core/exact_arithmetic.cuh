// SPDX-License-Identifier: MIT
/// Refuses options of nvcc that loosen arithmetic on a device: --use_fast_math, -ftz=true, -prec-div=false and
/// -prec-sqrt=false, with which codecs would make other bytes than the host's, in silence.
///
/// No macro names these options. The device's compiler puts them in place of what libdevice asks for them
/// by, when all macros are expanded and before it removes what cannot run: what is left of a kernel then is
/// an instruction that the assembler refuses, and quotes.
#pragma once

#include "config.hpp"

#if defined(__CUDACC__) && !defined(ADACC_ALLOW_FAST_MATH)
extern "C" __device__ int __nvvm_reflect(const char* option);
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// For each kernel whose bytes have to be the host's.
__device__ inline void require_exact_arithmetic() {
#if defined(__CUDA_ARCH__) && !defined(ADACC_ALLOW_FAST_MATH)
  if (__nvvm_reflect("__CUDA_FTZ") != 0 || __nvvm_reflect("__CUDA_PREC_DIV") == 0 ||
      __nvvm_reflect("__CUDA_PREC_SQRT") == 0)
    asm volatile("adacc_needs_nvcc_without_use_fast_math_ftz_prec_div_prec_sqrt;");
#endif
}

}}}  // namespace adacc::v0_1::detail
