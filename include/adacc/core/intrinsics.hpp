// SPDX-License-Identifier: MIT
/// The intrinsics of x86. g++ 12 warns of variables of its own header, wherever functions with intrinsics are compiled:
/// ADACC_INTRINSICS_BEGIN and ADACC_INTRINSICS_END around such functions keep it silent.
#pragma once

#include "instruction_level.hpp"

#if ADACC_HAS_LEVELS
#include <immintrin.h>
#endif

#if defined(__clang__)
#define ADACC_INTRINSICS_BEGIN
#define ADACC_INTRINSICS_END
#else
#define ADACC_INTRINSICS_BEGIN                                                         \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"") \
      _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define ADACC_INTRINSICS_END _Pragma("GCC diagnostic pop")
#endif
