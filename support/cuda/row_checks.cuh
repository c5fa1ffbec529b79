// SPDX-License-Identifier: MIT
/// Checks of rows (adapter/torch/check_rows.cuh) outside of an adapter: kernel and arguments, for tests and measurements.
#pragma once

#include <adacc/adapter/torch/check_rows.cuh>
#include <adacc/adapter/torch/encoding_error.hpp>

namespace row_checks {

using adacc::torch::RowCheck;
using adacc::torch::SideRows;

/// As the adapter's kernel.
template <class T>
__global__ void __launch_bounds__(adacc::detail::CudaBlock::threads, 4)
    check_rows_kernel(const __grid_constant__ RowCheck<T> job) {
  adacc::torch::detail::check_rows(job);
}

/// The bytes behind a blob for failed rows.
template <class T>
std::size_t kept_bytes(adacc::Shape shape) {
  return SideRows(shape.rows(), shape.cols() * sizeof(T)).bytes;
}

/// Checks rows of `shape` at `x`, which Codec has encoded to `blob`: each part of `part` columns is within limits for
/// noise, if each row has its scales, and for the mean square. `kept` begins with zeros.
template <class Codec, class T>
void check(const T* x, adacc::Shape shape, const std::byte* blob, std::size_t part, std::byte* kept,
           cudaStream_t stream) {
  RowCheck<T> job{};
  job.x = x, job.blob = blob;
  job.rows = shape.rows(), job.cols = shape.cols(), job.part = part;
  job.scales = adacc::torch::detail::row_scales<Codec, T>(job.rows, job.cols);
  job.limits = {job.scales.shared ? 0 : 0.05, 0, 16};
  job.side = SideRows(job.rows, job.cols * sizeof(T)), job.kept = kept;
  job.exact = reinterpret_cast<const std::uint16_t*>(x), job.words = job.cols * sizeof(T) / 2;
  const std::size_t blocks = adacc::div_up(job.rows, job.scales.rows_at_once());
  job.blocks = static_cast<std::uint32_t>(blocks);
  check_rows_kernel<<<static_cast<unsigned>(blocks), adacc::detail::CudaBlock::threads, 0,
                      stream>>>(job);
}

}  // namespace row_checks
