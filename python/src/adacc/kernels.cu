// SPDX-License-Identifier: MIT
// The codecs' kernels for CUDA tensors, with names of C: cuda_kernels.hpp loads and launches them by the driver.
//
//     nvcc -std=c++20 -Iinclude -fatbin -arch=compute_80 -code=compute_80,sm_80,sm_90 python/src/adacc/kernels.cu -o kernels.fatbin
#include <cuda_fp16.h>

#include <adacc/adapter/torch/check_rows.cuh>
#include <adacc/adapter/torch/signs.hpp>
#include <adacc/codec/bf16.cuh>
#include <adacc/codec/bit_groups_block.hpp>
#include <adacc/codec/int4_outlier.cuh>
#include <adacc/codec/int8_outlier.cuh>

using namespace adacc;

#define JOINED_(a, b, c, name) adacc_##a##_##b##_##c##_##name
#define JOINED(a, b, c, name) JOINED_(a, b, c, name)
// Kernels of another version of adacc, whose arguments may differ, have other names.
#define KERNEL(name)                                            \
  __global__ void __launch_bounds__(detail::CudaBlock::threads) \
      JOINED(ADACC_VERSION_MAJOR, ADACC_VERSION_MINOR, ADACC_VERSION_PATCH, name)
#define KERNEL_OF(name, blocks)                                         \
  __global__ void __launch_bounds__(detail::CudaBlock::threads, blocks) \
      JOINED(ADACC_VERSION_MAJOR, ADACC_VERSION_MINOR, ADACC_VERSION_PATCH, name)

namespace {

using Int8Gates = Int8OutlierWith<Int8Options{.positive = true}>;
using Int4Gates = Int4OutlierWith<Int4Options{.positive = true}>;
static_assert(detail::CudaBlock::threads == 256, "device_codec.hpp has this number, too");

/// Rows are checked next: none has failed so far.
__device__ void clear(std::byte* kept) {
  if (kept != nullptr && blockIdx.x == 0 && threadIdx.x == 0)
    *reinterpret_cast<torch::SideRows::Header*>(kept) = {};
}
template <class Codec, class T>
__device__ void encode(const detail::QuantJob<T>& job, std::byte* kept) {
  clear(kept);
  constexpr QuantOptions options = Codec::options;
  __shared__ detail::CudaBlock::Storage storage;
  __shared__ detail::QuantShared shared;
  detail::CudaBlock block(storage);
  const std::size_t parts = detail::quant_encode_parts<options>(job.format);
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    detail::quant_encode_part<Codec::bits, options>(block, shared, part, job);
}
template <class Codec, class T>
__device__ void decode(const detail::QuantJob<T>& job, const std::byte* __restrict__ blob,
                       T* __restrict__ x) {
  __shared__ detail::CudaBlock::Storage storage;
  detail::CudaBlock block(storage);
  const std::size_t parts = job.format.blocks() * job.format.whole.tiles;
  for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)
    detail::quant_decode_tile<Codec::bits, Codec::options>(block, part, job, blob, x);
}

/// Calls body(i) for all i below n, each once.
template <class Body>
__device__ void for_all(std::size_t n, const Body& body) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x)
    body(i);
}

}  // namespace

#define QUANT(name, Codec, T, suffix)                                                      \
  extern "C" KERNEL_OF(name##_encode_##suffix, detail::encode_blocks(Codec::options))(     \
      const __grid_constant__ detail::QuantJob<T> job, std::byte* kept) {                  \
    encode<Codec>(job, kept);                                                              \
  }                                                                                        \
  extern "C" KERNEL_OF(name##_decode_##suffix, sizeof(T) == 2 ? 2 : 3)(                    \
      const __grid_constant__ detail::QuantJob<T> job, const std::byte* __restrict__ blob, \
      T* __restrict__ x) {                                                                 \
    decode<Codec>(job, blob, x);                                                           \
  }

#define SIGNS(name, Codec, T, suffix)                                                          \
  extern "C" KERNEL(name##_encode_##suffix)(                                                   \
      std::size_t n, const T* __restrict__ x, const __grid_constant__ BlobHeader header,       \
      std::size_t, std::byte* __restrict__ blob, std::byte*) {                                 \
    using Parts = detail::BitParts<Codec::Element::bits, T, detail::CudaBlock::threads>;       \
    __shared__ detail::CudaBlock::Storage storage;                                             \
    __shared__ typename Parts::Shared shared;                                                  \
    detail::CudaBlock block(storage);                                                          \
    for (std::size_t part = blockIdx.x; part < Parts::count(n); part += gridDim.x)             \
      detail::bit_groups_encode_part<Codec::Element>(block, shared, part, n, x, header, blob); \
  }                                                                                            \
  extern "C" KERNEL(name##_decode_##suffix)(                                                   \
      std::size_t n, const __grid_constant__ BlobHeader header,                                \
      const std::byte* __restrict__ blob, T* __restrict__ x) {                                 \
    using Parts = detail::BitParts<Codec::Element::bits, T, detail::CudaBlock::threads>;       \
    __shared__ detail::CudaBlock::Storage storage;                                             \
    detail::CudaBlock block(storage);                                                          \
    for (std::size_t part = blockIdx.x; part < Parts::count(n); part += gridDim.x)             \
      detail::bit_groups_decode_part<Codec::Element>(block, part, n, header, blob, x);         \
  }

