// SPDX-License-Identifier: MIT
/// Codecs that work element by element: the algorithms of the CUDA kernels, run on the host, make the
/// same bytes as the CPU's codecs.
#include "cuda_algorithm_elements.hpp"

namespace cuda_algorithm_elements_test { namespace {

using namespace cuda_algorithm;

template <class Codec, class Device>
void check_elements() {
  constexpr Size more[] = {{16, 1024}, {64, 512}, {3, 4096}, {1, 511}, {9, 1821}, {128, 128}};
  const auto check = [](const Size& size) {
    for (const Data data : all_data) {
      compare<Codec, float>(size, data, Device{});
      compare<Codec, double>(size, data, Device{});
      compare<Codec, bfloat16>(size, data, Device{});
    }
  };
  for (const Size& size : sizes) check(size);
  for (const Size& size : more) check(size);
}

template <int bits>
void check_indices() {
  check_elements<PackedIndexWith<bits>,
                 BitsDevice<PackedIndexWith<bits>, detail::SmallIndex<bits>>>();
}

TEST_CASE("codecs of elements: emulated kernels make the CPU's bytes") {
  check_elements<Bf16, Bf16Device>();
  check_elements<BitMask, BitsDevice<BitMask, detail::IsPositive>>();
  check_indices<5>();
  check_indices<8>();
  check_indices<11>();
  check_indices<16>();
}

}}  // namespace cuda_algorithm_elements_test
