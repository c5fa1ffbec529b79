// SPDX-License-Identifier: MIT
/// The common part of BitMask and PackedIndex on a CUDA device: the same bytes as bit_groups.hpp makes.
#pragma once

#include "../core/cuda.cuh"
#include "bit_groups_block.hpp"
#include "codec.hpp"
#include "thread_block.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class Element, class T>
static __global__ void __launch_bounds__(CudaBlock::threads, 4)
    bit_groups_encode_kernel(std::size_t n, const T* __restrict__ x,
                             const __grid_constant__ BlobHeader header,
                             std::byte* __restrict__ blob) {
  using Parts = BitParts<Element::bits, T, CudaBlock::threads>;
  __shared__ typename CudaBlock::Storage storage;
  __shared__ typename Parts::Shared shared;
  CudaBlock block(storage);
  for (std::size_t part = blockIdx.x; part < Parts::count(n); part += gridDim.x)
    bit_groups_encode_part<Element>(block, shared, part, n, x, header, blob);
}

template <class Element, class T>
static __global__ void __launch_bounds__(CudaBlock::threads)
    bit_groups_decode_kernel(std::size_t n, BlobHeader header, const std::byte* __restrict__ blob,
                             T* __restrict__ x) {
  using Parts = BitParts<Element::bits, T, CudaBlock::threads>;
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  for (std::size_t part = blockIdx.x; part < Parts::count(n); part += gridDim.x)
    bit_groups_decode_part<Element>(block, part, n, header, blob, x);
}

/// Codec is BitMask or PackedIndexWith; Element encodes and decodes one element.
template <class Codec, class Element>
struct ADACC_ONE_LIBRARY BitGroupsOnCuda {
  template <class T>
  static Error encode(Cuda& cuda, View<const T> x, Bytes blob) {
    const std::size_t bytes = Codec::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_spans(Codec::name, x, blob, bytes)) return error;
    if (Error error = codec_memory_fault(cuda, Codec::name, x, blob.data(), bytes)) return error;
    return launch(Codec::name, {grid<T>(x.size()), threads, cuda.stream()},
                  &bit_groups_encode_kernel<Element, T>, x.size(), x.data(), header_of(x),
                  blob.data());
  }

  template <class T>
  static Error decode(Cuda& cuda, ConstBytes blob, View<T> x) {
    const std::size_t bytes = Codec::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_spans(Codec::name, x, blob, bytes)) return error;
    if (Error error = codec_memory_fault(cuda, Codec::name, x, blob.data(), bytes)) return error;
    return launch(Codec::name, {grid<T>(x.size()), threads, cuda.stream()},
                  &bit_groups_decode_kernel<Element, T>, x.size(), header_of(View<const T>(x)),
                  blob.data(), x.data());
  }

 private:
  static constexpr int threads = CudaBlock::threads;

  template <class T>
  static unsigned grid(std::size_t n) {
    return grid_of(BitParts<Element::bits, T, threads>::count(n));
  }
  template <class T>
  static constexpr BlobHeader header_of(View<const T> x) {
    return blob_header(fnv1a(Codec::name), dtype_of<T>, x.rows(), x.cols());
  }
};

}}}  // namespace adacc::v0_1::detail
