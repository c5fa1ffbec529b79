// SPDX-License-Identifier: MIT
/// The codec behind Int8Outlier and Int4Outlier on a CUDA device: the same bytes as codec.hpp makes on the host.
#pragma once

#include "../../core/cuda.cuh"
#include "../codec.hpp"
#include "../thread_block.cuh"
#include "block/decode.hpp"
#include "block/encode.hpp"
#include "block/judge.hpp"
#include "codec.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
static __global__ void __launch_bounds__(CudaBlock::threads) quant_prepare_kernel(QuantJob<T> job) {
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  const std::size_t parts = div_up(16 * job.format.blocks(), CudaBlock::threads);
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    quant_prepare(block, part, job);
}

/// Encoding blocks that an SM shall hold: they have so many registers that none is spilled.
ADACC_HD constexpr int encode_blocks(const QuantOptions& o) {
  return o.group == 0 && o.rounding == Rounding::nearest ? 3 : 2;
}

template <unsigned Bits, std::uint64_t Options, class T>
static __global__ void __launch_bounds__(CudaBlock::threads,
                                         encode_blocks(unpacked_options(Options)))
    quant_encode_kernel(const __grid_constant__ QuantJob<T> job) {
  constexpr QuantOptions options = unpacked_options(Options);
  __shared__ typename CudaBlock::Storage storage;
  __shared__ QuantShared shared;
  CudaBlock block(storage);
  const std::size_t parts = quant_encode_parts<options>(job.format);
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    quant_encode_part<Bits, options>(block, shared, part, job);
}

template <unsigned Bits, std::uint64_t Options, class T>
static __global__ void __launch_bounds__(CudaBlock::threads, sizeof(T) == 2 ? 2 : 3)
    quant_decode_kernel(const __grid_constant__ QuantJob<T> job, const std::byte* __restrict__ blob,
                        T* __restrict__ x) {
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  const std::size_t parts = job.format.blocks() * job.format.whole.tiles;
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    quant_decode_tile<Bits, unpacked_options(Options)>(block, part, job, blob, x);
}

template <unsigned Bits, std::uint64_t Options, class T>
static __global__ void __launch_bounds__(CudaBlock::threads)
    quant_judge_kernel(const __grid_constant__ QuantJob<T> job, const std::byte* blob, double bound,
                       RowErrors* errors) {
  __shared__ typename CudaBlock::Storage storage;
  __shared__ QuantJudgement shared;
  CudaBlock block(storage);
  for (std::size_t i = blockIdx.x; i < job.format.blocks(); i += gridDim.x)
    quant_judge_rows<Bits, unpacked_options(Options)>(block, shared, i, job, blob, bound, errors);
}

}  // namespace detail

/// Reports errors of arguments and of the launch. A blob of another codec or shape decodes to NaN: the host does not
/// read blobs.
template <unsigned Bits, std::uint64_t Packed>
struct ADACC_ONE_LIBRARY codec_kernel<PackedQuantCodec<Bits, Packed>, Cuda> {
  using Codec = PackedQuantCodec<Bits, Packed>;

  template <class T>
  static Error encode(Cuda& cuda, View<const T> x, Bytes blob);
  template <class T>
  static Error decode(Cuda& cuda, ConstBytes blob, View<T> x);

  /// Queues the judgement of an encode: errors[i] becomes the host codec's row_errors() of block i of 64 rows.
  template <class T>
  static Error queue_row_errors(Cuda& cuda, View<const T> x, ConstBytes blob, RowErrors* errors);

 private:
  static constexpr int threads = detail::CudaBlock::threads;
  static constexpr QuantOptions O = Codec::options;

  template <class T>
  static detail::QuantJob<T> job_of(View<const T> x, std::byte* blob, const RandomKey& key) {
    return detail::quant_job<Bits, O>(x, blob, key);
  }
};

// Outside of the class, so a program may compile them once (`extern template`).
template <unsigned Bits, std::uint64_t Packed>
template <class T>
Error codec_kernel<PackedQuantCodec<Bits, Packed>, Cuda>::encode(Cuda& cuda, View<const T> x,
                                                                 Bytes blob) {
  const std::size_t bytes = Codec::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
  if (Error error = detail::check_spans(Codec::name, x, blob, bytes)) return error;
  if (Error error = detail::codec_memory_fault(cuda, Codec::name, x, blob.data(), bytes))
    return error;
  const detail::QuantJob<T> job = job_of(x, blob.data(), cuda.key);
  if (detail::quant_shares_headers<O>(job.format)) {
    const unsigned grid = detail::grid_of(div_up(16 * job.format.blocks(), threads));
    if (Error error = detail::launch(Codec::name, {grid, threads, cuda.stream()},
                                     &detail::quant_prepare_kernel<T>, job))
      return error;
  }
  const std::size_t parts = detail::quant_encode_parts<O>(job.format);
  return detail::launch(Codec::name, {detail::grid_of(parts), threads, cuda.stream()},
                        &detail::quant_encode_kernel<Bits, Packed, T>, job);
}

template <unsigned Bits, std::uint64_t Packed>
template <class T>
Error codec_kernel<PackedQuantCodec<Bits, Packed>, Cuda>::decode(Cuda& cuda, ConstBytes blob,
                                                                 View<T> x) {
  const std::size_t bytes = Codec::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
  if (Error error = detail::check_spans(Codec::name, x, blob, bytes)) return error;
  if (Error error = detail::codec_memory_fault(cuda, Codec::name, x, blob.data(), bytes))
    return error;
  const detail::QuantJob<T> job = job_of(View<const T>(x), nullptr, cuda.key);
  const std::size_t parts = job.format.blocks() * job.format.whole.tiles;
  return detail::launch(Codec::name, {detail::grid_of(parts), threads, cuda.stream()},
                        &detail::quant_decode_kernel<Bits, Packed, T>, job, blob.data(), x.data());
}

template <unsigned Bits, std::uint64_t Packed>
template <class T>
Error codec_kernel<PackedQuantCodec<Bits, Packed>, Cuda>::queue_row_errors(Cuda& cuda,
                                                                           View<const T> x,
                                                                           ConstBytes blob,
                                                                           RowErrors* errors) {
  const std::size_t bytes = Codec::encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
  if (Error error = detail::check_spans(Codec::name, x, blob, bytes)) return error;
  if (Error error = detail::codec_memory_fault(cuda, Codec::name, x, blob.data(), bytes))
    return error;
  const detail::QuantJob<T> job = job_of(x, nullptr, cuda.key);
  return detail::launch(Codec::name, {detail::grid_of(job.format.blocks()), threads, cuda.stream()},
                        &detail::quant_judge_kernel<Bits, Packed, T>, job, blob.data(),
                        Codec::row_bound, errors);
}

}}  // namespace adacc::v0_1