#define ALL_OF(T, suffix)                                                                          \
  extern "C" KERNEL(prepare_##suffix)(detail::QuantJob<T> job) {                                   \
    __shared__ detail::CudaBlock::Storage storage;                                                 \
    detail::CudaBlock block(storage);                                                              \
    const std::size_t parts =                                                                      \
        div_up(16 * job.format.blocks(), std::size_t{detail::CudaBlock::threads});                 \
    for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)                           \
      detail::quant_prepare(block, part, job);                                                     \
  }                                                                                                \
  QUANT(int8, Int8Outlier, T, suffix)                                                              \
  QUANT(int4, Int4Outlier, T, suffix)                                                              \
  QUANT(int8_gates, Int8Gates, T, suffix)                                                          \
  QUANT(int4_gates, Int4Gates, T, suffix)                                                          \
  QUANT(int8_rows, Int8Outlier::for_unlike_rows, T, suffix)                                        \
  QUANT(int4_rows, Int4Outlier::for_unlike_rows, T, suffix)                                        \
  QUANT(int8_rows_gates, Int8Gates::for_unlike_rows, T, suffix)                                    \
  QUANT(int4_rows_gates, Int4Gates::for_unlike_rows, T, suffix)                                    \
  extern "C" KERNEL(bf16_encode_##suffix)(                                                         \
      std::size_t n, const T* __restrict__ x, const __grid_constant__ BlobHeader header,           \
      std::size_t bytes, std::byte* __restrict__ blob, std::byte* kept) {                          \
    clear(kept);                                                                                   \
    __shared__ detail::CudaBlock::Storage storage;                                                 \
    detail::CudaBlock block(storage);                                                              \
    const std::size_t parts = detail::Bf16Parts<T>::count(n, detail::CudaBlock::threads);          \
    for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)                           \
      detail::bf16_encode_part(block, part, n, x, header, bytes, blob);                            \
  }                                                                                                \
  extern "C" KERNEL(bf16_decode_##suffix)(std::size_t n,                                           \
                                          const __grid_constant__ BlobHeader header,               \
                                          const std::byte* __restrict__ blob, T* __restrict__ x) { \
    __shared__ detail::CudaBlock::Storage storage;                                                 \
    detail::CudaBlock block(storage);                                                              \
    const std::size_t parts = detail::Bf16Parts<T>::count(n, detail::CudaBlock::threads);          \
    for (std::size_t part = blockIdx.x; part < parts; part += gridDim.x)                           \
      detail::bf16_decode_part(block, part, n, header, blob, x);                                   \
  }                                                                                                \
  SIGNS(relu_signs, torch::ReluSigns, T, suffix)                                                   \
  SIGNS(leaky_relu_signs, torch::LeakyReluSigns, T, suffix)                                        \
  extern "C" KERNEL_OF(check_rows_##suffix, 4)(const __grid_constant__ torch::RowCheck<T> job) {   \
    torch::detail::check_rows(job);                                                                \
  }

ALL_OF(float, f32)
ALL_OF(bfloat16, bf16)

// Elements of libtorch's booleans as bits, and back: the first of a byte is the lowest.
extern "C" KERNEL(pack_bits)(std::size_t n, const std::uint8_t* __restrict__ x,
                             std::uint8_t* __restrict__ to) {
  for_all(div_up(n, std::size_t{8}), [&](std::size_t byte) {
    unsigned bits = 0;
    for (std::size_t i = 8 * byte; i < n && i < 8 * byte + 8; ++i)
      bits |= (x[i] != 0 ? 1U : 0U) << (i % 8);
    to[byte] = static_cast<std::uint8_t>(bits);
  });
}
extern "C" KERNEL(unpack_bits)(std::size_t n, const std::uint8_t* __restrict__ from,
                               std::uint8_t* __restrict__ x) {
  for_all(n, [&](std::size_t i) { x[i] = static_cast<std::uint8_t>(from[i / 8] >> (i % 8) & 1U); });
}

// Half precision passes through floats. A codec may round numbers above the largest half: they stay finite.
extern "C" KERNEL(half_to_float)(std::size_t n, const __half* __restrict__ from,
                                 float* __restrict__ to) {
  for_all(n, [&](std::size_t i) { to[i] = __half2float(from[i]); });
}
extern "C" KERNEL(float_to_half)(std::size_t n, const float* __restrict__ from,
                                 __half* __restrict__ to) {
  constexpr float largest = 65504;
  for_all(n, [&](std::size_t i) {
    const float x = from[i];
    to[i] = __float2half_rn(isfinite(x) ? fminf(fmaxf(x, -largest), largest) : x);
  });
}

// Puts exact rows into a decoded storage.
extern "C" KERNEL(put_rows)(torch::SideRows side, const std::byte* __restrict__ kept,
                            std::size_t words, std::uint16_t* __restrict__ x) {
  torch::detail::put_rows(side, kept, words, x);
}
