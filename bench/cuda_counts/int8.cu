// SPDX-License-Identifier: MIT
/// Int8Outlier with each of its options.
#include "count.cuh"

void cuda_counts::count_int8(std::vector<Counted>& all) {
  using namespace codec_cuda_bench;
  count_cases(Cases<Int8Default, Int8Symmetric, Int8Stochastic, Int8Group32, Int8Group128,
                    Int8Channels, Int8Rows>{},
              true, all);
  count_cases(Cases<Int8NoOutliers>{}, false, all);
}
