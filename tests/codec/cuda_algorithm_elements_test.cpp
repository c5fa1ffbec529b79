// SPDX-License-Identifier: MIT
/// Codecs that work element by element: the algorithms of the CUDA kernels, run on the host, make the
/// same bytes as the CPU's codecs.
#include <adacc/codec/bf16_block.hpp>
#include <adacc/codec/bit_groups_block.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/packed_index.hpp>

#include <cstddef>

#include "cuda_algorithm.hpp"
#include "emulated_block.hpp"

namespace cuda_algorithm_elements_test { namespace {

using namespace cuda_algorithm;

struct Bf16Device {
  using Block = emulated::Block<emulated::Order::scattered>;
  template <class T>
  static BlobHeader header(View<const T> x) {
    return blob_header(fnv1a(Bf16::name), dtype_of<T>, x.rows(), x.cols());
  }
  template <class T>
  void encode(View<const T> x, const RandomKey&, Bytes blob) const {
    Block block;
    for (std::size_t i = detail::Bf16Parts<T>::count(x.size(), 256); i-- > 0;)
      detail::bf16_encode_part(block, i, x.size(), x.data(), header(x), blob.size(), blob.data());
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    Block block;
    for (std::size_t i = detail::Bf16Parts<T>::count(x.size(), 256); i-- > 0;)
      detail::bf16_decode_part(block, i, x.size(), header(View<const T>(x)), blob.data(), x.data());
  }
};

template <class Codec, class Element>
struct BitsDevice {
  using Block = emulated::Block<emulated::Order::scattered>;
  template <class T>
  using Parts = detail::BitParts<Element::bits, T, 256>;
  template <class T>
  static BlobHeader header(View<const T> x) {
    return blob_header(fnv1a(Codec::name), dtype_of<T>, x.rows(), x.cols());
  }
  template <class T>
  void encode(View<const T> x, const RandomKey&, Bytes blob) const {
    Block block;
    typename Parts<T>::Shared shared;
    for (std::size_t i = Parts<T>::count(x.size()); i-- > 0;)
      detail::bit_groups_encode_part<Element>(block, shared, i, x.size(), x.data(), header(x),
                                              blob.data());
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    Block block;
    for (std::size_t i = Parts<T>::count(x.size()); i-- > 0;)
      detail::bit_groups_decode_part<Element>(block, i, x.size(), header(View<const T>(x)),
                                              blob.data(), x.data());
  }
};

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
