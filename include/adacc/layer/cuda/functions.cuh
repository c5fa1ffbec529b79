// SPDX-License-Identifier: MIT
/// Functions of floats as approximated by a CUDA device, by an instruction each.
///
/// For results that are a term or a factor beside others of order 1: subnormal powers and reciprocals come out as 0.
#pragma once

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr float log2_e = 1.4426950408889634F;

/// 2^x, to 2 units of the last place.
__device__ inline float fast_power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
/// 1/x, to 1 unit of the last place.
__device__ inline float fast_reciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}
/// 1 / (1 + e^-x).
__device__ inline float fast_sigmoid(float x) {
  return fast_reciprocal(1 + fast_power_of_2(-log2_e * x));
}

}}}  // namespace adacc::v0_1::detail
