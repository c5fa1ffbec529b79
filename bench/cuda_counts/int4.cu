// SPDX-License-Identifier: MIT
/// Int4Outlier with each of its options.
#include "count.cuh"

void cuda_counts::count_int4(std::vector<Counted>& all) {
  using namespace codec_cuda_bench;
  count_cases(Cases<Int4Default, Int4Symmetric, Int4Stochastic, Int4Group32, Int4Group128,
                    Int4Channels, Int4Rows>{},
              true, all);
  count_cases(Cases<Int4NoOutliers>{}, false, all);
}
