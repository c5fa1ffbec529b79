// SPDX-License-Identifier: MIT
/// Quantizing codecs, with groups of each kind: what the CUDA kernels' algorithms do in one phase, under the thread
/// sanitizer.
#include "cuda_algorithm_quant.hpp"

namespace racing_quant_test { namespace {

using namespace cuda_algorithm;

template <class Codec, class T, class Block>
void check() {
  for (const Data data : {Data::massive, Data::wild})
    compare<Codec, T>(Size{65, 257}, data, QuantDevice<Codec, Block>{});
  compare<Codec, T>(Size{64, 256}, Data::channels, QuantDevice<Codec, Block>{});
}

TEST_CASE("quantizing codecs: no race between the threads of an emulated block") {
  check<Int8OutlierWith<QuantOptions{}>, float, Scattered>();
  check<Int4OutlierWith<QuantOptions{.group = 32, .rounding = stochastic}>, bfloat16, Scattered>();
  check<Int4OutlierWith<QuantOptions{.group = 128, .outliers = Outliers::channels}>, float,
        Descending>();
  check<Int8OutlierWith<QuantOptions{.group = whole_row}>, bfloat16, Descending>();
}

}}  // namespace racing_quant_test
