// SPDX-License-Identifier: MIT
// The codecs' block algorithms with one mistake each, chosen by argv[1]: the executor reports it.
#include <adacc/adacc.cuh>

#include <cstdio>
#include <cstring>

namespace {

using namespace adacc;
using detail::CudaBlock;
using Codec = Int8Outlier;
constexpr unsigned bits = Codec::bits;
constexpr QuantOptions options = Codec::options;

/// Some phases end without a barrier: those of which `missing` has a bit.
class WithoutBarriers : public CudaBlock {
 public:
  __device__ WithoutBarriers(Storage& storage, unsigned missing)
      : CudaBlock(storage), missing_(missing) {}

  template <class Phase>
  __device__ void each(const Phase& phase) {
    phase(static_cast<int>(threadIdx.x));
    if ((missing_ & 1) == 0) __syncthreads();
    missing_ >>= 1;
  }

 private:
  unsigned missing_;
};

/// The last tile of 64 rows reads what others wrote, without a fence.
class WithoutFences : public CudaBlock {
 public:
  using CudaBlock::CudaBlock;
  __device__ static bool last(std::uint32_t& arrived, std::uint32_t of) {
    return atomicInc(&arrived, of - 1) == of - 1;
  }
};

template <class T>
__global__ void encode_unfenced(const __grid_constant__ detail::QuantJob<T> job) {
  __shared__ typename CudaBlock::Storage storage;
  __shared__ detail::QuantShared shared;
  WithoutFences block(storage);
  detail::quant_encode_part<bits, options>(block, shared, blockIdx.x, job);
}

template <class T>
__global__ void encode(const __grid_constant__ detail::QuantJob<T> job, unsigned missing) {
  __shared__ typename CudaBlock::Storage storage;
  __shared__ detail::QuantShared shared;
  WithoutBarriers block(storage, missing);
  detail::quant_encode_part<bits, options>(block, shared, blockIdx.x, job);
}

/// As if every tile were whole and its rows aligned.
template <class T>
__global__ void encode_as_whole(const __grid_constant__ detail::QuantJob<T> job) {
  __shared__ typename CudaBlock::Storage storage;
  __shared__ detail::QuantShared shared;
  CudaBlock block(storage);
  detail::QuantTile<bits, options, T, CudaBlock, true> tile{block, shared, job};
  tile.set_rows(0);
  detail::quant_clear(tile, true);
  detail::encode_by_part(tile, 0);
}

__global__ void to_bf16(std::size_t n, const float* x, BlobHeader header, std::size_t bytes,
                        std::byte* blob) {
  __shared__ typename CudaBlock::Storage storage;
  CudaBlock block(storage);
  detail::bf16_encode_part(block, blockIdx.x, n, x, header, bytes, blob);
}

int run(const char* mistake, Shape shape) {
  const auto is = [&](const char* name) { return std::strcmp(mistake, name) == 0; };
  const std::size_t n = shape.elems();
  const std::size_t bytes = is("bound")
                                ? Bf16::encoded_bytes(shape.rows(), shape.cols(), Dtype::f32)
                                : Codec::encoded_bytes(shape.rows(), shape.cols(), Dtype::f32);
  void *x = nullptr, *blob = nullptr;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&blob, bytes);
  cudaMemset(x, 0, n * sizeof(float));
  const View<const float> tensor(static_cast<const float*>(x), shape);
  const auto job = detail::quant_job<bits, options>(tensor, static_cast<std::byte*>(blob), {});
  const auto parts = static_cast<unsigned>(detail::quant_encode_parts<options>(job.format));
  if (!is("bound")) detail::quant_prepare_kernel<<<1, CudaBlock::threads>>>(job);
  if (is("none") || is("two_tiles")) encode<<<parts, CudaBlock::threads>>>(job, 0U);
  if (is("fence")) encode_unfenced<<<parts, CudaBlock::threads>>>(job);
  // Between the threads that find extremes and those that make groups of them.
  if (is("barrier")) encode<<<1, CudaBlock::threads>>>(job, 8U);
  if (is("aligned")) encode_as_whole<<<1, CudaBlock::threads>>>(job);
  if (is("bound"))
    to_bf16<<<detail::grid_of(detail::Bf16Parts<float>::count(n + 1, CudaBlock::threads)),
              CudaBlock::threads>>>(n + 1, tensor.data(), BlobHeader{}, bytes,
                                    static_cast<std::byte*>(blob));
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s: %s\n", mistake, cudaGetErrorString(status));
  return status == cudaSuccess ? 0 : 1;
}

}  // namespace

int main(int n, char** arguments) {
  const char* const mistake = n > 1 ? arguments[1] : "none";
  const auto is = [&](const char* name) { return std::strcmp(mistake, name) == 0; };
  const std::size_t cols = is("aligned") ? 258 : is("fence") || is("two_tiles") ? 512 : 256;
  return run(mistake, Shape(64, cols));
}
