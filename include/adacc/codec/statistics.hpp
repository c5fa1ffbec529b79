// SPDX-License-Identifier: MIT
/// Facts about a tensor, noted by a codec's encode and read back from the blob without an extra pass.
///
/// Plans that evolve watch them: a codec whose outliers no longer find a place, or whose error grows, is due for
/// another choice.
#pragma once

#include <cstdint>

namespace adacc { inline namespace v0_1 {

struct CodecStatistics {
  std::uint64_t elements = 0;   ///< elements of the tensor
  std::uint64_t outliers = 0;   ///< flagged as outliers, non-finite ones among them
  std::uint64_t unplaced = 0;   ///< outliers without a place; their effect depends on the codec
  std::uint64_t nonfinite = 0;  ///< NaNs and infinities, if the codec tells them apart
  float max_magnitude = 0;      ///< the largest finite |x|; 0 if the codec does not look
  double bulk_noise = 0;        ///< sum of (decoded x - x)^2 over the sampled bulk elements
  double bulk_signal = 0;       ///< sum of x^2 over these elements
  std::uint64_t samples = 0;    ///< number of these elements; 0: nothing was sampled
  std::uint64_t rows_over = 0;  ///< rows over the codec's row_bound, if steps judged them

  /// Whether the tensor does not suit this codec: a codec for few values met others, or rows were lost.
  constexpr bool misfit() const { return rows_over > 0 || (samples == 0 && unplaced > 0); }
};

}}  // namespace adacc::v0_1
