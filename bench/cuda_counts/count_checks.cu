// SPDX-License-Identifier: MIT
/// Runs an adapter's check of encoded rows (adapter/torch/check_rows.cuh) on the executor, and takes the
/// counts: with scales shared by rows, with scales of single rows, and with limits for parts of rows.
#include <adacc/codec/int8_outlier.cuh>

#include <support/cuda/row_checks.cuh>

#include "counted.hpp"
#include "numbers.hpp"
#include "ok.cuh"

namespace cuda_counts {
namespace {

using namespace adacc;

/// Rows under Codec, each part of `part` columns with limits of its own.
template <class Codec, class T>
void count_check(const char* name, std::size_t part, std::vector<Counted>& all) {
  constexpr Shape shape = counted_shape;
  const std::vector<T> x = numbers<T>(/*outliers=*/false);
  const std::size_t bytes = x.size() * sizeof(T),
                    blob_bytes = Codec::encoded_bytes(shape.rows(), shape.cols(), dtype_of<T>);
  const std::size_t kept_bytes = row_checks::kept_bytes<T>(shape);
  void *device_x = nullptr, *blob = nullptr, *kept = nullptr;
  ok(cudaMalloc(&device_x, bytes));
  ok(cudaMalloc(&blob, blob_bytes));
  ok(cudaMalloc(&kept, kept_bytes));
  ok(cudaMemcpy(device_x, x.data(), bytes, cudaMemcpyHostToDevice));
  ok(cudaMemset(kept, 0, kept_bytes));
  Cuda cuda(nullptr);
  ok(codec_kernel<Codec, Cuda>::template encode<T>(
      cuda, View<const T>(static_cast<T*>(device_x), shape),
      Bytes(static_cast<std::byte*>(blob), Shape(blob_bytes))));
  ok(cudaDeviceSynchronize());
  ptxrun::clear_counts();
  row_checks::check<Codec>(static_cast<const T*>(device_x), shape, static_cast<std::byte*>(blob),
                           part, static_cast<std::byte*>(kept), nullptr);
  ok(cudaDeviceSynchronize());
  all.push_back({name, name_of(dtype_of<T>), "check", "clean", x.size(), bytes, ptxrun::counts()});
  ok(cudaFree(device_x));
  ok(cudaFree(blob));
  ok(cudaFree(kept));
}

}  // namespace

void count_checks(std::vector<Counted>& all) {
  using Rows = Int8Outlier::for_unlike_rows;
  count_check<Int8Outlier, float>("int8_outlier", 1024, all);
  count_check<Int8Outlier, bfloat16>("int8_outlier", 1024, all);
  count_check<Rows, float>("int8_outlier_group64", 1024, all);
  count_check<Rows, bfloat16>("int8_outlier_group64", 1024, all);
  count_check<Rows, float>("int8_outlier_group64_parts64", 64, all);
  count_check<Rows, bfloat16>("int8_outlier_group64_parts64", 64, all);
}

}  // namespace cuda_counts
