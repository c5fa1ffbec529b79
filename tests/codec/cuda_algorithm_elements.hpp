// SPDX-License-Identifier: MIT
/// Runs the CUDA kernels of codecs that work element by element on the host.
#pragma once

#include <adacc/codec/bf16_block.hpp>
#include <adacc/codec/bit_groups_block.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/packed_index.hpp>

#include <cstddef>

#include "cuda_algorithm.hpp"
#include "emulated_block.hpp"

namespace cuda_algorithm {

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

}  // namespace cuda_algorithm
