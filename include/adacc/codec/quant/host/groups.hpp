// SPDX-License-Identifier: MIT
/// Loops over groups: thresholds of outliers from extremes, and scales, minima and coders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/vector_target.hpp"
#include "../quantize.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// Scales, minima and coders of `groups` groups; `minima` is not written if symmetric.
template <unsigned Bits, bool Symmetric>
void finish_groups(std::size_t groups, const std::int32_t* __restrict lo,
                   const std::int32_t* __restrict hi, std::uint16_t* __restrict scales,
                   std::uint16_t* __restrict minima, float* __restrict base,
                   float* __restrict inverse) {
  for (std::size_t g = 0; g < groups; ++g) {
    const bool empty = lo[g] > hi[g];  // a choice that compilers vectorize
    const QuantGroup group = quant_group<Bits, Symmetric>(empty ? 0 : lo[g], empty ? 0 : hi[g]);
    const QuantCoder coder = quant_coder<Symmetric>(group);
    scales[g] = group.scale.bits;
    if (!Symmetric) minima[g] = group.minimum.bits;
    base[g] = coder.base;
    inverse[g] = coder.inverse;
  }
}

/// Turns `second` into thresholds, for groups of n elements; returns whether any group has something beyond its own.
inline bool find_thresholds(std::size_t groups, std::size_t n, unsigned ratio,
                            const std::int32_t* __restrict lo, const std::int32_t* __restrict hi,
                            std::int32_t* __restrict second, std::int32_t& largest) {
  std::int32_t any = 0, most = largest;
  const bool few = n < fewest_for_outliers;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::int32_t m = larger(magnitude_of(lo[g]), magnitude_of(hi[g]));
    const std::int32_t threshold = outlier_threshold(few ? 0 : second[g], ratio);
    second[g] = threshold;
    any |= m > threshold ? 1 : 0;
    most = larger(most, m > largest_magnitude ? 0 : m);
  }
  largest = most;
  return any != 0;
}

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
