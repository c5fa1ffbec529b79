// SPDX-License-Identifier: MIT
/// Bf16 on a CUDA device: the same bytes as bf16.hpp makes on the host.
#pragma once

#include "../core/cuda.cuh"
#include "bf16_block.hpp"
#include "codec.hpp"
#include "thread_block.cuh"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
static __global__ void __launch_bounds__(CudaBlock::threads)
    bf16_encode_kernel(std::size_t n, const T* __restrict__ x,
                       const __grid_constant__ BlobHeader header, std::size_t bytes,
                       std::byte* __restrict__ blob) {
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  const std::size_t parts = Bf16Parts<T>::count(n, CudaBlock::threads);
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    bf16_encode_part(block, part, n, x, header, bytes, blob);
}

template <class T>
static __global__ void __launch_bounds__(CudaBlock::threads)
    bf16_decode_kernel(std::size_t n, BlobHeader header, const std::byte* __restrict__ blob,
                       T* __restrict__ x) {
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  const std::size_t parts = Bf16Parts<T>::count(n, CudaBlock::threads);
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    bf16_decode_part(block, part, n, header, blob, x);
}

}  // namespace detail

/// Reports errors of arguments and of the launch. A blob of another codec or shape decodes to NaN: the host does not
/// read blobs.
template <>
struct ADACC_ONE_LIBRARY codec_kernel<Bf16, Cuda> {
  template <class T>
  static Error encode(Cuda& cuda, View<const T> x, Bytes blob) {
    const std::size_t bytes = Bf16::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = detail::check_spans(Bf16::name, x, blob, bytes)) return error;
    if (Error error = detail::codec_memory_fault(cuda, Bf16::name, x, blob.data(), bytes))
      return error;
    const unsigned grid = detail::grid_of(detail::Bf16Parts<T>::count(x.size(), threads));
    return detail::launch(Bf16::name, {grid, threads, cuda.stream()},
                          &detail::bf16_encode_kernel<T>, x.size(), x.data(), header_of(x), bytes,
                          blob.data());
  }

  template <class T>
  static Error decode(Cuda& cuda, ConstBytes blob, View<T> x) {
    const std::size_t bytes = Bf16::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = detail::check_spans(Bf16::name, x, blob, bytes)) return error;
    if (Error error = detail::codec_memory_fault(cuda, Bf16::name, x, blob.data(), bytes))
      return error;
    const unsigned grid = detail::grid_of(detail::Bf16Parts<T>::count(x.size(), threads));
    return detail::launch(Bf16::name, {grid, threads, cuda.stream()},
                          &detail::bf16_decode_kernel<T>, x.size(), header_of(View<const T>(x)),
                          blob.data(), x.data());
  }

 private:
  static constexpr int threads = detail::CudaBlock::threads;

  template <class T>
  static constexpr BlobHeader header_of(View<const T> x) {
    return blob_header(fnv1a(Bf16::name), dtype_of<T>, x.rows(), x.cols());
  }
};

}}  // namespace adacc::v0_1
