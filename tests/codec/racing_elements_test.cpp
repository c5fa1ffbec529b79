// SPDX-License-Identifier: MIT
/// Codecs that work element by element: what the CUDA kernels' algorithms do in one phase, under the thread sanitizer.
#include "cuda_algorithm_elements.hpp"

namespace racing_elements_test { namespace {

using namespace cuda_algorithm;

template <class Codec, class Device>
void check() {
  for (const Size& size : {Size{65, 257}, Size{3, 1366}}) {
    compare<Codec, float>(size, Data::indices, Device{});
    compare<Codec, bfloat16>(size, Data::wild, Device{});
  }
}

TEST_CASE("codecs of elements: no race between the threads of an emulated block") {
  check<Bf16, Bf16Device>();
  check<BitMask, BitsDevice<BitMask, detail::IsPositive>>();
  check<PackedIndexWith<11>, BitsDevice<PackedIndexWith<11>, detail::SmallIndex<11>>>();
}

}}  // namespace racing_elements_test
