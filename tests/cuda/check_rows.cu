// SPDX-License-Identifier: MIT
/// The device's half of check_rows_cpu.cpp.
#include <adacc/adapter/torch/check_rows.cuh>

#include <algorithm>

#include "check_rows_cases.hpp"
#include "device_memory.hpp"
#include "on_device.hpp"

namespace {

using adacc::torch::RowCheck;
using adacc::torch::SideRows;

template <class T>
__global__ void check_kernel(const __grid_constant__ RowCheck<T> job) {
  adacc::torch::detail::check_rows(job);
}
__global__ void put_kernel(SideRows side, const std::byte* kept, std::size_t words,
                           std::uint16_t* x) {
  adacc::torch::detail::put_rows(side, kept, words, x);
}

template <class T>
FoundRows found(const CheckedEncoding<T>& encoding) {
  FoundRows found{};
  const std::size_t cols = encoding.cols, words = cols * sizeof(T) / 2;
  const SideRows side(encoding.rows, cols * sizeof(T));
  const Device<T> x(encoding.x);
  const Device<std::byte> kept(side.bytes);
  adacc::torch::RowReport* report = nullptr;
  cudaMallocHost(reinterpret_cast<void**>(&report), sizeof *report);
  *report = {};
  cudaMemset(kept.data, 0, sizeof(SideRows::Header));
  std::uint32_t blocks = 0;
  for (std::size_t first = 0, i = 0; first < encoding.rows; first += encoding.piece, ++i)
    blocks += static_cast<std::uint32_t>(adacc::div_up(
        std::min(encoding.piece, encoding.rows - first), encoding.scales[i].rows_at_once()));
  for (std::size_t first = 0, i = 0; first < encoding.rows; first += encoding.piece, ++i) {
    const Device<std::byte> blob(encoding.blobs[i]);
    RowCheck<T> job{};
    job.x = x.data + first * cols, job.blob = blob.data;
    job.rows = std::min(encoding.piece, encoding.rows - first), job.cols = cols;
    job.part = encoding.part, job.scales = encoding.scales[i], job.limits = encoding.limits;
    job.side = side, job.kept = kept.data;
    job.exact = reinterpret_cast<const std::uint16_t*>(job.x), job.words = words;
    job.first = first, job.blocks = blocks, job.stamp = 7, job.report = report;
    // Fewer blocks than there is work: they loop.
    const auto grid = static_cast<unsigned>(adacc::div_up(job.rows, 2 * job.scales.rows_at_once()));
    check_kernel<<<grid, adacc::detail::CudaBlock::threads>>>(job);
    cudaDeviceSynchronize();
  }
  const Device<T> back(std::vector<T>(encoding.x.size()));
  put_kernel<<<2, adacc::detail::CudaBlock::threads>>>(side, kept.data, words,
                                                       reinterpret_cast<std::uint16_t*>(back.data));
  cudaDeviceSynchronize();
  found.report = *report;
  cudaFreeHost(report);
  const std::size_t count = std::min<std::size_t>(found.report.failed, side.room);
  found.kept.resize(count);
  cudaMemcpy(found.kept.data(), kept.data + sizeof(SideRows::Header), 4 * count,
             cudaMemcpyDeviceToHost);
  std::sort(found.kept.begin(), found.kept.end());
  std::vector<T> expected(encoding.x.size());
  for (const std::uint32_t row : found.kept)
    if (row < encoding.rows)
      std::copy_n(encoding.x.begin() + row * cols, cols, expected.begin() + row * cols);
  found.exact = std::memcmp(expected.data(), back.list().data(), expected.size() * sizeof(T)) == 0;
  return found;
}

}  // namespace

FoundRows found_on_device(const CheckedEncoding<float>& encoding) { return found(encoding); }
FoundRows found_on_device(const CheckedEncoding<adacc::bfloat16>& encoding) {
  return found(encoding);
}
