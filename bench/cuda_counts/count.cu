// SPDX-License-Identifier: MIT
/// Runs the kernels of codecs on the executor and takes what it counted.
#include <support/cuda/codecs.cuh>

#include "counted.hpp"
#include "numbers.hpp"
#include "ok.cuh"

namespace cuda_counts {
namespace {

using namespace adacc;
using namespace codec_cases;

template <class Codec, class T>
void count_both_ways(bool outliers, std::vector<Counted>& all) {
  const std::vector<T> x = numbers<T>(outliers);
  const std::size_t tensor_bytes = x.size() * sizeof(T);
  const std::size_t blob_bytes =
      Codec::encoded_bytes(counted_shape.rows(), counted_shape.cols(), dtype_of<T>);
  void *device_x = nullptr, *device_blob = nullptr;
  ok(cudaMalloc(&device_x, tensor_bytes));
  ok(cudaMalloc(&device_blob, blob_bytes));
  ok(cudaMemcpy(device_x, x.data(), tensor_bytes, cudaMemcpyHostToDevice));
  Cuda cuda(nullptr);
  const View<T> tensor(static_cast<T*>(device_x), counted_shape);
  const Bytes blob(static_cast<std::byte*>(device_blob), Shape(blob_bytes));
  const auto take = [&](bool encode) {
    ok(cudaDeviceSynchronize());
    all.push_back({Codec::name, name_of(dtype_of<T>), encode ? "encode" : "decode",
                   outliers ? "outliers" : "clean", x.size(), tensor_bytes + blob_bytes,
                   ptxrun::counts()});
  };
  using Kernel = codec_kernel<Codec, Cuda>;
  ptxrun::clear_counts();
  ok(Kernel::template encode<T>(cuda, View<const T>(tensor), blob));
  take(true);
  ptxrun::clear_counts();
  ok(Kernel::template decode<T>(cuda, blob, tensor));
  take(false);
  ok(cudaFree(device_x));
  ok(cudaFree(device_blob));
}

/// Clean numbers, and for what keeps outliers also those that have some.
template <class... Case>
void count_cases(Cases<Case...>, bool outliers, std::vector<Counted>& all) {
  for (int with = 0; with <= (outliers ? 1 : 0); ++with)
    (
        [&] {
          count_both_ways<typename Case::Codec, float>(with != 0, all);
          count_both_ways<typename Case::Codec, bfloat16>(with != 0, all);
        }(),
        ...);
}

}  // namespace

void count_codecs(std::vector<Counted>& all) {
  count_cases(Cases<Int8Default, Int8Symmetric, Int8Stochastic, Int8Group32, Int8Group128,
                    Int8Channels, Int8Rows>{},
              true, all);
  count_cases(Cases<Int8NoOutliers>{}, false, all);
  count_cases(Cases<Int4Default, Int4Symmetric, Int4Stochastic, Int4Group32, Int4Group128,
                    Int4Channels, Int4Rows>{},
              true, all);
  count_cases(Cases<Int4NoOutliers>{}, false, all);
  count_cases(Cases<codec_cases::Bf16, Mask, Index4, Index11>{}, false, all);
}

}  // namespace cuda_counts
