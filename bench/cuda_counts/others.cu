// SPDX-License-Identifier: MIT
/// Codecs without options.
#include "count.cuh"

void cuda_counts::count_others(std::vector<Counted>& all) {
  using namespace codec_cuda_bench;
  count_cases(Cases<codec_cuda_bench::Bf16, Mask, Index4, Index11>{}, false, all);
}
